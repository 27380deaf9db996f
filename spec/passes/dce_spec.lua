local graphs = require("spec.support.graphs")

describe("dce", function()
  it("drops what no output needs, and keeps the inputs", function()
    graphs.becomes("dce", [[
      input %x: float32[2]
      input %unused: float32[3]
      %a = exp(%x)
      %b = neg(%a)
      %c = neg(%unused)
      %d = add(%a, 1)
      output %d]], [[
      input %x: float32[2]
      input %unused: float32[3]
      %a = exp(%x)
      %d = add(%a, 1)
      output %d]])
  end)

end)
