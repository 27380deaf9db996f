--- Objects of a run file: `class` names a class or a function, `args` has its arguments
--- by name or in order. What a class says of its arguments gets the file and line.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")

local M = {}

local function fail(spec, key, ...)
  errors.raise("ConfigFileError", "%s: %s: %s", spec.at, key, string.format(...))
end

local function can_be_called(value)
  local mt = type(value) ~= "function" and getmetatable(value)
  return type(value) == "function" or class.is_class(value) or mt and mt.__call ~= nil
end

local files = {} -- what programs in files returned, by path

local function of_file(spec, key, path, name)
  if files[path] == nil then
    local chunk, why = loadfile(path, "t")
    if not chunk then
      fail(spec, key, "%s", why)
    end
    files[path] = chunk(path) or false
  end
  local value = files[path]
  if name then
    value = type(value) == "table" and value[name] or nil
  end
  if not can_be_called(value) then
    fail(spec, key, "the program %s returns no class or function%s", path,
      name and (" '%s'"):format(name) or "")
  end
  return value
end

-- A field of a module, which may raise for a name that it does not have.
local function field(of, name)
  local ok, value = pcall(function()
    return of[name]
  end)
  return ok and value or nil
end

local function names_of(of)
  local names = {}
  for name, value in pairs(type(of) == "table" and of or {}) do
    if type(name) == "string" and not name:find("^_") and can_be_called(value) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

-- A name with points: the longest front of it that is a module, then fields.
local function of_module(spec, key, text)
  local parts = {}
  for part in text:gmatch("[^.]+") do
    parts[#parts + 1] = part
  end
  for n = #parts, 1, -1 do
    local module = table.concat(parts, ".", 1, n)
    if package.loaded[module] or package.preload[module]
      or package.searchpath(module, package.path) then
      local value = require(module)
      for i = n + 1, #parts do
        local inner = field(value, parts[i])
        if inner == nil then
          fail(spec, key, "%s has no '%s'%s", table.concat(parts, ".", 1, i - 1), parts[i],
            check.nearest(parts[i], names_of(value)))
        end
        value = inner
      end
      return value
    end
  end
  return fail(spec, key, "there is no module '%s'; modules are looked for in %s", parts[1],
    package.path)
end

local function within(spec, key, modules)
  if not modules then -- an object among arguments: nothing says what it is for
    return fail(spec, key, "'%s' is a short name; among arguments classes have their full names, "
      .. "as torch.nn.GELU or FILE.lua:NAME", spec.class)
  end
  local known = {}
  for _, module in ipairs(modules) do
    local ok, of = pcall(require, module)
    local found = ok and field(of, spec.class)
    if found then
      return found
    end
    for _, name in ipairs(ok and names_of(of) or {}) do
      known[#known + 1] = name
    end
  end
  return fail(spec, key, "'%s' is in none of %s%s; a class of your own is MODULE.NAME or "
    .. "FILE.lua:NAME", spec.class, table.concat(modules, ", "), check.nearest(spec.class, known))
end

--- The class or function that an object of the file names: "FILE.lua:NAME", a module's
--- field "a.b.NAME", or a short name of the row's own modules.
--- error: ConfigFileError with file, line and the nearest names
---@param spec table {class, args, at}
---@param key string
---@param modules? string[]
---@return any
function M.find(spec, key, modules)
  local text = spec.class
  local file, name = text:match("^(.+%.lua):?([%w_]*)$")
  local value
  if file then
    value = of_file(spec, key, file, name ~= "" and name or nil)
  elseif text:find(".", 1, true) then
    value = of_module(spec, key, text)
  else
    value = within(spec, key, modules)
  end
  if not can_be_called(value) then
    fail(spec, key, "'%s' is no class or function", text)
  end
  return value
end

-- Where this library lies: its own classes take arguments by name themselves.
local own = debug.getinfo(1, "S").source:match("^@(.*)lupine[/\\]run[/\\]build%.lua$")

-- Names of the parameters of a user's class or function, or nil.
local function parameters(value)
  local f, skip = value, 0
  if class.is_class(value) then
    f, skip = value.init, 1
  end
  local info = type(f) == "function" and debug.getinfo(f, "Su")
  if not info or info.what == "C" or info.isvararg
    or own and info.source:sub(2, #own + 1) == own then
    return nil
  end
  return (arguments.parameters(f, skip))
end

-- The arguments in order: those that are given first, then the file's.
local function positional(spec, key, names, first, args)
  local out = table.pack(table.unpack(first, 1, first.n))
  local at = {}
  for i, name in ipairs(names) do
    at[name] = i
  end
  local strange
  for name in pairs(args) do
    strange = not at[name] and name or strange
  end
  if strange and #names == first.n + 1 and args[names[#names]] == nil then
    -- one table has them all
    out[#names], out.n = args, #names
    return out
  elseif strange then
    fail(spec, key, "%s has no parameter '%s'; it has %s%s", spec.class, strange,
      #names > 0 and table.concat(names, ", ") or "none", check.nearest(strange, names))
  end
  for name, value in pairs(args) do
    if at[name] <= first.n then
      fail(spec, key, "the argument '%s' of %s is given by lupine itself", name, spec.class)
    end
    out[at[name]], out.n = value, math.max(out.n, at[name])
  end
  return out
end

-- Objects within arguments, as a transform of a data set, are made first.
local function made(value, key, at)
  if type(value) ~= "table" or getmetatable(value) then
    return value
  end
  local inner = {}
  for name, v in pairs(value) do
    inner[name] = made(v, ("%s.%s"):format(key, name), at)
  end
  if type(inner.class) == "string" and (inner.args == nil or type(inner.args) == "table") then
    return M.make({ class = inner.class, args = inner.args or {}, at = at }, key)
  end
  return inner
end

-- Where the object and its arguments come from: a file's line, and the command line if it
-- has changed an argument.
local function origins(spec)
  local at = spec.at
  for _, other in ipairs(spec.args_at or {}) do
    if other:match("^[^:]*") ~= spec.at:match("^[^:]*") and not at:find(other, 1, true) then
      at = at .. ", " .. other
    end
  end
  return at
end

--- Makes the object: calls the class or function.
--- error: ConfigFileError for a name or argument that is not there; the class's own
---   errors with file and line
---@param spec table {class, args, at}
---@param key string
---@param modules? string[] where a short name is looked up
---@param ... any arguments that come before the file's
---@return any
function M.make(spec, key, modules, ...)
  local value = M.find(spec, key, modules)
  local first, args = table.pack(...), made(spec.args, key .. ".args", spec.at)
  local call
  if #args > 0 then
    call = table.pack(table.unpack(first, 1, first.n))
    table.move(args, 1, #args, first.n + 1, call)
    call.n = first.n + #args
  elseif next(args) == nil then
    call = first
  else
    local names = parameters(value)
    call = names and positional(spec, key, names, first, args)
      or table.pack(table.unpack(first, 1, first.n))
    if not names then
      call.n = first.n + 1
      call[call.n] = args
    end
  end
  local out = table.pack(pcall(value, table.unpack(call, 1, call.n)))
  if not out[1] then
    local e = out[2]
    if errors.Exception:is(e) and not errors.ConfigFileError:is(e) then
      e.message = ("%s: %s: %s"):format(origins(spec), key, e.message)
      e.of_run_file = e.origin == "" or nil -- no line of the user's is between
    end
    error(e, 0)
  elseif out[2] == nil then -- as where files are missing
    fail(spec, key, "%s gave nothing%s", spec.class, out[3] and ": " .. tostring(out[3]) or "")
  end
  return table.unpack(out, 2, out.n)
end

return M
