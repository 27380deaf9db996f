-- Operators of libraries as rows of ONNX's table.
local core = require("lupine.core")
local library = require("lupine.onnx.library")

describe("an operator of libraries", function()
  local custom_ops = core.custom_ops

  after_each(function()
    core.custom_ops = custom_ops
  end)

  it("is of the greatest version up to the model's, in whatever order they came", function()
    local list = {}
    for i, version in ipairs({ 2, 1, 4 }) do
      list[i] = { domain = "com.acme", name = "Op", version = version, inputs = 1, outputs = 1,
        attributes = {} }
    end
    function core.custom_ops()
      return list
    end
    for version, since in pairs({ 1, 2, 2, 4, 4 }) do
      assert.equal(since, library.find("com.acme", "Op", version).since)
    end
    assert.is_nil(library.find("com.acme", "Op", 0))
    assert.is_nil(library.find("com.other", "Op", 4))
    assert.is_nil(library.find("com.acme", "Other", 4))
  end)
end)
