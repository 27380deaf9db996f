--- Ctrl-C while a compiled program runs.
local program = require("spec.support.program")

local HEAD = [[
local torch, poptorch = require("torch"), require("poptorch")
local nn = torch.nn
io.stdout:setvbuf("line")
local Net = nn.Module:extend("Net")
function Net:init()
  self.w = nn.Parameter(torch.zeros(1))
  self.fc = nn.Linear(64, 64)
  self:register_buffer("count", torch.zeros(1))
end
function Net:forward(x)
  self.count:add_(1)
  local y = self.fc(x:expand(1, 64)):tanh()
  return poptorch.identity_loss(self.w + y:sum() * 0, "sum")
end
local net = Net()
local N = 1000000
local model = poptorch.trainingModel(net, poptorch.Options():deviceIterations(N),
  poptorch.optim.SGD({ net.w }, { lr = 1.0 }))
local x = torch.zeros(N, 1)
]]

describe("an interrupted call", function()
  it("stops between device iterations, says how many finished, and leaves their results", function()
    local out, err = program.interrupted(HEAD .. [[
      model:compile(x)
      print("running")
      local ok, e = pcall(model, x)
      print(ok, torch.errors.KeyboardInterrupt:is(e))
      local done = tonumber(tostring(e.location):match("(%d+) of 1000000 device iterations"))
      print(done and done > 0 and done < N)
      print(net.w:item() == -done, net.count:item() == done)
    ]])
    assert.equal("running\nfalse\ttrue\ntrue\ntrue\ttrue\n", out, err)
  end)
end)
