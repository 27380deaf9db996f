--- Unicode for tokenizers: classes of characters, patterns in Oniguruma's notation, and the
--- ways to split a text at matches.
---
--- The original knows punctuation, controls and marks of Unicode 8 and normal forms of older
--- ones, too: NEWER has what the libraries here know more, which stays as it is.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local reading = require("lupine.tokenizers.reading")

local M = {}

-- White_Space, and word characters, as they stand within brackets.
local SPACE = [[\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}]]
  .. [[\x{205f}\x{3000}]]
local LETTERS = [[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]]
local WORD = LETTERS .. [[\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}]] -- Oniguruma's
local RUST_WORD = LETTERS .. [[\x{200c}\x{200d}]]

-- Marks that are put in order.
local ORDERED = [[7fd 898-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 10d24-10d27
  10eab-10eac 10f46-10f50 10f82-10f85 11070 1133b 1145e 11839-1183a 1193d-1193e 11943 119e0 11a34
  11a47 11a99 11d42 11d44-11d45 11d97 16ff0-16ff1 1e130-1e136 1e2ae 1e2ec-1e2ef]]
local NEWER = {
  normal = ORDERED,
  decomposed = "11938 " .. ORDERED,
  compatible = [[32ff a7f2-a7f4 ab69 10781-10785 10787-107b0 107b2-107ba 11938 1e030-1e06d 1f16c
    1fbf0-1fbf9 ]] .. ORDERED,
  punctuation = [[61d 9fd a76 c77 c84 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59
    10f86-10f89 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2
    11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11c41-11c45 11c70-11c71 11ef7-11ef8 11fff 12ff1-12ff2
    16e97-16e9a 16fe2 1e95e-1e95f]],
  control = "890-891 8e2 110cd 13430-13438",
  nonspacing = [[7fd 898-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba 180f
    1885-1886 1abf-1ace 1df6-1dfb a82c a8c5 a8ff a9bd 10d24-10d27 10eab-10eac 10f46-10f50
    10f82-10f85 11070 11073-11074 110c2 111c9 111cf 1123e 1133b 11438-1143f 11442-11444 11446
    1145e 1182f-11837 11839-1183a 1193b-1193c 1193e 11943 119d4-119d7 119da-119db 119e0
    11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a99
    11c30-11c36 11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36
    11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 16f4f 16fe4
    1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a
    1e130-1e136 1e2ae 1e2ec-1e2ef 1e944-1e94a]],
  mark = [[7fd 898-89f 8ca-8d3 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba 1715 180f 1abf-1ace
    1cf7 1df6-1dfa a82c a8ff 10d24-10d27 10eab-10eac 10f46-10f50 10f82-10f85 11070 11073-11074
    110c2 11145-11146 111c9 111ce-111cf 1133b 1145e 1182c-1183a 11930-11935 11937-11938
    1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0 119e4 11a01-11a0a 11a33-11a39
    11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47
    11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 16f4f 16f7f-16f87 16fe4 16ff0-16ff1
    1cf00-1cf2d 1cf30-1cf46 1e130-1e136 1e2ae 1e2ec-1e2ef]],
}

-- What came later as a class, and a class without it.
local function class_of(newer)
  return "[" .. newer:gsub("%x+", "\\x{%0}"):gsub("%s+", "") .. "]"
end

local function older(class, newer)
  return "(?!" .. class_of(newer) .. ")[" .. class .. "]"
end

--- Patterns of one character.
M.SPACE = "[" .. SPACE .. "]"
M.NUMERIC = [[\p{N}]]
M.PUNCTUATION = older([=[!-/:-@\[-`{-~\p{P}\x{166d}\x{111c9}]=], NEWER.punctuation)
M.CONTROL = [[(?![\t\n\r])(?:\x{0}|\x{fffd}|]]
  .. older([[\p{Cc}\p{Cf}\p{Co}]], NEWER.control) .. ")"
M.NONSPACING = older([[\p{Mn}\x{1734}]], NEWER.nonspacing)
M.MARK = older([[\p{M}\x{1cf2}\x{1cf3}]], NEWER.mark)
M.CHINESE = [[[\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}]]
  .. [[\x{2a700}-\x{2b81f}\x{2b920}-\x{2ceaf}\x{2f800}-\x{2fa1f}]] .. "]"
--- Runs of word characters and of others that are no blanks; one word character.
M.WORDS = "[" .. RUST_WORD .. "]+|[^" .. RUST_WORD .. SPACE .. "]+"
M.WORD = "[" .. RUST_WORD .. "]"

local compiled = setmetatable({}, { __mode = "v" })

--- A pattern of PCRE2's, compiled once as long as it is used.
---@param pattern string
---@return table
function M.regex(pattern)
  local regex = compiled[pattern] or core.regex(pattern)
  compiled[pattern] = regex
  return regex
end

local KEEPS = { NFC = NEWER.normal, NFD = NEWER.decomposed, NFKD = NEWER.compatible,
  NFKC = NEWER.compatible }

--- A text in a normal form.
---@param text string
---@param form "NFC"|"NFD"|"NFKC"|"NFKD"
---@return string
function M.normal(text, form)
  if not text:find("[\xDF-\xF0]") then -- none of them begins otherwise
    return core.text_map(text, form)
  end
  local out, from, found = {}, 1, M.regex(class_of(KEEPS[form])):find_all(text)
  for i = 1, #found, 2 do
    out[#out + 1] = core.text_map(text:sub(from, found[i] - 1), form)
    out[#out + 1] = text:sub(found[i], found[i + 1])
    from = found[i + 1] + 1
  end
  out[#out + 1] = core.text_map(text:sub(from), form)
  return table.concat(out)
end

-- ---- patterns of Oniguruma's notation ------------------------------------------------

-- What an escape is, within brackets or by itself; nil: the same in both.
local CLASSES = { s = SPACE, w = WORD, h = "0-9a-fA-F" }

local BINARY = { Alphabetic = true, Any = true, Lowercase = true, Uppercase = true,
  White_Space = true, Math = true, Emoji = true, Letter = true }

-- \p{Han} is the script here, and not what is used with it.
local function property(text)
  local mark, name = text:match("^(%^?)(%a[%a_]*)$")
  if not name or #name <= 2 or BINARY[name] then
    return text
  end
  return mark .. "sc:" .. name
end

local function escape(p, i, inside, where)
  local c = p:sub(i + 1, i + 1)
  local class = CLASSES[c:lower()]
  if class and c == c:lower() then
    return inside and class or "[" .. class .. "]", i + 2
  elseif class and not inside then
    return "[^" .. class .. "]", i + 2
  elseif c == "H" then
    reading.fail(where, "\\H within brackets is not available")
  elseif c == "p" or c == "P" then
    local name, stop = p:match("^{([^}]*)}()", i + 2)
    if name then
      return ("\\%s{%s}"):format(c, property(name)), stop
    end
  elseif c == "u" and p:find("^%x%x%x%x", i + 2) then
    return ("\\x{%s}"):format(p:sub(i + 2, i + 5)), i + 6
  end
  return p:sub(i, i + 1), i + 2
end

local function translate(p, where)
  local out, i, inside = {}, 1, false
  while i <= #p do
    local c = p:sub(i, i)
    local piece, after = c, i + 1
    if c == "\\" then
      piece, after = escape(p, i, inside, where)
    elseif inside and (c == "[" and p:sub(i + 1, i + 1) ~= ":" or p:sub(i, i + 1) == "&&") then
      reading.fail(where, "classes within classes are not available: %q", p)
    elseif inside and c == "[" then
      piece, after = p:match("^(%[:.-:%])()", i)
      if not piece then
        reading.fail(where, "a class without an end: %q", p)
      end
    elseif c == "[" then
      inside = true
    elseif c == "]" then
      inside = false
    end
    out[#out + 1], i = piece, after
  end
  return table.concat(out)
end

--- The pattern of a file, {"Regex": text} or {"String": text} (or the text itself); nil for an
--- empty text, which matches nothing.
---@param d any
---@param where string
---@return table?
function M.pattern(d, where)
  if type(d) == "string" then
    d = { String = d }
  end
  reading.object(d, where)
  local text = d.Regex or d.String
  if type(text) ~= "string" or d.Regex and d.String then
    reading.fail(where, "expected {\"Regex\": text} or {\"String\": text}")
  elseif text == "" then
    return nil
  end
  local pattern = d.Regex and "(?m)" .. translate(text, where)
    or text:gsub("[%p]", "\\%0")
  local ok, regex = pcall(M.regex, pattern)
  if not ok and errors.ValueError:is(regex) then
    reading.fail(where, "the pattern %q: %s", text, regex.message)
  elseif not ok then
    error(regex, 0)
  end
  return regex
end

-- ---- splitting ---------------------------------------------------------------------

--- What becomes of the matches.
M.BEHAVIORS = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous" }

-- The text as pieces and whether each is a match; none is empty.
local function marked(text, regex, invert)
  local found = regex and regex:find_all(text) or {}
  local pieces, is_match, from = {}, {}, 1
  local function add(first, last, matches)
    if last >= first then
      pieces[#pieces + 1] = text:sub(first, last)
      is_match[#pieces] = matches ~= invert
    end
  end
  for i = 1, #found, 2 do
    add(from, found[i] - 1, false)
    add(found[i], found[i + 1], true)
    from = found[i + 1] + 1
  end
  add(from, #text, false)
  return pieces, is_match
end

-- Which piece joins the one before it, by behaviour.
local JOINS = {
  Contiguous = function(matches, i)
    return matches[i] == matches[i - 1]
  end,
  MergedWithPrevious = function(matches, i)
    return matches[i] and not matches[i - 1]
  end,
  MergedWithNext = function(matches, i)
    return not matches[i] and matches[i - 1]
  end,
}

--- The pieces of a text that a pattern's matches leave; none is empty.
---@param text string
---@param regex table? nil: nothing matches
---@param behavior string one of BEHAVIORS
---@param invert? boolean what matches is what lies between
---@return string[]
function M.split(text, regex, behavior, invert)
  if behavior == "Isolated" and regex then
    return regex:pieces(text)
  end
  local pieces, matches = marked(text, regex, invert or false)
  local joins = JOINS[behavior]
  local out = {}
  for i, piece in ipairs(pieces) do
    if behavior ~= "Removed" and joins and i > 1 and joins(matches, i) then
      out[#out] = out[#out] .. piece
    elseif behavior ~= "Removed" or not matches[i] then
      out[#out + 1] = piece
    end
  end
  return out
end

--- The text with every match replaced, and whether its first character went without another
--- in its place.
---@param text string
---@param regex table?
---@param by string
---@return string
---@return boolean
function M.replace(text, regex, by)
  local found = regex and regex:find_all(text) or {}
  if #found == 0 then
    return text, false
  end
  local out, from = {}, 1
  for i = 1, #found, 2 do
    out[#out + 1] = text:sub(from, found[i] - 1)
    out[#out + 1] = by
    from = found[i + 1] + 1
  end
  out[#out + 1] = text:sub(from)
  return table.concat(out), found[1] == 1 and by == ""
end

-- ---- bytes as characters -------------------------------------------------------------

-- Every byte has a character that shows: those that do so themselves, and the others from
-- U+0100 on.
local char_of, byte_of = {}, {}
do
  local next_code = 256
  for b = 0, 255 do
    local shows = b >= 33 and b <= 126 or b >= 161 and b <= 172 or b >= 174
    local code = shows and b or next_code
    next_code = shows and next_code or next_code + 1
    char_of[string.char(b)] = utf8.char(code)
    byte_of[utf8.char(code)] = string.char(b)
  end
end

--- The 256 characters that stand for bytes.
---@return string[]
function M.byte_characters()
  local out = {}
  for _, c in next, char_of do
    out[#out + 1] = c
  end
  table.sort(out)
  return out
end

--- A text's bytes as characters.
---@param text string
---@return string
function M.to_characters(text)
  return (text:gsub(".", char_of))
end

--- The bytes that characters stand for; the text itself if one of them stands for none.
---@param text string
---@return string
function M.to_bytes(text)
  local out = {}
  for _, code in utf8.codes(text) do
    local byte = byte_of[utf8.char(code)]
    if not byte then
      return text
    end
    out[#out + 1] = byte
  end
  return table.concat(out)
end

-- The length of the well-formed character at i, or nil and that of what begins one.
local function well_formed(s, i)
  local stop = i
  local b = s:byte(i)
  local n = b < 0x80 and 1 or b >= 0xC2 and b < 0xE0 and 2 or b >= 0xE0 and b < 0xF0 and 3
    or b >= 0xF0 and b < 0xF5 and 4 or 0
  local low = b == 0xE0 and 0xA0 or b == 0xF0 and 0x90 or 0x80
  local high = b == 0xED and 0x9F or b == 0xF4 and 0x8F or 0xBF
  for k = 1, n - 1 do
    local c = s:byte(i + k)
    if not c or c < low or c > high then
      return nil, stop - i + 1
    end
    low, high, stop = 0x80, 0xBF, i + k
  end
  return n > 0 and n or nil, 1
end

--- Bytes as a text: what is no UTF-8 becomes U+FFFD, once for each longest beginning of a
--- character.
---@param s string
---@return string
function M.lossy(s)
  if utf8.len(s) then
    return s
  end
  local out, i = {}, 1
  while i <= #s do
    local n, broken = well_formed(s, i)
    out[#out + 1] = n and s:sub(i, i + n - 1) or "\u{FFFD}"
    i = i + (n or broken)
  end
  return table.concat(out)
end

return M
