--- ONNX files as plain tables with the fields of onnx.proto: reading and writing
--- them, and the small messages that nodes are made of.
---
---     local model = proto.read("model.onnx")   -- a ModelProto
---     print(model.graph.node[1].op_type)
---
--- A repeated field is a list, also when it is empty; another that is not set is
--- nil; enumerations are numbers. Source: onnx.proto (ONNX 1.12, IR version 8).
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")

local M = {}

--- The IR version that is written: that of ONNX 1.12.
M.IR_VERSION = 8

-- The model that `read` makes of bytes or of a file's name.
local function decoded(read, given, what, lend)
  local ok, model = pcall(read, given, "ModelProto", lend)
  if not ok and errors.ValueError:is(model) then
    errors.raise("ValueError", "%s is no ONNX model: %s", what, model.message)
  elseif not ok then
    error(model, 0)
  end
  errors.check(model.graph, "ValueError", "%s is no ONNX model: it has no graph", what)
  return model
end

--- The model of a file's bytes.
--- error: ValueError for what is no ModelProto
---@param bytes string
---@param what? string of the bytes, in messages
---@param lend? boolean long raw_data is tensors, which tensors.read takes
---@return table ModelProto
function M.decode(bytes, what, lend)
  return decoded(core.onnx_decode, bytes, what or "the string", lend)
end

--- Whether a text is the path of a file, or the bytes of a model: these have
--- control characters, which no path of a model has.
---@param text string
---@return boolean
function M.is_path(text)
  return not text:find("[%c]")
end

--- Reads a model.
--- errors: OSError, ValueError
---@param path string or the bytes of a ModelProto
---@param lend? boolean long raw_data is tensors, which tensors.read takes
---@return table ModelProto
function M.read(path, lend)
  check.string(path, "onnx: path")
  if not M.is_path(path) then
    return M.decode(path, nil, lend)
  end
  return decoded(core.onnx_read, path, path, lend)
end

--- A model of which the tensors are to be read once, and the folder of its file; nil: it
--- is of none.
--- errors: OSError, ValueError
---@param given string a path, or the bytes of a ModelProto
---@return table ModelProto
---@return string? folder
function M.open(given)
  return M.read(given, true), M.is_path(given) and (given:match("^(.*)/[^/]*$") or ".") or nil
end

local THRESHOLD = 1024 -- bytes, as of the onnx package

local function check_external(options, path)
  for key in pairs(options) do
    errors.check(key == "external" or key == "threshold", "TypeError",
      "onnx.write: unknown option '%s'. Allowed: external, threshold", tostring(key))
  end
  local name, threshold = options.external, options.threshold
  errors.check(threshold == nil or math.type(threshold) == "integer" and threshold >= 0,
    "ValueError", "onnx.write: threshold: expected a number of bytes, got %s",
    check.describe(threshold))
  errors.check(name == nil or type(name) == "string" and name:find("^[^/%c]+$")
    and not name:find("^%.%.?$") and name ~= path:match("[^/]*$"), "ValueError",
    "onnx.write: external: expected the name of a file beside the model, got %s",
    check.describe(name))
  errors.check(name or threshold == nil, "ValueError",
    "onnx.write: threshold says which tensors are in the file that external names")
  return name
end

-- The model with the data of large initializers in the file of that name, and the data.
local function outside(model, name, threshold)
  local list = model.graph.initializer or {}
  local there = tensors.there(list, name)
  errors.check(not there, "ValueError", "onnx.write: external: the data of tensor '%s' is in '%s' "
    .. "already, which would be lost: name another file", there, name)
  local kept, data = tensors.outside(list, name, threshold)
  return tables.with(model, { graph = tables.with(model.graph, { initializer = kept }) }), data
end

--- Writes a model to a file, which is replaced as a whole. With `external` the data
--- of initializers is in a file of that name beside it, which is there first.
--- errors: OSError, TypeError or ValueError for what is no ModelProto, or a file that data of
--- the model is in
---@param model table ModelProto
---@param path string
---@param options? {external: string, threshold: integer} threshold: bytes that an
---  initializer in the other file has at least, 1024 unless given
function M.write(model, path, options)
  check.string(path, "onnx: path")
  errors.check(type(model) == "table" and model.graph, "TypeError",
    "onnx.write: model: expected a ModelProto with a graph, got %s", check.describe(model))
  local name = check_external(options or {}, path)
  if not name then
    core.onnx_write(model, "ModelProto", path)
    return
  end
  local kept, data = outside(model, name, options.threshold or THRESHOLD)
  local bytes = core.onnx_encode(kept, "ModelProto")
  core.write_parts((path:match("^.*/") or "") .. name, data)
  core.write_text(path, bytes)
end

-- ---- attributes --------------------------------------------------------------------

-- AttributeProto.AttributeType -> the field that has the value.
local FIELDS = { "f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs",
  "sparse_tensor", "sparse_tensors", "tp", "type_protos" }
local NUMBERS = {}
for number, field in ipairs(FIELDS) do
  NUMBERS[field] = number
end

-- Files of the first IR version have no type: the field that is there tells.
local function field_of(attribute)
  if (attribute.type or 0) ~= 0 then
    return FIELDS[attribute.type]
  end
  for _, field in ipairs(FIELDS) do
    local value = attribute[field]
    if value ~= nil and (type(value) ~= "table" or #value > 0 or not field:find("s$")) then
      return field
    end
  end
  return nil
end

local EMPTY = { f = 0.0, i = 0, s = "" }

--- The value of an AttributeProto: a number, a string, a tensor, a GraphProto or a
--- list of these.
--- error: ValueError for one without a value, or of a kind that is not read
---@param attribute table
---@param folder? string of tensors in files of their own
---@return any value
---@return string field "f", "i", "ints", …
function M.value(attribute, folder)
  local field = field_of(attribute)
  local value = field and attribute[field]
  if field and value == nil then
    value = EMPTY[field]
  end
  errors.check(value ~= nil and not field:find("^sparse"), "ValueError",
    "attribute '%s' has %s", tostring(attribute.name),
    value == nil and "no value" or "a sparse tensor, which is not supported")
  if field == "t" then
    return tensors.read(value, folder), field
  elseif field == "tensors" then
    local list = {}
    for i, t in ipairs(value) do
      list[i] = tensors.read(t, folder)
    end
    return list, field
  end
  return value, field
end

local function kind_of(value)
  if core.is_tensor(value) then
    return "t"
  elseif math.type(value) == "integer" then
    return "i"
  end
  return type(value) == "number" and "f" or type(value) == "string" and "s"
    or type(value) == "boolean" and "i" or type(value) == "table" and value.node and "g"
end

--- An AttributeProto. A list of no elements has no kind: `field` says it.
--- error: TypeError for a value that no attribute has
---@param name string
---@param value any number, boolean (0 or 1), string, tensor, GraphProto or a list
---@param field? string "f", "ints", …: found by the value unless given
---@return table AttributeProto
function M.attribute(name, value, field)
  local kind = (type(value) ~= "table" or value.node) and kind_of(value)
  if not field then
    field = kind
    if type(value) == "table" and not kind then
      field = value[1] == nil and "ints" or ({ f = "floats", i = "ints", s = "strings",
        t = "tensors", g = "graphs" })[kind_of(value[1])]
      for _, x in ipairs(field == "ints" and value or {}) do
        field = math.type(x) == "float" and "floats" or field
      end
    end
  end
  errors.check(NUMBERS[field], "TypeError", "attribute '%s': expected a number, a string, a tensor "
    .. "or a list of these, got %s", name, check.describe(value))
  if field == "t" and core.is_tensor(value) then
    value = tensors.write(nil, value)
  elseif field == "i" and type(value) == "boolean" then
    value = value and 1 or 0
  elseif field == "f" then
    value = value + 0.0
  end
  return { name = name, type = NUMBERS[field], [field] = value }
end

--- The attribute of a node by name; nil: it has none.
---@param node table NodeProto
---@param name string
---@return table? AttributeProto
---@return integer? at its place in the list
function M.find(node, name)
  for i, attribute in ipairs(node.attribute or {}) do
    if attribute.name == name then
      return attribute, i
    end
  end
  return nil
end

-- ---- values ------------------------------------------------------------------------

--- What a ValueInfoProto says of a tensor.
--- error: ValueError for what is no tensor
---@param info table ValueInfoProto
---@return torch.dtype? dtype nil: not said
---@return (integer|string|nil)[]? shape nil: not said; a dimension that is not known is
---  a name or false
function M.type_of(info)
  local t = (info.type or {}).tensor_type
  errors.check(t or not next(info.type or {}), "ValueError", "'%s' is no tensor: sequences, maps "
    .. "and sparse tensors are not supported", tostring(info.name))
  if not t then
    return nil, nil
  end
  local shape
  if t.shape then
    shape = {}
    for i, d in ipairs(t.shape.dim) do
      shape[i] = d.dim_value or d.dim_param or false
    end
  end
  return (t.elem_type or 0) ~= 0 and tensors.dtype(t.elem_type) or nil, shape
end

--- A ValueInfoProto.
---@param name string
---@param dtype? torch.dtype
---@param shape? (integer|string)[]
---@return table
function M.info(name, dtype, shape)
  local dims
  if shape then
    dims = { dim = {} }
    for i = 1, #shape do
      local d = shape[i]
      dims.dim[i] = { [type(d) == "string" and "dim_param" or "dim_value"] = d or nil }
    end
  end
  return { name = name, type = { tensor_type = {
    elem_type = dtype and tensors.number(dtype) or nil, shape = dims } } }
end

--- The name of a domain: that of ONNX itself is "".
---@param domain string?
---@return string
function M.domain(domain)
  return domain == "ai.onnx" and "" or domain or ""
end

local function add_text(out, message, indent)
  for _, key in ipairs(tables.keys(message)) do
    local value = message[key]
    local list = type(value) == "table" and (#value > 0 or next(value) == nil) and value
      or { value }
    for _, x in ipairs(list) do
      if type(x) == "table" then
        out[#out + 1] = ("%s%s {"):format(indent, key)
        add_text(out, x, indent .. "  ")
        out[#out + 1] = indent .. "}"
      else
        out[#out + 1] = ("%s%s: %s"):format(indent, key,
          type(x) == "string" and ("%q"):format(x):gsub("\\\n", "\\n") or tostring(x))
      end
    end
  end
end

--- A message as text, a field a line.
---@param message table
---@return string
function M.text(message)
  local out = {}
  add_text(out, message, "")
  return table.concat(out, "\n") .. "\n"
end

--- The version of each domain's operators that a model is written with; the domain
--- of ONNX itself is "".
--- error: ValueError for a domain that is there twice with two versions
---@param imports table[] OperatorSetIdProto
---@return table<string, integer>
function M.opsets(imports)
  local out = {}
  for _, set in ipairs(imports) do
    local domain = M.domain(set.domain)
    local version = set.version or 1
    errors.check(not out[domain] or out[domain] == version, "ValueError",
      "opset_import: domain '%s' has the versions %s and %d", domain, tostring(out[domain]),
      version)
    out[domain] = version
  end
  return out
end

return M
