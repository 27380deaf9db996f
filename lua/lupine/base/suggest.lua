--- What a call of nil was meant to be: "attempt to call a nil value (method
--- 'parametres')" gets the nearest names that the library has. Fields that are
--- not set are nil on a module, so that the call itself is where a misspelt
--- method shows.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local tables = require("lupine.base.tables")

local function add(names, t)
  for key, value in next, t do
    if type(key) == "string" and not key:find("^_") and type(value) == "function" then
      names[key] = true
    end
  end
end

-- Methods of all classes that are loaded, and functions of modules.
local function known()
  local names = {}
  for module, value in pairs(package.loaded) do
    local ours = module:find("^torch") or module:find("^poptorch") or module:find("^popart")
      or module:find("^popdist") or module:find("^lupine")
    if ours and type(value) == "table" then
      add(names, value)
      for _, entry in next, value do
        if class.is_class(entry) then
          add(names, entry)
        end
      end
    end
  end
  return names
end

-- Where debug.getlocal finds the function that failed, seen from `fields`:
-- fields, the function below, the handler, that function.
local FAILED = 4

-- Names of the layers, parameters, buffers and plain fields of the modules
-- that the function which failed has in its locals.
local function fields()
  local Module = package.loaded["torch.nn.module"]
  local names, i = {}, 1
  local name, value
  if not Module or not debug.getinfo(FAILED, "l") then
    return names
  end
  repeat
    name, value = debug.getlocal(FAILED, i)
    if name and Module:is(value) then
      for _, members in ipairs(Module.__members(value)) do
        for key in next, members do
          names[#names + 1] = type(key) == "string" and key or nil
        end
      end
    end
    i = i + 1
  until not name
  table.sort(names)
  return names
end

-- What stands in a generic for instead of a value that is not called.
local LOOPS = {
  table = "a list stands in a loop as `for _, x in ipairs(list) do`",
  ["torch.Tensor"] = "rows of a tensor are `for row in x:iter() do`",
}
local SAMPLES = "samples of a dataset are `for i = 0, #data - 1 do local sample = data[i]`"

-- The line and what to write in its loop, or nil.
local function loop(message)
  local line, name = message:match(
    "^([^\n]*attempt to call an? ([%w_%.]+) value %(for iterator 'for iterator'%))")
  if line then
    return line, LOOPS[name] or name:find("Dataset$") and SAMPLES
  end
  line = message:match("^([^\n]*attempt to index a function value)$")
    or message:match("^([^\n]*attempt to index a function value %(field '%?'%))")
  return line, "ipairs is for lists; an iterator stands in the loop by itself, `for name, p in "
    .. "net:named_parameters() do`"
end

-- Names that scripts give to our modules, and what they write for them.
local MODULES = { torch = 'require("torch")', nn = 'require("torch").nn',
  F = 'require("torch").nn.functional', optim = 'require("torch").optim',
  poptorch = 'require("poptorch")', lupine = 'require("lupine")' }

-- The first line and what loads the module whose name is no global, or nil.
local function missing_module(message)
  local line, name =
    message:match("^([^\n]*attempt to index a nil value %(global '([%w_]+)'%))")
  local loads = line and MODULES[name]
  if loads then
    local word = line:find("^stdin:") and "" or "local "
    return line, ("; write %s%s = %s first"):format(word, name, loads)
  end
end

--- The message with suggestions, or itself. Called by a handler, with the
--- function that failed still on the stack.
---@param message string
---@return string
local function suggest(message)
  local number = message:match("^[^\n]*number expected, got torch%.Tensor%)")
    or message:match("^[^\n]*attempt to concatenate a torch%.Tensor value[^\n]*")
  if number then
    return number .. "; x:item() is the number of a tensor with one element"
      .. message:sub(#number + 1)
  end
  local first, module = missing_module(message)
  if first then
    return first .. module .. message:sub(#first + 1)
  end
  local line, looped = loop(message)
  if line and looped then
    return line .. "; " .. looped .. message:sub(#line + 1)
  end
  local bad_self = message:match("^[^\n]*attempt to index a %a+ value %(local 'self'%)")
  local counted = message:match("^[^\n]*attempt to index a nil value %(field 'integer index'%)")
    or message:match("^[^\n]*attempt to index a nil value %(field '%?'%)")
  if counted then
    return counted .. "; lists count from 1, tensors from 0" .. message:sub(#counted + 1)
  elseif bad_self then
    return bad_self .. "; a method is called with a colon: object:method(...)"
      .. message:sub(#bad_self + 1)
  end
  local head, verb, kind, name =
    message:match("^([^\n]*attempt to (%a+) a nil value %((%a+) '([%w_]+)'%))")
  if not name or kind ~= "method" and kind ~= "field" then
    return message
  end
  local near = check.nearest(name, fields())
  local names = near == "" and verb == "call" and known() or {}
  if names[name] then -- it exists, only not there
    return message
  end
  return head .. (near ~= "" and near or check.nearest(name, tables.keys(names)))
    .. message:sub(#head + 1)
end

return suggest
