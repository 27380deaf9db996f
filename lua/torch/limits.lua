--- torch.finfo and torch.iinfo: the limits of dtypes.
--- source: IEEE 754 for binary64, binary32, binary16; bfloat16 is binary32
--- with 8 bits of precision.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- bits of precision, largest exponent, decimal resolution
local floats = {
  float64 = { 53, 1023, 1e-15 },
  float32 = { 24, 127, 1e-6 },
  float16 = { 11, 15, 1e-3 },
  bfloat16 = { 8, 127, 1e-2 },
}
local integers = {
  int64 = { math.mininteger, math.maxinteger },
  int32 = { -2147483648, 2147483647 },
  int16 = { -32768, 32767 },
  int8 = { -128, 127 },
  uint8 = { 0, 255 },
}

local function name_of(dtype)
  return tostring(dtype):match("^torch%.(.*)$") or tostring(dtype)
end

--- {bits, eps, max, min, tiny, smallest_normal, resolution, dtype}; the
--- default dtype's without an argument.
--- error: TypeError for other dtypes. Source: PyTorch documentation, torch.finfo
---@param dtype? torch.dtype floating
---@return table<string, number|string>
function M.finfo(dtype)
  dtype = dtype or core.get_default_dtype()
  local f = floats[name_of(dtype)]
  errors.check(f, "TypeError", "torch.finfo() takes a floating-point dtype, not %s",
    tostring(dtype))
  local largest = (2.0 - 2.0 ^ (1 - f[1])) * 2.0 ^ f[2]
  local tiny = 2.0 ^ (1 - f[2])
  return {
    bits = dtype.itemsize * 8, eps = 2.0 ^ (1 - f[1]), max = largest, min = -largest,
    tiny = tiny, smallest_normal = tiny, resolution = f[3], dtype = name_of(dtype),
  }
end

--- {bits, min, max, dtype}
--- error: TypeError for other dtypes. Source: PyTorch documentation, torch.iinfo
---@param dtype torch.dtype of integers
---@return table<string, integer|string>
function M.iinfo(dtype)
  local i = integers[name_of(dtype)]
  errors.check(i, "TypeError", "torch.iinfo() takes an integer dtype, not %s", tostring(dtype))
  return { bits = dtype.itemsize * 8, min = i[1], max = i[2], dtype = name_of(dtype) }
end

return M
