--- What is done to a text before it is cut: functions from text to text by the names of
--- tokenizer.json. The second result says whether the beginning of the text went ("blank": a
--- blank did): what is left is then no beginning for Metaspace.
local core = require("lupine.core")
local reading = require("lupine.tokenizers.reading")
local unicode = require("lupine.tokenizers.unicode")

local field, replace = reading.field, unicode.replace
local M = {}

for _, form in ipairs({ "NFC", "NFD", "NFKC", "NFKD" }) do
  M[form] = function()
    return function(text)
      return unicode.normal(text, form)
    end
  end
end

function M.Lowercase()
  return function(text)
    return core.text_map(text, "lower")
  end
end

function M.StripAccents()
  local mark = unicode.regex(unicode.MARK)
  return function(text)
    return replace(text, mark, "")
  end
end

-- BERT's steps, each a function.
local BERT = {
  clean_text = function()
    local control, space = unicode.regex(unicode.CONTROL), unicode.regex(unicode.SPACE)
    return function(text)
      local cleaned, moved = replace(text, control, "")
      return (replace(cleaned, space, " ")), moved
    end
  end,
  handle_chinese_chars = function()
    local chinese = unicode.regex(unicode.CHINESE)
    return function(text)
      local found = chinese:find_all(text)
      if #found == 0 then
        return text
      end
      local out, from = {}, 1
      for i = 1, #found, 2 do
        out[#out + 1] = text:sub(from, found[i] - 1)
        out[#out + 1] = " " .. text:sub(found[i], found[i + 1]) .. " "
        from = found[i + 1] + 1
      end
      return table.concat(out) .. text:sub(from)
    end
  end,
  strip_accents = function()
    local mark = unicode.regex(unicode.NONSPACING)
    return function(text)
      return replace(unicode.normal(text, "NFD"), mark, "")
    end
  end,
  lowercase = M.Lowercase,
}

-- One function after another.
local function chain(steps)
  local space = unicode.regex("\\A" .. unicode.SPACE)
  return function(text)
    local moved, given = false, text
    for _, step in ipairs(steps) do
      local left, now = step(text)
      text, moved = left, moved or now
    end
    -- a blank that was no blank before has left the rest of its character
    if moved == "blank" and #space:find_all(given:match(utf8.charpattern)) == 0 then
      moved = false
    end
    return text, moved
  end
end

function M.BertNormalizer(d, where)
  local lower = field(d, "lowercase", "boolean", where, true)
  local on = { lowercase = lower, clean_text = field(d, "clean_text", "boolean", where, true),
    handle_chinese_chars = field(d, "handle_chinese_chars", "boolean", where, true),
    strip_accents = field(d, "strip_accents", "boolean", where, lower) }
  local steps = {}
  for _, name in ipairs({ "clean_text", "handle_chinese_chars", "strip_accents", "lowercase" }) do
    steps[#steps + 1] = on[name] and BERT[name]() or nil
  end
  local all = chain(steps)
  return function(text)
    if not text:find("[\0-\31\127-\255]") then -- English, mostly
      return lower and text:lower() or text, false
    end
    return all(text)
  end
end

function M.Replace(d, where)
  local regex = unicode.pattern(d.pattern, where .. ".pattern")
  local content = field(d, "content", "string", where)
  return function(text)
    return replace(text, regex, content)
  end
end

function M.Prepend(d, where)
  local before = field(d, "prepend", "string", where)
  return function(text)
    return text ~= "" and before .. text or text
  end
end

function M.Strip(d, where)
  local left = field(d, "strip_left", "boolean", where, true)
  local right = field(d, "strip_right", "boolean", where, true)
  local first = unicode.regex("\\A" .. unicode.SPACE .. "+")
  local last = unicode.regex(unicode.SPACE .. "+\\z")
  return function(text)
    local moved = false
    if left then
      text, moved = replace(text, first, "")
      moved = moved and "blank"
    end
    return right and (replace(text, last, "")) or text, moved
  end
end

function M.ByteLevel()
  return unicode.to_characters
end

local parts = reading.sequence(M, "normalizers")
function M.Sequence(d, where, depth)
  return chain(parts(d, where, depth))
end

return {
  --- The function of a description; nil without one.
  ---@param d any
  ---@return (fun(text: string): string, boolean?)?
  make = function(d)
    return reading.part(M, d, "normalizer")
  end,
}
