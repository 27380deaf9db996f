-- What names of PopART's tensors begin with.
local optimizers = require("popart.optimizers")
local prefixes = require("popart.prefixes")
local torch = require("torch")

describe("popart's reserved prefixes", function()
  it("are those of PopART's tensors", function()
    local count = 0
    for name, prefix in pairs(prefixes) do
      count = count + 1
      assert.matches("^reserved%w+Prefix$", name)
      assert.matches("_$", prefix())
    end
    assert.equal(50, count)
    assert.equal("Gradient___", prefixes.reservedGradientPrefix())
    assert.equal("AcclOutOfAcclUpdate___", prefixes.reservedAcclFinalOutPrefix())
    assert.equal("scaledMomentum1___specific___", prefixes.reservedSpecificScaledMomentum1Prefix())
  end)

  it("name an optimizer's scalars", function()
    local got = optimizers.scalars(optimizers.SGD({ defaultLearningRate = { 0.5, false },
      lossScaling = { 2, false } }), { { name = "w", tensor = torch.zeros(1) } }, {})
    assert.equal(0.25, got[prefixes.reservedDefaultScaledLearningRate0Prefix() .. "FLOAT"])
    assert.equal(1, got[prefixes.reservedDefaultWeightDecayScaleFactor0Prefix() .. "FLOAT"])
    assert.equal(2, got[prefixes.reservedLossScalingPrefix() .. "FLOAT"])
  end)
end)
