-- What the passes do to regions, effects, markers and random operators. The
-- probe makes softmax an operator that a trace inlines, and exp, neg what a
-- test needs.
local graphs = require("spec.support.graphs")

local function becomes(arguments, before, after)
  arguments[#arguments + 1] = "parse"
  local want = graphs.probe(graphs.text(after), "inline=softmax", "parse")
  for _, name in ipairs(arguments.passes) do
    arguments[#arguments + 1] = "pass=" .. name
  end
  local got = graphs.probe(graphs.text(before), "inline=softmax", table.unpack(arguments))
  if got ~= want then
    error(("gave\n%s\nexpected\n%s"):format(got, want), 2)
  end
end

describe("regions", function()
  it("survive clones", function()
    local text = graphs.text([[
      input %1: float32[2]
      %2 = exp(%1): float32[2] region 1
      region 1 = softmax(%1, dim=0) -> %2, _
      output %2]])
    assert.equal(text, graphs.probe(text, "inline=softmax", "parse", "clone"))
  end)

  it("lose dead results, and go with the last", function()
    becomes({ passes = { "dce" } }, [[
      input %x: float32[2]
      %a = neg(%x)
      %b = exp(%a) region 1
      %c = abs(%b) region 1
      %d = exp(%x) region 2
      region 1 = softmax(%a, dim=0) -> %b, %c
      region 2 = softmax(%x, dim=0) -> %d
      output %b]], [[
      input %x: float32[2]
      %a = neg(%x)
      %b = exp(%a) region 1
      region 1 = softmax(%a, dim=0) -> %b, _
      output %b]])
  end)

  it("keep what they read alive", function()
    becomes({ passes = { "dce" } }, [[
      input %x: float32[2]
      %a = neg(%x)
      %b = exp(%x) region 1
      region 1 = softmax(%a, dim=0) -> %b
      output %b]], [[
      input %x: float32[2]
      %a = neg(%x)
      %b = exp(%x) region 1
      region 1 = softmax(%a, dim=0) -> %b
      output %b]])
  end)

  it("are not looked out of, but into", function()
    becomes({ passes = { "canonicalise" } }, [[
      input %x: float32[2, 3]
      %a = permute(%x, dims=[1, 0])
      %b = permute(%a, dims=[1, 0]) region 1
      %c = permute(%b, dims=[1, 0]) region 1
      %d = permute(%c, dims=[1, 0])
      region 1 = softmax(%a, dim=0) -> %b, %c
      output %b, %c, %d]], [[
      input %x: float32[2, 3]
      %a = permute(%x, dims=[1, 0])
      %b = permute(%a, dims=[1, 0]) region 1
      region 1 = softmax(%a, dim=0) -> %b, %a
      output %b, %a, %x]])
  end)

  it("merge as a whole, never in part", function()
    becomes({ passes = { "cse" } }, [[
      input %x: float32[2]
      %a = exp(%x)
      %b = exp(%x) region 1
      %c = neg(%b) region 1
      %d = exp(%x) region 2
      %e = neg(%d) region 2
      %f = exp(%x) region 3
      %g = neg(%f) region 3
      region 1 = softmax(%x, dim=0) -> %c
      region 2 = softmax(%x, dim=0) -> %e
      region 3 = softmax(%x, dim=-1) -> %g
      output %a, %c, %e, %g]], [[
      input %x: float32[2]
      %a = exp(%x)
      %b = exp(%x) region 1
      %c = neg(%b) region 1
      %f = exp(%x) region 2
      %g = neg(%f) region 2
      region 1 = softmax(%x, dim=0) -> %c
      region 2 = softmax(%x, dim=-1) -> %g
      output %a, %c, %c, %g]])
  end)

  it("lose their label when they turn out to differ inside", function()
    becomes({ passes = { "cse" } }, [[
      input %x: float32[2]
      %b = exp(%x) region 1
      %c = neg(%b) region 1
      %d = exp(%x) region 2
      %e = abs(%d) region 2
      region 1 = softmax(%x, dim=0) -> %c
      region 2 = softmax(%x, dim=0) -> %e
      output %c, %e]], [[
      input %x: float32[2]
      %b = exp(%x) region 1
      %c = neg(%b) region 1
      %e = abs(%b)
      region 1 = softmax(%x, dim=0) -> %c
      output %c, %e]])
  end)

  it("do not merge over places, nor with random operators inside", function()
    local text = [[
      input %%x: float32[2]
      origin
      %%b = %s(%%x) region 1
      origin %s
      %%c = %s(%%x) region 2
      region 1 = softmax(%%x, dim=0) -> %%b
      region 2 = softmax(%%x, dim=0) -> %%c
      output %%b, %%c]]
    local places = text:format("exp", "stage 1", "exp")
    becomes({ passes = { "cse" } }, places, places)
    local random = text:format("dropout", "", "dropout")
    becomes({ passes = { "cse" } }, random, random)
  end)
end)

describe("effects, markers and random operators", function()
  local twice = [[
    input %x: float32[2]
    %a = exp(%x)
    %b = exp(%x)
    output %a, %b]]

  it("never merge", function()
    becomes({ "effect=exp", passes = { "cse" } }, twice, twice)
    becomes({ "marker=exp", passes = { "cse" } }, twice, twice)
    local dropout = twice:gsub("exp%(%%x%)", "dropout(%%x) site 1")
    becomes({ passes = { "cse" } }, dropout, dropout)
  end)

  it("are not folded", function()
    local constant = [[
      %a = full(size=[2], fill_value=1.0, dtype=float32)
      %b = exp(%a)
      %c = dropout(%a) site 0x7
      output %b, %c]]
    becomes({ "effect=exp", passes = { "fold" } }, constant, constant)
    becomes({ "marker=exp", passes = { "fold" } }, constant, constant)
  end)

  it("stay although nobody reads them, if they are effects", function()
    local unread = [[
      input %x: float32[2]
      %a = neg(%x)
      %b = exp(%a)
      output %x]]
    becomes({ "effect=exp", passes = { "dce" } }, unread, unread)
    becomes({ "marker=exp", passes = { "dce" } }, unread, "input %x: float32[2]\noutput %x")
  end)
end)
