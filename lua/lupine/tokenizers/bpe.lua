--- Byte pair encoding (Sennrich et al. 2016): a word begins as its characters, and as long as
--- two neighbours are a pair that was learned, the pair that was learned first becomes one
--- token, the leftmost if there are several.
---
--- Pairs wait in a heap, by rank and place; one whose neighbours have changed meanwhile is
--- passed over when it comes up. A word of n characters takes n log n steps.
local check = require("lupine.base.check")
local memo = require("lupine.tokenizers.memo")
local reading = require("lupine.tokenizers.reading")

local field = reading.field

local Bpe = {}
Bpe.__index = Bpe

local LONGEST_KEPT = 256

-- The two tokens of a merge: "a b" or ["a", "b"].
local function two(merge, where)
  local a, b
  if type(merge) == "string" then
    a, b = merge:match("^([^ ]+) ([^ ]+)$")
  elseif type(merge) == "table" and #merge == 2 then
    a, b = merge[1], merge[2]
  end
  if type(a) ~= "string" or type(b) ~= "string" then
    reading.fail(where, "expected \"a b\" or [\"a\", \"b\"], got %s", check.describe(merge))
  end
  return a, b
end

local function read_merges(self, merges)
  local prefix = #(self.prefix or "")
  for i, merge in ipairs(merges) do
    local where = ("model.merges[%d]"):format(i - 1)
    local a, b = two(merge, where)
    local ids = { self.vocab[a], self.vocab[b], self.vocab[a .. b:sub(prefix + 1)] }
    for k, token in ipairs({ a, b, a .. b:sub(prefix + 1) }) do
      if not ids[k] then
        reading.fail(where, "the vocabulary has no '%s'", token)
      end
    end
    self.rank[ids[1] << 32 | ids[2]], self.result[i] = i, ids[3]
  end
end

-- ---- the heap ------------------------------------------------------------------------

local function push(heap, entry)
  local i = #heap + 1
  while i > 1 and heap[i // 2] > entry do
    heap[i] = heap[i // 2]
    i = i // 2
  end
  heap[i] = entry
end

local function pop(heap)
  local top, n = heap[1], #heap
  local last = heap[n]
  heap[n] = nil
  n = n - 1
  if n == 0 then
    return top
  end
  local i = 1
  while 2 * i <= n do
    local child = 2 * i
    if child < n and heap[child + 1] < heap[child] then
      child = child + 1
    end
    if heap[child] >= last then
      break
    end
    heap[i] = heap[child]
    i = child
  end
  heap[i] = last
  return top
end

-- ---- words -----------------------------------------------------------------------------

-- The ids of a character's bytes; nil if one of them has none.
local function bytes_of(self, c)
  local out = {}
  for i = 1, #c do
    out[i] = self.vocab[("<0x%02X>"):format(c:byte(i))]
    if not out[i] then
      return nil
    end
  end
  return out
end

-- A word's characters as ids. What is unknown waits in `pending` until something known comes,
-- so that with fuse_unk a run of it is one token.
local function characters(self, word)
  local ids, pending, last = {}, false, utf8.offset(word, -1)
  for at, code in utf8.codes(word) do
    local c = utf8.char(code)
    local token = (at > 1 and self.prefix or "") .. c .. (at == last and self.suffix or "")
    local id = self.vocab[token]
    local bytes = not id and self.byte_fallback and bytes_of(self, token)
    if id then
      if pending then
        ids[#ids + 1] = self.unk
      end
      ids[#ids + 1], pending = id, false
    elseif bytes then
      table.move(bytes, 1, #bytes, #ids + 1, ids)
    elseif self.unk then
      if pending and not self.fuse_unk then
        ids[#ids + 1] = self.unk
      end
      pending = true
    end
  end
  if pending then
    ids[#ids + 1] = self.unk
  end
  return ids
end

local function merge(self, ids)
  local rank, result, heap = self.rank, self.result, {}
  local after, before = {}, {}
  local function offer(i)
    local k = after[i]
    local r = k and rank[ids[i] << 32 | ids[k]]
    if r then
      push(heap, r << 32 | i)
    end
  end
  for i = 1, #ids do
    after[i], before[i] = i < #ids and i + 1 or nil, i > 1 and i - 1 or nil
  end
  for i = 1, #ids - 1 do
    offer(i)
  end
  while heap[1] do
    local top = pop(heap)
    local i, new = top & 0xffffffff, result[top >> 32]
    local k = after[i]
    local now = ids[i] and k and rank[ids[i] << 32 | ids[k]]
    if now and result[now] == new then
      ids[i], ids[k], after[i] = new, false, after[k]
      if after[i] then
        before[after[i]] = i
      end
      offer(i)
      if before[i] then
        offer(before[i])
      end
    end
  end
  local out = {}
  for _, id in ipairs(ids) do
    out[#out + 1] = id or nil
  end
  return out
end

local function ids_of(self, word)
  local id = self.ignore_merges and self.vocab[word]
  return id and { id } or merge(self, characters(self, word))
end

--- The ids of a word.
---@param word string
---@return integer[] the caller does not change it
function Bpe:tokenize(word)
  return self.ids(word)
end

--- The model of a description whose vocabulary is read already.
---@param d table
---@param vocab table<string, integer>
---@return table
return function(d, vocab)
  local where = "model"
  local dropout = d.dropout
  if not check.is_none(dropout) and dropout ~= 0 then
    reading.fail(where .. ".dropout", "expected null, got %s: ids would be drawn at random",
      check.describe(dropout))
  end
  local none = require("lupine.core").none
  local self = setmetatable({ vocab = vocab, rank = {}, result = {},
    prefix = field(d, "continuing_subword_prefix", "string", where, none),
    suffix = field(d, "end_of_word_suffix", "string", where, ""),
    fuse_unk = field(d, "fuse_unk", "boolean", where, false),
    byte_fallback = field(d, "byte_fallback", "boolean", where, false),
    ignore_merges = field(d, "ignore_merges", "boolean", where, false) }, Bpe)
  local unk = field(d, "unk_token", "string", where, none)
  if unk and not vocab[unk] then
    reading.fail(where .. ".unk_token", "the vocabulary has no '%s'", unk)
  end
  self.unk = unk and vocab[unk]
  read_merges(self, field(d, "merges", "array", where))
  self.ids = memo(function(word)
    return ids_of(self, word)
  end, LONGEST_KEPT)
  return self
end
