--- What the text before the cursor says of calls: the function within whose
--- keywords it ends, and the class that a chain of calls made. Nothing is run:
--- a class that is called gives an instance of it, and a setter of options the
--- options.
local arguments = require("lupine.base.arguments")
local class = require("lupine.base.class")
local lex = require("lupine.repl.lex")
local signatures = require("lupine.base.signatures")

local M = {}

local OPEN = { ["("] = true, ["["] = true, ["{"] = true }
local CLOSE = { [")"] = true, ["]"] = true, ["}"] = true }

local function op(token)
  return token and token.kind == "op" and token.text or nil
end

-- Where the brackets stand that are open at the end.
local function open_brackets(list)
  local open = {}
  for i, token in ipairs(list) do
    if OPEN[op(token)] then
      open[#open + 1] = i
    elseif CLOSE[op(token)] then
      open[#open] = nil
    end
  end
  return open
end

-- The dotted name that ends at token i, and the first token of it.
local function path_before(list, i)
  local last = i
  if not list[i] or list[i].kind ~= "name" then
    return nil, i
  end
  while (op(list[i - 1]) == "." or op(list[i - 1]) == ":") and list[i - 2]
    and list[i - 2].kind == "name" do
    i = i - 2
  end
  local parts = {}
  for k = i, last, 2 do
    parts[#parts + 1] = list[k].text
  end
  return table.concat(parts, "."), i
end

local function add(names, seen, name)
  if name and not seen[name] and name ~= "self" and name:find("^[%a][%w_]*$") then
    seen[name] = true
    names[#names + 1] = name
  end
end

-- "f(a, b=1, *, c: int) -> …": its names.
local function of_text(names, seen, text)
  for piece in (text:match("%b()") or "()"):sub(2, -2):gmatch("[^,]+") do
    add(names, seen, piece:gsub("%b[]", ""):match("^%s*([%w_]+)%s*[=:]")
      or piece:match("([%w_]+)%s*$"))
  end
end

-- Names of what may be given by name to a function or class.
local function keywords_of(f)
  local names, seen = {}, {}
  local noted, forms = signatures.noted(f), signatures.of(f)
  if noted then
    of_text(names, seen, noted.text)
  end
  for _, text in ipairs(forms or {}) do
    for _, a in ipairs(signatures.parse(text).arguments) do
      add(names, seen, a.name)
    end
  end
  local made = class.is_class(f) and f.init or f
  if #names == 0 and type(made) == "function" then
    for _, name in ipairs((arguments.parameters(made, made == f and 0 or 1))) do
      add(names, seen, name)
    end
  end
  return names
end

--- Keywords that may stand at the end of a text, within `f(…, {`; nil if it ends
--- elsewhere.
---@param text string
---@param resolve fun(path: string): any
---@return string[]? names
---@return string? prefix what of one is there
function M.keywords(text, resolve)
  local list = lex.tokens(text)
  local open = open_brackets(list)
  local brace, n = open[#open], #list
  local prefix = ""
  if list[n] and list[n].kind ~= "op" and list[n].to == #text then
    prefix, n = list[n].text, n - 1
  end
  if not brace or op(list[brace]) ~= "{" or (n ~= brace and op(list[n]) ~= ",") then
    return nil
  end
  local before = op(list[brace - 1])
  local paren = (before == "," or before == "(") and open[#open - 1] or nil
  if paren and op(list[paren]) ~= "(" then
    return nil
  end
  local path = path_before(list, (paren or brace) - 1)
  local f = path and resolve(path)
  if type(f) ~= "function" and not class.is_class(f) then
    return nil
  end
  return keywords_of(f), prefix
end

-- The bracket that the one at token i closes.
local function opening(list, i)
  local depth = 0
  for k = i, 1, -1 do
    depth = depth + (CLOSE[op(list[k])] and 1 or 0) - (OPEN[op(list[k])] and 1 or 0)
    if depth == 0 then
      return k
    end
  end
end

--- The class of what stands before the last `.` or `:` of a text, if it is made
--- by calls: `poptorch.Options():deviceIterations(8):`.
---@param text string
---@param resolve fun(path: string): any
---@return table? class
---@return string? mark "." or ":"
---@return string? prefix
function M.made(text, resolve)
  local list = lex.tokens(text)
  local n, prefix = #list, ""
  if list[n] and list[n].kind ~= "op" then
    prefix, n = list[n].text, n - 1
  end
  local mark = op(list[n])
  if (mark ~= ":" and mark ~= ".") or op(list[n - 1]) ~= ")" then
    return nil
  end
  local at, chained = n - 1, false
  while op(list[at]) == ")" do
    local before = opening(list, at)
    local path, first = path_before(list, (before or 1) - 1)
    if not path then
      return nil
    elseif op(list[first - 1]) == ":" then
      at, chained = first - 2, true
    else
      local made = resolve(path)
      local known = class.is_class(made) and (not chained or made._rows)
      return known and made or nil, mark, prefix
    end
  end
end

return M
