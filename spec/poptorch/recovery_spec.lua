--- A script that catches a fault, recovers and goes on reaches the same bits as one
--- without: momentum, dropout, buffers of each replica, over a pipeline.
local faults = require("lupine.faults")
local machine = require("spec.support.machine")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn

local Net = nn.Module:extend("Net")

-- alike: the buffer's values are those of all replicas.
function Net:init(alike)
  self.alike = alike
  self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)
  self.drop = nn.Dropout(0.4)
  self:register_buffer("mean", torch.zeros(8))
  poptorch.BeginBlock(self.b, { ipu_id = 1 })
end

function Net:forward(x, y)
  local h = self.drop(self.a(x):tanh())
  self.mean:copy_(self.mean * 0.75 + (self.alike and 0.1 or h:detach():mean(0) * 0.25))
  local out = self.b(h - self.mean)
  return out, nn.functional.mse_loss(out, y)
end

local CALLS, ACCUMULATION, REPLICAS = 4, 3, 2

local function same(a, b, what)
  for name, t in pairs(a) do
    assert.is_true(torch.equal(t, b[name]), what .. ": " .. name)
  end
end

describe("recovery", function()
  before_each(function()
    machine.begin()
    faults.clear()
  end)

  after_each(function()
    faults.clear()
    machine.finish()
  end)

  -- A trainer, its optimizer and the batches of its calls.
  local function make(iterations, alike)
    torch.manual_seed(7)
    local net = Net(alike)
    local options = poptorch.Options():deviceIterations(iterations):replicationFactor(REPLICAS)
      :broadcastBuffers(false):randomSeed(5):outputMode(poptorch.OutputMode.All)
    options.Training:gradientAccumulation(ACCUMULATION)
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
    local batches = {}
    for i = 1, CALLS do
      local n = 2 * iterations * ACCUMULATION * REPLICAS
      batches[i] = { torch.randn(n, 3), torch.randn(n, 2) }
    end
    return poptorch.trainingModel(net, options, optimizer), net, optimizer, batches
  end

  -- What there is in the end: the module's tensors, the momentum, the last results.
  local function result(net, optimizer, out)
    local all = { out = out }
    for name, t in pairs(net:state_dict()) do
      all[name] = t:clone()
    end
    for i, p in ipairs(net:parameters()) do
      all["momentum " .. i] = optimizer.state[p].momentum_buffer:clone()
    end
    return all
  end

  -- Calls the trainer for all batches; recover(i) after a fault, then the batch once
  -- more.
  local function train(trainer, batches, recover, before)
    local out
    for _, batch in ipairs(batches) do
      if before then
        before()
      end
      local ok, got = pcall(trainer, batch[1], batch[2])
      if not ok then
        recover(got)
        got = trainer(batch[1], batch[2])
      end
      out = got
    end
    return out
  end

  local function no_fault(e)
    error(e, 0)
  end

  local KINDS = {
    { kind = "recoverable", action = "IPU_RESET" },
    { kind = "recoverable", action = "LINK_RESET" },
    { kind = "recoverable", action = "PARTITION_RESET" },
    { kind = "recoverable", action = "FULL_RESET" },
    { kind = "unrecoverable" },
    { kind = "application" },
    { kind = "unknown" },
  }

  it("is calling again where no device iteration had finished, at any cycle", function()
    local trainer, net, optimizer, batches = make(1)
    local want = result(net, optimizer, train(trainer, batches, no_fault))
    local cycles = trainer:report().cycles
    trainer:destroy()
    local struck = 0
    for position = 0, 8 do
      for _, kind in ipairs(KINDS) do
        faults.inject({ kind = kind.kind, action = kind.action, call = position % CALLS + 1,
          cycle = position * (cycles - 1) // 8 })
        trainer, net, optimizer, batches = make(1)
        local out = train(trainer, batches, function(e)
          assert.equal(kind.action, e.recovery_action)
          assert.equal(0, e.finished)
          struck = struck + 1
        end)
        same(want, result(net, optimizer, out), kind.kind .. " at " .. position)
        trainer:destroy()
        faults.clear()
      end
    end
    assert.equal(9 * #KINDS, struck)
  end)

  it("leaves exactly what the finished device iterations did", function()
    -- The reference makes the same iterations one a call.
    local after = {}
    local trainer, net, optimizer = make(1)
    local batches
    local long = select(4, make(4))
    local x, y = long[1][1]:split(12), long[1][2]:split(12)
    for k = 1, 4 do
      trainer(x[k], y[k])
      after[k] = result(net, optimizer, x[1])
    end
    trainer:destroy()
    for k = 1, 4 do
      for _, kind in ipairs(KINDS) do
        trainer, net, optimizer, batches = make(4)
        faults.inject({ kind = kind.kind, action = kind.action, step = k, cycle = 3000 })
        local ok, e = pcall(trainer, batches[1][1], batches[1][2])
        assert.is_false(ok)
        assert.equal(k - 1, e.finished)
        assert.matches("^" .. k - 1 .. " of 4 device iterations finished\n", e.location)
        if k > 1 then
          same(after[k - 1], result(net, optimizer, x[1]), kind.kind .. " in " .. k)
        end
        trainer:destroy()
        faults.clear()
      end
    end
  end)

  it("is going back to a copy where some device iterations had finished", function()
    local trainer, net, optimizer, batches = make(4, true)
    local want = result(net, optimizer, train(trainer, batches, no_fault))
    trainer:destroy()
    for step = 1, 16, 5 do
      for _, kind in ipairs(KINDS) do
        faults.inject({ kind = kind.kind, action = kind.action, step = step, cycle = 2000 })
        trainer, net, optimizer, batches = make(4, true)
        local weights, states, random
        local function keep()
          weights = {}
          for name, t in pairs(net:state_dict()) do
            weights[name] = t:clone()
          end
          states = optimizer:state_dict()
          for i, state in pairs(states.state) do
            states.state[i] = { momentum_buffer = state.momentum_buffer:clone() }
          end
          random = trainer:isCompiled() and trainer.rng_state
        end
        local struck
        local out = train(trainer, batches, function(e)
          struck = e.finished
          trainer:load_state_dict(weights)
          optimizer:load_state_dict(states)
          trainer:setOptimizer(optimizer)
          trainer.rng_state = random or { 5, 0 }
        end, keep)
        assert.equal((step - 1) % 4, struck)
        same(want, result(net, optimizer, out), kind.kind .. " in " .. step)
        trainer:destroy()
        faults.clear()
      end
    end
  end)
end)
