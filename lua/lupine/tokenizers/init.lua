--- Tokenizers from the file tokenizer.json that comes with public checkpoints, with the ids of
--- the package tokenizers: byte-level and plain BPE, WordPiece, WordLevel.
---
---     local tokenizer = require("lupine.tokenizers").Tokenizer.from_file("tokenizer.json")
---     local encoding = tokenizer:encode("Hello, world!")
---     print(tokenizer:decode(encoding.ids))
---
--- A text goes through added tokens, the normalizer, the pre-tokenizer, the model, truncation,
--- the post-processor and padding. Ids count from 0, lists of them from 1. A file is data:
--- nothing in it is run, and what it has wrong is told by its place.
---
--- source: documentation of the package tokenizers.
local added_tokens = require("lupine.tokenizers.added")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local decoders = require("lupine.tokenizers.decoders")
local errors = require("lupine.base.errors")
local lengths = require("lupine.tokenizers.lengths")
local models = require("lupine.tokenizers.models")
local normalizers = require("lupine.tokenizers.normalizers")
local pre_tokenizers = require("lupine.tokenizers.pre_tokenizers")
local processors = require("lupine.tokenizers.processors")
local reading = require("lupine.tokenizers.reading")

local M = {}

---@class lupine.tokenizers.Encoding
---@field ids integer[]
---@field tokens string[]
---@field type_ids integer[] 0 of the first text, 1 of the second (as the file says)
---@field attention_mask integer[] 0 of padding
---@field special_tokens_mask integer[] 1 of what was put around the texts
local Encoding = class.new("Encoding")
M.Encoding = Encoding

-- The texts of the ids are looked up when they are asked for.
function Encoding.__index(self, key)
  if key ~= "tokens" then
    return Encoding[key]
  end
  local tokens, tokenizer = {}, rawget(self, "_tokenizer")
  local padding = tokenizer.padding
  for i, id in ipairs(self.ids) do
    tokens[i] = tokenizer:id_to_token(id) or padding and id == padding.id and padding.token or ""
  end
  rawset(self, "tokens", tokens)
  return tokens
end

function Encoding.__len(self)
  return #self.ids
end

function Encoding.__tostring(self)
  return ("Encoding(num_tokens=%d)"):format(#self.ids)
end

---@class lupine.tokenizers.Tokenizer
local Tokenizer = class.new("Tokenizer")
M.Tokenizer = Tokenizer

function Tokenizer.__tostring(self)
  return ("Tokenizer(%s, %d tokens)"):format(self.kind, self:get_vocab_size())
end

-- ---- reading -------------------------------------------------------------------------

local VERSION = "1.0"

function Tokenizer:init(d)
  reading.object(d, "the file")
  local version = reading.field(d, "version", "string", "the file", VERSION)
  if version ~= VERSION then
    reading.fail("version", "expected '%s', got '%s'", VERSION, version)
  end
  self.normalize = normalizers.make(d.normalizer)
  self.pre_tokenize = pre_tokenizers.make(d.pre_tokenizer)
  self.model, self.vocab, self.by_id = models.make(d.model)
  self.kind = d.model.type
  local list = reading.field(d, "added_tokens", "array", "the file", {})
  self.added = added_tokens(list, self.normalize, self.vocab, self.by_id)
  self.template = processors.make(d.post_processor)
  self.decoder = decoders.make(d.decoder)
  self.truncation = lengths.truncation(d.truncation)
  self.padding = lengths.padding(d.padding)
end

--- The tokenizer of the text of a file.
--- errors: ValueError (no JSON, or not of this form), NotImplementedError (a part that is not
--- here, by its name)
---@param text string
---@return lupine.tokenizers.Tokenizer
function Tokenizer.from_str(text)
  return Tokenizer(core.json_decode(check.string(text, "Tokenizer.from_str: text"), "tokenizer"))
end

--- The tokenizer of a file tokenizer.json. Nothing is downloaded.
--- errors: OSError, ValueError, NotImplementedError
---@param path string
---@return lupine.tokenizers.Tokenizer
function Tokenizer.from_file(path)
  local file, why = io.open(check.string(path, "Tokenizer.from_file: path"), "rb")
  errors.check(file, "OSError", "Tokenizer.from_file: %s", why)
  local text = file:read("a")
  file:close()
  errors.check(text, "OSError", "Tokenizer.from_file: %s cannot be read", path)
  return Tokenizer.from_str(text)
end

-- ---- encoding ------------------------------------------------------------------------

local function valid(text, where)
  check.string(text, where)
  errors.check(utf8.len(text), "ValueError", "%s: the text is not UTF-8", where)
  return text
end

-- The ids of a text, without special tokens around it.
local function ids_of(self, text)
  local ids, n = {}, 0
  self.added:split(text, self.normalize, function(token, part, start)
    if token then
      n = n + 1
      ids[n] = token.id
      return
    end
    for _, word in ipairs(self.pre_tokenize and self.pre_tokenize(part, start) or { part }) do
      for _, id in ipairs(self.model:tokenize(word)) do
        n = n + 1
        ids[n] = id
      end
    end
  end)
  return ids
end

local function sequence(self, text, pretokenized, where)
  if not pretokenized then
    return ids_of(self, valid(text, where))
  end
  local ids = {}
  for i, word in ipairs(check.table(text, where)) do
    local own = ids_of(self, valid(word, ("%s, element %d"):format(where, i)))
    table.move(own, 1, #own, #ids + 1, ids)
  end
  return ids
end

local PLAIN = { single = { { "sequence", "A", 0 } },
  pair = { { "sequence", "A", 0 }, { "sequence", "B", 1 } } }

local function count_special(parts)
  local n = 0
  for _, part in ipairs(parts) do
    n = n + (part[1] == "token" and 1 or 0)
  end
  return n
end

local function append(out, id, type_id, special)
  local n = #out.ids + 1
  out.ids[n], out.type_ids[n] = id, type_id
  out.attention_mask[n], out.special_tokens_mask[n] = 1, special
end

local function assemble(parts, texts)
  local out = Encoding()
  out.ids, out.type_ids, out.attention_mask, out.special_tokens_mask = {}, {}, {}, {}
  for _, part in ipairs(parts) do
    local kind, what, type_id = part[1], part[2], part[3]
    if kind == "token" then
      append(out, what, type_id, 1)
    end
    for _, id in ipairs(kind == "sequence" and texts[what] or {}) do
      append(out, id, type_id, 0)
    end
  end
  return out
end

local OPTIONS = { add_special_tokens = true, is_pretokenized = true }

local function read_options(given, where)
  check.plain_table(given or {}, where .. ": options")
  for name, value in next, given or {} do
    errors.check(OPTIONS[name], "TypeError", "%s: unknown option '%s'%s", where, tostring(name),
      check.nearest(name, { "add_special_tokens", "is_pretokenized" }))
    check.bool(value, where .. ": " .. name)
  end
  return given or {}
end

local function encode_one(self, text, pair, o, where)
  local a = sequence(self, text, o.is_pretokenized, where .. ": text")
  local b = pair and sequence(self, pair, o.is_pretokenized, where .. ": pair") or nil
  local templates = o.add_special_tokens ~= false and self.template or PLAIN
  local parts = templates[b and "pair" or "single"]
  a, b = lengths.truncate(self.truncation, a, b, count_special(parts))
  return assemble(parts, { A = a, B = b })
end

-- Fills an encoding to n tokens.
local function fill(self, out, n)
  local p = self.padding
  local at = p.direction == "Left" and 1 or nil
  local rows = { { out.ids, p.id }, { out.type_ids, p.type_id }, { out.attention_mask, 0 },
    { out.special_tokens_mask, 1 } }
  local missing = n - #out.ids
  for _, row in ipairs(missing > 0 and rows or {}) do
    local list, value = row[1], row[2]
    if at then
      table.move(list, 1, #list, missing + 1)
    end
    for i = 1, missing do
      list[at and i or #list + 1] = value
    end
  end
end

-- Pads encodings alike.
local function finish(self, list)
  local longest = 0
  for _, out in ipairs(list) do
    longest = math.max(longest, #out.ids)
  end
  for _, out in ipairs(list) do
    if self.padding then
      fill(self, out, lengths.padded(self.padding, longest))
    end
    out._tokenizer = self
  end
  return list
end

--- The ids of a text, or of a pair of texts.
--- errors: TypeError, ValueError (not UTF-8)
---@param text string|string[] with is_pretokenized a list of words
---@param pair? string|string[]
---@param options? {add_special_tokens: boolean?, is_pretokenized: boolean?}
---@return lupine.tokenizers.Encoding
function Tokenizer:encode(text, pair, options)
  if options == nil and type(pair) == "table" and (pair.add_special_tokens ~= nil
      or pair.is_pretokenized ~= nil) then
    pair, options = nil, pair
  end
  pair = not check.is_none(pair) and pair or nil
  local o = read_options(options, "encode")
  return finish(self, { encode_one(self, text, pair, o, "encode") })[1]
end

--- The ids of several texts, padded to one length if the tokenizer pads. A pair of texts is
--- a list of two.
---@param texts (string|string[])[]
---@param options? {add_special_tokens: boolean?, is_pretokenized: boolean?}
---@return lupine.tokenizers.Encoding[]
function Tokenizer:encode_batch(texts, options)
  local o, out = read_options(options, "encode_batch"), {}
  for i, text in ipairs(check.plain_table(texts, "encode_batch: texts")) do
    local where = ("encode_batch: element %d"):format(i)
    local is_pair = type(text) == "table"
      and (not o.is_pretokenized or type(text[1]) == "table")
    errors.check(not is_pair or #text == 2, "ValueError",
      "%s: expected a text or a list of two", where)
    out[i] = encode_one(self, is_pair and text[1] or text, is_pair and text[2] or nil, o, where)
  end
  return finish(self, out)
end

-- ---- decoding ------------------------------------------------------------------------

--- The text of ids; special tokens are left out. Ids without a token are passed over.
---@param ids integer[]|torch.Tensor
---@param skip_special_tokens? boolean|{skip_special_tokens: boolean} (true)
---@return string
function Tokenizer:decode(ids, skip_special_tokens)
  if type(skip_special_tokens) == "table" then
    skip_special_tokens = skip_special_tokens.skip_special_tokens
  end
  local list, tokens = core.is_tensor(ids) and ids:tolist() or ids, {}
  for i, id in ipairs(check.table(list, "decode: ids")) do
    check.int(id, ("decode: ids, element %d"):format(i))
    local added = self.added.by_id[id]
    if not (added and added.special and skip_special_tokens ~= false) then
      tokens[#tokens + 1] = self:id_to_token(id)
    end
  end
  if self.decoder then
    return table.concat(self.decoder(tokens))
  end
  return table.concat(tokens, " ")
end

--- The texts of several lists of ids.
---@param lists integer[][]|torch.Tensor
---@param skip_special_tokens? boolean|{skip_special_tokens: boolean} (true)
---@return string[]
function Tokenizer:decode_batch(lists, skip_special_tokens)
  local out = {}
  for i, ids in ipairs(core.is_tensor(lists) and lists:tolist() or lists) do
    out[i] = self:decode(ids, skip_special_tokens)
  end
  return out
end

-- ---- the vocabulary ------------------------------------------------------------------

--- The id of a token; nil if there is none.
---@param token string
---@return integer?
function Tokenizer:token_to_id(token)
  local added = self.added.by_content[check.string(token, "token_to_id: token")]
  return added and added.id or self.vocab[token]
end

--- The token of an id; nil if there is none. Of an added one that is sought in normalized text
--- it is what the normalizer makes of it.
---@param id integer
---@return string?
function Tokenizer:id_to_token(id)
  local added = self.added.by_id[check.int(id, "id_to_token: id")]
  return added and added.sought or self.by_id[id]
end

--- All tokens and their ids.
---@param with_added_tokens? boolean (true)
---@return table<string, integer>
function Tokenizer:get_vocab(with_added_tokens)
  local out = {}
  for token, id in next, self.vocab do
    out[token] = id
  end
  for content, token in next, with_added_tokens ~= false and self.added.by_content or {} do
    out[content] = token.id
  end
  return out
end

--- The number of tokens.
---@param with_added_tokens? boolean (true)
---@return integer
function Tokenizer:get_vocab_size(with_added_tokens)
  local n = 0
  for _ in next, self.vocab do
    n = n + 1
  end
  for content in next, with_added_tokens ~= false and self.added.by_content or {} do
    n = n + (self.vocab[content] == nil and 1 or 0)
  end
  return n
end

-- ---- lengths -------------------------------------------------------------------------

local CAPITAL = { left = "Left", right = "Right", longest_first = "LongestFirst",
  only_first = "OnlyFirst", only_second = "OnlySecond" }

local TRUNCATION = { "max_length", "stride", "strategy", "direction" }
local PADDING = { "direction", "pad_id", "pad_type_id", "pad_token", "length",
  "pad_to_multiple_of" }

--- Cuts texts to a number of tokens, special ones included; what is cut off is not kept, so
--- that stride, which is of such pieces, has no effect. Arguments by position or by name.
--- source: tokenizers, Tokenizer.enable_truncation
---@param max_length integer
---@param stride? integer (0)
---@param strategy? string longest_first, only_first or only_second
---@param direction? string right or left
function Tokenizer:enable_truncation(...)
  local max_length, stride, strategy, direction = table.unpack(
    check.arguments("enable_truncation", TRUNCATION, nil, ...), 1, 4)
  self.truncation = lengths.truncation({ max_length = max_length, stride = stride,
    strategy = CAPITAL[strategy] or strategy, direction = CAPITAL[direction] or direction })
end

--- Texts stay as long as they are.
function Tokenizer:no_truncation()
  self.truncation = nil
end

--- Fills texts to the longest of a batch, or to a length. Arguments by position or by name.
--- source: tokenizers, Tokenizer.enable_padding
---@param direction? string right or left
---@param pad_id? integer (0)
---@param pad_type_id? integer (0)
---@param pad_token? string ("[PAD]")
---@param length? integer
---@param pad_to_multiple_of? integer
function Tokenizer:enable_padding(...)
  local direction, id, type_id, token, length, multiple = table.unpack(
    check.arguments("enable_padding", PADDING, nil, ...), 1, 6)
  self.padding = lengths.padding({ direction = CAPITAL[direction] or direction, pad_id = id,
    pad_type_id = type_id, pad_token = token, pad_to_multiple_of = multiple,
    strategy = length and { Fixed = length } })
end

--- Texts of a batch keep their lengths.
function Tokenizer:no_padding()
  self.padding = nil
end

return require("lupine.base.namespace").close(M, "lupine.tokenizers")
