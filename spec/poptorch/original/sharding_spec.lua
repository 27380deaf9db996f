--- PopTorch's test of sharding.
local models = require("spec.support.models")
local near = require("spec.helper").near
local poptorch = require("poptorch")
local torch = require("torch")

describe("sharding_test", function()
  it("test_sharded_execution", function()
    local net = models.of(function(_, x)
      for i = 0, 3 do
        local _ <close> = poptorch.Block(tostring(i), { ipu_id = i })
        x = x * (i + 2)
      end
      return x
    end)
    local stages = {}
    for i = 0, 3 do
      stages[i + 1] = poptorch.Stage(tostring(i))
    end
    local model = poptorch.inferenceModel(net, poptorch.Options():setExecutionStrategy(
      poptorch.ShardedExecution(table.unpack(stages))))
    local x = torch.randn(3, 7)
    near(model(x), x * 120)
    local ipus = {}
    for i, stage in ipairs(model:report().stages) do
      ipus[i] = stage.ipu
    end
    assert.same({ 0, 1, 2, 3 }, ipus)
  end)
end)
