--- Sequences of what scripts do with a wrapped model and its weights, drawn at random:
--- whatever they do, the weights are those of a plain loop on the host.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Net = nn.Module:extend("Net")

function Net:init()
  self.a, self.bn = nn.Linear(3, 4, { bias = false }), nn.BatchNorm1d(4)
  self.b = nn.Linear(4, 2)
end

function Net:forward(x, target)
  local y = self.b(self.bn(self.a(x)):relu())
  return y, target and nn.functional.mse_loss(y, target) or nil
end

local OPTIMIZERS = {
  function(net)
    return torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
  end,
  function(net)
    return torch.optim.Adam(net:parameters(), { lr = 0.01 })
  end,
}

-- What is compared differs by rounding of many steps.
local function near(got, want)
  helper.near(got, want, { 3e-4, 1e-3 })
end

-- A model, wrapped, and its twin on the host.
local function pair(seed)
  torch.manual_seed(seed)
  local s = { net = Net(), twin = Net() }
  s.twin:load_state_dict(s.net:state_dict())
  local make = OPTIMIZERS[seed % #OPTIMIZERS + 1]
  s.optimizer, s.plain = make(s.net), make(s.twin)
  s.model = poptorch.trainingModel(s.net, nil, s.optimizer)
  return s
end

local function attached(s)
  return s.model:isCompiled() and s.model:isAttachedToDevice()
end

local function to_device(s)
  if attached(s) then
    s.model:copyWeightsToDevice()
  end
end

local function compare(s, got)
  for name, value in pairs(s.twin:state_dict()) do
    near(got[name], value)
  end
end

local DO = {}

function DO.step(s)
  local x, target = torch.randn(8, 3), torch.randn(8, 2)
  local _, loss = s.model(x, target)
  s.plain:zero_grad()
  local _, want = s.twin(x, target)
  want:backward()
  s.plain:step()
  near(loss, want:detach())
end

function DO.read(s)
  near(s.net.a.weight:detach(), s.twin.a.weight:detach())
end

function DO.state_dict(s)
  compare(s, s.net:state_dict())
end

function DO.state_dict_of_model(s)
  compare(s, s.model:state_dict())
end

function DO.copy_to_host(s)
  if attached(s) then
    s.model:copyWeightsToHost()
  end
end

function DO.write(s)
  torch.no_grad(function()
    for _, net in ipairs({ s.net, s.twin }) do
      net.a.weight:mul_(0.7)
      net.b.bias:add_(0.1)
    end
  end)
  to_device(s)
end

function DO.assign(s)
  local w = torch.randn(2, 4)
  s.net.b.weight.data, s.twin.b.weight.data = w:clone(), w:clone()
  to_device(s)
end

function DO.load(s)
  local state = {}
  for name, value in pairs(s.twin:state_dict()) do
    state[name] = value:clone()
  end
  state["b.bias"] = torch.randn(2)
  s.model:load_state_dict(state)
  s.twin:load_state_dict(state)
end

function DO.checkpoint(s)
  local path = os.tmpname()
  torch.save({ net = s.net:state_dict(), optimizer = s.optimizer:state_dict() }, path)
  local stored = torch.load(path)
  os.remove(path)
  s.net:load_state_dict(stored.net)
  s.optimizer:load_state_dict(stored.optimizer)
  to_device(s)
  s.model:setOptimizer(s.optimizer)
end

function DO.detach(s)
  if attached(s) then
    s.model:detachFromDevice()
  end
end

function DO.attach(s)
  if s.model:isCompiled() and not s.model:isAttachedToDevice() then
    s.model:attachToDevice()
  end
end

function DO.destroy(s)
  s.model:destroy()
end

function DO.wrap_again(s)
  if s.model:isCompiled() then
    s.model:destroy()
    s.model = poptorch.trainingModel(s.net, nil, s.optimizer)
  end
end

function DO.inference(s)
  if not s.inference then
    s.net:eval()
    s.inference = poptorch.inferenceModel(s.net)
    s.net:train()
  end
  local x = torch.randn(5, 3)
  s.twin:eval()
  near(s.inference(x), s.twin(x):detach())
  s.twin:train()
end

function DO.forget_inference(s)
  if s.inference then
    s.inference:destroy()
    s.inference = nil
    collectgarbage()
  end
end

function DO.deepcopy(s)
  compare(s, s.net:deepcopy():state_dict())
end

local NAMES = {}
for name in pairs(DO) do
  NAMES[#NAMES + 1] = name
end
table.sort(NAMES)

describe("what scripts do with a wrapped model", function()
  it("leaves it the weights of a plain loop", function()
    for seed = 1, 24 do
      math.randomseed(seed)
      local s, trail = pair(seed), {}
      for i = 1, 40 do
        trail[i] = math.random() < 0.35 and "step" or NAMES[math.random(#NAMES)]
        local ok, e = pcall(DO[trail[i]], s)
        assert(ok, ("seed %d, %s: %s"):format(seed, table.concat(trail, " "), tostring(e)))
      end
      compare(s, s.net:state_dict())
      s.model:destroy()
      DO.forget_inference(s)
    end
  end)
end)
