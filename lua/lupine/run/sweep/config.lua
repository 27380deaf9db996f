--- A sweep's file, read as run files are: the schema's rows say what a value is, errors
--- tell file and line, words of the command line come last.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local parameters = require("lupine.run.sweep.parameters")
local schema = require("lupine.run.sweep.schema")
local sources = require("lupine.run.sources")
local types = require("lupine.run.types")

local M = {}

local OWN_TYPES = { parameters = parameters.read, fixed = parameters.fixed }

local function take(map, name)
  local node = map.kind == "map" and map.values[name]
  return node or nil
end

-- Refuses keys that no row has.
local function check_keys(node, prefix)
  local allowed = {}
  for _, row in ipairs(schema) do
    local parent, leaf = row.name:match("^(.-)%.?([^.]+)$")
    allowed[#allowed + 1] = parent == prefix and leaf or nil
  end
  for _, key in ipairs(node.keys) do
    local known = false
    for _, name in ipairs(allowed) do
      known = known or name == key
    end
    errors.check(known, "ConfigFileError", "%s: unknown key '%s'%s; allowed are %s (keys of the "
      .. "run file stand below `parameters` or `set`)", node.values[key].at,
      prefix == "" and key or prefix .. "." .. key, check.nearest(key, allowed),
      table.concat(allowed, ", "))
  end
end

local function node_of(root, name)
  local node = root
  for key in name:gmatch("[^.]+") do
    node = node and take(node, key)
  end
  return node
end

local function read_row(row, node)
  if node == nil or types.is_null(node) then
    errors.check(not row.required, "ConfigFileError", "'%s' is missing: %s", row.name, row.doc)
    return row.default
  elseif OWN_TYPES[row.type] then
    return OWN_TYPES[row.type](node)
  end
  return types[row.type].read(node, row, row.name)
end

-- Rules that tie keys together.
local function check_together(values, root)
  for _, p in ipairs(values.parameters) do
    for _, word in ipairs(values.set or {}) do
      errors.check(word:match("^[^=]*") ~= p.key, "ConfigFileError", "%s: '%s' is varied, and "
        .. "`set` has it, too", p.at, p.key)
    end
  end
  local function refuse(key, ...)
    local node = node_of(root, key)
    errors.raise("ConfigFileError", "%s%s: %s", node and node.at .. ": " or "", key,
      string.format(...))
  end
  local method, low, high = values.method, values["halving.min"], values["halving.max"]
  if method == "random" and not values.count then
    refuse("count", "method random needs it: how many jobs are drawn")
  elseif method == "grid" and values.count then
    refuse("count", "method grid has as many jobs as there are combinations; methods random and "
      .. "halving have a count")
  elseif method ~= "halving" and node_of(root, "halving") then
    refuse("halving", "acts with method halving only, the method is %s", method)
  elseif method ~= "halving" then
    return
  elseif not high then
    refuse("halving.max", "method halving needs it: how long the last jobs train, as '27 epochs'")
  elseif low.unit ~= high.unit or low.count > high.count then
    refuse("halving.max", "expected a count of %ss, at least halving.min's %d", low.unit, low.count)
  end
end

-- References stand for values of the sweep, but for those that jobs are given: they are
-- the run file's.
local function resolved(root)
  local jobs = { parameters = true, set = true }
  local own = { kind = "map", keys = {}, values = {}, at = root.at }
  for _, key in ipairs(root.keys) do
    if not jobs[key] then
      own.keys[#own.keys + 1], own.values[key] = key, root.values[key]
    end
  end
  own = sources.resolved(own)
  for key in pairs(jobs) do
    own.values[key] = root.values[key]
  end
  return own
end

--- Reads a sweep's file: its values by their names.
--- error: ConfigFileError with file and line; FileNotFoundError
---@param path string
---@param words? string[] "key=value"
---@return table<string, any>
function M.read(path, words)
  local root = sources.file(path)
  for _, word in ipairs(words or {}) do
    root = sources.over(root, sources.word(word))
  end
  check_keys(root, "")
  root = resolved(root)
  local values = {}
  for _, row in ipairs(schema) do
    local node = node_of(root, row.name)
    if row.type ~= "group" then
      values[row.name] = read_row(row, node)
    elseif node and not types.is_null(node) then
      if node.kind ~= "map" then
        types.refuse(node, row.name, "a mapping")
      end
      check_keys(node, row.name)
    end
  end
  check_together(values, root)
  values.name = values.name or path:match("([^/]+)%.%a+$") or "sweep"
  return values
end

M.schema = schema
return M
