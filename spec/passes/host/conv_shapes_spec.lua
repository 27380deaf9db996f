--- Convolutions whose channels or groups leave the library without code of its own
--- for images in blocks. spec/sweep goes over many more, in time too.
local program = require("spec.support.program")
local shapes = require("spec.sweep.shapes")
local ways = require("spec.sweep.ways")

local SHAPES = {
  "conv2d 2x8x9x9 16 p1", "conv2d 2x4x9x8 32 k1", "conv2d 2x12x9x9 48 k5 p2",
  "conv2d 2x64x8x8 64 p1 g8", "conv2d 2x64x8x8 64 s2 p1 g32", "conv2d 2x32x7x7 64 p1 g16",
  "conv2d 2x96x8x8 96 k7 p3 g96", "conv2d 1x48x9x9 48 k5 s2 p2 g48", "conv2d 2x32x7x7 32 d2 g32",
  "conv_transpose2d 2x32x6x6 32 k4 s2 p1 g8", "conv_transpose2d 2x32x6x6 16 p1",
  "conv1d 2x16x30 32 k7 p3 g4", "conv3d 1x16x4x5x5 16 p1 g4",
}

describe("a compiled convolution", function()
  for _, text in ipairs(SHAPES) do
    it("has the values of direct sums in float64: " .. text, function()
      for _, way in ipairs(ways.of(shapes.parse(text), 1)) do
        local off = ways.difference(way)
        assert.is_true(off <= 1, ("%s is off by %g of what is allowed"):format(way.name, off))
      end
    end)
  end

  -- The library says what it runs if DNNL_VERBOSE is set.
  it("takes the library's reference loops only where the eager one does", function()
    local script = program.temporary([[
      local shapes, ways = require("spec.sweep.shapes"), require("spec.sweep.ways")
      for _, text in ipairs({ ... }) do
        for _, way in ipairs(ways.of(shapes.parse(text), 1)) do
          print("CASE " .. text .. ", " .. way.name)
          print("eager")
          way.eager()
          print("compiled")
          way.compiled()
        end
      end
    ]])
    local words = {}
    for i, text in ipairs(SHAPES) do
      words[i] = program.quote(text)
    end
    local out = program.shell(("DNNL_VERBOSE=1 LUA_PATH='./?.lua;;' %s %s %s"):format(program.host,
      script, table.concat(words, " ")))
    os.remove(script)
    local case, who, found, seen = nil, nil, {}, 0
    for line in out:gmatch("[^\n]+") do
      case = line:match("^CASE (.*)") or case
      who = (line == "eager" or line == "compiled") and line or who
      seen = seen + (line:find(",convolution,", 1, true) and 1 or 0)
      if line:find(",convolution,ref", 1, true) then
        found[who .. " " .. case] = true
      end
    end
    assert.is_true(seen > 8 * #SHAPES, out)
    for name in pairs(found) do
      local eager = name:gsub("^compiled", "eager")
      assert.is_true(found[eager], name)
    end
  end)
end)
