--- Options of poptorch in run files: keys are the setters of poptorch.Options and of its
--- groups, and the rows of those say what each takes.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local config_file = require("poptorch.options.config_file")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local types = require("lupine.run.types")

local M = {}

-- Groups of an options object by name.
local function groups(options)
  local out = {}
  for name, value in next, options do
    if type(name) == "string" and not name:find("^_") and Group:is(value) then
      out[name] = value
    end
  end
  return out
end

local function setters(group)
  local out = {}
  for _, row in ipairs(getmetatable(group)._rows) do
    if row.name then
      out[row.name] = row
    end
  end
  return out
end

local SIMPLE = { int = "int", bool = "bool", string = "string", number = "float" }

local function member(node, kind, key)
  local text = node.kind == "scalar" and (node.text or node.value)
  if enum.is_member(text) then
    return text
  end
  local name = type(text) == "string" and text:match("([%w_]+)$")
  local names = {}
  for _, value in ipairs(kind:members()) do
    names[#names + 1] = value.name
    if value.name == name then
      return value
    end
  end
  local near = name and check.nearest(name, names) or ""
  return types.refuse(node, key, "one of " .. table.concat(names, ", ") .. near)
end

-- One argument of a setter.
local function argument(node, param, key)
  local kind = param.kind
  if types.is_null(node) then
    return nil
  elseif enum.is_enum(kind) then
    return member(node, kind, key)
  elseif SIMPLE[kind] then
    return types[SIMPLE[kind]].read(node, param, key)
  end
  return types.any.read(node, {}, key)
end

-- Values that only Python's calls can spell (strategies, locations, dtypes) are written
-- as a line of an options file has them.
local function is_text(row, node)
  local kind = row.takes[row.params[1]] and row.takes[row.params[1]].kind
  return node.kind == "scalar" and type(node.text) == "string"
    and (class.is_class(kind) and not enum.is_enum(kind) or kind == nil and #row.params == 1
      and not row.varargs)
end

local function call(group, row, node, key)
  if node.kind == "map" and not (row.tables and row.tables[row.params[1]])
    and row.takes[row.params[1]].kind ~= "table" then
    local given = {}
    for _, name in ipairs(node.keys) do
      local param = row.takes[name]
      if not param then
        errors.raise("ConfigFileError", "%s: %s: unknown argument '%s'; allowed are %s%s",
          node.values[name].at, key, name, table.concat(row.params, ", "),
          check.nearest(name, row.params))
      end
      given[name] = argument(node.values[name], param, key .. "." .. name)
    end
    group[row.name](group, given)
  elseif #row.params == 0 and not row.varargs then
    if types.bool.read(node, {}, key) then
      group[row.name](group)
    end
  elseif row.varargs then
    group[row.name](group, table.unpack(types.list.read(node, { of = { type = "string" } }, key)))
  else
    group[row.name](group, argument(node, row.takes[row.params[1]], key))
  end
end

local function apply_one(options, prefix, group, row, node)
  local key = prefix .. row.name
  local ok, e = pcall(function()
    if is_text(row, node) then
      config_file.line(options, ("%s(%s)"):format(key:gsub("^options%.", ""), node.text))
    else
      call(group, row, node, key)
    end
  end)
  if not ok then
    if errors.Exception:is(e) and not errors.ConfigFileError:is(e) then
      e.message = ("%s: %s: %s"):format(node.at, key, e.message)
      e.of_run_file = true
    end
    error(e, 0)
  end
end

local function apply_group(options, group, map, prefix)
  local rows, inner = setters(group), groups(group)
  for _, name in ipairs(map.keys) do
    local node = map.values[name]
    if rows[name] then
      apply_one(options, prefix, group, rows[name], node)
    elseif inner[name] and node.kind == "map" then
      apply_group(options, inner[name], node, prefix .. name .. ".")
    else
      local known = {}
      for key in pairs(rows) do
        known[#known + 1] = key
      end
      for key in pairs(inner) do
        known[#known + 1] = key
      end
      table.sort(known)
      errors.raise("ConfigFileError", "%s: unknown key '%s%s'%s; allowed are %s", node.at, prefix,
        name, check.nearest(name, known), table.concat(known, ", "))
    end
  end
end

--- Sets what a tree of a run file says. The order is the file's.
--- error: ConfigFileError with file and line; the setter's own class for a value that
---   it refuses
---@param options poptorch.Options
---@param node table a map
function M.apply(options, node)
  apply_group(options, options, node, "options.")
end

--- Every key below `options` with what it is, in the order of the rows.
---@param options poptorch.Options
---@return {name: string, doc: string, row: table, group: table}[]
function M.keys(options)
  local out = {}
  local function walk(group, prefix)
    for _, row in ipairs(getmetatable(group)._rows) do
      if row.name then
        out[#out + 1] = { name = prefix .. row.name, doc = row.doc or "", row = row, group = group }
      end
    end
    local inner, names = groups(group), {}
    for name in pairs(inner) do
      names[#names + 1] = name
    end
    table.sort(names)
    for _, name in ipairs(names) do
      walk(inner[name], prefix .. name .. ".")
    end
  end
  walk(options, "options.")
  return out
end

return M
