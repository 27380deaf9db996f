-- PopART's own test of its log (logging_test).
local popart = require("popart")

describe("logging_test", function()
  -- What is logged while a model is built at this level.
  local function logged(level)
    local stderr, out = io.stderr, {}
    io.stderr = { -- luacheck: ignore 122
      write = function(_, ...)
        out[#out + 1] = table.concat({ ... })
      end, flush = function() end }
    popart.getLogger():setLevel(level)
    local builder = popart.Builder()
    builder.aiOnnx:abs({ builder:addInputTensor(popart.TensorInfo("FLOAT", { 1, 2, 3 })) })
    io.stderr = stderr -- luacheck: ignore 122
    return table.concat(out)
  end

  it("test_setLevel (C24)", function()
    assert.matches("Adding ai%.onnx%.Abs", logged("TRACE"))
    assert.equal("", logged("OFF"))
    assert.matches("Adding ai%.onnx%.Abs", logged("TRACE"))
    popart.getLogger():setLevel("OFF")
  end)
end)
