-- Models of many kinds as files: the loaded one goes on with the bits of the one
-- that was saved, the text of its step and what the simulated system says of it are
-- the same.
local bench = require("spec.bench.compile")
local control = require("lupine.control")
local core = require("lupine.core")
local models = require("spec.support.model_kinds")
local nn = require("torch.nn")
local own = require("poptorch.executor.own")
local poptorch = require("poptorch")
local simulation = require("poptorch.simulation")
local rules = require("poptorch.options.rules")
local torch = require("torch")

local path = os.tmpname()

teardown(function()
  os.remove(path)
end)

local function step_of(executor)
  return own.state(executor).session.exec:step()
end

-- The step's text is read as what it was written from, and a plan of that says the
-- same.
local function check_text(executor)
  local step = step_of(executor)
  local text = step:text("step")
  local read = core.step_parse(text)
  assert.is_true(read:text("step") == text)
  assert.is_true(read:text("key") == step:text("key"))
  local s = own.state(executor)
  local plan = core.plan(read, simulation.settings(s.options, rules.target(s.options)))
  assert.is_true(plan:json() == executor:report().plan:json())
end

local function call(executor, args)
  return table.pack(executor(table.unpack(args, 1, args.n)))
end

-- Two calls, save, load: the third call of both.
local function check(executor, args)
  call(executor, args)
  call(executor, args)
  check_text(executor)
  executor:save(path)
  local loaded = poptorch.load(path)
  local want, got = call(executor, args), call(loaded, args)
  for i = 1, want.n do
    assert.is_true(torch.equal(want[i], got[i]), "result " .. i)
  end
  local states = loaded.model:state_dict()
  for name, value in pairs(executor.model:state_dict()) do
    assert.is_true(torch.equal(value, states[name]), name)
  end
  assert.is_true(step_of(executor):text("step") == step_of(loaded):text("step"))
  assert.is_true(executor:report():json() == loaded:report():json())
  executor:destroy()
  loaded:destroy()
end

local OPTIMIZERS = { "SGD", "Adam", "AdamW", "RMSprop" }

local count = 0
for name, model in pairs(models) do
  count = count + 1
  local kind = OPTIMIZERS[count % #OPTIMIZERS + 1]
  it(("%s goes on after a file"):format(name), function()
    torch.manual_seed(11)
    local net = model[1]()
    check(poptorch.trainingModel(net, nil, torch.optim[kind](net:parameters(), { lr = 0.01 })),
      table.pack(model[2]()))
  end)
end

describe("what a file has of", function()
  local Looped = nn.Module:extend("LoopedNet")

  function Looped:init()
    self.fc, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)
  end

  function Looped:forward(x, y)
    local out = control.loop(3, function(v)
      return self.drop(self.fc(v)):tanh()
    end, { x })[1]
    out = control.branch(out:sum():gt(0), function(v)
      return v * 2
    end, { out }, function(v)
      return v / 3
    end, { out })[1]
    return out, nn.functional.mse_loss(out, y)
  end

  it("loops and branches, with their gradients", function()
    local net = Looped()
    check(poptorch.trainingModel(net, nil, poptorch.optim.Adam(net:parameters(), { lr = 0.1 })),
      table.pack(torch.randn({ 2, 3 }), torch.randn({ 2, 3 })))
  end)

  local Blocks = nn.Module:extend("BlocksNet")

  function Blocks:init()
    self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)
    self.loss = nn.MSELoss()
  end

  function Blocks:forward(x, y)
    local out = poptorch.Block("a", { ipu_id = 0 }, function()
      return self.a(x):relu()
    end)
    return poptorch.Block("b", { ipu_id = 1 }, function()
      local last = self.b(out)
      return last, self.loss(last, y)
    end)
  end

  local function blocks(opts, optimizer)
    local net = Blocks()
    check(poptorch.trainingModel(net, opts, optimizer(net:parameters())),
      table.pack(torch.randn({ 24, 3 }), torch.randn({ 24, 2 })))
  end

  it("replicas, accumulation, stages, phases, stochastic rounding", function()
    local function lamb(p)
      return poptorch.optim.LAMB(p, { lr = 0.01 })
    end
    local opts = poptorch.Options():replicationFactor(2):deviceIterations(2)
    opts.Training:gradientAccumulation(3)
    opts.TensorLocations:setOptimizerLocation(poptorch.TensorLocationSettings()
      :useReplicatedTensorSharding(true):minElementsForReplicatedTensorSharding(2))
    blocks(opts, lamb)
    opts = poptorch.Options():setExecutionStrategy(poptorch.SerialPhasedExecution(
      poptorch.Phase("a"), poptorch.Phase("b")))
    blocks(opts, lamb)
    opts = poptorch.Options():setExecutionStrategy(poptorch.ShardedExecution())
    opts.Precision:enableStochasticRounding(true)
    blocks(opts, function(p)
      return poptorch.optim.SGD(p, { lr = 0.1, momentum = 0.9, use_combined_accum = true })
    end)
  end)

  it("a network of 18 residual layers", function()
    local _, executor = bench.resnet18()
    check_text(executor)
    executor:destroy()
  end)
end)
