--- Every strategy x 1, 2, 4, 8 IPUs x 1, 2, 4 replicas x gradient accumulation 1,
--- 2P - 1, 16: what is legal trains as one IPU does, what is not is an error. A
--- sample of it, and all of it where slow specs run (make check-full).
local errors = require("lupine.base.errors")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local LAYERS, WIDTH, ROWS, UPDATES = 8, 6, 2, 3
local STRATEGIES = { "Pipelined", "Sharded", "SerialPhased", "ParallelPhased" }

local Net = nn.Module:extend("Net")

function Net:init()
  self.layers = nn.ModuleList()
  for _ = 1, LAYERS do
    self.layers:append(nn.Linear(WIDTH, WIDTH))
  end
  self.loss = nn.MSELoss()
end

-- Blocks "0", "1", ... of as many layers each.
function Net:forward(x, target)
  for i = 1, LAYERS do
    local _ <close> = poptorch.Block(tostring((i - 1) * self.ipus // LAYERS))
    x = self.layers[i](x):tanh()
    if i == LAYERS then
      return x, self.loss(x, target)
    end
  end
end

-- One stage, or phase, an IPU.
local function strategy(kind, ipus)
  local stages = {}
  for i = 1, ipus do
    stages[i] = poptorch.Stage(tostring(i - 1)):ipu(i - 1)
    if kind:find("Phased") then
      stages[i] = poptorch.Phase(stages[i])
    end
  end
  return poptorch[kind .. "Execution"](table.unpack(stages))
end

-- The weights after some updates with as many rows each, and the report.
local function train(kind, ipus, replicas, accumulation)
  torch.manual_seed(3)
  local net = Net()
  net.ipus = ipus
  local options = poptorch.Options():setExecutionStrategy(strategy(kind, ipus))
    :deviceIterations(UPDATES):replicationFactor(replicas)
  options.Training:gradientAccumulation(accumulation)
  local trainer = poptorch.trainingModel(net, options,
    poptorch.optim.SGD(net:parameters(), { lr = 0.5, momentum = 0.9 }))
  local rows = UPDATES * replicas * accumulation * ROWS
  local x = torch.sin(torch.arange(rows * WIDTH) * 0.7):reshape(rows, WIDTH)
  trainer(x, torch.cos(x * 3))
  local weights, report = torch.cat({ net.layers[1].weight:detach():flatten(),
    net.layers[LAYERS].bias:detach(), net.layers[4].weight:detach():flatten() }), trainer:report()
  trainer:destroy()
  return weights, report
end

-- Why the combination is refused; nil: it is legal.
local function illegal(kind, ipus, accumulation)
  return kind == "Pipelined" and accumulation < 2 * ipus - 1
    and "gradient_accumulation must be at least " .. 2 * ipus - 1 or nil
end

local wanted = {} -- of one IPU, by rows of an update
local function one_ipu(batches)
  wanted[batches] = wanted[batches] or train("Sharded", 1, 1, batches)
  return wanted[batches]
end

local function check(kind, ipus, replicas, accumulation)
  local what = ("%s, %d IPUs, %d replicas, accumulation %d"):format(kind, ipus, replicas,
    accumulation)
  local why = illegal(kind, ipus, accumulation)
  local ok, weights, report = errors.try(train, kind, ipus, replicas, accumulation)
  if why then
    assert.is_false(ok, what)
    assert.is_true(errors.Error:is(weights) and weights.message:find(why, 1, true) ~= nil, what)
    return false
  end
  assert.is_true(ok, what .. ": " .. tostring(weights))
  local differs = (weights - one_ipu(replicas * accumulation)):abs():max():item()
  assert.is_true(differs < 2e-6, ("%s: %g"):format(what, differs))
  assert.same({ ipus, replicas }, { report.ipus, report.replicas }, what)
  return true
end

describe("the matrix of strategies", function()
  local level
  setup(function()
    level = require("lupine.core").host.log_level()
    poptorch.setLogLevel("OFF")
  end)
  teardown(function()
    require("lupine.core").host.log_level(level)
  end)

  -- Every n-th combination.
  local function walk(kind, n)
    local at, legal, refused = 0, 0, 0
    for _, ipus in ipairs({ 1, 2, 4, 8 }) do
      for _, replicas in ipairs({ 1, 2, 4 }) do
        for _, accumulation in ipairs({ 1, 2 * ipus - 1, 16 }) do
          at = at + 1
          if at % n == 0 then
            local good = check(kind, ipus, replicas, accumulation)
            legal, refused = legal + (good and 1 or 0), refused + (good and 0 or 1)
          end
        end
      end
    end
    assert.is_true(legal > 3)
    assert.equal(kind == "Pipelined", refused > 0)
  end

  for _, kind in ipairs(STRATEGIES) do
    it(kind .. " trains as one IPU does, or is refused", function()
      walk(kind, 7)
    end)

    it(kind .. " does so everywhere #slow", function()
      walk(kind, 1)
    end)
  end

  it("has no stage on an IPU of the wrong parity, in parallel phases", function()
    local net = Net()
    net.ipus = 2
    local phases = { poptorch.Phase(poptorch.Stage("0"):ipu(0)),
      poptorch.Phase(poptorch.Stage("1"):ipu(0)) }
    local trainer = poptorch.trainingModel(net, poptorch.Options():setExecutionStrategy(
      poptorch.ParallelPhasedExecution(table.unpack(phases))))
    require("spec.helper").raises("Error", "phase 1 is on IPU 0, but odd phases run on odd IPUs",
      function()
        trainer(torch.ones(ROWS, WIDTH), torch.ones(ROWS, WIDTH))
      end)
  end)
end)
