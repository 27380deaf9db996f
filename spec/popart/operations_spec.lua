-- Operators by name, types and names of nodes.
local helper = require("spec.popart.helper")
local popart = require("popart")

describe("popart", function()
  it("lists the operators that are there, by version", function()
    local list, seen = popart.getSupportedOperations(false), {}
    for _, id in ipairs(list) do
      assert.is_true(popart.OperatorIdentifier:is(id))
      seen[tostring(id)] = true
    end
    for _, name in ipairs({ "ai.onnx.Add:7", "ai.graphcore.Nll:1" }) do
      assert.is_true(seen[name], name)
    end
    assert.equal(popart.OperatorIdentifier("ai.onnx", "Add", 7),
      popart.OperatorIdentifier({ domain = "ai.onnx", type = "Add", version = 7 }))
    helper.refuses("TypeError", "includeInternal", popart.getSupportedOperations)
  end)

  it("has types by name", function()
    assert.equal(popart.TensorInfo("FLOAT16", { 2 }),
      popart.TensorInfo(popart.DataType.FLOAT16, { 2 }))
    helper.refuses("popart_exception", "no type 'UNDEFINED'", popart.TensorInfo,
      popart.DataType.UNDEFINED, { 2 })
  end)

  it("names nodes by a DebugContext", function()
    local b = popart.Builder()
    local x = b:addInputTensor(popart.TensorInfo("FLOAT", { 1 }), popart.DebugContext("points"))
    assert.equal("points", x)
    helper.refuses("TypeError", "DebugContext: name", popart.DebugContext, 1)
  end)

  it("says what stands in the place of names that have no meaning here", function()
    helper.refuses("NotImplementedError", "popart%.DebugInfo is not there: .*DebugContext",
      function()
        return popart.DebugInfo
      end)
  end)
end)
