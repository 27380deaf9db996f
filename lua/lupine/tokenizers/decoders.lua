--- What makes a text of tokens, by the names of tokenizer.json: functions from a list of texts
--- to another, whose elements are joined at the end.
local pre_tokenizers = require("lupine.tokenizers.pre_tokenizers")
local reading = require("lupine.tokenizers.reading")
local unicode = require("lupine.tokenizers.unicode")

local field = reading.field
local M = {}

-- Replaces a text by another everywhere.
local function plain_gsub(text, what, by)
  return (text:gsub(what:gsub("%p", "%%%0"), (by:gsub("%%", "%%%%"))))
end

local function each(fn)
  return function(tokens)
    local out = {}
    for i, token in ipairs(tokens) do
      out[i] = fn(token, i, #tokens)
    end
    return out
  end
end

function M.ByteLevel()
  return function(tokens)
    local out = {}
    for i, token in ipairs(tokens) do
      out[i] = unicode.to_bytes(token)
    end
    return { unicode.lossy(table.concat(out)) }
  end
end

-- Blanks that English has not.
local CLEAN = { { " .", "." }, { " ?", "?" }, { " !", "!" }, { " ,", "," }, { " ' ", "'" },
  { " n't", "n't" }, { " 'm", "'m" }, { " do not", " don't" }, { " 's", "'s" },
  { " 've", "'ve" }, { " 're", "'re" } }

function M.WordPiece(d, where)
  local prefix = field(d, "prefix", "string", where, "##")
  local clean = field(d, "cleanup", "boolean", where, true)
  return each(function(token, i)
    if i > 1 then
      local inner = token:sub(1, #prefix) == prefix
      token = inner and token:sub(#prefix + 1) or " " .. token
    end
    for _, row in ipairs(clean and CLEAN or {}) do
      token = plain_gsub(token, row[1], row[2])
    end
    return token
  end)
end

function M.BPEDecoder(d, where)
  local suffix = field(d, "suffix", "string", where, "</w>")
  return each(function(token, i, n)
    return plain_gsub(token, suffix, i == n and "" or " ")
  end)
end

function M.Metaspace(d, where)
  local mark = reading.character(d, "replacement", where, "▁")
  local dropped = pre_tokenizers.scheme(d, where) ~= "never"
  return each(function(token, i)
    return plain_gsub(token, mark, i == 1 and dropped and "" or " ")
  end)
end

function M.Fuse()
  return function(tokens)
    return { table.concat(tokens) }
  end
end

function M.Replace(d, where)
  local regex = unicode.pattern(d.pattern, where .. ".pattern")
  local content = field(d, "content", "string", where)
  return each(function(token)
    return unicode.replace(token, regex, content)
  end)
end

function M.Strip(d, where)
  local c = reading.character(d, "content", where)
  local start, stop = field(d, "start", "integer", where), field(d, "stop", "integer", where)
  return each(function(token)
    for _ = 1, math.min(start, #token) do
      token = token:sub(1, #c) == c and token:sub(#c + 1) or token
    end
    for _ = 1, math.min(stop, #token) do
      token = token:sub(-#c) == c and token:sub(1, -#c - 1) or token
    end
    return token
  end)
end

-- Bytes in a row are a text; if that is no UTF-8 each of them is U+FFFD.
function M.ByteFallback()
  return function(tokens)
    local out, bytes = {}, {}
    local function flush()
      local text = table.concat(bytes)
      for _ = 1, utf8.len(text) and 0 or #bytes do
        out[#out + 1] = "\u{FFFD}"
      end
      out[#out + 1] = utf8.len(text) and #bytes > 0 and text or nil
      bytes = {}
    end
    for _, token in ipairs(tokens) do
      local code = token:match("^<0x(%x%x)>$")
      if code then
        bytes[#bytes + 1] = string.char(tonumber(code, 16))
      else
        flush()
        out[#out + 1] = token
      end
    end
    flush()
    return out
  end
end

local parts = reading.sequence(M, "decoders")
function M.Sequence(d, where, depth)
  local steps = parts(d, where, depth)
  return function(tokens)
    for _, step in ipairs(steps) do
      tokens = step(tokens)
    end
    return tokens
  end
end

return {
  --- The function of a description; nil without one.
  ---@param d any
  ---@return (fun(tokens: string[]): string[])?
  make = function(d)
    return reading.part(M, d, "decoder")
  end,
}
