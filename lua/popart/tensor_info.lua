--- TensorInfo, a type and a shape as ONNX names them, and InputShapeInfo, those of a
--- model's inputs whose file does not tell.
---
--- Source: PopART Python API.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local enums = require("popart.enums")
local errors = require("popart.errors")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

-- Type -> lower-case name as NumPy has it, bytes of an element; the torch dtype has that
-- name, where there is one.
local TYPES = {
  UINT8 = { "uint8", 1 }, INT8 = { "int8", 1 }, UINT16 = { "uint16", 2 }, INT16 = { "int16", 2 },
  INT32 = { "int32", 4 }, INT64 = { "int64", 8 }, UINT32 = { "uint32", 4 },
  UINT64 = { "uint64", 8 }, BOOL = { "bool", 1 }, FLOAT = { "float32", 4 },
  FLOAT16 = { "float16", 2 }, BFLOAT16 = { "bfloat16", 2 }, DOUBLE = { "float64", 8 },
  FLOAT8_143 = { "float8_143", 1 }, FLOAT8_152 = { "float8_152", 1 },
  COMPLEX64 = { "complex64", 8 }, COMPLEX128 = { "complex128", 16 },
}

local name_of, dtype_of = {}, {}
for name, row in pairs(TYPES) do
  local dtype = core.dtypes[row[1]]
  if dtype ~= nil then
    name_of[dtype], dtype_of[name] = name, dtype
  end
end

--- A type's name of a torch dtype, a DataType, or a name; lower case is fine.
--- error: TypeError for anything else, naming `where`
---@param given any
---@param where string
---@return string
function M.type_name(given, where)
  given = enums.DataType:is(given) and given.name or given
  if type(given) == "string" then
    local upper = given:upper()
    for name, row in pairs(TYPES) do
      if name == upper or row[1] == given then
        return name
      end
    end
    errors.raise("popart_exception", "%s: no type '%s'%s. Allowed: %s", where, given,
      check.nearest(given, tables.keys(TYPES)), table.concat(tables.keys(TYPES), ", "))
  end
  return given ~= nil and name_of[given] or errors.raise("TypeError",
    "%s: expected a type's name or a dtype, got %s", where, check.describe(given))
end

local MOST = 2 ^ 62 -- elements, and bytes

local function check_shape(given, where)
  if type(given) == "string" then
    local inside = given:match("^%s*[%(%[](.-)[%)%]]%s*$")
    errors.check(inside, "ValueError", "%s: expected \"(2, 3)\", got %s", where,
      check.describe(given))
    local list = {}
    for piece in inside:gmatch("[^,%s]+") do
      list[#list + 1] = math.tointeger(tonumber(piece)) or piece
    end
    given = list
  end
  local is_list = type(given) == "table" or type(given) == "userdata" and not core.is_tensor(given)
  errors.check(is_list, "TypeError", "%s: expected a list of sizes, got %s", where,
    check.describe(given))
  local shape, n = {}, 1.0
  for i = 1, #given do
    shape[i] = check.int(given[i], ("%s: size %d"):format(where, i - 1), { min = 0 })
    n = n * math.max(shape[i], 1)
  end
  errors.check(n < MOST / 16, "ValueError", "%s: too many elements", where)
  return shape
end

--- How many elements a shape has.
---@param shape integer[]
---@return integer
function M.elements(shape)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  return n
end

--- Bytes of a value.
---@param type {dtype: torch.dtype, shape: integer[]}? nil: none
---@return integer
function M.bytes(type)
  return type and type.dtype.itemsize * M.elements(type.shape) or 0
end

--- A type and a shape: TensorInfo("FLOAT", {2, 3}), TensorInfo(torch.float16, x.shape), or
--- those of a tensor, TensorInfo(x).
--- error: TypeError, popart_exception for a type that ONNX does not have
--- source: PopART Python API, TensorInfo
---@class popart.TensorInfo
---@overload fun(dataType: any, shape: any): popart.TensorInfo
---@overload fun(tensor: torch.Tensor): popart.TensorInfo
local TensorInfo = closed.close(class.new("TensorInfo"))
M.TensorInfo = TensorInfo
signatures.note(TensorInfo, "TensorInfo(dataType, shape)", 1)

function TensorInfo:init(...)
  local first = ...
  if select("#", ...) == 1 and core.is_tensor(first) then
    self:set(first.dtype, first.shape)
  else
    local v, given = check.arguments("TensorInfo", { "dataType", "shape" }, { shape = "list" }, ...)
    errors.check(given.dataType and given.shape, "TypeError",
      "Can not create TensorInfo with these arguments: expected (type, shape) or (tensor)")
    self:set(v[1], v[2])
  end
end

--- Another type, and another shape unless it is nil.
---@param data_type any a name or a dtype
---@param shape? integer[]|string
function TensorInfo:set(data_type, shape)
  self._type = M.type_name(data_type, "TensorInfo: dataType")
  self._shape = (shape ~= nil or not self._shape) and check_shape(shape, "TensorInfo: shape")
    or self._shape
end

--- The sizes.
---@return integer[]
function TensorInfo:shape()
  return { table.unpack(self._shape) }
end

--- The number of dimensions.
---@return integer
function TensorInfo:rank()
  return #self._shape
end

--- The number of elements.
---@return integer
function TensorInfo:nelms()
  return M.elements(self._shape)
end

--- Bytes of all elements.
---@return integer
function TensorInfo:nbytes()
  return self:nelms() * TYPES[self._type][2]
end

--- The size of a dimension, from 0.
--- error: IndexError
---@param i integer
---@return integer
function TensorInfo:dim(i)
  check.int(i, "dim: i")
  return errors.check(i >= 0 and self._shape[i + 1], "IndexError",
    "Invalid input dimension %d, tensor of rank %d", i, #self._shape)
end

--- Bytes from one element to the next along each dimension.
---@param shape? integer[] its own unless given
---@return integer[]
function TensorInfo:strides(shape)
  shape = shape == nil and self._shape or check_shape(shape, "strides: shape")
  local out, bytes = {}, TYPES[self._type][2]
  for i = #shape, 1, -1 do
    out[i] = bytes
    bytes = bytes * shape[i]
  end
  return out
end

--- The torch dtype.
--- error: popart_exception for a type of which there are no tensors here, naming `where`
---@param where? string "TensorInfo: dataType" unless given
---@return torch.dtype
function TensorInfo:dataType(where)
  return errors.check(dtype_of[self._type], "popart_exception",
    "%s: there are no tensors of the type %s. Allowed: %s", where or "TensorInfo: dataType",
    self._type, table.concat(tables.keys(dtype_of), ", "))
end

--- The type's name, "FLOAT16".
---@return string
function TensorInfo:data_type()
  return self._type
end

--- The type's name as NumPy and torch have it, "float16".
---@return string
function TensorInfo:data_type_lcase()
  return TYPES[self._type][1]
end

function TensorInfo.__eq(a, b)
  if a._type ~= b._type or #a._shape ~= #b._shape then
    return false
  end
  for i, size in ipairs(a._shape) do
    if b._shape[i] ~= size then
      return false
    end
  end
  return true
end

function TensorInfo.__tostring(self)
  return ("%s [%s]"):format(self._type, table.concat(self._shape, ", "))
end

--- Types and shapes of inputs that a model does not tell.
--- source: PopART Python API, InputShapeInfo
---@class popart.InputShapeInfo
---@overload fun(): popart.InputShapeInfo
local InputShapeInfo = closed.close(class.new("InputShapeInfo"))
M.InputShapeInfo = InputShapeInfo
signatures.note(InputShapeInfo, "InputShapeInfo()", 1)

function InputShapeInfo:init(...)
  check.most("InputShapeInfo", 0, ...)
  self._infos = {}
end

--- Tells an input's.
--- error: TypeError
---@param id string
---@param info popart.TensorInfo
function InputShapeInfo:add(id, info)
  check.string(id, "InputShapeInfo.add: id")
  self._infos[id] = check.instance(info, "InputShapeInfo.add: info", TensorInfo)
end

--- An input's.
--- error: popart_exception for one that was not told
---@param id string
---@return popart.TensorInfo
function InputShapeInfo:get(id)
  return self._infos[id] or errors.raise("popart_exception",
    "No input shape info for Tensor `%s' in InputShapeInfo::get%s", tostring(id),
    check.nearest(id, self:getAllTensorIds()))
end

--- Whether an input's was told.
---@param id string
---@return boolean
function InputShapeInfo:has(id)
  return self._infos[id] ~= nil
end

--- The inputs that were told, sorted.
---@return string[]
function InputShapeInfo:getAllTensorIds()
  return tables.keys(self._infos)
end

return M
