--- Tokens of Lua, and what a chunk declares at its top level. A chunk that Lua
--- itself has compiled is expected: nothing is diagnosed here.
local keywords = require("lupine.show").keywords

local M = {}

---@class lupine.repl.Token
---@field kind "name"|"keyword"|"number"|"string"|"op"
---@field text string
---@field from integer
---@field to integer

local LONG_OPS = { ["..."] = 3, [".."] = 2, ["=="] = 2, ["~="] = 2, ["<="] = 2, [">="] = 2,
  ["//"] = 2, ["::"] = 2, ["<<"] = 2, [">>"] = 2 }

-- Where a long bracket that begins at i ends; nil if none does.
local function long_bracket(text, i)
  local level = text:match("^%[(=*)%[", i)
  return level and (select(2, text:find("]" .. level .. "]", i, true)) or #text)
end

-- Where the string in quotes at i ends.
local function short_string(text, i)
  local quote, at = text:sub(i, i), i + 1
  while at <= #text do
    local c = text:sub(at, at)
    if c == quote then
      return at
    end
    at = at + (c == "\\" and 2 or 1)
  end
  return #text
end

-- The first place from i on that is neither white nor in a comment.
local function skip(text, i)
  while true do
    i = text:find("%S", i)
    if not i or text:sub(i, i + 1) ~= "--" then
      return i
    end
    i = (long_bracket(text, i + 2) or (text:find("\n", i, true) or #text)) + 1
  end
end

-- Kind and end of the token at i.
local function token_at(text, i)
  local c = text:sub(i, i)
  if c:find("[%a_]") then
    local _, stop = text:find("^[%w_]+", i)
    return keywords[text:sub(i, stop)] and "keyword" or "name", stop
  elseif text:find("^%.?%d", i) then
    local _, stop = text:find("^0[xX][%x%.]*", i)
    local exponent = stop and "^[pP][+-]?%d+" or "^[eE][+-]?%d+"
    stop = stop or select(2, text:find("^[%d%.]+", i))
    return "number", select(2, text:find(exponent, stop + 1)) or stop
  elseif c == "'" or c == '"' then
    return "string", short_string(text, i)
  elseif c == "[" and long_bracket(text, i) then
    return "string", long_bracket(text, i)
  end
  for n = 3, 2, -1 do
    if LONG_OPS[text:sub(i, i + n - 1)] == n then
      return "op", i + n - 1
    end
  end
  return "op", i
end

--- The tokens of a text, comments left out.
---@param text string
---@return lupine.repl.Token[]
function M.tokens(text)
  local list, i = {}, skip(text, 1)
  while i do
    local kind, stop = token_at(text, i)
    list[#list + 1] = { kind = kind, text = text:sub(i, stop), from = i, to = stop }
    i = skip(text, stop + 1)
  end
  return list
end

-- ---- statements ------------------------------------------------------------

local OPENS = { ["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true }
local CLOSES = { ["end"] = true, ["until"] = true }
local PAIRS = { ["("] = ")", ["["] = "]", ["{"] = "}" }
local UNARY = { ["-"] = true, ["~"] = true, ["#"] = true, ["not"] = true }
local BINARY = { ["+"] = true, ["-"] = true, ["*"] = true, ["/"] = true, ["//"] = true,
  ["%"] = true, ["^"] = true, [".."] = true, ["=="] = true, ["~="] = true, ["<"] = true,
  [">"] = true, ["<="] = true, [">="] = true, ["&"] = true, ["|"] = true, ["~"] = true,
  ["<<"] = true, [">>"] = true, ["and"] = true, ["or"] = true, [","] = true }

local function text_of(token)
  return token and token.kind ~= "string" and token.text or nil
end

-- The token that ends the block which opens at token i.
local function block_end(list, i)
  local depth = 0
  for j = i, #list do
    local word = list[j].kind == "keyword" and list[j].text
    depth = depth + (OPENS[word] and 1 or 0) - (CLOSES[word] and 1 or 0)
    if depth == 0 then
      return j
    end
  end
  return #list
end

-- The token that closes the bracket at token i.
local function bracket_end(list, i)
  local open, close, depth = list[i].text, PAIRS[list[i].text], 0
  for j = i, #list do
    local text = text_of(list[j])
    depth = depth + (text == open and 1 or 0) - (text == close and 1 or 0)
    if depth == 0 then
      return j
    end
  end
  return #list
end

-- Past the suffixes (.name, :name, index, call) of an operand that ends before i.
local function past_suffixes(list, i)
  while list[i] do
    local text = text_of(list[i])
    if text == "." or text == ":" then
      i = i + 2
    elseif PAIRS[text] then
      i = bracket_end(list, i) + 1
    elseif list[i].kind == "string" then
      i = i + 1
    else
      break
    end
  end
  return i
end

-- Past the operand at token i. Only names and (…) take suffixes.
local function past_operand(list, i)
  while UNARY[text_of(list[i])] do
    i = i + 1
  end
  local text = text_of(list[i])
  if text == "function" then
    return block_end(list, i) + 1
  elseif text == "{" then
    return bracket_end(list, i) + 1
  elseif text == "(" then
    return past_suffixes(list, bracket_end(list, i) + 1)
  elseif list[i] and list[i].kind == "name" then
    return past_suffixes(list, i + 1)
  end
  return i + 1
end

-- Past the list of expressions that begins at token i.
local function past_expressions(list, i)
  i = past_operand(list, i)
  while BINARY[text_of(list[i])] do
    i = past_operand(list, i + 1)
  end
  return i
end

-- The declaration whose `local` is token i, and the first token behind it.
local function declaration(list, i)
  local d = { names = {}, const = {}, close = false }
  if text_of(list[i + 1]) == "function" then
    d.names[1] = list[i + 2].text
    i = block_end(list, i + 1) + 1
  else
    repeat
      i = i + 1
      d.names[#d.names + 1] = list[i].text
      if text_of(list[i + 1]) == "<" then
        d.const[list[i].text] = true
        d.close = d.close or list[i + 2].text == "close"
        i = i + 3
      end
      i = i + 1
    until text_of(list[i]) ~= ","
    i = text_of(list[i]) == "=" and past_expressions(list, i + 1) or i
  end
  d.stop = list[i - 1].to
  return d, i
end

---@class lupine.repl.Chunk
---@field names table<string, boolean> all names that stand in it
---@field locals {names: string[], const: table<string, boolean>, close: boolean, stop: integer}[]
---       what its top level declares, and where each declaration ends
---@field results {from: integer, to: integer, stop: integer}? its top level's `return`, and
---       where the list behind it ends

--- What a chunk holds.
---@param text string
---@return lupine.repl.Chunk
function M.chunk(text)
  local list = M.tokens(text)
  local chunk, i = { names = {}, locals = {} }, 1
  for _, token in ipairs(list) do
    chunk.names[token.text] = token.kind == "name" or nil
  end
  while list[i] do
    local word = list[i].kind == "keyword" and list[i].text
    if word == "local" then
      chunk.locals[#chunk.locals + 1], i = declaration(list, i)
    elseif word == "return" then
      local last = text_of(list[#list]) == ";" and #list - 1 or #list
      chunk.results = { from = list[i].from, to = list[i].to, stop = list[last].to }
      break
    else
      i = (OPENS[word] and block_end(list, i) or i) + 1
    end
  end
  return chunk
end

return M
