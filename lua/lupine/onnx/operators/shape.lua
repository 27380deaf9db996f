--- Operators of ONNX on shapes: constants, what asks for a shape, and what gives a
--- tensor another one or another order.
local core = require("lupine.core")
local operands = require("lupine.onnx.operands")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

-- A list of a tensor's sizes, which may be changed.
local function sizes(x)
  return { table.unpack(x.shape) }
end

local function product(list, first, last)
  local n = 1
  for i = first, last do
    n = n * list[i]
  end
  return n
end

-- ---- constants --------------------------------------------------------------------

-- The attributes of Constant -> the tensor of such a value.
local CONSTANTS = {
  value = function(value) return value end,
  value_float = function(value) return torch.tensor(value, { dtype = torch.float32 }) end,
  value_floats = function(value) return torch.tensor(value, { dtype = torch.float32 }) end,
  value_int = function(value) return torch.tensor(value, { dtype = torch.int64 }) end,
  value_ints = function(value) return torch.tensor(value, { dtype = torch.int64 }) end,
}

local function constant(n)
  local result
  for name, value in pairs(n.attr) do
    n:check(CONSTANTS[name], "'%s': tensors of strings are not supported", name)
    n:check(not result, "it has several values; exactly one is allowed")
    result = CONSTANTS[name](value)
  end
  return n:check(result, "it has no value. Allowed: value, value_float, value_floats, "
    .. "value_int, value_ints")
end

local function constant_of_shape(n)
  local value = n.attr.value
  n:check(not value or value:numel() == 1, "attribute 'value' has %d elements, allowed is 1",
    value and value:numel() or 0)
  return torch.full(n:ints(1), value and value:item() or 0.0,
    { dtype = value and value.dtype or torch.float32 })
end

local function eye_like(n, x)
  n:check(x:dim() == 2, "its input has %d dimensions, allowed are 2", x:dim())
  local rows = torch.arange(x:size(0)):unsqueeze(1) + n.attr.k
  local dtype = n.attr.dtype and tensors.dtype(n.attr.dtype) or x.dtype
  return rows:eq(torch.arange(x:size(1))):to(dtype)
end

local function range(n, start)
  local first, limit, delta = n:number(1), n:number(2), n:number(3)
  n:check(delta ~= 0, "delta is 0")
  local count = math.max(0, math.ceil((limit - first) / delta))
  return torch.arange(count, { dtype = start.dtype }) * delta + first
end

local function trilu(n, x)
  local upper = n.attr.upper ~= 0
  if not n.inputs[2] or n:knows(2) then
    return (upper and torch.triu or torch.tril)(x, n:number(2) or 0)
  end
  local offset = core.untraced(function() -- of each element from the diagonal
    return torch.arange(x:size(-1)) - torch.arange(x:size(-2)):unsqueeze(1)
  end)
  local k = n.inputs[2]:reshape({})
  local zero = torch.zeros({}, { dtype = x.dtype })
  return torch.where(upper and offset:ge(k) or offset:le(k), x, zero)
end

-- ---- questions ----------------------------------------------------------------------

-- A place among r dimensions: from the end if negative, never outside.
local function clamped(i, r)
  return math.max(0, math.min(i < 0 and i + r or i, r))
end

local function shape(n, x)
  local r = x:dim()
  local first, last = clamped(n.attr.start or 0, r), clamped(n.attr["end"] or r, r)
  local list = table.pack(table.unpack(sizes(x), first + 1, last))
  list.n = nil
  return torch.tensor(list, { dtype = torch.int64 })
end

-- ---- other shapes --------------------------------------------------------------------

local function reshape(n, x, list)
  local new = {}
  for i, d in ipairs(list) do
    new[i] = d
    n:check(d >= -1, "dimension %d of the new shape is %d", i - 1, d)
    if d == 0 and (n.attr.allowzero or 0) == 0 then
      n:check(i <= x:dim(), "dimension %d of the new shape is 0, the input has %d dimensions",
        i - 1, x:dim())
      new[i] = x:size(i - 1)
    end
  end
  return x:reshape(new)
end

local function flatten(n, x)
  local r, axis = x:dim(), n.attr.axis
  n:check(axis >= -r and axis <= r, "axis %d is out of range. Allowed: %d to %d", axis, -r, r)
  axis = axis < 0 and axis + r or axis
  local all = sizes(x)
  return x:reshape({ product(all, 1, axis), product(all, axis + 1, r) })
end

local function squeeze(n, x, axes)
  if not axes then
    return x:squeeze()
  end
  axes = operands.axes(n, axes, x:dim())
  for _, axis in ipairs(axes) do
    n:check(x:size(axis) == 1, "axis %d has the size %d, only those of size 1 can go", axis,
      x:size(axis))
  end
  return x:squeeze(axes)
end

local function unsqueeze(n, x, axes)
  axes = operands.axes(n, axes, x:dim() + #axes)
  table.sort(axes)
  for _, axis in ipairs(axes) do
    x = x:unsqueeze(axis)
  end
  return x
end

local function transpose(n, x)
  local perm, r = n.attr.perm or {}, x:dim()
  if #perm == 0 then -- of PopART's Builder an empty list is the default
    perm = {}
    for i = 1, r do
      perm[i] = r - i
    end
  end
  return x:permute(perm)
end

local function expand(n, x)
  return x:expand(torch.broadcast_shapes(x.shape, n:ints(2)))
end

local function tile(n, x)
  local repeats = n:ints(2)
  n:check(#repeats == x:dim(), "%d repeats for %d dimensions", #repeats, x:dim())
  for axis, times in ipairs(repeats) do
    n:check(times >= 0, "axis %d is repeated %d times", axis - 1, times)
  end
  return x:tile(repeats)
end

-- Blocks of channels become blocks of pixels: DCR takes the place in the block from
-- the outer part of the channels, CRD from the inner one.
local function depth_to_space(n, x)
  local b, mode = n.attr.blocksize, n.attr.mode or "DCR"
  n:check(mode == "DCR" or mode == "CRD", "mode '%s'. Allowed: DCR, CRD", mode)
  n:check(x:dim() == 4 and b > 0 and b <= x:size(1) and x:size(1) % (b * b) == 0,
    "blocks of %d by %d for an input of shape %s", b, b, tostring(x.shape))
  local N, C, H, W = table.unpack(x.shape)
  local depth = C // (b * b)
  local parts = mode == "DCR" and x:reshape({ N, b, b, depth, H, W }):permute({ 0, 3, 4, 1, 5, 2 })
    or x:reshape({ N, depth, b, b, H, W }):permute({ 0, 1, 4, 2, 5, 3 })
  return parts:reshape({ N, depth, H * b, W * b })
end

local function space_to_depth(n, x)
  local b = n.attr.blocksize
  n:check(x:dim() == 4 and b > 0 and x:size(2) % b == 0 and x:size(3) % b == 0,
    "blocks of %d by %d for an input of shape %s", b, b, tostring(x.shape))
  local N, C, H, W = table.unpack(x.shape)
  return x:reshape({ N, C, H // b, b, W // b, b }):permute({ 0, 3, 5, 1, 2, 4 })
    :reshape({ N, C * b * b, H // b, W // b })
end

local CONSTANT = { constants = { [1] = true } }
local SECOND = { constants = { [2] = true } }
local SHAPE_ONLY = { shape_only = true }

local function questions(op)
  op("Shape(data) -> (shape)", { 1, 13 }, shape, SHAPE_ONLY)
  op("Shape(data; end: int, start: int = 0) -> (shape)", 15, shape, SHAPE_ONLY)
  op("Size(data) -> (size)", { 1, 13 }, function(_, x)
    return torch.tensor(x:numel(), { dtype = torch.int64 })
  end, SHAPE_ONLY)
  op("Identity(input) -> (output)", { 1, 13, 14, 16 }, function(_, x)
    return x
  end)
end

local function constants(op)
  op("Constant(; value: tensor!) -> (output)", { 1, 9, 11 }, constant)
  op("Constant(; value: tensor, value_float: float, value_floats: floats, value_int: int, "
    .. "value_ints: ints, value_string: string, value_strings: strings) -> (output)", { 12, 13 },
    constant)
  op("ConstantOfShape(input; value: tensor) -> (output)", 9, constant_of_shape, CONSTANT)
  op("EyeLike(input; dtype: int, k: int = 0) -> (output)", 9, eye_like, SHAPE_ONLY)
  op("Range(start, limit, delta) -> (output)", 11, range,
    { constants = { true, true, true } })
  op("Trilu(input, k?; upper: int = 1) -> (output)", 14, trilu, SECOND)
end

local function forms(op)
  op("Reshape(data; consumed_inputs: ints, shape: ints!) -> (reshaped)", 1, function(n, x)
    return reshape(n, x, n.attr.shape)
  end)
  local function to_input(n, x)
    return reshape(n, x, n:ints(2))
  end
  op("Reshape(data, shape) -> (reshaped)", { 5, 13 }, to_input, SECOND)
  op("Reshape(data, shape; allowzero: int = 0) -> (reshaped)", 14, to_input, SECOND)
  op("Flatten(input; axis: int = 1) -> (output)", { 1, 9, 11, 13 }, flatten)
  op("Squeeze(data; axes: ints) -> (squeezed)", { 1, 11 }, function(n, x)
    return squeeze(n, x, n.attr.axes)
  end)
  op("Squeeze(data, axes?) -> (squeezed)", 13, function(n, x)
    return squeeze(n, x, n:ints(2))
  end, SECOND)
  op("Unsqueeze(data; axes: ints!) -> (expanded)", { 1, 11 }, function(n, x)
    return unsqueeze(n, x, n.attr.axes)
  end)
  op("Unsqueeze(data, axes) -> (expanded)", 13, function(n, x)
    return unsqueeze(n, x, n:ints(2))
  end, SECOND)
  op("Transpose(data; perm: ints) -> (transposed)", { 1, 13 }, transpose)
  op("Expand(input, shape) -> (output)", { 8, 13 }, expand, SECOND)
  op("Tile(input, repeats) -> (output)", { 6, 13 }, tile, SECOND)
  op("DepthToSpace(input; blocksize: int!) -> (output)", 1, depth_to_space)
  op("DepthToSpace(input; blocksize: int!, mode: string = 'DCR') -> (output)", { 11, 13 },
    depth_to_space)
  op("SpaceToDepth(input; blocksize: int!) -> (output)", { 1, 13 }, space_to_depth)
end

return function(op)
  questions(op)
  constants(op)
  forms(op)
end
