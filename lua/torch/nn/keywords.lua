--- forward's parameters: arguments by name, and the colon that was forgotten.
local check = require("lupine.check")
local errors = require("torch.errors")

local M = {}

-- forward -> the names of its parameters without self
local known = setmetatable({}, { __mode = "k" })

local function names_of(forward)
  local names = known[forward]
  if not names then
    names = {}
    local info = type(forward) == "function" and debug.getinfo(forward, "u")
    for i = 2, info and info.nparams or 0 do
      names[#names + 1] = debug.getlocal(forward, i)
    end
    known[forward] = names
  end
  return names
end

-- The last table is by name if all its keys are parameters that are not given
-- by position.
local function bind(forward, n, ...)
  local names, by_name = names_of(forward), (select(n, ...))
  local open = {}
  for i = n, #names do
    open[names[i]] = i
  end
  if not check.by_name(by_name, open) then
    return ...
  end
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

--- The arguments of a call with those by name put in their places.
function M.bind(forward, ...)
  local n = select("#", ...)
  local last = n > 0 and (select(n, ...)) or nil
  if type(last) == "table" and getmetatable(last) == nil and type(next(last)) == "string" then
    return bind(forward, n, ...)
  end
  return ...
end

--- {n, …} without a last table by name, and that table ({} if there is none).
function M.split(forward, args)
  local last = args.n > 0 and args[args.n] or nil
  if type(last) ~= "table" or getmetatable(last) ~= nil or type(next(last)) ~= "string" then
    return args, {}
  end
  local open = {}
  for i, name in ipairs(names_of(forward)) do
    open[name] = i >= args.n and i or nil
  end
  if not check.by_name(last, open) then
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
