--- Compiled models whose tensors are in streaming memory, replayed: what each optimizer
--- reads and writes in a weight update is there, and what is one micro-batch's gradient
--- leaves the chip when it is made.
local helper = require("spec.passes.ipu.helper")
local nn = require("torch.nn")
local own = require("poptorch.executor.own")
local poptorch = require("poptorch")
local torch = require("torch")

local KINDS = { "Optimizer", "Accumulator", "Weight", "Activation" }
local ROWS = 2

local Net = nn.Module:extend("Net")

function Net:init()
  self.a, self.b, self.loss = nn.Linear(4, 6), nn.Linear(6, 3), nn.MSELoss()
end

function Net:forward(x, y)
  local out = self.b(self.a(x):tanh())
  return out, self.loss(out, y)
end

local function strategy_of(name)
  return name == "serial" and poptorch.SerialPhasedExecution({ poptorch.Phase("A"),
    poptorch.Phase("B") }) or poptorch.ShardedExecution()
end

-- The step of a model of two blocks, its plan's options, inputs, the report's figures.
local function compiled(optimizer, strategy, accumulation, kinds, least)
  torch.manual_seed(2)
  local net = Net()
  local options = poptorch.Options():setExecutionStrategy(strategy_of(strategy))
  options.Training:gradientAccumulation(accumulation)
  for _, kind in ipairs(KINDS) do
    options.TensorLocations["set" .. kind .. "Location"](options.TensorLocations,
      poptorch.TensorLocationSettings():useOnChipStorage(not kinds[kind])
        :minElementsForOffChip(least))
  end
  poptorch.BeginBlock(net.a, { user_id = "A", ipu_id = 0 })
  poptorch.BeginBlock(net.b, { user_id = "B", ipu_id = strategy == "serial" and 0 or 1 })
  local executor = poptorch.trainingModel(net, options,
    poptorch.optim[optimizer](net:parameters(), { lr = 0.1 }))
  local data = { torch.randn(accumulation * ROWS, 4), torch.randn(accumulation * ROWS, 3) }
  executor:compile(table.unpack(data))
  local session, inputs = own.state(executor).session, {}
  local step = session.exec:step()
  for i, v in ipairs(step:vars()) do
    inputs[i] = v.role == "input" and table.remove(data, 1) or nil
  end
  local system, report = session.spec.system, executor:report()
  executor:destroy()
  return step, system, inputs, report
end

describe("replay", function()
  for _, optimizer in ipairs({ "SGD", "Adam", "LAMB" }) do
    it("of tensors off the chip equals micro-batch order with " .. optimizer, function()
      for _, strategy in ipairs({ "sharded", "serial" }) do
        for _, accumulation in ipairs({ 1, 3 }) do
          for _, least in ipairs({ 0, 8 }) do
            for _, kind in ipairs(KINDS) do
              local step, system, inputs = compiled(optimizer, strategy, accumulation,
                { [kind] = true }, least)
              assert.equal(helper.replayed_bits(step, system, inputs, { order = "micro_batches" }),
                (helper.replayed_bits(step, system, inputs, {})))
            end
          end
        end
      end
    end)
  end

  it("has gradients of one micro-batch stored as often as they are loaded", function()
    local _, _, _, report = compiled("SGD", "sharded", 1, { Accumulator = true }, 0)
    local bytes = { load = 0, store = 0 }
    for _, row in ipairs(report.schedule) do
      for _, e in ipairs(row.entries) do
        bytes[e.kind] = bytes[e.kind] and bytes[e.kind] + e.bytes * row.count
      end
    end
    assert.same({ load = 4 * (4 * 6 + 6 + 6 * 3 + 3), store = bytes.load }, bytes)
  end)
end)
