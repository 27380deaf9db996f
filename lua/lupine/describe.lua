--- What ?NAME of the REPL prints: the forms of an operator in schema notation,
--- a Lua function's signature and description, what a class offers.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local complete = require("lupine.complete")
local enum = require("lupine.base.enum")
local show = require("lupine.show")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local function each_line(source)
  local file = source:sub(1, 1) == "@" and io.open(source:sub(2))
  if not file then
    return function() end
  end
  return function()
    local line = file:read("l")
    if not line then
      file:close()
    end
    return line
  end
end

-- The `---` block above the first line that `found` takes: text and number of
-- the line.
local function block_above(source, found)
  local block, n = {}, 0
  for line in each_line(source) do
    n = n + 1
    if found(line, n) then
      return table.concat(block, "\n"), n
    elseif line:find("^%s*%-%-%-") then
      block[#block + 1] = line:gsub("^%s*%-%-%-%s?", "")
    else
      block = {}
    end
  end
end

local function place(source, line)
  return ("defined at %s:%d"):format(source:sub(2), line)
end

local function add(lines, text)
  if text and text ~= "" then
    lines[#lines + 1] = text
  end
end

-- ---- functions -----------------------------------------------------------------

local function signature(f, name, skip)
  local params, variadic = arguments.parameters(f, skip or 0)
  params[#params + 1] = variadic and "..." or nil
  return name .. "(" .. table.concat(params, ", ") .. ")"
end

local function operator(f, name)
  local texts, doc = signatures.of(f)
  if not texts then
    return nil
  end
  doc = doc and doc:gsub("\n", "\n  ")
  local lines = { name .. ": " .. (doc or #texts == 1 and "one form" or #texts .. " forms") }
  for _, text in ipairs(texts) do
    lines[#lines + 1] = "  " .. text
  end
  return table.concat(lines, "\n")
end

-- A block's text without the lines that name a class and its fields.
local function without_class(text)
  return (("\n" .. text):gsub("\n@class[^\n]*", ""):gsub("\n@field[^\n]*", ""):sub(2))
end

-- The block above a Lua function, and its line.
local function above_function(info)
  return block_above(info.source, function(_, n)
    return n == info.linedefined
  end)
end

-- Made by a helper, or a function of any arguments, which noted how it is called.
local function noted(value)
  local note = signatures.noted(value)
  if not note then
    return nil
  end
  local name = '"' .. note.text:match("^[%w_%.]+")
  local text, line
  for _, before in ipairs({ "=%s*[%w_%.:]+%(", "" }) do -- where it is made, or noted
    text, line = block_above(note.source, function(l)
      local _, stop = l:find(before .. name)
      return stop and l:find("^[%(\"]", stop + 1) ~= nil
    end)
    if line then
      break
    end
  end
  local source, info = note.source, type(value) == "function" and debug.getinfo(value, "S")
  if not line and info and info.what ~= "C" then
    source, text, line = info.source, above_function(info)
  end
  local lines = { note.text }
  add(lines, text and without_class(text))
  add(lines, line and place(source, line))
  return table.concat(lines, "\n")
end

local function lua_function(f, name)
  local info = debug.getinfo(f, "S")
  if info.what == "C" then
    return name .. ": a C function"
  end
  local text, line = above_function(info)
  local lines = { signature(f, name) }
  add(lines, text)
  add(lines, line and place(info.source, line))
  return table.concat(lines, "\n")
end

-- ---- classes and options -------------------------------------------------------

-- Methods that the library calls.
local HOOKS = { new = true, init = true, setup = true, prepare = true, complete = true,
  next_lr = true, closed = true, update = true, update_rule = true,
  device_rule = true, check_group = true, loaded = true, build = true, is_better = true }

local function public(cls)
  local methods = {}
  for _, t in ipairs({ cls, rawget(cls, "__methods") }) do
    for name, f in next, t do
      if type(name) == "string" and type(f) == "function" and not name:find("^_")
        and not HOOKS[name] then
        methods[#methods + 1] = name
      end
    end
  end
  table.sort(methods)
  return methods
end

local function wrapped(words, indent)
  local lines, line = {}, indent
  for i, word in ipairs(words) do
    word = word .. (i < #words and ", " or "")
    if #line + #word > 80 then
      lines[#lines + 1] = line:gsub("%s+$", "")
      line = indent
    end
    line = line .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

-- The description stands above the line that names the class in the file of
-- its first method.
local function class_text(cls)
  local where = ('("%s"'):format(cls.__name)
  for _, f in next, cls do
    local info = type(f) == "function" and debug.getinfo(f, "S")
    if info and info.what == "Lua" then
      local text, line = block_above(info.source, function(l)
        return l:find(where, 1, true)
      end)
      if line then
        return ("\n" .. text):gsub("\n@[^\n]*", ""):sub(2), place(info.source, line)
      end
    end
  end
end

local function class_of(cls, name)
  if not class.is_class(cls) then
    return nil
  end
  local base = rawget(cls, "__base")
  local lines = { ("%s: class %s%s"):format(name, cls.__name,
    base and ", extends " .. base.__name or "") }
  local known = noted(cls)
  if known then
    add(lines, known)
  else
    local text, where = class_text(cls)
    add(lines, cls.init and signature(cls.init, cls.__name, 1))
    add(lines, text)
    add(lines, where)
  end
  local methods = public(cls)
  if #methods > 0 then
    lines[#lines + 1] = "methods:\n" .. wrapped(methods, "  ")
  end
  return table.concat(lines, "\n")
end

-- A setter or property of poptorch.Options and its groups, or a field of
-- popart.SessionOptions and its.
local function option(_, name, globals)
  local path, key = name:match("^(.*)%.([%w_]+)$")
  local parent = path and complete.resolve(path, globals, true)
  local group = parent ~= nil and (class.is_class(parent) and parent or class.of(parent))
  local popart = package.loaded["popart.options"]
  for _, row in ipairs(group and package.loaded["poptorch.options"] and group._rows or {}) do
    if row.name == key or row.key == key then
      return require("poptorch.options.document").help(key)
    end
  end
  return group and popart and popart.help(group, key) or nil
end

-- A table of functions and classes that a script can require.
local function module(t, name)
  local loaded = false
  for _, value in pairs(package.loaded) do
    loaded = loaded or rawequal(value, t)
  end
  if type(t) ~= "table" or not loaded then
    return nil
  end
  local names = tables.keys(t, function(key)
    return type(key) == "string" and not key:find("^_")
  end)
  return ("%s: a module of %d names:\n%s"):format(name, #names, wrapped(names, "  "))
end

local function enumeration(e, name)
  if not enum.is_enum(e) then
    return nil
  end
  local members = {}
  for i, member in ipairs(e:members()) do
    members[i] = ("%s (%s)"):format(member.name, tostring(member.value))
  end
  return ("%s: an enumeration, with the values of its members:\n%s"):format(name,
    wrapped(members, "  "))
end

local DESCRIBE = { option, operator, class_of, noted, enumeration, module }

-- Where a name is looked for that the script has not, in order.
local PLACES = { "torch", "torch.nn", "torch.nn.functional", "torch.optim",
  "torch.optim.lr_scheduler", "torch.utils.data", "torch.nn.init", "torch.nn.utils",
  "torch.distributions", "torch.linalg", "torch.special", "torch.autograd", "poptorch", "popart",
  "lupine", "lupine.onnx" }
-- What scripts call some of them.
local SHORT = { F = "torch.nn.functional", data = "torch.utils.data", D = "torch.distributions" }

local function method(path, globals)
  local name = path:match("^Tensor%.([%w_]+)$") or path:match("^[%w_]+$")
  return complete.resolve("torch", globals, true) and require("lupine.core").methods[name]
end

-- The value of a dotted name and the name in full; nil if there is none.
local function find(path, globals)
  local v = complete.resolve(path, globals, true)
  if v ~= nil then
    return v, path
  end
  local first, rest = path:match("^(%w+)%.(.*)$")
  local whole = SHORT[first] and SHORT[first] .. "." .. rest
  v = whole and complete.resolve(whole, globals, true)
  for _, above in ipairs(v == nil and PLACES or {}) do
    whole = above .. "." .. path
    v = complete.resolve(whole, globals, true)
    if v ~= nil then
      return v, whole
    end
  end
  if v == nil then
    whole = "Tensor:" .. path:match("[%w_]+$")
    v = method(path, globals)
  end
  return v, whole
end

-- The names that are near one nobody has.
local function near(path, globals)
  local above, last = path:match("^(.*)%.([^.]*)$")
  local names = {}
  for _, parent in ipairs(above and { above, "torch." .. above } or PLACES) do
    local t = complete.resolve(parent, globals, true)
    for key in next, type(t) == "table" and t or {} do
      names[#names + 1] = key
    end
  end
  return check.nearest(last or path, names)
end

--- The text for a name: "torch.sum", "nn.LSTM", "x:sum", "poptorch.Options".
---@param name string
---@param globals table
---@return string
return function(name, globals)
  local path = name:gsub(":", ".")
  local v, whole = find(path, globals)
  if v ~= nil and whole ~= path then
    name, path = whole, whole
  end
  for i, part in ipairs(DESCRIBE) do
    local text = (v ~= nil or i == 1) and part(v, i == 1 and path or name, globals)
    if text then
      return text
    end
  end
  if v == nil then
    return "no value is named " .. name .. near(path, globals)
  elseif type(v) == "function" then
    return lua_function(v, name)
  end
  return name .. ": " .. show.show(v)
end
