-- Tokenizers of ten kinds against the package tokenizers (0.23): ids and texts of lines in many
-- scripts (spec/sweep/tokenizers_compare.py records, and compares 10,000 lines).
local core = require("lupine.core")
local files = require("spec.support.files")
local Tokenizer = require("lupine.tokenizers").Tokenizer

local DATA = "spec/lupine/tokenizers/data/"
local facts = core.json_decode(files.read(DATA .. "facts.json"))

-- Blocks that are full: first character, number of characters.
local BLOCKS = { { 0x20, 95 }, { 0x20, 95 }, { 0x20, 95 }, { 0x41, 26 }, { 0x61, 26 }, { 0x30, 10 },
  { 0xA0, 96 }, { 0x100, 128 }, { 0x300, 112 }, { 0x391, 17 }, { 0x3B1, 25 }, { 0x410, 64 },
  { 0x5D0, 27 }, { 0x621, 26 }, { 0x64B, 21 }, { 0x905, 53 }, { 0xE01, 58 }, { 0x10A0, 38 },
  { 0x1100, 256 }, { 0x1200, 73 }, { 0x1E00, 256 }, { 0x2000, 101 }, { 0x20A0, 31 },
  { 0x2100, 140 }, { 0x2190, 256 }, { 0x3041, 86 }, { 0x30A1, 90 }, { 0x4E00, 2000 },
  { 0xAC00, 4000 }, { 0xFB00, 7 }, { 0xFF01, 94 }, { 0x1D400, 85 }, { 0x1F300, 256 },
  { 0x1F600, 80 } }

-- Lines by a linear congruential generator.
local function formula_lines(n)
  local x, out = 1, {}
  local function draw(limit)
    x = x * 6364136223846793005 + 1442695040888963407
    return (x >> 33) % limit
  end
  for i = 1, n do
    local text = {}
    for _ = 1, draw(12) do
      local block = BLOCKS[draw(#BLOCKS) + 1]
      for _ = 1, 1 + draw(7) do
        text[#text + 1] = utf8.char(block[1] + draw(block[2]))
      end
      text[#text + 1] = (" "):rep(draw(3))
    end
    out[i] = table.concat(text)
  end
  return out
end

local BASIS, PRIME = 0xcbf29ce484222325, 0x100000001b3

-- Hashes of the ids of lines, and of the texts decoded from those of the first 500.
local function hashes(t, lines)
  local ids, texts = BASIS, BASIS
  for i, line in ipairs(lines) do
    local e = t:encode(line)
    for _, id in ipairs(e.ids) do
      ids = (ids ~ id) * PRIME
    end
    ids = (ids ~ 1 << 40) * PRIME
    local text = i <= 500 and t:decode(e.ids) .. "\n" or ""
    for k = 1, #text do
      texts = (texts ~ text:byte(k)) * PRIME
    end
  end
  return ("%016x"):format(ids), ("%016x"):format(texts)
end

local function list(array)
  return { table.unpack(array) }
end

describe("a tokenizer like", function()
  local long = formula_lines(2000)
  for name, want in pairs(facts.kinds) do
    it(name .. " gives the ids and texts of the original", function()
      local t = Tokenizer.from_file(DATA .. name .. ".json")
      assert.equal(want.size, t:get_vocab_size())
      for i, line in ipairs(facts.lines) do
        assert.same({ line, list(want.ids[i]) }, { line, t:encode(line).ids })
      end
      for i, text in ipairs(want.texts) do
        assert.equal(text, t:decode(want.ids[i]))
      end
      for i, ids in ipairs(want.pairs) do
        local e = t:encode(facts.lines[2 * i - 1], facts.lines[2 * i])
        assert.same({ list(ids), list(want.types[i]) }, { e.ids, e.type_ids })
      end
      assert.same({ want.hash, want.decoded }, { hashes(t, long) })
    end)
  end
end)
