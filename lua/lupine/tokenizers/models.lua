--- The models of tokenizer.json, which make ids of words: WordPiece, WordLevel and BPE.
local bpe = require("lupine.tokenizers.bpe")
local memo = require("lupine.tokenizers.memo")
local reading = require("lupine.tokenizers.reading")

local field = reading.field
local M = {}

local function unknown_id(d, vocab)
  local unk = field(d, "unk_token", "string", "model")
  if not vocab[unk] then
    reading.fail("model.unk_token", "the vocabulary has no '%s'", unk)
  end
  return vocab[unk]
end

M.BPE = bpe

local WordLevel = {}
WordLevel.__index = WordLevel

--- The id of a word.
---@param word string
---@return integer[]
function WordLevel:tokenize(word)
  return { self.vocab[word] or self.unk }
end

function M.WordLevel(d, vocab)
  return setmetatable({ vocab = vocab, unk = unknown_id(d, vocab) }, WordLevel)
end

-- Greedy from the left: the longest beginning that is a token (Schuster & Nakajima 2012).
local WordPiece = {}
WordPiece.__index = WordPiece

-- Where the characters end.
local function ends(word)
  local out = {}
  for at in utf8.codes(word) do
    out[#out + 1] = at - 1
  end
  table.remove(out, 1)
  out[#out + 1] = #word
  return out
end

local function pieces(self, word)
  local stops, ids, from, first = ends(word), {}, 1, 1
  if #stops > self.longest then
    return { self.unk }
  end
  while first <= #stops do
    local id
    for last = math.min(#stops, first + self.widest - 1), first, -1 do
      id = self.vocab[(from > 1 and self.prefix or "") .. word:sub(from, stops[last])]
      if id then
        from, first = stops[last] + 1, last + 1
        break
      end
    end
    if not id then
      return { self.unk }
    end
    ids[#ids + 1] = id
  end
  return ids
end

--- The ids of a word.
---@param word string
---@return integer[] the caller does not change it
function WordPiece:tokenize(word)
  return self.ids(word)
end

function M.WordPiece(d, vocab)
  local widest = 1
  for token in next, vocab do
    widest = math.max(widest, utf8.len(token) or 1)
  end
  local self = setmetatable({ vocab = vocab, unk = unknown_id(d, vocab), widest = widest,
    prefix = field(d, "continuing_subword_prefix", "string", "model", "##"),
    longest = field(d, "max_input_chars_per_word", "integer", "model", 100) }, WordPiece)
  self.ids = memo(function(word)
    return pieces(self, word)
  end)
  return self
end

-- The vocabulary, and tokens by id.
local function read_vocab(d)
  local vocab, tokens = field(d, "vocab", "object", "model"), {}
  for token, id in next, vocab do
    if math.type(id) ~= "integer" or id < 0 or id > 0x7fffffff then
      reading.fail("model.vocab", "the id of '%s': expected an integer in 0..2^31-1, got %s", token,
        tostring(id))
    elseif tokens[id] then
      reading.fail("model.vocab", "'%s' and '%s' have one id, %d", tokens[id], token, id)
    end
    tokens[id] = token
  end
  return vocab, tokens
end

-- Files of some years say no type.
local function kind_of(d)
  if d.type == nil then
    return d.merges ~= nil and "BPE" or d.continuing_subword_prefix ~= nil and "WordPiece"
      or "WordLevel"
  end
  return nil
end

return {
  --- The model of a description, its vocabulary, and tokens by id.
  ---@param d any
  ---@return table model
  ---@return table<string, integer> vocab
  ---@return table<integer, string> tokens
  make = function(d)
    reading.object(d, "model")
    d.type = kind_of(d) or d.type
    local vocab, tokens
    local makers = {}
    for name, make in next, M do
      makers[name] = function(description)
        vocab, tokens = read_vocab(description)
        return make(description, vocab)
      end
    end
    local model = reading.part(makers, d, "model")
    return model, vocab, tokens
  end,
}
