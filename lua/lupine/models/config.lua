--- Configurations of models: plain records with the names and defaults of the files
--- (config.json) that come with public checkpoints.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local Config = class.new("PretrainedConfig")
classes.note_data(Config)
M.Config = Config

-- A file is written by programs of many versions: what its fields mean here is by name, and
-- those without a meaning are kept. A script's own slips are told.
local function set(self, name, value, from_file)
  local row = self.rows[name]
  if row == nil then
    errors.check(from_file, "TypeError", "%s: unknown field '%s'%s", getmetatable(self).__name,
      tostring(name), check.nearest(name, self.names))
    return
  end
  local where = getmetatable(self).__name .. ": " .. name
  if check.is_none(value) then
    self[name] = nil
  elseif row.list and type(value) == "table" then
    self[name] = { table.unpack(value) }
  elseif type(row.default) == "number" and math.type(row.default) == "integer" then
    self[name] = check.int(value, where, row)
  elseif type(row.default) == "number" then
    self[name] = check.number(value, where, row)
  elseif type(row.default) == "boolean" then
    self[name] = check.bool(value, where)
  elseif type(row.default) == "string" then
    self[name] = check.string(value, where)
  else
    self[name] = value
  end
end

local function read(path)
  local file, why = io.open(path, "rb")
  errors.check(file, "OSError", "%s", why)
  local text = file:read("a") or ""
  file:close()
  local ok, values = pcall(core.json_decode, text)
  errors.check(ok and type(values) == "table" and getmetatable(values) ~= core.json_array,
    "ValueError", "%s: expected a JSON object: %s", path, tostring(values))
  return values
end

--- The configuration of a file config.json, or of the folder that has one.
--- error: OSError, ValueError (not JSON), TypeError and ValueError for its values
---@param path string
---@return table
function Config.from_pretrained(path)
  return errors.raise("TypeError", "from_pretrained(%s) is called on a configuration's class",
    tostring(path))
end

-- The fields of a file: labels may be said by their names.
local function from_file(cls, path)
  check.string(path, cls.__name .. ".from_pretrained: path")
  local file = path:find("%.json$") and path or path .. "/config.json"
  local values = read(file)
  local kind = values.model_type
  errors.check(kind == nil or kind == cls.model_type, "ValueError",
    "%s: model_type: expected '%s', got %s", file, cls.model_type, check.describe(kind))
  local self = cls()
  for name, value in next, values do
    set(self, name, value, true)
  end
  if type(values.id2label) == "table" and values.num_labels == nil then
    local n = 0
    for _ in next, values.id2label do
      n = n + 1
    end
    self.num_labels = math.max(n, 1)
  end
  return self
end

--- A class of configurations. Rows: {name, default, min = number, list = may be several}; a
--- default of torch.none: nothing.
---@param name string
---@param model_type string
---@param rows table[]
---@return table
function M.define(name, model_type, rows)
  local cls = Config:extend(name)
  local by_name, names = {}, {}
  for i, row in ipairs(rows) do
    names[i] = row[1]
    by_name[row[1]] = { default = row[2], min = row.min, list = row.list }
  end
  cls.rows, cls.names, cls.model_type = by_name, names, model_type
  function cls:init(values)
    check.plain_table(values or {}, name)
    for _, row in ipairs(rows) do
      local default = row[2]
      self[row[1]] = not check.is_none(default) and default or nil
      if default == false then
        self[row[1]] = false
      end
    end
    for key, value in next, values or {} do
      set(self, key, value, false)
    end
  end
  function cls.from_pretrained(first, path)
    return from_file(cls, path or first)
  end
  return cls
end

return M
