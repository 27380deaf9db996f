--- A session's model in a file, with the weights and states that the host has, and the
--- files beside it that have the data of initializers.
---
--- Source: PopART Python API, Session.modelToHost and
--- updateExternallySavedTensorLocations; ONNX, external data.
local core = require("lupine.core")
local errors = require("popart.errors")
local external_files = require("popart.external_files")
local exists = require("lupine.base.exists")
local proto = require("lupine.onnx.proto")
local settings = require("popart.session_settings")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")

local M = {}

local EXTERNAL = 1

-- A tensor's entry that says in which file its data is; nil: in the model alone.
local function location_of(t)
  for _, entry in ipairs(t.data_location == EXTERNAL and t.external_data or {}) do
    if entry.key == "location" then
      return entry
    end
  end
  return external_files.entry(t)
end

-- The bytes of a file from one place to another, zeros behind its end.
local function bytes_of(file, from, to)
  local kept = file and file:seek("set", from) and file:read(to - from) or ""
  return kept .. ("\0"):rep(to - from - #kept)
end

-- What a file becomes with tensors at their places, piece by piece. One that begins amid
-- another goes into the model.
local function overlaid(file, parts, list)
  local out, at, size = {}, 0, file and file:seek("end") or 0
  local function keep(till)
    out[#out + 1] = till > at and bytes_of(file, at, till) or nil
    at = math.max(at, till)
  end
  table.sort(parts, function(a, b)
    return a.offset < b.offset or a.offset == b.offset and a.i < b.i
  end)
  for _, part in ipairs(parts) do
    if part.offset < at then
      list[part.i] = part.lent
    else
      keep(part.offset)
      out[#out + 1] = part.lent.raw_data
      at = at + tensors.size_of(part.lent.raw_data)
    end
  end
  keep(size)
  return out
end

-- Tensors whose data is in files get it there, each in its own place: the other bytes stay
-- as they are beside the model that was read, which other models may share.
local function write_outside(parts, list, from, to)
  for _, location in ipairs(tables.keys(parts)) do
    if location:find("/") then
      core.make_folder(to .. location:match("^(.*)/"))
    end
    local file <close> = io.open(from .. location, "rb")
    core.write_parts(to .. location, overlaid(file, parts[location], list))
  end
end

-- Files that builders wrote get what is new where they are.
local function write_home(parts, list)
  for _, path in ipairs(tables.keys(parts)) do
    local file <close> = io.open(path, "rb")
    core.write_parts(path, overlaid(file, parts[path], list))
  end
end

local function folder_of(path)
  return path:match("^.*/") or ""
end

-- The entry of a tensor whose data is in a file that a builder wrote: in that alone if it is
-- beside the model, else in both.
local function at_home(t, lent, path, filename)
  if folder_of(path) ~= folder_of(filename) then
    return lent
  end
  local entries = {}
  for i, entry in ipairs(t.external_data) do
    entries[i] = entry.key == "location" and { key = "location", value = path:match("[^/]*$") }
      or entry
  end
  return { name = t.name, dims = t.dims, data_type = t.data_type, doc_string = t.doc_string,
    data_location = EXTERNAL, external_data = entries }
end

-- What the i-th tensor's entry becomes with the values that the host has now; those that
-- are in a file are added to the parts of that: `home` has the files that builders wrote.
local function written(i, t, now, parts, home, filename)
  local lent = tensors.lend(t.name, now)
  if not location_of(t) or lent.data_type ~= t.data_type then
    return lent
  end
  local location, offset = tensors.place(t)
  local of = external_files.entry(t) and home or parts
  of[location] = of[location] or {}
  table.insert(of[location], { i = i, offset = offset, lent = lent })
  return of == home and at_home(t, lent, location, filename) or t
end

-- A model that is too large for one file has the rest beside it.
local function options_of(model, filename)
  return not core.onnx_fits(model, "ModelProto")
    and { external = filename:match("[^/]*$") .. ".data" } or nil
end

--- The model with the weights and states that the host has now. Data that was in files
--- beside the model goes to files of these names beside the new one, to the same places;
--- what a builder has saved to a file is changed there; all that is large goes to FILE.data
--- where the model would have more than 2 GiB, as states may make it.
--- error: OSError
---@param s table
---@param filename string
function M.write(s, filename)
  local old, list, parts, home = s.model.proto.graph, {}, {}, {}
  local states = settings.states_of(s)
  for i, t in ipairs(old.initializer) do
    local now = s.model.variables[t.name] or states[t.name]
      or location_of(t) and s.model.constants[t.name]
    states[t.name] = nil
    list[i] = now and written(i, t, now, parts, home, filename) or t
  end
  local inputs = { table.unpack(old.input) }
  for _, name in ipairs(tables.keys(states)) do
    list[#list + 1] = tensors.lend(name, states[name])
    inputs[#inputs + 1] = proto.info(name, states[name].dtype, states[name].shape)
  end
  write_outside(parts, list, (s.model.folder or ".") .. "/", folder_of(filename))
  write_home(home, list)
  local graph = tables.with(old, { initializer = list, input = inputs })
  local model = tables.with(s.model.proto, { graph = graph })
  proto.write(model, filename, options_of(model, filename))
end

local function copy(from, to)
  local file <close> = errors.check(io.open(from, "rb"), "popart_runtime_error",
    "'%s' cannot be read", from)
  local pieces = {}
  for piece in file:lines(1 << 26) do
    pieces[#pieces + 1] = piece
  end
  core.write_parts(to, pieces)
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
    local home = external_files.entry(t)
    if entry and entry.value == (home and from or old) then
      found[#found + 1] = { entry = entry, value = home and to or new }
    end
  end
  errors.check(#found > 0, "popart_runtime_error", "No ONNX model initializers have external "
    .. "location set to '%s'", from)
  copy(from, to)
  external_files.add(to)
  for _, f in ipairs(found) do
    f.entry.value = f.value
  end
end

return M
