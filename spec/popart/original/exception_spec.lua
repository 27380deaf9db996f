-- PopART's own test of a program that does not fit (exception_test).
local helper = require("spec.popart.helper")
local machine = require("spec.support.machine")
local popart = require("popart")

describe("exception_test", function()
  before_each(function()
    machine.begin()
  end)
  after_each(function()
    machine.finish()
  end)

  -- Every input times every other one, summed, on a device of 4 tiles.
  local function session(allow, device)
    local builder, inputs, products = popart.Builder(), {}, {}
    for i = 1, 8 do
      inputs[i] = builder:addInputTensor(popart.TensorInfo("FLOAT", { 100, 100 }))
    end
    for _, a in ipairs(inputs) do
      for _, b in ipairs(inputs) do
        products[#products + 1] = builder.aiOnnx:matmul({ a, b })
      end
    end
    local out = builder.aiOnnx:sum(products)
    builder:addOutputTensor(out)
    return popart.InferenceSession({ fnModel = builder:getModelProto(), deviceInfo = device,
      dataFlow = popart.DataFlow(1, { out }), userOptions = helper.options({ engineOptions = {
        ["debug.allowOutOfMemory"] = allow } }),
      patterns = popart.Patterns(popart.PatternsLevel.NoPatterns):enableRuntimeAsserts(false) })
  end

  it("test_out_of_memory_exception", function()
    local device <close> = popart.DeviceManager():acquireAvailableDevice(1, { tilesPerIpu = 4 })
    local s = session(true, device)
    local e = helper.refuses("OutOfMemoryException", "Out of memory: Cannot fit all variable data "
      .. "onto one or more tiles", s.prepareDevice, s)
    assert.is_true(popart.popart_exception:is(e))
    assert.matches("Tiles per IPU: +4\n", e:getSummaryReport())
  end)

  it("has a report only where the program is compiled although it does not fit", function()
    local device <close> = popart.DeviceManager():acquireAvailableDevice(1, { tilesPerIpu = 4 })
    local s = session(false, device)
    local e = helper.refuses("OutOfMemoryException", "[Oo]ut of memory", s.prepareDevice, s)
    helper.refuses("popart_exception", "'debug.allowOutOfMemory' engine option", e.getSummaryReport,
      e)
    assert.equal("", e:getProfilePath())
  end)

  it("is not of the IPU Model", function()
    session(false, popart.DeviceManager():createIpuModelDevice({ tilesPerIPU = 4 })):prepareDevice()
  end)
end)
