-- PopART's own test of its log (logging_test).
local helper = require("spec.popart.helper")
local popart = require("popart")

describe("logging_test", function()
  -- What is logged while a model is built at this level.
  local function logged(level)
    return helper.stderr_of(function()
      popart.getLogger():setLevel(level)
      local builder = popart.Builder()
      builder.aiOnnx:abs({ builder:addInputTensor(popart.TensorInfo("FLOAT", { 1, 2, 3 })) })
    end)
  end

  it("test_setLevel (C24)", function()
    assert.matches("Adding ai%.onnx%.Abs", logged("TRACE"))
    assert.equal("", logged("OFF"))
    assert.matches("Adding ai%.onnx%.Abs", logged("TRACE"))
    popart.getLogger():setLevel("OFF")
  end)
end)
