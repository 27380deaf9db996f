-- Bodies: graphs that are attributes. Text, verifier, passes.
local core = require("lupine.core")

local LOOP = [[
graph
input %1: float32[2]
input %2: float32[2]
origin stage 0 ipu 0 line 0 phase 0
%3, %4 = loop([%1, %2], body={
  graph
  input %1: float32[2]
  input %2: float32[2]
  origin stage 0 ipu 0 phase 0
  %3 = mul(%1, %2): float32[2]
  output %3, %1
}, count=3, carried=1): float32[2], float32[3, 2]
output %3, %4
]]

local function normal(text)
  return core.graph_parse(text):print()
end

describe("a body", function()
  it("is printed and parsed", function()
    local text = normal(LOOP)
    assert.equal(text, normal(text))
    assert.truthy(core.graph_parse(text):verify())
    local node = core.graph_parse(text):nodes()[1]
    assert.same({ "mul" }, { node.attributes.body:nodes()[1].op })
  end)

  it("is printed in bodies of bodies", function()
    local text = normal([[
graph
input %1: bool[]
input %2: float32[2]
origin stage 0 ipu 0
%3 = branch(%1, [%2, %2], then={
  graph
  input %1: float32[2]
  origin stage 0 ipu 0
  %2 = call([%1], body={
    graph
    input %1: float32[2]
    origin stage 0 ipu 0
    %2 = neg(%1)
    output %2
  })
  output %2
}, otherwise={
  graph
  input %1: float32[2]
  output %1
}, split=1)
output %3
]])
    assert.equal(text, normal(text))
    assert.truthy(core.graph_parse(text):verify())
    assert.truthy(text:find("\n    %%2 = neg%(%%1%): float32%[2%]\n"))
  end)

  it("must fit the operands", function()
    local function fails(from, to, message)
      local text, n = LOOP:gsub(from, to)
      assert(n > 0, from)
      local ok, e = pcall(core.graph_parse, text)
      assert(not ok, "parsed all the same")
      assert(tostring(e):find(message, 1, true), tostring(e))
    end
    fails("count=3", "count=-1", "count must not be negative")
    fails("%[%%1, %%2%], body", "[%%1], body", "the body has 2 inputs, there are 1 operands")
    fails("carried=1", "carried=3", "3 carried and 0 scanned of 2 operands")
    fails("carried=1", "carried=2", "result")
    fails("carried=1", "carried=1, scanned=1", "no first dimension of 3")
    fails("  input %%2: float32%[2%]", "  input %%2: float32[1]", "expected float32[2]")
    fails("output %%3, %%1\n", "output %%9\n", "%9 is not defined above")
    fails("output %%3, %%4\n", "}\n", "expected a value, input, origin")
  end)

  it("does not nest without end", function()
    local text = "graph\ninput %1: float32[2]\n"
    for _ = 1, 20 do
      text = text .. "%2 = call([%1], body={\ngraph\ninput %1: float32[2]\n"
    end
    local ok, e = pcall(core.graph_parse, text)
    assert(not ok)
    assert(tostring(e):find("bodies in each other", 1, true), tostring(e))
  end)

  it("is looked at by the verifier", function()
    local g = core.graph_parse((LOOP:gsub("\n  origin[^\n]*", "")))
    local ok, e = pcall(g.verify, g)
    assert(not ok)
    assert(tostring(e):find("it has no origin", 1, true), tostring(e))
  end)

  it("is compared as a whole when equal nodes become one", function()
    local function twice(change)
      local loop = LOOP:match("\n(%%3, .-)output %%3, %%4\n$")
      local again = loop:gsub("^%%3, %%4", "%%5, %%6"):gsub("mul", change or "mul")
      local g = core.graph_parse((LOOP:gsub("output %%3, %%4\n", function()
        return again .. "output %3, %5\n"
      end)))
      return #g:run_pass("cse"):nodes()
    end
    assert.equal(1, twice())
    assert.equal(2, twice("add"))
  end)
end)

describe("passes", function()
  local function after(text)
    return core.graph_parse(text):run_passes():print()
  end

  it("run in bodies", function()
    local text = after((LOOP:gsub("%%3 = mul%(%%1, %%2%): float32%[2%]",
      "%%3 = mul(%%1, %%2)\n  %%4 = exp(%%3)\n  %%5 = mul(%%3, 1.0)")
      :gsub("  output %%3, %%1", "  output %%5, %%1")))
    assert.is_nil(text:find("exp", 1, true))
    local _, n = text:gsub("mul", "")
    assert.equal(1, n)
  end)

  it("drop stacks that nobody reads", function()
    local text = after((LOOP:gsub("output %%3, %%4\n$", "output %%3\n")))
    assert.equal(normal([[
graph
input %1: float32[2]
input %2: float32[2]
origin stage 0 ipu 0 phase 0
%3 = loop([%1, %2], body={
  graph
  input %1: float32[2]
  input %2: float32[2]
  origin stage 0 ipu 0 phase 0
  %3 = mul(%1, %2): float32[2]
  output %3
}, count=3, carried=1): float32[2]
output %3
]]), text)
  end)

  it("drop what is carried for nobody, and operands with it", function()
    local text = after([[
graph
input %1: float32[2]
input %2: float32[2]
input %3: float32[2]
input %4: float32[2]
origin stage 0 ipu 0
%5, %6, %7 = loop([%1, %2, %3, %4], body={
  graph
  input %1: float32[2]
  input %2: float32[2]
  input %3: float32[2]
  input %4: float32[2]
  origin stage 0 ipu 0
  %5 = add(%1, %2)
  %6 = neg(%2)
  %7 = mul(%3, %4)
  output %5, %6, %7
}, count=3, carried=3)
output %5
]])
    -- %2 reaches %1 in the next round, %3 and %4 nothing
    assert.truthy(text:find("%5, %6 = loop([%1, %2], body", 1, true))
    assert.truthy(text:find("carried=2", 1, true))
    assert.is_nil(text:find("mul", 1, true))
  end)

  it("keep a loop that prints", function()
    local text = after([[
graph
input %1: float32[2]
origin stage 0 ipu 0
%2 = loop([%1], body={
  graph
  input %1: float32[2]
  origin stage 0 ipu 0
  %2 = print_tensor(%1, title="x", print_gradient=false)
  %3 = neg(%1)
  output %3
}, count=3, carried=1)
output %1
]])
    assert.truthy(text:find("print_tensor", 1, true))
  end)
end)
