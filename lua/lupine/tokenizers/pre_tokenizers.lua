--- What cuts a text into words: functions from a text to pieces by the names of
--- tokenizer.json. The second argument says whether the text stands at the beginning of all.
local memo = require("lupine.tokenizers.memo")
local reading = require("lupine.tokenizers.reading")
local unicode = require("lupine.tokenizers.unicode")

local field, split = reading.field, unicode.split
local M = {}

-- Of a function that changes pieces without cutting them: how it does so to a whole list.
local changes = setmetatable({}, { __mode = "k" })

local GPT2 = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]

local function splitter(regex, behavior, invert)
  return function(text)
    return split(text, regex, behavior, invert)
  end
end

-- Pieces as characters for bytes.
local function byte_characters()
  local mapped = memo(unicode.to_characters)
  return function(pieces)
    for i, piece in ipairs(pieces) do
      pieces[i] = mapped(piece)
    end
    return pieces
  end
end

function M.ByteLevel(d, where)
  local prefix = field(d, "add_prefix_space", "boolean", where, true)
  local regex = field(d, "use_regex", "boolean", where, true)
    and unicode.pattern({ Regex = GPT2 }, where)
  local map = byte_characters()
  local function cut(text)
    if prefix and text:sub(1, 1) ~= " " then
      text = " " .. text
    end
    return map(regex and regex:pieces(text) or { text })
  end
  changes[cut] = not prefix and not regex and map or nil
  return cut
end

function M.BertPreTokenizer()
  local space, punctuation = unicode.regex(unicode.SPACE), unicode.regex(unicode.PUNCTUATION)
  return function(text)
    local out = {}
    for _, word in ipairs(split(text, space, "Removed")) do
      local parts = split(word, punctuation, "Isolated")
      table.move(parts, 1, #parts, #out + 1, out)
    end
    return out
  end
end

function M.Whitespace()
  return splitter(unicode.regex(unicode.WORDS), "Removed", true)
end

function M.WhitespaceSplit()
  return splitter(unicode.regex(unicode.SPACE), "Removed")
end

function M.Split(d, where)
  local regex = unicode.pattern(d.pattern, where .. ".pattern")
  return splitter(regex, reading.word(d, "behavior", unicode.BEHAVIORS, where),
    field(d, "invert", "boolean", where, false))
end

function M.Digits(d, where)
  local each = field(d, "individual_digits", "boolean", where, false)
  return splitter(unicode.regex(unicode.NUMERIC), each and "Isolated" or "Contiguous")
end

function M.Punctuation(d, where)
  return splitter(unicode.regex(unicode.PUNCTUATION),
    reading.word(d, "behavior", unicode.BEHAVIORS, where, "Isolated"))
end

function M.CharDelimiterSplit(d, where)
  return splitter(unicode.pattern(reading.character(d, "delimiter", where), where), "Removed")
end

--- How a description of Metaspace says where a blank is put before a text: "always", "first"
--- or "never". Older files say it by add_prefix_space.
---@param d table
---@param where string
---@return string
local function scheme(d, where)
  local old = field(d, "add_prefix_space", "boolean", where, true)
  return reading.word(d, "prepend_scheme", { "always", "first", "never" }, where,
    old and "always" or "never")
end

function M.Metaspace(d, where)
  local mark = reading.character(d, "replacement", where, "▁")
  local when = scheme(d, where)
  local regex = field(d, "split", "boolean", where, true) and unicode.pattern(mark, where)
  return function(text, first)
    text = text:gsub(" ", mark)
    if text:sub(1, #mark) ~= mark and (when == "always" or when == "first" and first) then
      text = mark .. text
    end
    return regex and split(text, regex, "MergedWithNext") or { text }
  end
end

local function cut_all(step, pieces, text, first)
  if changes[step] then
    return changes[step](pieces)
  end
  local out, n = {}, 0
  local at_start = first and pieces[1] and text:sub(1, #pieces[1]) == pieces[1]
  for i, piece in ipairs(pieces) do
    for _, part in ipairs(step(piece, at_start and i == 1)) do
      n = n + 1
      out[n] = part
    end
  end
  return out
end

-- Each in turn cuts what the one before it left.
local parts = reading.sequence(M, "pretokenizers")
function M.Sequence(d, where, depth)
  local steps = parts(d, where, depth)
  return function(text, first)
    local pieces = { text }
    for _, step in ipairs(steps) do
      pieces = cut_all(step, pieces, text, first)
    end
    return pieces
  end
end

return {
  --- The function of a description; nil without one.
  ---@param d any
  ---@return (fun(text: string, first: boolean): string[])?
  make = function(d)
    return reading.part(M, d, "pre_tokenizer")
  end,
  scheme = scheme,
}
