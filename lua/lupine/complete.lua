--- Completion of the text before the cursor. No code of the user runs: fields
--- are read raw, and through a metatable only where __index is a table. A
--- metatable whose __index is a function says what there is:
---   __methods   a table of methods
---   __members   a function of the object: tables of its fields
---   __lazy      name -> module that is loaded when the name is first used
--- Classes (lupine.base.class) and their instances have what their bases have.
local call = require("lupine.repl.call")
local class = require("lupine.base.class")
local keywords = require("lupine.show").keywords

local M = {}

local MAX_DEPTH = 20 -- of __index chains

-- Adds what a class and its bases hold.
local function add_class(list, cls)
  for _ = 1, MAX_DEPTH do
    if not class.is_class(cls) then
      return
    end
    list[#list + 1] = cls
    local methods = rawget(cls, "__methods")
    list[#list + 1] = type(methods) == "table" and methods or nil
    cls = rawget(cls, "__base")
  end
end

-- Whether a function is one of this library's Lua files: others are not called.
local own = debug.getinfo(1, "S").source:match("^(@.*)lupine[/\\]complete%.lua$")

local function is_own(f)
  local source = type(f) == "function" and debug.getinfo(f, "S").source
  return source and own and source:sub(1, #own) == own
end

--- The tables in which `v.name` would be looked up, in order.
---@param v any
---@return table[]
function M.tables_of(v)
  local list = {}
  if class.is_class(v) then
    add_class(list, v)
    return list
  elseif type(v) == "table" then
    list[1] = v
  end
  local mt = debug.getmetatable(v)
  local members = type(mt) == "table" and rawget(mt, "__members")
  for _, t in ipairs(is_own(members) and members(v) or {}) do
    list[#list + 1] = t
  end
  add_class(list, mt)
  for _ = 1, MAX_DEPTH do
    if type(mt) ~= "table" or class.is_class(mt) then
      break
    end
    local index = rawget(mt, "__index")
    local methods = rawget(mt, "__methods")
    if type(methods) == "table" then
      list[#list + 1] = methods
    end
    if type(index) ~= "table" then
      break
    end
    list[#list + 1] = index
    mt = debug.getmetatable(index)
  end
  return list
end

-- name -> module of what loads when it is first used.
local function lazy_of(v)
  local mt = type(v) == "table" and debug.getmetatable(v)
  return type(mt) == "table" and rawget(mt, "__lazy") or {}
end

local function raw_field(v, name)
  for _, t in ipairs(M.tables_of(v)) do
    local field = rawget(t, name)
    if field ~= nil then
      return field
    end
  end
  local module = lazy_of(v)[name]
  return module and require(module)
end

local ROOTS = { torch = true, poptorch = true, popart = true, pva = true, lupine = true }

--- The value of a dotted name, read raw; nil if it has none. `asked`: a name
--- that starts with one of our modules loads it.
---@param path string
---@param globals table
---@param asked? boolean
---@return any
function M.resolve(path, globals, asked)
  local v = globals
  for name in path:gmatch("[%a_][%w_]*") do
    local field = raw_field(v, name)
    if field == nil and v == globals and asked and ROOTS[name] then
      field = require(name)
    end
    v = field
    if v == nil then
      return nil
    end
  end
  return v
end

local function is_callable(v)
  if type(v) == "function" then
    return true
  end
  local mt = debug.getmetatable(v)
  return type(mt) == "table" and rawget(mt, "__call") ~= nil
end

--- Names of fields that start with the prefix; `only_callable`: of methods.
---@param v any
---@param prefix? string
---@param only_callable? boolean
---@return string[]
function M.fields(v, prefix, only_callable)
  prefix = prefix or ""
  local seen, list = {}, {}
  for _, t in ipairs(M.tables_of(v)) do
    for k, field in next, t do
      if type(k) == "string" and k:find("^[%a_][%w_]*$") and k:sub(1, #prefix) == prefix
        and not seen[k] and (prefix ~= "" or k:sub(1, 1) ~= "_")
        and (not only_callable or is_callable(field)) then
        seen[k] = true
        list[#list + 1] = k
      end
    end
  end
  for k in pairs(only_callable and {} or lazy_of(v)) do
    if k:sub(1, #prefix) == prefix and not seen[k] then
      list[#list + 1] = k
    end
  end
  return list
end

-- Names of a list that start with the prefix.
local function starting(list, prefix)
  local out = {}
  for _, name in ipairs(list) do
    out[#out + 1] = name:sub(1, #prefix) == prefix and name or nil
  end
  return out
end

local function names(text, globals)
  local function resolve(path)
    return M.resolve(path, globals, false)
  end
  local keys, key = call.keywords(text, resolve)
  if keys then
    keys = starting(keys, key)
    if #keys > 0 then
      return keys, key
    end
  end
  local path, mark, prefix = text:match("([%a_][%w_%.]*)([%.:])([%w_]*)$")
  if path and not path:find("..", 1, true) then
    local v = M.resolve(path, globals, text:find("^%s*%?") ~= nil)
    if v == nil then
      return {}, prefix
    end
    return M.fields(v, prefix, mark == ":"), prefix
  end
  prefix = text:match("['\"]%s*%)%s*:([%w_]*)$")
  if prefix then -- a method of a string literal
    return M.fields("", prefix, true), prefix
  elseif text:find("[:%.][%w_]*$") then -- of a result: running code would tell
    local made, at, part = call.made(text, resolve)
    return made and M.fields(made, part, at == ":") or {}, part or ""
  end
  prefix = text:match("[%a_][%w_]*$") or ""
  local list = M.fields(globals, prefix, false)
  for word in pairs(keywords) do
    if prefix ~= "" and word:sub(1, #prefix) == prefix then
      list[#list + 1] = word
    end
  end
  return list, prefix
end

-- Modules that `require` would find whose name starts with prefix.
local function modules(prefix, files)
  local seen, list = {}, {}
  local function add(name)
    if name:sub(1, #prefix) == prefix and not seen[name] then
      seen[name] = true
      list[#list + 1] = name
    end
  end
  for name in pairs(package.loaded) do
    add(name)
  end
  for name in pairs(package.preload) do
    add(name)
  end
  local folder = prefix:gsub("%.", "/")
  for template in (package.path .. ";" .. package.cpath):gmatch("[^;]+") do
    local head, tail = template:match("^(.-)%?(.*)$")
    for _, path in ipairs(head and files(head .. folder .. "*" .. tail) or {}) do
      add((path:sub(#head + 1, #path - #tail):gsub("/", ".")))
    end
  end
  return list, prefix
end

-- The string that is open at the end of the text, if any.
local function open_string(text)
  local quote, start
  local i = 1
  while i <= #text do
    local c = text:sub(i, i)
    if quote then
      if c == "\\" then
        i = i + 1
      elseif c == quote then
        quote = nil
      end
    elseif c == "'" or c == '"' then
      quote, start = c, i
    end
    i = i + 1
  end
  return quote and start
end

local function candidates(text, globals, files)
  local start = open_string(text)
  if not start then
    return names(text, globals)
  end
  local inside = text:sub(start + 1)
  if text:sub(1, start - 1):find("require%s*%(?%s*$") then
    return modules(inside, files)
  end
  return files((inside:gsub("[%*%?%[%]\\]", "\\%0")) .. "*"), inside
end

local function common_prefix(list)
  local common = list[1]
  for i = 2, #list do
    local n = 0
    while n < #common and common:byte(n + 1) == list[i]:byte(n + 1) do
      n = n + 1
    end
    common = common:sub(1, n)
  end
  return common
end

local function columns(list, width)
  local longest = 0
  for _, name in ipairs(list) do
    longest = math.max(longest, #name)
  end
  local per_row = math.max(1, width // (longest + 2))
  local rows = math.ceil(#list / per_row)
  local lines = {}
  for r = 1, rows do
    local row = {}
    for i = r, #list, rows do
      row[#row + 1] = list[i] .. (" "):rep(longest + 2 - #list[i])
    end
    lines[r] = table.concat(row):gsub("%s+$", "")
  end
  return table.concat(lines, "\n")
end

local MAX_LISTED = 200

--- Completes the text before the cursor.
---@param text string
---@param globals table
---@param files fun(pattern: string): string[]
---@return string insert            what to add, may be empty
---@return string|nil list          the choices, when there are several
function M.complete(text, globals, files)
  if text:find("^%s*$") then
    return "  "
  end
  local list, prefix = candidates(text, globals, files)
  if #list == 0 then
    return ""
  end
  table.sort(list)
  local common = common_prefix(list)
  local insert = common:sub(#prefix + 1)
  if insert ~= "" or #list == 1 then
    return insert
  elseif #list > MAX_LISTED then
    return "", ("%d names"):format(#list)
  end
  return "", columns(list, 80)
end

return M
