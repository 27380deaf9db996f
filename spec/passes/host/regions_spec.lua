-- Which inlined fused operators become a node of the host's graph: texts before
-- and after. What stands inside computes something else than attention, to tell
-- one from the other.
local graphs = require("spec.support.graphs")

local HEAD = "graph differentiated host\n"
local INPUTS = "input %q: float32[2, 3, 4]\ninput %k: float32[2, 3, 4]\n"
local WHOLE = "attention(%q, %k, %k, _, scale=0.5, is_causal=false)"
local INSIDE = [[
  %s = add(%q, %k) region 1
  %o = mul(%s, %k) region 1
]]
local REGION = "\nregion 1 = " .. WHOLE .. " -> %o\n"

local function becomes(before, after)
  graphs.becomes("regions", INPUTS .. before, INPUTS .. after, HEAD)
end

-- The nodes stay, without their label.
local function is_inlined(text)
  becomes(text, (text:gsub(" region %d+\n", "\n"):gsub("region %d = [^\n]*\n", "")))
end

describe("a region", function()
  it("becomes its operator where its last node stands", function()
    becomes([[
      %a = neg(%q)
      %s = add(%q, %k) region 1
      %b = neg(%a)
      %o = mul(%s, %k) region 1
      %c = neg(%o)]] .. REGION .. "output %b, %c, %o", [[
      %a = neg(%q)
      %b = neg(%a)
      %o = ]] .. WHOLE .. [[

      %c = neg(%o)
      output %b, %c, %o]])
  end)

  it("gives results that its last node does not make, with their names", function()
    becomes([[
      %o "y" = mul(%q, %k) region 1
      %s "z" = add(%o, %k) region 1]] .. REGION .. "output %o",
      "%o \"y\" = " .. WHOLE .. "\noutput %o")
  end)

  it("may have results that nobody wants", function()
    becomes([[
      %s = add(%q, %k) region 1
      %o = mul(%s, %k) region 1
      region 1 = attention_backward(%q, %q, %k, %k, _, scale=0.5, is_causal=false) -> _, %o, _
      output %o]], [[
      %a, %o, %b = attention_backward(%q, %q, %k, %k, _, scale=0.5, is_causal=false)
      output %o]])
  end)

  it("may read inside another that is run whole", function()
    local BACK = "attention_backward(%o, %q, %k, %k, _, scale=0.5, is_causal=false)"
    becomes(INSIDE .. [[
      %t = mul(%s, %o) region 2
      %d = neg(%t) region 2]] .. REGION .. "region 2 = " .. BACK .. " -> %d, _, _\noutput %d",
      "%o = " .. WHOLE .. "\n%d, %e, %f = " .. BACK .. "\noutput %d")
  end)

  it("stays inlined if what is inside is read outside", function()
    is_inlined(INSIDE .. "%c = neg(%s)" .. REGION .. "output %c, %o")
    is_inlined(INSIDE .. REGION:sub(2) .. "output %s, %o")
  end)

  it("stays inlined if a region that does so reads inside it", function()
    is_inlined(INSIDE .. [[
      %t = mul(%s, %o) region 2
      %d = neg(%t) region 2
      %e = neg(%t)]] .. REGION .. [[
      region 2 = attention_backward(%o, %q, %k, %k, _, scale=0.5, is_causal=false) -> %d, _, _
      output %d, %e]])
  end)

  it("stays inlined if its result is read before its last node", function()
    is_inlined([[
      %o = mul(%q, %k) region 1
      %c = neg(%o)
      %s = add(%o, %k) region 1
      %d = neg(%s) region 1]] .. REGION .. "output %c, %o")
  end)

  it("stays inlined if something inside rounds at random", function()
    local half = INPUTS:gsub("float32", "float16")
    graphs.becomes("regions", half
      .. "%s = add(%q, %k) region 1 site 7\n%o = mul(%s, %k) region 1" .. REGION .. "output %o",
      half .. "%s = add(%q, %k) site 7\n%o = mul(%s, %k)\noutput %o", HEAD)
  end)

  it("stays inlined if another takes what is inside for an operand", function()
    becomes(INSIDE .. [[
      %t = mul(%q, %o) region 2]] .. REGION .. [[
      region 2 = attention(%s, %k, %k, _, scale=0.5, is_causal=false) -> %t
      output %t]], [[
      %s = add(%q, %k)
      %o = mul(%s, %k)
      %t = attention(%s, %k, %k, _, scale=0.5, is_causal=false)
      output %t]])
  end)
end)

describe("a graph without regions", function()
  it("stays as it is", function()
    graphs.stays("regions", INPUTS .. "%a = add(%q, %k)\noutput %a", HEAD)
  end)
end)
