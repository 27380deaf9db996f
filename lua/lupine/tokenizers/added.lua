--- Added tokens: texts that are one token wherever they stand, found before anything else is
--- done to a text.
---
--- Of several that begin at one place the longest counts, and of those that overlap the first.
--- Special ones, and those with normalized = false, are sought in the text as it is, the others
--- in what the normalizer makes of it.
local reading = require("lupine.tokenizers.reading")
local unicode = require("lupine.tokenizers.unicode")

local field = reading.field

local Added = {}
Added.__index = Added

-- Tokens by the first byte of their text, the longest first, and a pattern for these bytes.
local function index(list)
  local by_byte, class = {}, {}
  for _, token in ipairs(list) do
    local byte = token.sought:sub(1, 1)
    if byte ~= "" then
      if not by_byte[byte] then
        by_byte[byte] = {}
        class[#class + 1] = (byte:gsub("[%]%^%-%%]", "%%%0"))
      end
      table.insert(by_byte[byte], token)
    end
  end
  for _, tokens in next, by_byte do
    table.sort(tokens, function(a, b)
      return #a.sought > #b.sought or #a.sought == #b.sought and a.id > b.id
    end)
  end
  return #class > 0 and { by_byte = by_byte, class = "[" .. table.concat(class) .. "]" } or nil
end

-- The next token from `at` on: it and its place.
local function next_token(sought, text, at)
  while true do
    local i = text:find(sought.class, at)
    if not i then
      return nil
    end
    for _, token in ipairs(sought.by_byte[text:sub(i, i)]) do
      if text:sub(i, i + #token.sought - 1) == token.sought then
        return token, i
      end
    end
    at = i + 1
  end
end

-- The character that ends before a place, or begins at it; "" at the text's ends.
local function char_before(text, at)
  return at > 1 and text:sub(utf8.offset(text, -1, at), at - 1) or ""
end

local function char_at(text, at)
  return at <= #text and text:sub(at, utf8.offset(text, 2, at) - 1) or ""
end

local function is(pattern, char)
  return char ~= "" and #unicode.regex(pattern):find_all(char) > 0
end

-- A word of its own: no letters before and behind it.
local function stands_alone(text, first, last)
  return not is(unicode.WORD, char_before(text, first))
    and not is(unicode.WORD, char_at(text, last + 1))
end

-- The token's place with the blanks that it takes along, none before `from`.
local function widened(token, text, first, last, from)
  local char = token.lstrip and char_before(text, first) or ""
  while first > from and is(unicode.SPACE, char) do
    first = first - #char
    char = char_before(text, first)
  end
  char = token.rstrip and char_at(text, last + 1) or ""
  while is(unicode.SPACE, char) do
    last = last + #char
    char = char_at(text, last + 1)
  end
  return first, last
end

--- Calls put(token, text) for the tokens of a text and what lies between, in order: one of
--- both is nil, and `start` says whether a text is the beginning.
---@param sought table? of index
---@param text string
---@param put fun(token: table?, text: string?, start: boolean?)
local function cut(sought, text, put)
  local from, at = 1, 1
  while sought do
    local token, first = next_token(sought, text, at)
    if not token then
      break
    end
    local last = first + #token.sought - 1
    at = last + 1
    if not token.single_word or stands_alone(text, first, last) then
      first, last = widened(token, text, first, last, from)
      if first > from then
        put(nil, text:sub(from, first - 1), from == 1)
      end
      put(token)
      from = last + 1
      at = math.max(at, from)
    end
  end
  if from <= #text then
    put(nil, text:sub(from), from == 1)
  end
end

--- Calls put(token, text, start) for the parts of a text, normalized.
---@param text string
---@param normalize (fun(text: string): string)?
---@param put fun(token: table?, text: string?, start: boolean?)
function Added:split(text, normalize, put)
  cut(self.raw, text, function(token, part, start)
    if token then
      return put(token)
    end
    local moved
    if normalize then
      part, moved = normalize(part)
    end
    cut(self.normal, part, function(inner, rest, beginning)
      put(inner, rest, start and beginning and not moved)
    end)
  end)
end

local FLAGS = { "single_word", "lstrip", "rstrip" }

local function read_token(d, where, normalize)
  reading.object(d, where)
  local token = { id = field(d, "id", "integer", where), special = field(d, "special", "boolean",
    where, false), content = field(d, "content", "string", where) }
  for _, flag in ipairs(FLAGS) do
    token[flag] = field(d, flag, "boolean", where, false)
  end
  token.normalized = field(d, "normalized", "boolean", where, not token.special)
  token.sought = token.normalized and normalize and (normalize(token.content)) or token.content
  return token
end

local function check_token(token, where, vocab, tokens, by_id)
  local id, content = token.id, token.content
  local known = vocab[content]
  if known and known ~= id then
    reading.fail(where, "'%s' has the id %d in the vocabulary, and %d here", content, known, id)
  elseif (tokens[id] or content) ~= content or by_id[id] and by_id[id].content ~= content then
    reading.fail(where, "the id %d is that of '%s', too", id, tokens[id] or by_id[id].content)
  end
end

--- The added tokens of a description.
---@param list any
---@param normalize (fun(text: string): string)?
---@param vocab table<string, integer> of the model
---@param tokens table<integer, string>
---@return table
return function(list, normalize, vocab, tokens)
  local self = setmetatable({ by_id = {}, by_content = {} }, Added)
  local raw, normal = {}, {}
  for i, d in ipairs(list) do
    local where = ("added_tokens[%d]"):format(i - 1)
    local token = read_token(d, where, normalize)
    check_token(token, where, vocab, tokens, self.by_id)
    self.by_id[token.id], self.by_content[token.content] = token, token
    table.insert(token.normalized and normal or raw, token)
  end
  self.raw, self.normal = index(raw), index(normal)
  return self
end
