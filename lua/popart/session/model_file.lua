--- A session's model in a file, with the weights and states that the host has, and the
--- files beside it that have the data of initializers.
---
--- Source: PopART Python API, Session.modelToHost and
--- updateExternallySavedTensorLocations; ONNX, external data.
local core = require("lupine.core")
local errors = require("popart.errors")
local exists = require("lupine.base.exists")
local proto = require("lupine.onnx.proto")
local settings = require("popart.session_settings")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")

local M = {}

local EXTERNAL = 1

-- A tensor's entry that says in which file it is; nil: in the model.
local function location_of(t)
  for _, entry in ipairs(t.data_location == EXTERNAL and t.external_data or {}) do
    if entry.key == "location" then
      return entry
    end
  end
  return nil
end

-- The data of tensors that are in files goes to files of the same names in the folder.
local function write_outside(list, at, folder)
  for _, location in ipairs(tables.keys(at)) do
    local inside = {}
    for k, i in ipairs(at[location]) do
      inside[k] = list[i]
    end
    local outside, data = tensors.outside(inside, location, 0, 1)
    core.write_text(folder .. location, data)
    for k, i in ipairs(at[location]) do
      list[i] = outside[k]
    end
  end
end

--- The model with the weights and states that the host has now. Data that was in files
--- beside the model goes to files of these names beside the new one.
--- error: OSError
---@param s table
---@param filename string
function M.write(s, filename)
  local old, list, at = s.model.proto.graph, {}, {}
  local states = settings.states_of(s)
  for i, t in ipairs(old.initializer) do
    local entry = location_of(t)
    local now = s.model.variables[t.name] or states[t.name] or entry and s.model.constants[t.name]
    states[t.name] = nil
    list[i] = now and tensors.write(t.name, now) or t
    if entry then
      at[entry.value] = at[entry.value] or {}
      table.insert(at[entry.value], i)
    end
  end
  local inputs = { table.unpack(old.input) }
  for _, name in ipairs(tables.keys(states)) do
    list[#list + 1] = tensors.write(name, states[name])
    inputs[#inputs + 1] = proto.info(name, states[name].dtype, states[name].shape)
  end
  write_outside(list, at, filename:match("^.*/") or "")
  local graph = tables.with(old, { initializer = list, input = inputs })
  proto.write(tables.with(s.model.proto, { graph = graph }), filename)
end

local function copy(from, to)
  local file <close> = errors.check(io.open(from, "rb"), "popart_runtime_error",
    "'%s' cannot be read", from)
  core.write_text(to, file:read("a"))
end

--- Initializers whose data is in one file have it in a copy of that from now on.
--- error: popart_runtime_error for a file that is there, or that is not, or that no
--- initializer is in
---@param s table
---@param from string
---@param to string
function M.move(s, from, to)
  local text = ("Updating externally saved tensor location from file '%s' to file '%s', but file ")
    :format(from, to)
  errors.check(not exists(to), "popart_runtime_error", "%s'%s' already exists", text, to)
  errors.check(exists(from), "popart_runtime_error", "%s'%s' does not exist", text, from)
  local old, new, found = from:match("[^/]*$"), to:match("[^/]*$"), {}
  for _, t in ipairs(s.model.proto.graph.initializer) do
    local entry = location_of(t)
    found[#found + 1] = entry and entry.value == old and entry or nil
  end
  errors.check(#found > 0, "popart_runtime_error", "No ONNX model initializers have external "
    .. "location set to '%s'", from)
  copy(from, to)
  for _, entry in ipairs(found) do
    entry.value = new
  end
end

return M
