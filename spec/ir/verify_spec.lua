-- The verifier catches every way in which a graph can be damaged.
local graphs = require("spec.support.graphs")

local TEXT = [[
graph
input %1: float32[2, 3]
origin
%2 = exp(%1): float32[2, 3]
%3 = permute(%2, dims=[1, 0]): float32[3, 2]
output %3
]]

local REGION = [[
graph
input %1: float32[2, 3]
origin
%2 = exp(%1): float32[2, 3] region 1
%3 = neg(%2): float32[2, 3] region 1
region 1 = softmax(%1, dim=1) -> %3
output %3
]]

describe("the verifier", function()
  it("passes what is right", function()
    assert.equal(TEXT, graphs.probe(TEXT, "parse", "verify"))
    assert.equal(REGION, graphs.probe(REGION, "inline=softmax", "parse", "verify"))
  end)

  for kind, message in pairs({
    self = "node 1: operand 0 is value 3, which does not exist yet",
    range = "node 1: operand 0 is value 11, which does not exist yet",
    number = "node 1: operand 0 is number 0, which does not exist yet",
    hole = "node 1: operand self of permute may not be a hole",
    count = "node 1: permute takes 1 operands, not 0",
    composite = "node 1: ravel is composite",
    kind = "node 1: attribute dims of permute has the kind float",
    canonical = "node 1: its attribute 0 is not canonical",
    origin = "node 1: it has no origin",
    no_origin = "node 1: it has no origin",
    region = "node 1: it belongs to region 99, which does not exist",
    site = "node 1: permute draws no random numbers and does not round, "
      .. "but has a site",
    results = "4 values, but 3 belong to inputs and nodes",
    first = "node 1: its results begin at value 2, the order says 3",
    dtype = "node 1: result 0 is recorded as float16[3, 2], its shape rule says float32[3, 2]",
    no_dtype = "node 1: a value has no proper type",
    shape = "node 1: result 0 is recorded as float32[4, 2], its shape rule says float32[3, 2]",
    ndim = "node 1: a value has no proper type",
    owner = "node 1: its result 0, value 3, says it belongs to another",
    nr = "node 1: its result 0, value 3, says it belongs to another",
    values = "node 1: it has 1 results, but the graph has no value 3",
    output = "output 0 is value 4, which does not exist",
    output_hole = "output 0 is value 0, which does not exist",
    input = "value %2 is input 0 and something else",
    input_range = "input 0 is value 1000 of 4, after value 0",
  }) do
    it("catches damage of the kind " .. kind, function()
      local out = graphs.probe(TEXT, "parse", "damage=" .. kind, "verify")
      assert.equal("error RuntimeError\ngraph is not valid: " .. message,
        out:sub(1, #"error RuntimeError\ngraph is not valid: " + #message))
    end)
  end

  for kind, message in pairs({
    region_op = "region 1 is of neg, which is not inlined",
    region_in = "region 1 reads value 1000, which does not exist",
    region_out = "region 1 gives value 1000, which does not exist",
    region_young = "node 0: region 1 reads value 3, which is younger",
  }) do
    it("catches damage of the kind " .. kind, function()
      local out = graphs.probe(REGION, "inline=softmax", "parse", "damage=" .. kind, "verify")
      assert.truthy(out:find("graph is not valid: " .. message, 1, true), out)
    end)
  end

  it("catches a region of an operator that the device has", function()
    assert.matches("region 1 is of softmax, which is not inlined",
      graphs.probe(REGION, "parse", "verify"))
  end)

  it("shows ten nodes before and after the faulty one", function()
    local lines = { "graph", "input %1: float32[2]", "origin" }
    for i = 2, 42 do
      lines[#lines + 1] = ("%%%d = neg(%%%d)"):format(i, i - 1)
      if i == 20 then
        lines[#lines + 1] = "origin none"
      elseif i == 21 then
        lines[#lines + 1] = "origin"
      end
    end
    local out = graphs.probe(table.concat(lines, "\n"), "parse", "verify")
    local shown, marked = {}, nil
    for mark, n in out:gmatch("\n([> ]) %%(%d+) = neg%(%%%d+%): float32%[2%]") do
      shown[#shown + 1] = math.tointeger(n)
      marked = mark == ">" and math.tointeger(n) or marked
    end
    assert.equal(21, marked)
    assert.equal(21, #shown)
    assert.equal(11, shown[1])
    assert.equal(31, shown[21])
  end)
end)

describe("a graph short of memory", function()
  it("fails as such wherever it happens, and loses nothing", function()
    for _, kind in ipairs({ "starve", "starve=lasting" }) do
      local out = graphs.probe(graphs.random(3, 20, true), kind)
      assert.matches("^failures %d+\n$", out)
      assert.is_true(tonumber(out:match("%d+")) > 40)
    end
  end)
end)
