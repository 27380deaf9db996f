-- Functions of popart that belong to no class.
local core = require("lupine.core")
local helper = require("spec.helper")
local popart = require("popart")
local torch = require("torch")

describe("popart", function()
  it("tells a tensor's type and shape", function()
    assert.equal(popart.TensorInfo("FLOAT16", { 2, 3 }),
      popart.getTensorInfo(torch.zeros({ 2, 3 }, { dtype = torch.half })))
    helper.refuses("TypeError", "expected a tensor, got a list of 1", popart.getTensorInfo, { 1 })
  end)

  it("tells its version", function()
    assert.same({ 3, 4, 0 }, { popart.versionNumber() })
    assert.equal("3.4.0 (lupine " .. core.version .. ")", popart.versionString())
    assert.equal(core.version, popart.packageHash())
  end)

  it("counts tiles for input and output", function()
    local opts = popart.SessionOptions()
    opts.numIOTiles = popart.NumIOTiles(32)
    assert.equal(32, opts.numIOTiles)
    assert.equal(0, popart.NumIOTiles())
    helper.refuses("ValueError", "numIOTiles: expected int >= 0", popart.NumIOTiles, -1)
    assert.equal("Gradient___", popart.reservedGradientPrefix())
  end)

  it("has the names of this package's parts", function()
    assert.equal(popart.SyncPattern.Full, popart.syncPatternFromString("full"))
    for _, name in ipairs({ "DeviceManager", "DataFlow", "PyStepIO", "IWeightsIO", "SessionOptions",
      "TensorLocationSettings", "Patterns", "CommGroup", "ReplicaGrouping", "InputShapeInfo",
      "poplar_recoverable_error", "OutOfMemoryException", "ReductionType", "getLogger",
      "_throw_popart_error", "RecoveryAction", "RecomputeType" }) do
      assert.is_true(popart[name] ~= nil, name)
    end
  end)
end)
