--- The options as text, from their rows: help for a reader, and the LuaCATS
--- annotations in poptorch/options/meta.lua, which are this file's output
--- (spec/poptorch/option_documents_spec.lua compares and can renew them).
local class = require("lupine.base.class")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")
local check = require("lupine.base.check")
local Group = require("poptorch.options.group")
local options = require("poptorch.options")

local M = {}

local TYPES = { int = "integer", bool = "boolean", string = "string", number = "number",
  table = "table" }

local function type_of(row)
  local kind = row.kind
  local name
  if enum.is_enum(kind) then
    name = "poptorch." .. tostring(kind)
  elseif class.is_class(kind) then
    name = kind.__name
  else
    name = TYPES[kind] or "any"
  end
  return row.nullable and name .. "?" or name
end

local function groups()
  local list = { { label = "Options", type = "poptorch.Options", class = options.Options } }
  for _, name in ipairs(options.GROUPS) do
    local cls = options.CLASSES[name]
    list[#list + 1] = { label = "Options." .. name, type = "poptorch.options." .. cls.__name,
      class = cls }
  end
  local settings = options.TensorLocationSettings
  list[#list + 1] = { label = settings.__name, type = "poptorch." .. settings.__name,
    class = settings }
  return list
end

local function signature(row)
  return ("%s(%s)"):format(row.name, row.varargs and "..." or table.concat(row.params, ", "))
end

-- The same for readers: "excludes…" may be several arguments.
local function shown_signature(row)
  return row.varargs and ("%s(*%s)"):format(row.name, row.params[1]) or signature(row)
end

-- What a row does, "none" and why, or nil where another row's setter says it.
local function effect_of(row)
  return row.effect or row.no_effect and "none: " .. row.no_effect
end

-- "int >= 1, if left out 1": what a parameter allows.
local function takes(spec)
  local text = spec.kind and check.allowed(spec.kind, spec) or "any value"
  local default = spec.omitted
  if default == nil and spec[1] then -- no row, whose default is the property's
    default = spec.default
  end
  return default == nil and text or ("%s; if left out %s"):format(text,
    spec[1] and type(default) == "string" and default or Group.shown(default))
end

local function help_of(group, row)
  local lines = { ("%s.%s"):format(group.label, row.name and shown_signature(row) or row.key) }
  lines[#lines + 1] = "  " .. row.doc
  for _, param in ipairs(row.name and not row.varargs and row.params or {}) do
    lines[#lines + 1] = ("  %s: %s"):format(param, takes(row.takes[param]))
  end
  if row.key and row.name then
    lines[#lines + 1] = ("  property %s: %s, default %s"):format(row.key, type_of(row),
      Group.shown(row.default))
  end
  if effect_of(row) then
    lines[#lines + 1] = "  on the simulated system: " .. effect_of(row)
  end
  return table.concat(lines, "\n")
end

--- What an option does: the text for a setter or property, or for all of them.
--- error: KeyError for an unknown name, with the nearest ones
---@param name? string "gradientAccumulation" or "gradient_accumulation"
---@param cls? table the only class whose option is meant
---@return string
function M.help(name, cls)
  local out, names = {}, {}
  for _, group in ipairs(groups()) do
    for _, row in ipairs(group.class._rows) do
      if (name == nil or row.name == name or row.key == name)
        and (cls == nil or cls == group.class) then
        out[#out + 1] = help_of(group, row)
      end
      names[#names + 1] = row.name
      names[#names + 1] = row.key
    end
  end
  if #out == 0 then
    errors.raise("KeyError", "no option is called '%s'%s", tostring(name),
      check.nearest(name, names))
  end
  return table.concat(out, name and "\n" or "\n\n")
end

local function add_text(lines, prefix, text)
  local line = prefix
  for word in text:gmatch("%S+") do
    if #line + #word + 1 > 96 then
      lines[#lines + 1] = line
      line = "---  "
    end
    line = line .. " " .. word
  end
  lines[#lines + 1] = line
end

local function annotate_setter(lines, group, row, variable)
  lines[#lines + 1] = ""
  add_text(lines, "---", row.doc)
  add_text(lines, "--- effect:", effect_of(row))
  lines[#lines + 1] = "--- source: "
    .. (row.source or "PopTorch 3.x API reference, " .. group.type)
  if row.varargs then
    lines[#lines + 1] = "---@param ... string"
  end
  for _, param in ipairs(row.varargs and {} or row.params) do
    local spec = row.takes[param]
    local kind = type_of(spec)
    local optional = (spec.omitted ~= nil or spec[1] and spec.default ~= nil) and "?" or ""
    lines[#lines + 1] = ("---@param %s%s %s"):format(param, optional, kind)
  end
  lines[#lines + 1] = "---@return " .. group.type
  local line = ("function %s:%s end"):format(variable, signature(row))
  lines[#lines + 1] = #line <= 100 and line or line:gsub("%(", "(\n  ", 1)
end

--- The text of poptorch/options/meta.lua.
---@return string
function M.annotations()
  local lines = { "---@meta", "-- luacheck: ignore 212 241",
    "-- Made by poptorch/options/document.lua from the rows of the options; do not edit." }
  for _, group in ipairs(groups()) do
    local variable = group.class.__name
    lines[#lines + 1] = ""
    lines[#lines + 1] = "---@class " .. group.type
    for _, row in ipairs(group.class._rows) do
      if row.key then
        lines[#lines + 1] = ("---@field %s %s"):format(row.key, type_of(row))
      end
    end
    if group.type == "poptorch.Options" then
      for _, name in ipairs(options.GROUPS) do
        lines[#lines + 1] = ("---@field %s poptorch.options.%s"):format(name,
          options.CLASSES[name].__name)
      end
    end
    lines[#lines + 1] = ("local %s = {}"):format(variable)
    for _, row in ipairs(group.class._rows) do
      if row.name then
        annotate_setter(lines, group, row, variable)
      end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

return M
