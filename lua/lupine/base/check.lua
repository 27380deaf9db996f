--- Checks of arguments, with messages that are alike everywhere: each names
--- the argument, what was given and what is allowed, and an unknown name gets
--- the nearest known ones.
---
--- The value checks take (value, where, opts) and return the value; `where`
--- is how the reader knows the argument ("deviceIterations: device_iterations")
--- and `opts.error` the class to raise (TypeError for a wrong kind and
--- ValueError for a wrong value unless given).
local class = require("lupine.base.class")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")

local M = {}

--- True for nil and torch.none.
---@param v any
---@return boolean
function M.is_none(v)
  return v == nil or rawequal(v, core.none)
end

-- The most names that are shown of a table.
local MOST_KEYS = 5

local function describe_table(t)
  if #t > 0 then
    return ("a list of %d"):format(#t)
  elseif next(t) == nil then
    return "an empty table"
  end
  local keys = {}
  for key in next, t do
    keys[#keys + 1] = ("'%s'"):format(tostring(key))
  end
  table.sort(keys)
  local more = #keys > MOST_KEYS and ", …" or ""
  return "a table with " .. table.concat(keys, ", ", 1, math.min(#keys, MOST_KEYS)) .. more
end

--- What a value is, for a message: `int 3`, `string "x"`, `OutputMode.All`,
--- `Tensor torch.float32 [2, 3]`, `a list of 2`, `a table with 'lr'`.
---@param v any
---@return string
function M.describe(v)
  local t = type(v)
  if t == "nil" then
    return "nil"
  elseif v == core.none then
    return "torch.none"
  elseif t == "number" then
    return (math.type(v) == "integer" and "int " or "float ") .. tostring(v)
  elseif t == "string" then
    return ("string %q"):format(#v > 40 and v:sub(1, 37) .. "..." or v)
  elseif t == "boolean" then
    return "bool " .. tostring(v)
  elseif enum.is_member(v) then
    return tostring(v)
  elseif class.is_class(v) then
    return tostring(v)
  elseif class.of(v) then
    return class.of(v).__name
  elseif t == "table" and not getmetatable(v) then
    return describe_table(v)
  elseif core.is_tensor(v) then
    local sizes = {}
    for i = 1, v:dim() do
      sizes[i] = tostring(v.shape[i])
    end
    return ("Tensor %s [%s]"):format(tostring(v.dtype), table.concat(sizes, ", "))
  end
  return t
end

-- No suggestions for names longer than this.
local LONGEST = 80

-- Damerau-Levenshtein (adjacent swaps count one), case ignored.
local function distance(a, b)
  a, b = a:lower(), b:lower()
  local before, last = nil, {}
  for j = 0, #b do
    last[j] = j
  end
  for i = 1, #a do
    local row = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (same and 0 or 1))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
    before, last = last, row
  end
  return last[#b]
end

--- " (nearest: 'a', 'b')", or "" when no known name is near: a quarter of the
--- letters may differ, one at least, or the known name begins with this one.
--- "" for a known name too: most calls are the arguments of checks that hold.
---@param name any
---@param known string[]
---@return string
function M.nearest(name, known)
  if type(name) ~= "string" or #name > LONGEST then
    return ""
  end
  for _, candidate in ipairs(known) do
    if candidate == name then
      return ""
    end
  end
  local found, seen = {}, {}
  local limit = math.max(1, #name // 4)
  for _, candidate in ipairs(known) do
    if type(candidate) == "string" and not seen[candidate] then
      seen[candidate] = true
      local d = math.abs(#name - #candidate)
      d = d <= limit and distance(name, candidate) or d
      local prefix = #name >= 3 and candidate:lower():sub(1, #name) == name:lower()
      local other = #name < 4 and candidate:sub(1, 1):lower() ~= name:sub(1, 1):lower()
      if d <= limit and not other or prefix then
        found[#found + 1] = { d = math.min(d, limit), name = candidate }
      end
    end
  end
  if #found == 0 then
    return ""
  end
  table.sort(found, function(a, b)
    return a.d < b.d or a.d == b.d and a.name < b.name
  end)
  local quoted = {}
  for i = 1, found[1].d == 0 and 1 or math.min(3, #found) do
    quoted[i] = ("'%s'"):format(found[i].name)
  end
  return " (nearest: " .. table.concat(quoted, ", ") .. ")"
end

local function wrong(opts, default, where, allowed, value)
  errors.raise(opts and opts.error or default, "%s: expected %s, got %s", where, allowed,
    M.describe(value))
end

local function nullable(value, opts)
  return opts and opts.nullable and M.is_none(value)
end

local function range_text(kind, opts)
  if opts.min and opts.max then
    return ("%s in %s..%s"):format(kind, opts.min, opts.max)
  elseif opts.min then
    return ("%s >= %s"):format(kind, opts.min)
  elseif opts.max then
    return ("%s <= %s"):format(kind, opts.max)
  end
  return kind
end

-- Which no number is that is none.
local function inside(value, opts)
  return (not opts.min or value >= opts.min) and (not opts.max or value <= opts.max)
end

local function in_range(value, where, kind, opts)
  if opts and not inside(value, opts) then
    wrong(opts, opts.outside or "ValueError", where, range_text(kind, opts), value)
  end
  return value
end

--- For the end of a message that asks for an integer: how the script may have
--- come by a float, or "".
---@param value any
---@return string
function M.int_hint(value)
  return math.type(value) == "float" and "; // divides integers (4/2 and 2^3 are floats)" or ""
end

--- An integer. As in Python a bool passes, as 1 or 0. `outside`: the class for
--- one out of range.
---@param value any
---@param where string how the reader knows the argument, for messages
---@param opts? {nullable: boolean?, min: number?, max: number?, error: string?, outside: string?}
---@return integer?
function M.int(value, where, opts)
  if nullable(value, opts) then
    return nil
  end
  if type(value) == "boolean" then
    value = value and 1 or 0
  elseif math.type(value) ~= "integer" then
    errors.raise(opts and opts.error or "TypeError", "%s: expected int, got %s%s", where,
      M.describe(value), M.int_hint(value))
  end
  return in_range(value, where, "int", opts)
end

--- A number.
---@param value any
---@param where string how the reader knows the argument, for messages
---@param opts? {nullable: boolean?, min: number?, max: number?, error: string?}
---@return number?
function M.number(value, where, opts)
  if nullable(value, opts) then
    return nil
  end
  if type(value) ~= "number" then
    wrong(opts, "TypeError", where, "float", value)
  end
  return in_range(value, where, "float", opts)
end

local function plain(lua_type, shown)
  return function(value, where, opts)
    if nullable(value, opts) then
      return nil
    end
    if type(value) ~= lua_type then
      wrong(opts, "TypeError", where, shown, value)
    end
    return value
  end
end

M.bool = plain("boolean", "bool")
M.string = plain("string", "string")
M.table = plain("table", "table")

--- A table that is a list or has names, and nothing else: no member of an
--- enumeration, object or class.
---@param value any
---@param where string how the reader knows the argument, for messages
---@param opts? {nullable: boolean?, error: string?}
---@return table?
function M.plain_table(value, where, opts)
  if type(value) == "table" and getmetatable(value) then
    wrong(opts, "TypeError", where, "table", value)
  end
  return M.table(value, where, opts)
end

-- The members without those that `opts.except` lists, and by themselves.
local function allowed_members(enumeration, opts)
  local texts, known = {}, {}
  for _, m in ipairs(opts and opts.except or {}) do
    known[m] = false
  end
  for _, m in ipairs(enumeration:members()) do
    if known[m] == nil then
      texts[#texts + 1], known[m] = tostring(m), true
    end
  end
  return texts, known
end

--- A member of an enumeration; `opts.except` lists members that are refused.
---@param value any
---@param where string how the reader knows the argument, for messages
---@param enumeration table
---@param opts? {nullable: boolean?, except: table[]?, error: string?}
---@return table? member
function M.enum(value, where, enumeration, opts)
  if nullable(value, opts) then
    return nil
  end
  local texts, known = allowed_members(enumeration, opts)
  if value == nil or not known[value] then
    wrong(opts, "TypeError", where, table.concat(texts, " or "), value)
  end
  return value
end

--- What these checks allow, for help: of "int", "number", "bool", "string" or
--- "table", of an enumeration or a class.
---@param kind string|table
---@param opts? {nullable: boolean?, min: number?, max: number?, except: table[]?}
---@return string
function M.allowed(kind, opts)
  local text
  if enum.is_enum(kind) then
    text = table.concat(allowed_members(kind, opts), ", ")
  elseif class.is_class(kind) then
    text = kind.__name
  else
    text = range_text(kind == "number" and "float" or kind, opts or {})
  end
  return opts and opts.nullable and text .. " or nil" or text
end

--- An instance of a class.
---@param value any
---@param where string how the reader knows the argument, for messages
---@param cls table a class
---@param opts? {nullable: boolean?, shown: string?, error: string?}
---@return any value
function M.instance(value, where, cls, opts)
  if nullable(value, opts) then
    return nil
  end
  if not cls:is(value) then
    wrong(opts, "TypeError", where, opts and opts.shown or cls.__name, value)
  end
  return value
end

--- A function, or an object that can be called.
---@param value any
---@param where string how the reader knows the argument, for messages
---@return any value
function M.callable(value, where)
  local mt = debug.getmetatable(value)
  if type(value) ~= "function" and not (type(mt) == "table" and mt.__call) then
    wrong(nil, "TypeError", where, "function", value)
  end
  return value
end

--- A list of strings.
---@param list any
---@param where string how the reader knows the argument, for messages
---@param opts? {error: string?}
---@return string[] list
function M.strings(list, where, opts)
  local last = 0
  for key in pairs(M.plain_table(list, where, opts)) do
    if math.type(key) ~= "integer" then
      wrong(opts, "TypeError", where, "list of strings", list)
    end
    last = math.max(last, key)
  end
  for i = 1, last do
    M.string(list[i], ("%s, element %d"):format(where, i), opts)
  end
  return list
end

--- A list without a hole: `{a, nil, b}`, the usual mark of a misspelt name,
--- would end before the nil. `n` is the count of select("#") or table.pack.
--- error: TypeError naming the first element that is nil
---@param list table
---@param where string
---@param n? integer
---@return table list
function M.dense(list, where, n)
  local count, last = 0, n or 0
  while list[count + 1] ~= nil do
    count = count + 1
  end
  for key in next, list do
    last = math.type(key) == "integer" and key > last and key or last
  end
  if last > count then
    errors.raise("TypeError", "%s: element %d of %d is nil", where, count + 1, last)
  end
  return list
end

--- The argument of a function that takes one list, which must have no hole;
--- `...` are the arguments behind it, for `f(a, b)` instead of `f({a, b})`.
---@param where string the function
---@param what string what the list is of
---@param list any
---@param ... any
---@return table list
function M.list(where, what, list, ...)
  local shown, more = M.describe(list), false
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    shown = shown .. ", " .. M.describe(value)
    more = more or value ~= nil
  end
  if not more and type(list) == "table" and class.of(list) == nil and not class.is_class(list)
    and not M.is_keywords(list) then
    return M.dense(list, where)
  end
  errors.raise("TypeError", "%s: expected one list of %s, %s, got %s", where, what,
    where:find("%s") and "{a, b}" or where .. "({a, b})", shown)
end

--- Is `self` an object of the class, and not what a call with a point gives?
--- error: TypeError
---@param self any
---@param cls table
---@param name string the method
function M.method(self, cls, name)
  if not cls:is(self) then
    errors.raise("TypeError", "%s is a method: call it with a colon, object:%s(...)", name, name)
  end
end

--- True for a table that holds keyword arguments: no metatable, not empty,
--- every key a string.
---@param v any
---@return boolean
function M.is_keywords(v)
  if type(v) ~= "table" or getmetatable(v) or next(v) == nil then
    return false
  end
  for k in pairs(v) do
    if type(k) ~= "string" then
      return false
    end
  end
  return true
end

--- Is a call's last table one of arguments by name? It is if all its keys are
--- parameters that are not given by position. A key that is none, next to one
--- that is, may make it an argument itself, unless it looks like a slip.
---@param last table
---@param open table<string, any> the parameters not given by position
---@param class_of_error? string of a slip's error
---@return boolean
function M.by_name(last, open, class_of_error)
  local known, strange = false, {}
  for key in next, last do
    if open[key] then
      known = true
    else
      strange[#strange + 1] = key
    end
  end
  if not known or #strange == 0 then
    return known
  end
  local missing = {}
  for name in pairs(open) do
    missing[#missing + 1] = last[name] == nil and name or nil
  end
  for _, key in ipairs(strange) do
    local near = M.nearest(key, missing)
    errors.check(near == "", class_of_error or "TypeError",
      "forward has no parameter '%s'%s", tostring(key), near)
  end
  return false
end

--- "1 argument", "2 arguments".
---@param n integer
---@param noun string
---@return string
function M.count(n, noun)
  return ("%d %s%s"):format(n, noun, n == 1 and "" or "s")
end

--- 1234567 as "1,234,567".
---@param n integer
---@return string
function M.grouped(n)
  local text = ("%d"):format(math.abs(n)):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (n < 0 and "-" or "") .. text:gsub("^,", "")
end

--- Raises if more arguments are given than a function takes.
---@param where string
---@param most integer
---@param ... any the arguments
function M.most(where, most, ...)
  local n = select("#", ...)
  if n > most then
    errors.raise("TypeError", "%s() takes %s, but %d %s given", where,
      M.count(most, "argument"), n, n == 1 and "was" or "were")
  end
end

-- NumPy's names of parameters, as the forms of operators take them.
local NUMPY = { dim = "axis", keepdim = "keepdims" }

-- Are the n arguments' last one's contents keywords? {} is no keyword at all,
-- unless its parameter may be an empty list: of those that `tables` names, else
-- the first.
local function ends_in_keywords(args, n, name, tables)
  local last = args[n]
  if type(last) ~= "table" or getmetatable(last) then
    return false
  end
  local takes = tables and name and tables[name]
  if next(last) == nil then
    return not (takes or not tables and n == 1)
  end
  return takes ~= true and M.is_keywords(last)
end

--- Sorts a call's arguments by parameter: positional ones in order, keywords
--- from a last table with string keys or none. `tables` names the parameters
--- that take such a table themselves (true), or one without keys ("list").
--- Returns the list of values (n = #names) and the set of the names that were
--- given.
---@param where string     the function, for messages
---@param names string[]
---@param tables? table<string, boolean|"list">
---@param ... any the call's arguments
---@return table values, table given
function M.arguments(where, names, tables, ...)
  local args = table.pack(...)
  local n = args.n
  local keywords
  if n > 0 and ends_in_keywords(args, n, names[n], tables) then
    keywords = args[n]
    n = n - 1
  end
  while n > #names and args[n] == nil do -- an option that was not chosen
    n = n - 1
  end
  if n > #names then
    errors.raise("TypeError", "%s takes at most %s (%s), got %d", where,
      M.count(#names, "argument"), table.concat(names, ", "), n)
  end
  local values, given = { n = #names }, {}
  for i = 1, n do
    values[i] = args[i]
    given[names[i]] = true
  end
  for key, value in pairs(keywords or {}) do
    local at
    for i, name in ipairs(names) do
      at = (name == key or NUMPY[name] == key) and i or at
    end
    key = at and names[at] or key
    if not at then
      errors.raise("TypeError", "%s has no parameter '%s'; allowed are %s%s", where, key,
        table.concat(names, ", "), M.nearest(key, names))
    end
    if given[key] then
      errors.raise("TypeError", "%s: %s is given twice, by position and by name", where, key)
    end
    values[at] = value
    given[key] = true
  end
  return values, given
end

--- The only parameter of a function, by position or by name.
---@param where string the function, for messages
---@param name string
---@param ... any the call's arguments
---@return any value, boolean? given
function M.one(where, name, ...)
  local values, given = M.arguments(where, { name }, nil, ...)
  return values[1], given[name]
end

return M
