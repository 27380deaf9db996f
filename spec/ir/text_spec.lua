-- The text form: what one writes the other reads; outside text never does
-- more than fail with its place.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local graphs = require("spec.support.graphs")

local function parse_error(text)
  local ok, e = pcall(core.graph_parse, text)
  if ok then
    error("parsed: " .. text, 2)
  end
  assert.is_true(errors.classes.ValueError:is(e), tostring(e))
  assert.equal("parse_error", e.type)
  return e.message
end

-- A line after a head with %x: float32[2, 3] (line 3 of the text).
local function line_error(line)
  return parse_error("graph\ninput %x: float32[2, 3]\n" .. line)
end

describe("the text form", function()
  it("is printed as its grammar says", function()
    local text = [[
graph differentiated
input %1 "x" "also \"x\"": float32[2, 3]
origin block "b" stage 1 ipu 2 phase 3 multi_conv "0" outline "a" scope "l/0" ]] .. [[
file "m.lua" line 4 backward update
%2 = add(%1, 0.5): float32[2, 3]
%3 = add(%1, %2, alpha=2): float32[2, 3]
origin
%4 = full(size=[], fill_value=1e-05, dtype=float64): float64[]
input %5: int64[0, 12]
input %6: float32[1, 4, 4]
%7, %8 "indices" = max_pool(%6, kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], ]] .. [[
dilation=[1, 1], ceil_mode=false): float32[1, 2, 2], int64[1, 2, 2]
origin none
%9 = dropout(%1): float32[2, 3] site 0xffffffffffffffff
%10 = clamp(%1, _, true): float32[2, 3]
output %10, %2, %2
]]
    assert.equal(text, graphs.canonical(text))
  end)

  it("has fused operators in graphs of the host's alone", function()
    local text = "graph%s\ninput %%1: float32[2, 3, 4]\norigin\n"
      .. "%%2 = attention(%%1, %%1, %%1, _, scale=0.5, is_causal=false): float32[2, 3, 4]\n"
    local host = text:format(" host")
    assert.equal(host, graphs.canonical(host))
    assert.is_true(core.graph_parse(host):clone():verify())
    assert.matches("^line 4, column 6: attention is no operation of the device",
      parse_error(text:format("")))
  end)

  it("takes any labels, comments and empty lines, and leaves types to the rule", function()
    assert.equal("graph\ninput %1: float32[2]\norigin\n%2 = neg(%1): float32[2]\noutput %2\n",
      graphs.canonical("\n # a comment\ngraph # here too\r\n\n  input %first: float[2]\n"
        .. "\torigin\n%the_second=neg(%first)\n\noutput %the_second"))
  end)

  it("makes attributes canonical and gives defaults", function()
    assert.equal("graph\ninput %1: float32[2, 3]\norigin\n"
      .. "%2 = permute(%1, dims=[1, 0]): float32[3, 2]\n"
      .. "%3 = slice(%2, start=1, end=3): float32[2, 2]\n",
      graphs.canonical("graph\ninput %1: float32[2,3]\norigin\n%2 = permute(%1, dims=[-1, -2])\n"
        .. "%3 = slice(%2, start=-2)"))
  end)

  it("keeps every number", function()
    local numbers = { "0", "-1", "9223372036854775807", "-9223372036854775808", "0.0", "-0.0",
      "inf", "-inf", "nan", "nan(0xfff8000000000000)", "nan(0x7ff0000000000001)", "1e+300",
      "5e-324", "0.1", "0.30000000000000004", "1.7976931348623157e+308", "true", "false" }
    for _, n in ipairs(numbers) do
      local text = ("graph\ninput %%1: float64[]\norigin\n%%2 = mul(%%1, %s): float64[]\n")
        :format(n)
      assert.equal(text, graphs.canonical(text))
    end
    assert.equal(-9223372036854775807 - 1, core.graph_parse("graph\ninput %1: int64[]\norigin\n"
      .. "%2 = mul(%1, -9223372036854775808)"):nodes()[1].operands[2][1])
  end)

  it("keeps every string", function()
    local name = 'a "quoted" \\ back\nline\ttab\r \1\127 é'
    local text = 'graph\ninput %1 "a \\"quoted\\" \\\\ back\\nline\\ttab\\r \\x01\\x7f é": int8[]\n'
    local g = core.graph_parse(text)
    assert.equal(text, g:print())
    assert.equal(name, g:inputs()[1].names[1])
  end)

  it("shows Lua what it read", function()
    local node = core.graph_parse([[
graph
input %1: float32[2, 3]
origin block "b" stage 1 file "m.lua" line 4 backward
%2 "y" "z" = permute(%1, dims=[1, 0])
%3 = clamp(%2, _, 2.5)]]):nodes()
    assert.same({ "y", "z" }, node[1].results[1].names)
    assert.same({ 3, 2 }, node[1].results[1].shape)
    assert.same({ dims = { 1, 0 } }, node[1].attributes)
    assert.same({ block = "b", stage = 1, ipu = -1, phase = -1, multi_conv = "", outline = "",
      scope = "", file = "m.lua", line = 4, backward = true, update = false }, node[1].origin)
    assert.same({ 2, false, { 2.5 } }, node[2].operands)
  end)

  it("is read back the same for random graphs", function()
    for seed = 1, 60 do
      local text = graphs.canonical(graphs.random(seed, 30, true))
      assert.equal(text, graphs.canonical(text))
      assert.equal(text, core.graph_parse(text):clone():print())
    end
  end)

  it("reads a list of operands in brackets", function()
    local text = [[
graph
input %1: float32[2, 3]
input %2: int64[4]
origin
%3 = cat([%1, %1, %1], dim=1): float32[2, 9]
%4 = index_get(%1, [%2]): float32[4, 3]
%5 = index_get(%1, [_, %2]): float32[2, 4]
]]
    assert.equal(text, graphs.canonical(text))
    assert.equal(text, core.graph_parse(text):clone():print())
    assert.matches("has no list here", line_error("%y = neg([%x])"))
    assert.matches("has no list here", line_error("%y = index_get([%x])"))
    assert.matches("needs a list", line_error("%y = index_get(%x)"))
    assert.matches("the list is the last operand", line_error("%y = cat([%x], %x)"))
    assert.matches("tensors of cat may not be a hole", line_error("%y = cat([%x, _])"))
  end)

  it("takes a graph of 20,000 nodes through everything", function()
    local lines = { "graph", 'input %1: float32[4, 4]', "origin" }
    for i = 2, 20001 do
      local call = i % 5 == 0 and "permute(%%%d, dims=[1, 0])" or i % 3 == 0
        and "add(%%%d, 1)" or i % 7 == 0 and "exp(%%1) #%d" or "neg(%%%d)"
      lines[#lines + 1] = ("%%%d = "):format(i) .. call:format(i - 1)
      if i % 1000 == 0 then
        lines[#lines + 1] = "origin stage " .. i // 1000
      end
    end
    lines[#lines + 1] = "output %20001"
    local g = core.graph_parse(table.concat(lines, "\n"))
    assert.equal(20000, #g:nodes())
    g:run_passes()
    local text = g:clone():print()
    assert.equal(text, graphs.canonical(text))
  end)
end)

describe("the parser", function()
  it("names the place", function()
    assert.equal("line 3, column 6: there is no operator 'nothing'",
      line_error("%y = nothing(%x)"))
    assert.equal("line 4, column 10: %z is not defined above",
      line_error("\n%y = neg(%z)"))
    assert.equal("line 3, column 12: expected ',', found the end of the line",
      line_error("%y = neg(%x\n"))
    assert.equal("line 3, column 13: expected region, site, half_partials or the end of the line, "
      .. "found '%y'", line_error("%y = neg(%x)%y"))
  end)

  it("checks the types it is given", function()
    assert.matches("line 3, column 15: result 0 of neg is float32%[2, 3%] here",
      line_error("%y = neg(%x): float32[3, 2]"))
    assert.matches("result 0 of neg is float32", line_error("%y = neg(%x): float16[2, 3]"))
    assert.matches("neg has 1 results here, not 2", line_error("%y, %z = neg(%x)"))
    assert.matches("neg has 1 results here, not 0", line_error("= neg(%x)"))
    assert.matches("expected a type", line_error("%y = neg(%x):"))
  end)

  it("passes on what a shape rule says", function()
    assert.matches("^line 3, column 6: .*duplicate dims",
      line_error("%y = permute(%x, dims=[0, 0])"))
    assert.matches("^line 3, column 6: ", line_error("%y = reshape(%x, shape=[7])"))
  end)

  it("refuses operators that are none of a graph", function()
    assert.matches("ravel is composite", line_error("%y = ravel(%x)"))
  end)

  it("refuses operands that the form does not allow", function()
    assert.matches("takes 1 operands, not 2", line_error("%y = neg(%x, %x)"))
    assert.matches("takes 1 operands, not 0", line_error("%y = neg()"))
    assert.matches("may not be a hole", line_error("%y = neg(_)"))
    assert.matches("must be a tensor, no number", line_error("%y = permute(2, dims=[])"))
  end)

  it("refuses attributes that the form does not allow", function()
    assert.matches("neg has no attribute 'dims'", line_error("%y = neg(%x, dims=[0])"))
    assert.matches("permute needs the attribute 'dims'", line_error("%y = permute(%x)"))
    assert.matches("dims is given twice", line_error("%y = permute(%x, dims=[0, 1], dims=[1, 0])"))
    assert.matches("dims may not be None", line_error("%y = permute(%x, dims=None)"))
    assert.matches("expected '%['", line_error("%y = permute(%x, dims=1)"))
    assert.matches("expected an integer", line_error("%y = unsqueeze(%x, dim=1.5)"))
    assert.matches("expected a type", line_error("%y = cast(%x, dtype=string)"))
    assert.matches("expected a string", line_error("%y = div(%x, 2, rounding_mode=1)"))
    assert.matches("expected a number", line_error("%y = add(%x, 2, alpha=[1])"))
  end)

  it("survives hostile text", function()
    local hostile = {
      "", "\n\n", "grap", "graph graph", "graph x", "graph\nnothing", "graph\n%", "graph\n%x",
      "graph\n= =", "graph\n\"", "graph\n\"\\", "graph\n\"\\x0", "graph\n(", "graph\n->",
      "graph\n\255\254", "graph\ninput", "graph\ninput %x", "graph\ninput %x:",
      "graph\ninput %x: float32", "graph\ninput %x: float32[", "graph\ninput %x: float32[1",
      "graph\ninput %x: float32[1,]", "graph\ninput %x: float32[-1]",
      "graph\ninput %x, %y: float32[1]", "graph\ninput : float32[1]",
      "graph\ninput %x: float32[9223372036854775807, 9223372036854775807]",
      "graph\ninput %x: float32[99999999999999999999]", "graph\ninput %x: float32[1.0]",
      "graph\ninput %x: float32[" .. ("1,"):rep(12) .. "1]",
      "graph\ninput %x: float32[1]\ninput %x: float32[1]", "graph\ninput %x: float32[1] x",
      'graph\ninput %x "a\nb": float32[1]', 'graph\ninput %x "\\q": float32[1]',
      'graph\ninput %x "\\x00": float32[1]', "graph\norigin nowhere", "graph\norigin block 1",
      "graph\norigin stage", "graph\norigin stage -2", "graph\norigin stage 99999999999",
      "graph\norigin stage 1.5", "graph\norigin none x", "graph\noutput", "graph\noutput %x",
      "graph\noutput _", "graph\noutput 1", "graph\nregion", "graph\nregion 2 = neg(1)",
      "graph\nregion 0 = neg(1)", "graph\nregion 1 = neg(%q)", "graph\nregion 1",
      "graph\n%y = full(size=[2], fill_value=1) region 1",
      "graph\n%y = full(size=[2], fill_value=1) region 4000000000",
      "graph\n%y = full(size=[2], fill_value=1) site",
      "graph\n%y = full(size=[2], fill_value=1) x",
      "graph\n%y = full(size=[2], fill_value=0x)", "graph\n%y = full(size=[2], fill_value=1e)",
      "graph\n%y = full(size=[2], fill_value=0x11111111111111111)",
      "graph\n%y = full(size=[2], fill_value=--1)",
      "graph\n%y = full(size=[2], fill_value=nan(0x1))",
      "graph\n%y = full(size=[2], fill_value=nan(0x7ff8000000000000)",
      "graph\n%y = full(size=[2], fill_value=" .. ("1"):rep(100) .. ")",
      "graph\n%y = full(size=[" .. ("0,"):rep(5000) .. "0], fill_value=1)",
      "graph\n%y = full(size=[4611686018427387904, 4], fill_value=1)",
      "graph\n%y = full(size=[2], fill_value=1, dtype=None, dtype=None)",
      "graph\n%y = full(size=[2] fill_value=1)", "graph\n%y = full size=[2]", "graph\n%y = full(",
      "graph\n%y = neg(" .. ("1, "):rep(3000) .. "1)",
      "graph\n" .. ("%y, "):rep(3000) .. "= neg(1)",
      'graph\n%y ' .. ('"n" '):rep(3000) .. "= neg(1)",
      "graph\n" .. ("("):rep(100000), "graph\n%y = add(1, " .. ("["):rep(100000),
    }
    for _, text in ipairs(hostile) do
      assert.matches("^line %d+, column %d+: ", parse_error(text))
    end
    assert.matches("no byte 0", parse_error("graph\n\0"))
  end)

  it("survives attributes at the ends of what integers hold", function()
    local ends = { "-9223372036854775808", "9223372036854775807", "-1", "0", "4294967296" }
    local calls = { "slice(%%x, dim=%s)", "slice(%%x, start=%s)", "slice(%%x, end=%s)",
      "slice(%%x, step=%s)", "select(%%x, dim=0, index=%s)", "select(%%x, dim=%s, index=0)",
      "permute(%%x, dims=[%s, 0])", "reshape(%%x, shape=[%s])", "reshape(%%x, shape=[%s, 6])",
      "expand(%%x, size=[%s, 2, 3])", "unsqueeze(%%x, dim=%s)", "squeeze(%%x, dim=[%s])",
      "diagonal(%%x, offset=%s)", "diagonal(%%x, dim1=%s)",
      "unfold(%%x, dimension=%s, size=1, step=1)",
      "unfold(%%x, dimension=0, size=%s, step=1)", "unfold(%%x, dimension=0, size=1, step=%s)",
      "as_strided(%%x, size=[%s], stride=[1])", "as_strided(%%x, size=[2], stride=[%s])",
      "as_strided(%%x, size=[2], stride=[1], storage_offset=%s)", "full(size=[%s], fill_value=1)" }
    for _, call in ipairs(calls) do
      for _, n in ipairs(ends) do
        local text = "graph\ninput %x: float32[2, 3]\norigin\n%y = " .. call:format(n)
        local ok, g = pcall(core.graph_parse, text)
        if ok then
          assert.is_true(g:verify())
          g:run_passes()
        else
          parse_error(text)
        end
      end
    end
  end)

  it("survives texts with something wrong in any place", function()
    local state = 1
    local function random(n)
      state = state * 48271 % 2147483647
      return state % n + 1
    end
    local parts = { "", " ", "\n", "%", "=", "(", ")", "[", "]", ",", ":", '"', "->", "0", "-",
      "9", ".5", "e9", "nan", "_", "None", "true", "graph", "input %1", "region 1", "\\", "#" }
    for seed = 1, 200 do
      local text = graphs.random(seed % 20 + 1, 12, true)
      for _ = 1, random(3) do
        local at, len = random(#text), random(4) - 1
        text = text:sub(1, at - 1) .. parts[random(#parts)] .. text:sub(at + len)
      end
      local ok, g = pcall(core.graph_parse, text)
      if ok then
        assert.equal(g:print(), graphs.canonical(g:print()))
      else
        parse_error(text)
      end
    end
  end)
end)
