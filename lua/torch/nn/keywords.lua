--- forward's parameters: arguments by name, and the colon that was forgotten.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- forward -> the names of its parameters without self
local known = setmetatable({}, { __mode = "k" })

local function names_of(forward)
  local names = known[forward]
  if not names then
    names = type(forward) == "function" and (arguments.parameters(forward)) or {}
    known[forward] = names
  end
  return names
end

-- The forwards of torch.nn's own layers, whose parameters are all there is.
local strict = setmetatable({}, { __mode = "k" })

--- Marks a forward of torch.nn: a last table by name is never a positional
--- argument of it, and it takes no more arguments than it has parameters.
---@param forward function
function M.close(forward)
  strict[forward] = debug.getinfo(forward, "u").isvararg and nil or true
end

local function quoted(names)
  return #names > 0 and "'" .. table.concat(names, "', '") .. "'" or "none"
end

-- error: TypeError if a name of the table is no parameter after the n - 1 given
-- by position
local function only_known(names, n, by_name)
  local open, given = {}, {}
  for i, name in ipairs(names) do
    open[#open + 1] = i >= n and name or nil
    given[name] = i < n
  end
  for key in next, by_name do
    errors.check(not given[key], "TypeError",
      "forward: '%s' is given twice, by position and by name", key)
    errors.check(given[key] == false, "TypeError",
      "forward has no parameter '%s'%s; allowed by name here: %s", key, check.nearest(key, open),
      quoted(open))
  end
end

-- Do all names look like slips of parameters that are not given?
local function only_slips(names, n, by_name)
  local open, found = { table.unpack(names, n) }, nil
  for key in next, by_name do
    local near = check.nearest(key, open)
    if near == "" then
      return
    end
    found = ("'%s'%s"):format(key, near)
  end
  errors.raise("TypeError", "forward has no parameter %s", found)
end

-- Is the n-th and last argument a table by name? It is if all its keys are
-- parameters that are not given by position. The set of those, or nil.
local function open_for(forward, n, last)
  if not check.is_keywords(last) then
    return nil
  end
  local names = names_of(forward)
  if strict[forward] then
    only_known(names, n, last)
  end
  local open = {}
  for i = n, #names do
    open[names[i]] = i
  end
  if check.by_name(last, open) then
    return open
  elseif n > 1 then
    only_slips(names, n, last)
  end
  return nil
end

local function is_none(v)
  return v == nil or type(v) == "table" and next(v) == nil and not getmetatable(v)
end

-- error: TypeError for more arguments than parameters; nil and {} at the end
-- are none
local function count(forward, n, ...)
  local names = names_of(forward)
  while n > #names and is_none((select(n, ...))) do
    n = n - 1
  end
  errors.check(n <= #names, "TypeError",
    "forward takes %s (%s) but %d were given", check.count(#names, "argument"),
    table.concat(names, ", "), n)
end

local function put(by_name, open, n, ...)
  local last = n - 1
  for key in pairs(by_name) do
    last = math.max(last, open[key])
  end
  local values = { ... }
  values[n] = nil
  for key, value in pairs(by_name) do
    if not check.is_none(value) then
      values[open[key]] = value
    end
  end
  return table.unpack(values, 1, last)
end

-- The arguments with nil for each None.
local function nils(n, ...)
  for i = 1, n do
    if rawequal((select(i, ...)), core.none) then
      local values = { ... }
      values[i] = nil
      return nils(n, table.unpack(values, 1, n))
    end
  end
  return ...
end

local function bind(forward, n, ...)
  local last = n > 0 and (select(n, ...)) or nil
  if type(last) == "table" then
    local open = open_for(forward, n, last)
    if open then
      return put(last, open, n, ...)
    end
  end
  if n > 1 and strict[forward] then
    count(forward, n, ...)
  end
  return ...
end

--- The arguments of a call with those by name put in their places. To a layer of
--- torch.nn None is what is not given.
---@param forward function
---@param ... any
---@return any ...
function M.bind(forward, ...)
  local n = select("#", ...)
  if n > 1 and strict[forward] then
    return bind(forward, n, nils(n, ...))
  end
  return bind(forward, n, ...)
end

--- {n, …} without a last table by name, and that table ({} if there is none).
---@param forward function
---@param args table packed
---@return table positional
---@return table<string, any> by_name
function M.split(forward, args)
  local last = args.n > 0 and args[args.n] or nil
  if not open_for(forward, args.n, last) then
    return args, {}
  end
  return { n = args.n - 1, table.unpack(args, 1, args.n - 1) }, last
end

local checked = setmetatable({}, { __mode = "k" })

-- Frames of the wrapper count as this file's: not the caller's.
local SOURCE = debug.getinfo(1, "S").source

local TEMPLATE = [[
local f, check = ...
return function(%s)
  check(%s)
  return f(%s)
end]]

local function wrapper(forward, Module)
  local info = debug.getinfo(forward, "u")
  local names = {}
  for i = 1, info.nparams do
    names[i] = debug.getlocal(forward, i)
  end
  if #names == 0 or #names < info.nparams then -- of C, or stripped
    return forward
  end
  local all = table.concat(names, ", ") .. (info.isvararg and ", ..." or "")
  return load(TEMPLATE:format(all, names[1], all), SOURCE, "t", {})(forward, function(self)
    errors.check(Module:is(self), "TypeError",
      "forward is a method: call it with a colon, module:forward(x), or call module(x)")
  end)
end

--- `forward` as a module's field gives it: the same parameters, and an error
--- that says so when it is called with a point.
---@param forward function?
---@param Module table
---@return function? forward
function M.checked(forward, Module)
  if type(forward) ~= "function" then
    return forward
  end
  local f = checked[forward]
  if not f then
    f = wrapper(forward, Module)
    checked[forward] = f
  end
  return f
end

return M
