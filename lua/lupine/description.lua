--- What there is to say about a value with a name, as a record:
---
---   kind     "operator", "function", "class", "option", "enumeration", "module"
---   forms    how it is called, a string a form
---   text     the description, with its annotations (@param, error:, source:)
---   place    "defined at FILE:LINE" of what Lua defines
---   class, base, methods, fields of a class: its own name, its base's, public methods,
---                                {name, type, text} of fields
---   members, names               of an enumeration, a module
---
--- The REPL's ?NAME prints such records (lupine.describe), the manual is made of
--- them (docs/site).
local arguments = require("lupine.base.arguments")
local class = require("lupine.base.class")
local complete = require("lupine.complete")
local enum = require("lupine.base.enum")
local operator_texts = require("lupine.base.operator_texts")
local signatures = require("lupine.base.signatures")
local texts = require("lupine.texts")
local tables = require("lupine.base.tables")

local M = {}

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

-- Scripts of users may write any comment.
local own = debug.getinfo(1, "S").source:match("^(@.*)lupine[/\\]description%.lua$")

local function is_own(source)
  return own ~= nil and source:sub(1, #own) == own
end

-- The `---` block above the first line that `found` takes: text and number of
-- the line.
local function block_above(source, found)
  local comment = is_own(source) and "^%s*%-%-%-%s?" or "^%s*%-%-+%s?"
  local block, n = {}, 0
  for line in each_line(source) do
    n = n + 1
    if found(line, n) then
      return table.concat(block, "\n"), n
    elseif line:find(comment) then
      block[#block + 1] = line:gsub(comment, "")
    else
      block = {}
    end
  end
end

local function place(source, line)
  return ("defined at %s:%d"):format(source:sub(2), line)
end

--- Whether a text says more than annotations do.
---@param text string?
---@return boolean
function M.has_prose(text)
  return text ~= nil and text:find("%w") ~= nil and not text:find("^@")
end
local has_prose = M.has_prose

-- ---- functions -----------------------------------------------------------------

local function signature(f, name, skip)
  local params, variadic = arguments.parameters(f, skip or 0)
  params[#params + 1] = variadic and "..." or nil
  return name .. "(" .. table.concat(params, ", ") .. ")"
end

-- The text of an operator's form, NAME(…) or NAME_(…).
local function operator_text(form)
  local name = form:match("^[%w_]+")
  local text = operator_texts[name]
  if not text then
    text = operator_texts[name:gsub("_$", "")]
    text = text and text .. " In place."
  end
  return text
end

local function operator(f)
  local forms, doc = signatures.of(f)
  return forms and { kind = "operator", forms = forms, text = doc or operator_text(forms[1]) }
end

-- A block's text without the lines that name a class and its fields, and these:
-- {name, type, text} each.
local function without_class(text)
  local fields, kept, open = {}, {}, nil
  for line in (text .. "\n"):gmatch("(.-)\n") do
    local name, rest = line:match("^@field ([%a_][%w_]*)%??%s+(.*)$")
    local more = open and line:match("^%s+(%S.*)$")
    if more then -- the field's text goes on
      open.text = open.text .. " " .. more
    elseif name then
      local kind, doc = rest:match("^(%b{}%S*)%s*(.*)$")
      if not kind then
        kind, doc = rest:match("^(%S+)%s*(.*)$")
      end
      open = { name = name, type = kind, text = doc }
      fields[#fields + 1] = open
    elseif not line:find("^@class") and not line:find("^@field") then
      kept[#kept + 1], open = line, nil
    else
      open = nil
    end
  end
  return table.concat(kept, "\n"), fields
end

-- The block above a Lua function, and its line.
local function above_function(info)
  local text, line = block_above(info.source, function(_, n)
    return n == info.linedefined
  end)
  return text, line or info.linedefined
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
  if not has_prose(text) and info and info.what ~= "C" then
    local above, at = above_function(info)
    if at and (not line or has_prose(above)) then
      source, text, line = info.source, above, at
    end
  end
  text = note.doc or text
  if not has_prose(text) and note.source:find("/torch/", 1, true) then
    text = operator_text(note.text) -- composed, with an operator's name
  end
  local fields
  if text then
    text, fields = without_class(text)
  end
  return { kind = "function", forms = { note.text }, text = text, fields = fields,
    place = line and place(source, line) }
end

local function lua_function(f, name, skip)
  local info = type(f) == "function" and debug.getinfo(f, "S")
  if not info then
    return nil
  elseif info.what == "C" then
    return { kind = "function", forms = {} }
  end
  local text, line = above_function(info)
  return { kind = "function", forms = { signature(f, name, skip) }, text = text,
    place = line and place(info.source, line) }
end

-- ---- classes and options -------------------------------------------------------

-- Methods that the library calls.
local HOOKS = tables.set("new init setup prepare complete next_lr closed update update_rule "
  .. "device_rule check_group loaded build is_better empty_state hyper_value "
  .. "load_checkpoint_state start_state initial_state child_lines backendOptions plain shown")

--- A method that a class itself has.
---@param cls table
---@param name string
---@return function?
function M.own_method(cls, name)
  local methods = rawget(cls, "__methods")
  return rawget(cls, name) or methods and rawget(methods, name)
end

-- Whether a method of a class above has that name, whose text holds below, too.
local function inherited(cls, name)
  local base = rawget(cls, "__base")
  while base do
    if type(M.own_method(base, name)) == "function" then
      return true
    end
    base = rawget(base, "__base")
  end
  return false
end

--- Whether a method has a text of its own, or is not one that a class above explains.
---@param cls table
---@param name string
---@param record table
---@return boolean
function M.is_news(cls, name, record)
  return has_prose(record.text) or not (inherited(cls, name) or name == "forward")
end

-- A class's own public methods.
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

-- The description stands above the line that names the class in the file of
-- a method that it has not from another.
local function class_text(cls)
  local where, base = ('("%s"'):format(cls.__name), rawget(cls, "__base") or {}
  for key, f in next, cls do
    local info = type(f) == "function" and f ~= base[key] and debug.getinfo(f, "S")
    if info and info.what == "Lua" then
      local text, line = block_above(info.source, function(l)
        return l:find(where, 1, true)
      end)
      if line then
        local kept, fields = without_class(text)
        return ("\n" .. kept):gsub("\n@[^\n]*", ""):sub(2), place(info.source, line), fields
      end
    end
  end
end

-- Fields that annotations name, with the texts that stand elsewhere, and further ones.
local function with_texts(fields, more)
  local by_name = {}
  for _, field in ipairs(fields) do
    by_name[field.name] = field
  end
  for _, field in ipairs(more) do
    local known = by_name[field.name]
    if known then
      known.text = known.text ~= "" and known.text or field.text
    else
      table.insert(fields, field)
    end
  end
  return fields
end

local function class_of(cls)
  if not class.is_class(cls) then
    return nil
  end
  local record = noted(cls) or { forms = { cls.init and signature(cls.init, cls.__name, 1) } }
  if not has_prose(record.text) then
    local text, where, fields = class_text(cls)
    if not has_prose(text) and cls.init then -- what it takes is told above its init
      local info = debug.getinfo(cls.init, "S")
      text = info.what == "Lua" and above_function(info) or text
    end
    record.text, record.place = text or record.text, record.place or where
    record.fields = fields or record.fields
  end
  record.fields = with_texts(record.fields or {}, texts.fields(cls))
  local base = rawget(cls, "__base")
  record.kind, record.class, record.base = "class", cls.__name, base and base.__name
  record.methods = public(cls)
  return record
end

-- A class of the core, whose objects are userdata.
local function core_class(t)
  local name = type(t) == "table" and rawget(t, "__name")
  local record = name and (noted(t) or { forms = {} })
  if record then
    record.kind, record.class = "class", name
    record.methods, record.fields = public(t), texts.fields(t)
  end
  return record
end

--- The record of a setter or property of poptorch.Options and its groups, or of a
--- field of popart.SessionOptions and its; `help` is the whole text.
---@param group table the class
---@param key string
---@return table?
function M.of_option(group, key)
  local popart = package.loaded["popart.options"]
  local help = popart and popart.help(group, key)
  for _, row in ipairs(package.loaded["poptorch.options"] and group._rows or {}) do
    if row.name == key or row.key == key then
      help = require("poptorch.options.document").help(key, group)
    end
  end
  local form, text = (help or ""):match("^([^:\n]+)[:\n]%s*(.*)$")
  return help and { kind = "option", forms = { form }, text = text:gsub("\n +", "\n"),
    help = help }
end

local function option(_, name, globals)
  local path, key = name:gsub(":", "."):match("^(.*)%.([%w_]+)$")
  local parent = path and complete.resolve(path, globals, true)
  local group = parent ~= nil and (class.is_class(parent) and parent or class.of(parent))
  return group and M.of_option(group, key) or nil
end

-- A table of functions and classes that a script can require.
local function module(t)
  local loaded = false
  for _, value in pairs(package.loaded) do
    loaded = loaded or rawequal(value, t)
  end
  if type(t) ~= "table" or not loaded then
    return nil
  end
  return { kind = "module", forms = {}, names = tables.keys(t, function(key)
    return type(key) == "string" and not key:find("^_")
  end) }
end

local function enumeration(e)
  if not enum.is_enum(e) then
    return nil
  end
  local name, source = enum.origin(e)
  local text, line = block_above(source, function(l)
    return l:find(('enum("%s"'):format(name), 1, true)
  end)
  return { kind = "enumeration", forms = {}, members = e:members(), text = text,
    place = line and place(source, line) }
end

local RECORDS = { operator, class_of, core_class, noted, enumeration, module,
  function(f, name)
    return lua_function(f, name, 0)
  end }

-- What has no text beside its definition, as a helper makes it, has one in lupine.texts.
local function with_text(record, value)
  if record and not has_prose(record.text) and value ~= nil then
    local text = texts.of(value)
    record.text = text and (record.text and text .. "\n" .. record.text or text) or record.text
  end
  return record
end

--- The record of a value; nil of one that is data.
---@param value any
---@param name string its name: what it is called with; an option is found by it alone
---@param globals table where the name is looked up
---@return table?
function M.of(value, name, globals)
  local record = option(value, name, globals)
  if record or value == nil then
    return record
  end
  for _, part in ipairs(RECORDS) do
    record = part(value, name)
    if record then
      return with_text(record, value)
    end
  end
  return nil
end

--- The record of a method, whose receiver is not among its arguments.
---@param f function
---@param name string
---@return table
function M.method(f, name)
  return with_text(operator(f) or noted(f) or lua_function(f, name, 1), f)
end

return M
