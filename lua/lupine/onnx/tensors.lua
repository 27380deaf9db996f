--- TensorProto, the tensors of ONNX files, as tensors.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local D = core.dtypes

-- TensorProto.DataType: number -> dtype, the field of its elements where they are
-- no raw bytes, how many of them an element takes there.
local TYPES = {
  [1] = { D.float32, "float_data" }, [2] = { D.uint8, "int32_data" },
  [3] = { D.int8, "int32_data" }, [5] = { D.int16, "int32_data" },
  [6] = { D.int32, "int32_data" }, [7] = { D.int64, "int64_data" },
  [9] = { D.bool, "int32_data" }, [10] = { D.float16, "int32_data", bits = D.int16 },
  [11] = { D.float64, "double_data" }, [16] = { D.bfloat16, "int32_data", bits = D.int16 },
}
local ABSENT = { [4] = "UINT16", [8] = "STRING", [12] = "UINT32", [13] = "UINT64",
  [14] = "COMPLEX64", [15] = "COMPLEX128" }
local NUMBERS = {}
for number, row in pairs(TYPES) do
  NUMBERS[row[1]] = number
end

local function row_of(number)
  return errors.check(TYPES[number], "NotImplementedError",
    "tensors of the type %s are not supported", ABSENT[number] or tostring(number))
end

--- The dtype of a TensorProto.DataType.
--- error: NotImplementedError for one that is not there
---@param number integer
---@return torch.dtype
function M.dtype(number)
  return row_of(number)[1]
end

--- The TensorProto.DataType of a dtype.
---@param dtype torch.dtype
---@return integer
function M.number(dtype)
  return NUMBERS[dtype]
end

local function elements(dims, name)
  local n = 1
  for _, d in ipairs(dims) do
    errors.check(d >= 0, "ValueError", "tensor '%s': a dimension is %d", name, d)
    errors.check(d == 0 or n <= math.maxinteger // d, "ValueError",
      "tensor '%s': more elements than can be counted", name)
    n = n * d
  end
  return n
end

--- Where the data of a tensor is that is in a file of its own.
--- error: ValueError for what says no place
---@param proto table TensorProto
---@return string location path of the file from the model's folder
---@return integer offset in bytes
---@return integer? length in bytes; nil: it is not said
function M.place(proto)
  local where = {}
  for _, entry in ipairs(proto.external_data or {}) do
    where[entry.key or ""] = entry.value
  end
  errors.check(where.location, "ValueError", "tensor '%s' is in a file that is not named",
    tostring(proto.name))
  local function number(key)
    local text = where[key]
    local value = text and math.tointeger(tonumber(text)) or not text and 0
    return errors.check(value and value >= 0 and value, "ValueError",
      "tensor '%s': %s of the file: expected an integer, got '%s'", tostring(proto.name), key,
      tostring(text))
  end
  return where.location, number("offset"), where.length and number("length") or nil
end

-- The n bytes of a tensor whose data is in a file of its own.
local function external(proto, folder, n)
  local location, offset, length = M.place(proto)
  errors.check(folder, "ValueError", "tensor '%s' is in the file '%s', and the model is not read "
    .. "from a folder", proto.name, location)
  errors.check((length or n) == n, "ValueError", "tensor '%s': %d bytes, its shape [%s] has %d",
    proto.name, length, table.concat(proto.dims, ", "), n)
  local ok, bytes = pcall(core.read_within, folder, location, offset, n)
  if not ok and errors.Exception:is(bytes) then
    bytes.message = ("tensor '%s': %s"):format(proto.name, bytes.message)
  end
  return ok and bytes or error(bytes, 0)
end

-- The values of a list of numbers, of the dtype.
local function listed(proto, row, name)
  local list = proto[row[2]] or {}
  local values = core.tensor(list, { dtype = row.bits and D.int32 or row[1] })
  if row.bits then
    values = core.frombuffer(values:to(row.bits):tobytes(), { dtype = row[1] })
  end
  errors.check(values:dim() == 1, "ValueError", "tensor '%s': its values are no numbers", name)
  return values
end

--- How many bytes raw_data has.
---@param bytes string|torch.Tensor
---@return integer
local function size_of(bytes)
  return type(bytes) == "string" and #bytes or bytes:numel() * bytes.dtype.itemsize
end

M.size_of = size_of

--- The tensor of a TensorProto. Of one whose raw_data is a tensor, as the model was read
--- with `lend`, it has the memory.
--- errors: ValueError for values that are not as many as its shape has, or a file
--- that has not so many; NotImplementedError for a type that is not there
---@param proto table TensorProto
---@param folder? string where files of external data are
---@return torch.Tensor
function M.read(proto, folder)
  local name = proto.name or ""
  local row = row_of(proto.data_type or 0)
  errors.check(not proto.segment, "NotImplementedError", "tensor '%s' is in segments", name)
  local n, size = elements(proto.dims, name), row[1].itemsize
  errors.check(n <= math.maxinteger // size, "ValueError",
    "tensor '%s': more bytes than can be counted", name)
  local bytes = proto.data_location == 1 and external(proto, folder, n * size) or proto.raw_data
  local values
  if bytes then
    errors.check(size_of(bytes) == n * size, "ValueError",
      "tensor '%s': %d bytes, its shape [%s] has %d", name, size_of(bytes),
      table.concat(proto.dims, ", "), n * size)
    values = type(bytes) == "string" and core.frombuffer(bytes, { dtype = row[1] })
      or core.onnx_values(bytes, row[1])
  else
    values = listed(proto, row, name)
    errors.check(values:numel() == n, "ValueError",
      "tensor '%s': %d values, its shape [%s] has %d", name, values:numel(),
      table.concat(proto.dims, ", "), n)
  end
  return values:resize_(proto.dims) -- no view: a trace has the tensor as it is
end

--- The TensorProto of a tensor.
--- error: TypeError for a dtype that ONNX has not
---@param name string?
---@param t torch.Tensor
---@return table
function M.write(name, t)
  local out = M.lend(name, t)
  out.raw_data = out.raw_data:tobytes()
  return out
end

--- The same without a copy, to be written before the tensor changes: its raw_data is the
--- tensor.
--- error: TypeError for a dtype that ONNX has not
---@param name string?
---@param t torch.Tensor
---@return table
function M.lend(name, t)
  errors.check(NUMBERS[t.dtype], "TypeError", "ONNX has no tensors of the dtype %s",
    tostring(t.dtype))
  return { name = name, dims = { table.unpack(t.shape) }, data_type = NUMBERS[t.dtype],
    raw_data = t:detach():contiguous() }
end

--- A tensor whose data is in a file already: that file cannot be written anew without it.
---@param list table[] TensorProto
---@param location string path of the file from the model's folder
---@return string? name of the tensor; nil: there is none
function M.there(list, location)
  for _, t in ipairs(list) do
    if t.data_location == 1 and M.place(t) == location then
      return tostring(t.name)
    end
  end
  return nil
end

local ALIGNED = 4096 -- bytes: a file can then be mapped

--- Moves the data of large tensors to one file, which the tensors given back name.
---@param list table[] TensorProto
---@param location string path of the file from the model's folder
---@param threshold integer bytes that a tensor has at least
---@param alignment? integer of each tensor's bytes: a page unless given
---@return table[] tensors
---@return (string|torch.Tensor)[] data of the file, part by part
function M.outside(list, location, threshold, alignment)
  local out, data, size = {}, {}, 0
  for i, t in ipairs(list) do
    local bytes = t.raw_data
    out[i] = t
    local length = bytes and size_of(bytes) or 0
    if bytes and length >= threshold then
      local gap = -size % (alignment or ALIGNED)
      data[#data + 1] = ("\0"):rep(gap)
      size = size + gap
      out[i] = { name = t.name, dims = t.dims, data_type = t.data_type, doc_string = t.doc_string,
        data_location = 1, external_data = {
          { key = "location", value = location },
          { key = "offset", value = ("%d"):format(size) },
          { key = "length", value = ("%d"):format(length) } } }
      data[#data + 1] = bytes
      size = size + length
    end
  end
  return out, data
end

return M
