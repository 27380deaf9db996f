--- A reader of the Python expressions that build options: literals, lists,
--- tuples, dictionaries, names, attributes and calls. It makes a tree; nothing
--- is run. Any other Python (operators, comprehensions, f-strings, statements)
--- is a syntax error with its own message.
---
--- expr    = ("-" | "+") number | number | string+ | "True" | "False" | "None"
---         | "[" items "]" | "(" items ")" | "{" pairs "}" | name
---         , then any of "." name | "(" arguments ")"
--- Nodes: {"value", v} {"list", items} {"tuple", items} {"dict", keys, values}
---        {"name", n} {"attr", of, n} {"call", of, args, {name = node}}
local M = {}

local DEEPEST = 100  -- brackets in brackets
local LONGEST = 2000 -- names and calls in one chain
local LONGEST_SHOWN = 120
local ESCAPES = { n = "\n", t = "\t", r = "\r", a = "\a", b = "\b", f = "\f", v = "\v",
  ["0"] = "\0", ["\\"] = "\\", ["'"] = "'", ['"'] = '"' }
local CONSTANTS = { True = true, False = false }
local KEYWORDS = {}
for word in ([[and as assert async await break class continue def del elif else except finally
  for from global if import in is lambda nonlocal not or pass raise return try while with
  yield]]):gmatch("%S+") do
  KEYWORDS[word] = true
end

--- The beginning of a text, for a message.
---@param text string
---@return string
function M.shortened(text)
  return #text > LONGEST_SHOWN and text:sub(1, LONGEST_SHOWN) .. "..." or text
end

local function fail(message)
  error({ syntax = message }, 0)
end

local function read_string(text, at, raw)
  local quote = text:sub(at, at)
  local out, i = {}, at + 1
  while true do
    local c = text:sub(i, i)
    if c == "" then
      fail("unterminated string literal")
    elseif c == quote then
      return table.concat(out), i + 1
    elseif c == "\\" and raw then
      out[#out + 1] = text:sub(i, i + 1)
      i = i + 2
    elseif c == "\\" then
      local e = text:sub(i + 1, i + 1)
      local digits = e == "x" and 2 or e == "u" and 4 or e == "U" and 8
      local hex = digits and text:match("^" .. ("%x"):rep(digits), i + 2)
      local code = hex and tonumber(hex, 16)
      if digits and (not code or code > 0x10FFFF) then
        fail("bad escape \\" .. e .. " in a string literal")
      end
      out[#out + 1] = code and utf8.char(code) or ESCAPES[e] or "\\" .. e
      i = i + 2 + (digits or 0)
    else
      out[#out + 1] = c
      i = i + 1
    end
  end
end

local BASES = { x = 16, o = 8, b = 2 }

local function read_number(text, at)
  local word = text:match("^[%w_.]+", at)
  local exponent = word:match("^[%d_.]+[eE]$") and text:match("^[+-]%d+", at + #word)
  local shown = word .. (exponent or "")
  local digits = shown:gsub("(%w)_(%w)", "%1%2"):gsub("(%w)_(%w)", "%1%2")
  local base = digits:match("^0([xobXOB])")
  local value
  if base then
    value = tonumber(digits:sub(3), BASES[base:lower()])
  elseif digits:match("^%d+$") then
    value = (digits:match("^0+$") or not digits:match("^0")) and math.tointeger(tonumber(digits))
  elseif digits:match("^%d*%.?%d*$") or digits:match("^%d*%.?%d*[eE][+-]?%d+$") then
    value = tonumber(digits)
    value = value and value + 0.0
  end
  if not value then
    fail("invalid number '" .. M.shortened(shown) .. "'")
  end
  return value, at + #shown
end

-- One line -> list of tokens {kind, value}; kinds name, value, string, op, end.
local function scan(text)
  local tokens, at = {}, 1
  -- Calls pass on both results of read_*: the value and the position after it.
  local function add(kind, value, after)
    tokens[#tokens + 1] = { kind = kind, value = value }
    at = after
  end
  while true do
    at = text:find("[^ \t\f]", at) or #text + 1
    local c = text:sub(at, at)
    local prefix = text:match("^(%a%a?)['\"]", at)
    if c == "" or c == "#" then
      add("end", "end of line", at)
      return tokens
    elseif prefix and not prefix:match("^[rRuU]$") then
      fail(("strings with the prefix '%s' are not allowed here"):format(prefix))
    elseif prefix or c == "'" or c == '"' then
      add("string", read_string(text, at + #(prefix or ""), (prefix or ""):lower() == "r"))
    elseif c:match("%d") or text:match("^%.%d", at) then
      add("value", read_number(text, at))
    elseif c:match("[%a_]") then
      local name = text:match("^[%w_]+", at)
      if CONSTANTS[name] ~= nil or name == "None" then
        add("value", CONSTANTS[name], at + #name)
      elseif KEYWORDS[name] then
        fail(("'%s' is not allowed here: a line is one call that sets an option"):format(name))
      else
        add("name", name, at + #name)
      end
    elseif c:match("[%[%](){}.,:=+-]") then
      add("op", c, at + 1)
    else
      fail(("unexpected character '%s'"):format(text:match("^" .. utf8.charpattern, at) or c))
    end
  end
end

local Parser = {}
Parser.__index = Parser

function Parser:peek(op)
  local t = self.tokens[self.at]
  return t.kind == "op" and t.value == op
end

function Parser:take(op)
  if self:peek(op) then
    self.at = self.at + 1
    return true
  end
  return false
end

function Parser:unexpected()
  local t = self.tokens[self.at]
  if t.kind == "end" and #self.open > 0 then
    fail(("'%s' was never closed"):format(self.open[#self.open]))
  end
  fail(t.kind == "end" and "the line ends too early"
    or ("invalid syntax at '%s'"):format(M.shortened(tostring(t.value))))
end

-- Items up to `close`, which is taken; `item` reads one.
function Parser:items(open, close, item)
  self.open[#self.open + 1] = open
  if #self.open > DEEPEST then
    fail("nested too deeply")
  end
  local commas = 0
  while not self:take(close) do
    item()
    if self:take(",") then
      commas = commas + 1
    elseif not self:peek(close) then
      self:unexpected()
    end
  end
  self.open[#self.open] = nil
  return commas
end

function Parser:arguments(of)
  local args, keywords = { n = 0 }, {}
  self:items("(", ")", function()
    local name, equals = self.tokens[self.at], self.tokens[self.at + 1]
    if name.kind == "name" and equals.kind == "op" and equals.value == "=" then
      if keywords[name.value] then
        fail("keyword argument repeated: " .. M.shortened(name.value))
      end
      self.at = self.at + 2
      keywords[name.value] = self:expr()
    elseif next(keywords) then
      fail("positional argument follows keyword argument")
    else
      args.n = args.n + 1
      args[args.n] = self:expr()
    end
  end)
  return { "call", of, args, keywords }
end

function Parser:atom()
  local t = self.tokens[self.at]
  self.at = self.at + 1
  if t.kind == "name" then
    return { "name", t.value }
  elseif t.kind == "value" then
    return { "value", t.value }
  elseif t.kind == "string" then
    local text = t.value
    while self.tokens[self.at].kind == "string" do
      text = text .. self.tokens[self.at].value
      self.at = self.at + 1
    end
    return { "value", text }
  end
  local items = {}
  local function item()
    items[#items + 1] = self:expr()
  end
  if t.value == "[" and t.kind == "op" then
    self:items("[", "]", item)
    return { "list", items }
  elseif t.value == "(" and t.kind == "op" then
    local commas = self:items("(", ")", item)
    return #items == 1 and commas == 0 and items[1] or { "tuple", items }
  elseif t.value == "{" and t.kind == "op" then
    local values = {}
    self:items("{", "}", function()
      item()
      if not self:take(":") then
        self:unexpected()
      end
      values[#values + 1] = self:expr()
    end)
    return { "dict", items, values }
  end
  self.at = self.at - 1
  return self:unexpected()
end

function Parser:expr()
  local sign = self:take("-") and -1 or self:take("+") and 1
  if sign then
    local t = self.tokens[self.at]
    if t.kind ~= "value" or type(t.value) ~= "number" then
      self:unexpected()
    end
    self.at = self.at + 1
    return { "value", sign * t.value }
  end
  local node = self:atom()
  local links = 0
  while true do
    links = links + 1
    if links > LONGEST then
      fail("too many calls in one chain")
    end
    if self:take(".") then
      local t = self.tokens[self.at]
      if t.kind ~= "name" then
        self:unexpected()
      end
      self.at = self.at + 1
      node = { "attr", node, t.value }
    elseif self:take("(") then
      node = self:arguments(node)
    else
      return node
    end
  end
end

--- The tree of one line, or nil and what is wrong with it.
---@param line string
---@return table? node, string? message
function M.parse(line)
  local ok, result = pcall(function()
    local parser = setmetatable({ tokens = scan(line), at = 1, open = {} }, Parser)
    local node = parser:expr()
    if parser.tokens[parser.at].kind ~= "end" then
      parser:unexpected()
    end
    return node
  end)
  if ok then
    return result
  elseif type(result) == "table" and result.syntax then
    return nil, result.syntax
  end
  error(result, 0)
end

return M
