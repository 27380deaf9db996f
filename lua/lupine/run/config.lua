--- A resolved configuration: the schema's keys with their values, and where each comes
--- from. The command line wins over the file, the file over what it includes, that over
--- the defaults.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local document = require("lupine.run.document")
local emit = require("lupine.run.emit")
local errors = require("lupine.base.errors")
local schema = require("lupine.run.schema")
local sources = require("lupine.run.sources")
local types = require("lupine.run.types")

local M = {}

local by_name, names, children = {}, {}, { [""] = {} }
for _, row in ipairs(schema) do
  by_name[row.name], names[#names + 1] = row, row.name
  local parent, leaf = row.name:match("^(.*)%.([^.]+)$")
  table.insert(children[parent or ""], leaf or row.name)
  if row.type == "group" then
    children[row.name] = {}
  end
end

-- The defaults as a tree, over which everything else comes.
local function defaults()
  local root = { kind = "map", keys = {}, values = {}, at = "default" }
  for _, row in ipairs(schema) do
    if row.default ~= nil then
      root = sources.over(root, sources.at_path(row.name, document.lua(row.default, "default")))
    end
  end
  return root
end

-- The default of a row as a value, and its node; nil: it has none.
local function default_of(row)
  if row.default == nil then
    return nil, nil
  end
  local node = document.lua(row.default, "default")
  return types[row.type].read(node, row, row.name), node
end

local function full(prefix, name)
  return prefix == "" and name or prefix .. "." .. name
end

-- The first key of a mapping whose last name is this, as arguments of a class.
local function below(map, name, prefix)
  for _, key in ipairs(map.keys) do
    local value, path = map.values[key], full(prefix, key)
    if key == name and prefix ~= "" then
      return path
    elseif value.kind == "map" then
      local found = below(value, name, path)
      if found then
        return found
      end
    end
  end
end

local function unknown(map, prefix, name)
  local node = map.values[name]
  local near = check.nearest(name, children[prefix])
  if near == "" then -- a key of another group?
    for other in pairs(by_name) do
      if other:match("[^.]+$") == name then
        near = (" (there is '%s')"):format(other)
      end
    end
    local path = near == "" and below(map, name, prefix)
    near = path and (" (there is '%s')"):format(path) or near
  end
  errors.raise("ConfigFileError", "%s: unknown key '%s'%s; allowed are %s", node.at,
    full(prefix, name), near, table.concat(children[prefix], ", "))
end

-- Reads the keys of one mapping into `values` and `nodes`, by full names.
local function read_group(node, prefix, values, nodes)
  if node.kind ~= "map" then
    if types.is_null(node) or node.empty then
      return
    end
    types.refuse(node, prefix, "a mapping of " .. table.concat(children[prefix], ", "))
  end
  for _, name in ipairs(node.keys) do
    local key, value = full(prefix, name), node.values[name]
    local row = by_name[key]
    if not row then
      unknown(node, prefix, name)
    elseif row.type == "group" then -- one with nothing below it has its defaults
      local none = types.is_null(value) or value.empty
      read_group(none and defaults().values[name] or value, key, values, nodes)
    elseif types.is_null(value) then -- as where the key is not there
      values[key], nodes[key] = default_of(row)
    elseif row.type == "options" then
      values[key], nodes[key] = value, value
    else
      values[key] = types[row.type].read(value, row, key)
      nodes[key] = value
    end
  end
end

local function check_required(values)
  for _, row in ipairs(schema) do
    if row.required and values[row.name] == nil then
      errors.raise("ConfigFileError", "'%s' is missing: %s It is %s", row.name, row.doc,
        types[row.type].allowed(row))
    end
  end
end

-- Whether a value is the row's default; a file that a run has written says them all.
local function is_default(row, value)
  local default = default_of(row)
  return default ~= nil and emit.value(default) == emit.value(value)
end

-- Rules that tie keys together.
local function check_together(values, nodes)
  local function refuse(key, ...)
    errors.raise("ConfigFileError", "%s: %s: %s", nodes[key].at, key, string.format(...))
  end
  if values.epochs and values.steps then
    refuse("steps", "epochs is given, too (%s); one of them tells the end", nodes.epochs.at)
  end
  for _, key in ipairs({ "options", "options_file" }) do
    if values[key] and values.mode ~= "poptorch" then
      refuse(key, "acts with mode poptorch only, the mode is %s (%s)", values.mode, nodes.mode.at)
    end
  end
  if values.mode == "poptorch" and values.accumulation > 1 then
    refuse("accumulation", "with mode poptorch this is options.Training.gradientAccumulation")
  end
  if values.mode == "poptorch" then
    for _, key in ipairs({ "clip_grad_norm", "clip_grad_value" }) do
      if values[key] then
        refuse(key, "needs mode eager or compiled; optimizers of poptorch have max_grad_norm")
      end
    end
  end
  for _, key in ipairs({ "validate_every", "early_stopping.metric", "checkpoint.best" }) do
    local of_training = type(values[key]) == "string" and values[key]:find("^train%.")
    if values[key] and not values["data.validation"] and not of_training
      and not is_default(by_name[key], values[key]) then
      refuse(key, "there is no data.validation")
    end
  end
end

local Config = class.new("Config")

--- Reads a configuration. `words` are "key=value" texts of the command line.
--- error: ConfigFileError with file and line; FileNotFoundError
---@param path string the run file (.yaml, .yml, .json, .lua)
---@param words? string[]
---@return table Config
function M.read(path, words)
  local root = sources.over(defaults(), sources.file(path))
  for _, word in ipairs(words or {}) do
    root = sources.over(root, sources.word(word))
  end
  return M.of_tree(sources.resolved(root), path)
end

-- The row that a path with points leads to, or into; nil: the schema has none.
local function row_of(path)
  local row = by_name[path]
  if row or not path:find(".", 1, true) then
    return row
  end
  return row_of(path:match("^(.*)%.[^.]*$"))
end

-- Which of two keys tells the end; another one takes its place.
local ENDS = { epochs = "steps", steps = "epochs" }

--- Reads the configuration that a run wrote, with the origins that it has there. `words`
--- may change the keys whose rows say `resumable`.
--- error: ConfigFileError with file and line; FileNotFoundError
---@param path string
---@param words? string[] "key=value"
---@return table Config
function M.reread(path, words)
  local root = sources.with_origins(path)
  for _, word in ipairs(words or {}) do
    local key = word:match("^([%w_.-]+)=") or ""
    local row = row_of(key)
    errors.check(not row or row.resumable, "ConfigFileError", "command line: %s: a run that goes "
      .. "on keeps it, or its numbers were no run's; what can change is %s", key,
      table.concat(M.resumable(), ", "))
    if ENDS[key] then
      root = sources.over(root, sources.word(ENDS[key] .. "="))
    end
    root = sources.over(root, sources.word(word))
  end
  return M.of_tree(sources.resolved(root), path)
end

--- Names of the keys that a run that goes on may change.
---@return string[]
function M.resumable()
  local out = {}
  for _, row in ipairs(schema) do
    out[#out + 1] = row.resumable and row.name or nil
  end
  return out
end

--- The same of a table, as a script has it.
---@param keys table
---@return table Config
function M.of_table(keys)
  return M.of_tree(sources.resolved(sources.over(defaults(), document.lua(keys, "table"))), nil)
end

--- The configuration of a tree.
---@param root table node
---@param path? string
---@return table Config
function M.of_tree(root, path)
  local self = setmetatable({}, Config)
  local values, nodes = {}, {}
  read_group(root, "", values, nodes)
  check_required(values)
  if not values.name then
    values.name = path and path:match("([^/]+)%.%a+$") or "run"
    nodes.name = document.lua(values.name, "default")
  end
  check_together(values, nodes)
  rawset(self, "values", values)
  rawset(self, "nodes", nodes)
  rawset(self, "path", path)
  return self
end

--- The value of a key; nil if it has none.
--- error: KeyError for a name that the schema does not have
---@param key string
---@return any
function Config:get(key)
  errors.check(by_name[key], "KeyError", "the schema has no key '%s'%s", tostring(key),
    check.nearest(key, names))
  return self.values[key]
end

--- Where a value comes from: "file:line", "command line", "default".
---@param key string
---@return string?
function Config:origin(key)
  return self.nodes[key] and self.nodes[key].at
end

--- Sets a value that was found after reading.
---@param key string
---@param value any plain, of the key's type
---@param origin string
function Config:set(key, value, origin)
  local node = document.lua(value, origin)
  self.values[key] = types[by_name[key].type].read(node, by_name[key], key)
  self.nodes[key] = node
end

--- The whole configuration as YAML that says the same, each value's origin behind it
--- if asked.
---@param with_origins? boolean
---@return string
function Config:yaml(with_origins)
  return emit.config(schema, self.values, self.nodes, with_origins)
end

M.schema = schema
M.rows = by_name
return M
