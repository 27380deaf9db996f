--- One object of each documented class, for the fields that objects alone have.
local errors = require("lupine.base.errors")
local popart_options = require("popart.options")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local Net = nn.Module:extend("Net")

function Net:init()
  self.W = nn.Parameter(torch.ones({ 2, 2 }))
end

function Net:forward(x)
  return x:matmul(self.W)
end


local net = Net()
local set = torch.utils.data.TensorDataset(torch.ones({ 4, 2 }))

local M = {
  ["torch.Tensor"] = torch.ones({ 1 }),
  ["torch.nn.Module"] = net,
  ["torch.nn.Parameter"] = net.W,
  ["torch.optim.Optimizer"] = torch.optim.SGD({ net.W }, 0.1),
  ["poptorch.Options"] = poptorch.Options(),
  ["popart.SessionOptions"] = popart_options.SessionOptions(),
  ["poptorch.PoplarExecutor"] = poptorch.inferenceModel(net),
  ["poptorch.Stage"] = poptorch.Stage("A"),
  ["poptorch.DataLoader"] = poptorch.DataLoader(poptorch.Options(), set),
  ["poptorch.autocasting.Policy"] = poptorch.autocasting.Policy({}, {}, {}, {}),
  ["poptorch.Error"] = errors.new("Error", "type", "message", "location"),
  ["poptorch.RecoverableError"] = errors.new("RecoverableError", "type", "message", "location",
    "IPU_RESET"),
}
for _, name in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", "LAMB" }) do
  M["poptorch.optim." .. name] = poptorch.optim[name]({ net.W }, { lr = 0.1 })
end
for name, group in pairs({ Distributed = "", Jit = "", Precision = "", TensorLocations = "",
  Training = "" }) do
  M["poptorch.Options." .. name .. group] = M["poptorch.Options"][name]
  M[("poptorch.options._%sOptions"):format(name)] = M["poptorch.Options"][name]
end

return M
