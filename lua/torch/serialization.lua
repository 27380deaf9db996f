--- torch.save and torch.load: tensors, state dicts and nested tables of plain
--- data, in the safetensors format. Loading runs no code.
---
--- A dictionary of tensors becomes a plain safetensors file with its names, as
--- other readers expect it; such a file from elsewhere (a state_dict saved with
--- the Python package safetensors) loads as a dictionary in the file's order.
--- Anything else is described by a JSON text in the file's metadata, under
--- "lupine", with the tensors beside it, named by their place:
---   null, booleans, numbers, strings   themselves
---   {"t": NAME, "same": NAME, "grad": true, "param": true}   a tensor; "same":
---                            it is the one of that name
---   {"list": […]}            a Lua list
---   {"map": [[key, value], …], "ordered": true}   any other table
---   {"float": "inf"}, {"bytes": "00ff"}, {"dtype": "float32"}, {"size": […]}
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")

local M = {}

local array = tables.array

local KEY = "lupine"
local DEEPEST = 60 -- nesting of tables; a cycle ends here

local DTYPES = {} -- dtype -> name
for _, dtype in pairs(core.dtypes) do
  DTYPES[dtype] = tostring(dtype):match("[%w]+$")
end

-- ---- describing values -------------------------------------------------------

---@class Writer
---@field where string the caller's name, for messages
---@field names string[]
---@field tensors torch.Tensor[]
---@field first table<string, string> of the elements that a tensor shows
---@field taken table<string, boolean>
---@field more (fun(w, v, path, depth): any)? describes other values; nil: it cannot

local describe

-- What is equal for two tensors that show the same elements in the same way.
local function identity(t)
  return ("%s %s %s %s"):format(t:data_ptr(), t.dtype, t.shape, table.concat(t:stride(), ","))
end

local function describe_tensor(w, t, path)
  local name, n = path == "" and "tensor" or path, 1
  while w.taken[name] do
    n = n + 1
    name = ("%s#%d"):format(path, n)
  end
  w.taken[name] = true
  w.names[#w.names + 1] = name
  w.tensors[#w.tensors + 1] = t:detach():contiguous()
  local out = { t = name, grad = t.requires_grad and t.is_leaf or nil,
    param = core.is_parameter(t) or nil }
  if t:numel() > 0 then
    local id = identity(t)
    out.same = w.first[id]
    w.first[id] = out.same or name
  end
  return out
end

-- #t counts to some border, so that keys 0, 2, 3 alone may look like a list.
local function is_list(t)
  local n, last = 0, 0
  for key in pairs(t) do
    if math.type(key) ~= "integer" or key < 1 then
      return false
    end
    n, last = n + 1, math.max(last, key)
  end
  return n > 0 and n == last
end

-- Numbers before strings, so that equal tables make equal files.
local function keys_of(w, t, path)
  return tables.keys(t, function(key)
    local kind = type(key)
    return errors.check(kind == "string" or kind == "number", "TypeError",
      "%s: a key of %s is a %s; strings and numbers can be saved", w.where,
      path == "" and "the table" or path, kind)
  end)
end

local function join(path, key)
  return path == "" and tostring(key) or path .. "." .. tostring(key)
end

local function describe_table(w, t, path, depth)
  errors.check(depth < DEEPEST, "ValueError",
    "%s: %s is nested more than %d deep (a cycle?)", w.where, path, DEEPEST)
  if is_list(t) then
    local out = array({})
    for i, v in ipairs(t) do
      out[i] = describe(w, v, join(path, i - 1), depth + 1)
    end
    return { list = out }
  end
  local out = array({})
  for i, key in ipairs(keys_of(w, t, path)) do
    out[i] = array({ describe(w, key, path, depth + 1),
      describe(w, t[key], join(path, key), depth + 1) })
  end
  return { map = out, ordered = ordered.is_dict(t) or nil }
end

local function describe_number(v)
  if v ~= v then
    return { float = "nan" }
  elseif v == math.huge or v == -math.huge then
    return { float = v > 0 and "inf" or "-inf" }
  end
  return v
end

local function describe_string(v)
  if utf8.len(v) and not v:find("\0") then
    return v
  end
  return { bytes = (v:gsub(".", function(c)
    return ("%02x"):format(c:byte())
  end)) }
end

local function refuse(w, v, path)
  local what = check.describe(v)
  local advice = class.of(v) and type(v.state_dict) == "function"
    and ": save its state_dict()" or "; only plain data can be saved"
  errors.raise("TypeError", "%s: %s is %s%s", w.where, path == "" and "obj" or path, what, advice)
end

function describe(w, v, path, depth)
  local kind = type(v)
  local special = w.more and w.more(w, v, path, depth)
  if special then
    return special
  elseif core.is_tensor(v) then
    return describe_tensor(w, v, path)
  elseif check.is_none(v) then
    return core.none
  elseif kind == "boolean" then
    return v
  elseif kind == "number" then
    return describe_number(v)
  elseif kind == "string" then
    return describe_string(v)
  elseif DTYPES[v] then
    return { dtype = DTYPES[v] }
  elseif kind == "table" and getmetatable(v) == getmetatable(core.Size({})) then
    return { size = array({ table.unpack(v) }) }
  elseif kind == "table" and (not getmetatable(v) or ordered.is_dict(v)) then
    return describe_table(w, v, path, depth)
  end
  return refuse(w, v, path)
end

-- ---- saving --------------------------------------------------------------------

-- Is the description one that the file's names tell alone?
local function is_plain(d)
  if type(d) ~= "table" or not d.map or #d.map == 0 then
    return false
  end
  for _, entry in ipairs(d.map) do
    local key, v = entry[1], entry[2]
    if type(key) ~= "string" or type(v) ~= "table" or v.t ~= key or v.same or v.grad
      or v.param then
      return false
    end
  end
  return true
end

local function check_path(f, where)
  errors.check(type(f) == "string", "TypeError", "%s: f must be a path, not %s", where,
    check.describe(f))
  return f
end

--- The description of a value and, in order, the names and tensors that it
--- speaks of.
---@param obj any
---@param where string the caller's name, for messages
---@param more? fun(w: Writer, v: any, path: string, depth: integer): any describes values of
---  further kinds, whose parts it gives to M.describe_part; nil for others
---@return any description for json_encode
---@return {names: string[], tensors: torch.Tensor[]}
function M.describe(obj, where, more)
  local w = { where = where, names = {}, tensors = {}, first = {}, taken = {}, more = more }
  return describe(w, obj, "", 0), w
end

M.describe_part, M.describe_tensor = describe, describe_tensor
M.join = join

--- Writes `obj` to the file `f`, which is replaced as a whole: tensors, state
--- dicts, and tables of them, numbers, strings, booleans and torch.none, nested.
--- Two places that hold one tensor hold one tensor after loading too; views of
--- one storage become tensors of their own.
--- errors: TypeError for what is no plain data (a Module: save its
--- state_dict()), ValueError for a cycle, OSError
---@param obj any
---@param f string path
function M.save(obj, f)
  check_path(f, "torch.save")
  local d, w = M.describe(obj, "torch.save")
  local meta = { format = "pt" }
  if not is_plain(d) then
    meta[KEY] = core.json_encode(d)
  end
  core.write_safetensors(f, w.names, w.tensors, meta)
end

-- ---- loading -------------------------------------------------------------------

local FLOATS = { inf = math.huge, ["-inf"] = -math.huge, nan = 0.0 / 0.0 }

local restore

local function bad(r, what)
  errors.raise("ValueError", "%s: the description is damaged: %s", r.where, what)
end

local function elements(r, d, kind)
  if getmetatable(d[kind]) ~= core.json_array then
    bad(r, "a " .. kind .. " is no list")
  end
  return d[kind]
end

local function restore_tensor(r, d)
  local t = r.tensors[d.same or d.t]
  if not t then
    bad(r, "no tensor " .. check.describe(d.same or d.t))
  elseif d.param and not core.is_parameter(t) then
    t = core.parameter(t, d.grad == true)
    r.tensors[d.same or d.t] = t
  elseif d.grad and t:is_floating_point() then
    t:requires_grad_(true)
  end
  return t
end

local function restore_map(r, d)
  local out = d.ordered and ordered.dict() or {}
  for _, entry in ipairs(elements(r, d, "map")) do
    if getmetatable(entry) ~= core.json_array or entry.n ~= 2 then
      bad(r, "a map holds what is no pair")
    end
    local key = restore(r, entry[1])
    if type(key) ~= "string" and (type(key) ~= "number" or key ~= key) then
      bad(r, "a key is no string or number")
    end
    out[key] = restore(r, entry[2])
  end
  return out
end

local function restore_list(r, d)
  local out = {}
  for i, v in ipairs(elements(r, d, "list")) do
    out[i] = restore(r, v)
  end
  return out
end

local RESTORE = {
  t = restore_tensor,
  map = restore_map,
  list = restore_list,
  float = function(r, d)
    return FLOATS[d.float] or bad(r, "a float")
  end,
  bytes = function(r, d)
    if type(d.bytes) ~= "string" or #d.bytes % 2 ~= 0 or d.bytes:find("%X") then
      bad(r, "bytes")
    end
    return (d.bytes:gsub("..", function(hex)
      return string.char(tonumber(hex, 16))
    end))
  end,
  dtype = function(r, d)
    return core.dtypes[d.dtype] or bad(r, "a dtype")
  end,
  size = function(r, d)
    local done, size = pcall(core.Size, elements(r, d, "size"))
    return done and size or bad(r, "a size")
  end,
}

function restore(r, d)
  if type(d) ~= "table" then
    return d
  end
  local fn
  for key in next, d do
    local f = r.kinds[key]
    if f and fn then
      bad(r, "an object of two kinds")
    end
    fn = fn or f
  end
  return (fn or bad(r, "an object of an unknown kind"))(r, d)
end

--- The value that a description and its tensors tell.
---@param description any from json_decode
---@param names string[]
---@param tensors torch.Tensor[]
---@param where string for messages
---@param more? table<string, fun(r: table, d: table): any> what restores objects that
---  have such a key, whose parts it gives to M.restore_part
---@return any
function M.restore(description, names, tensors, where, more)
  local r = { where = where, tensors = {}, kinds = RESTORE }
  if more then
    r.kinds = {}
    for _, kinds in ipairs({ RESTORE, more }) do
      for kind, f in pairs(kinds) do
        r.kinds[kind] = f
      end
    end
  end
  for i, name in ipairs(names) do
    r.tensors[name] = tensors[i]
  end
  return restore(r, description)
end

--- The value of a part, in what M.restore was given as `more`.
---@param r table what such a function gets
---@param d any the part's description
---@return any
function M.restore_part(r, d)
  return restore(r, d)
end
M.damaged = bad

local function check_location(where)
  if check.is_none(where) then
    return
  end
  local known, device = pcall(core.device, where)
  errors.check(known and device == core.device("cpu"), "ValueError",
    "torch.load: map_location: expected nil or \"cpu\" (tensors live on the host), got %s",
    check.describe(where))
end

--- What torch.save wrote to the file `f`, or the tensors of any safetensors
--- file as a dictionary in the file's order. Loading runs no code.
--- errors: OSError, ValueError (no safetensors file, or one that is damaged)
---@param f string path
---@param map_location? string|torch.device nil or "cpu"
---@param ... any {weights_only = true}: accepted, loading is always so
---@return any
function M.load(f, map_location, ...)
  local a = check.arguments("torch.load", { "f", "map_location", "weights_only" }, nil, f,
    map_location, ...)
  local path = check_path(a[1], "torch.load")
  check_location(a[2])
  errors.check(a[3] ~= false, "ValueError",
    "torch.load: weights_only = false: a file holds plain data only, no code")
  local names, tensors, meta = core.read_safetensors(path)
  if meta[KEY] then
    local where = ("torch.load: %s: metadata '%s'"):format(path, KEY)
    local value = M.restore(core.json_decode(meta[KEY], where), names, tensors, where)
    return value
  end
  local out = ordered.dict()
  for i, name in ipairs(names) do
    out[name] = tensors[i]
  end
  return out
end

return M
