--- Convolutions of ONNX, of 1 to 3 dimensions of places.
local torch = require("torch")
local F = require("torch.nn.functional")
local windows = require("lupine.onnx.windows")

local WINDOWS = "dilations: ints, group: int = 1, kernel_shape: ints, pads: ints, strides: ints, "
  .. "auto_pad: string = 'NOTSET'"

local function kernel_of(n, x, w)
  n:check(w:dim() == x:dim(), "W must have as many dimensions as X, %d, got %d", x:dim(), w:dim())
  return { table.unpack(w.shape, 3) }
end

local function convolve(n, x, w, b)
  local s = windows.of(n, x, kernel_of(n, x, w))
  windows.pad_same(s, x)
  return F[("conv%dd"):format(s.dims)](x, w, b, s.strides, s.pads, s.dilations, n.attr.group)
end

-- ---- transposed ----------------------------------------------------------------------

-- One number a dimension, or zeros; a list of all dimensions is read from its end.
local function sizes(n, name, dims)
  local list = n.attr[name] or {}
  n:check(#list == 0 or #list == dims or name == "output_shape" and #list == dims + 2,
    "attribute '%s': expected %d numbers, got %d", name, dims, #list)
  return #list > 0 and { table.unpack(list, #list - dims + 1) } or nil
end

-- The pads of a transposed convolution, which cut its result, and what is appended to
-- it where a size is wanted that it does not reach.
local function cut(n, s, x, extra)
  local wanted = sizes(n, "output_shape", s.dims)
  local behind = {}
  for i = 1, s.dims do
    local size = x:size(i + 1)
    local want = wanted and wanted[i] or s.auto and size * s.strides[i]
    behind[i] = 0
    if want then
      local total = s.strides[i] * (size - 1) + extra[i] + s.reach[i] - want
      behind[i] = math.max(-total, 0)
      s.pads[i], s.pads[s.dims + i] = windows.halves(math.max(total, 0), s.upper)
    end
  end
  return behind
end

-- Whether torch takes this for output_padding.
local function is_small(s, extra)
  for i, e in ipairs(extra) do
    if e >= s.strides[i] and e >= s.dilations[i] then
      return false
    end
  end
  return true
end

local function transposed(n, x, w, b)
  local s = windows.of(n, x, kernel_of(n, x, w))
  local extra = sizes(n, "output_padding", s.dims) or { table.unpack({ 0, 0, 0 }, 1, s.dims) }
  local behind = cut(n, s, x, extra)
  for i, e in ipairs(behind) do
    extra[i] = extra[i] + e
  end
  local f = F[("conv_transpose%dd"):format(s.dims)]
  if is_small(s, extra) then
    return f(x, w, b, s.strides, s.pads, extra, n.attr.group, s.dilations)
  end
  local zeros = {}
  for i = 1, s.dims do
    zeros[i], zeros[s.dims + i] = 0, extra[i]
  end
  local y = f(x, w, nil, s.strides, s.pads, 0, n.attr.group, s.dilations)
  y = F.pad(y, windows.reversed(s.dims, zeros))
  return b and y + b:reshape({ -1, table.unpack({ 1, 1, 1 }, 1, s.dims) }) or y
end

-- ---- integers ------------------------------------------------------------------------

-- Less its zero point, in a type that has the sums: one number, or one of each
-- channel of results (the first dimension).
local function centred(t, zero, dtype)
  t = t:to(dtype)
  if not zero then
    return t
  end
  zero = zero:to(dtype)
  if zero:dim() == 1 and zero:size(0) > 1 then
    return t - zero:reshape({ -1, table.unpack({ 1, 1, 1, 1 }, 1, t:dim() - 1) })
  end
  return t - zero:reshape({})
end

-- Sums of products of numbers of 8 bits are exact in float64.
local function convolve_integers(n, x, x_zero, w, w_zero)
  return convolve(n, centred(x, x_zero, torch.float64), centred(w, w_zero, torch.float64))
end

local function limits(dtype)
  local info = torch.iinfo(dtype)
  return info.min, info.max
end

-- One number, or one of each channel of results, beside [N, C, places…].
local function beside(t, like)
  if t:numel() == 1 then
    return t:reshape({})
  end
  return t:reshape({ -1, table.unpack({ 1, 1, 1 }, 1, like:dim() - 2) })
end

return function(op)
  op("Conv(X, W, B?; " .. WINDOWS .. ") -> (Y)", { 1, 11 }, convolve)

  op("ConvTranspose(X, W, B?; dilations: ints, group: int = 1, kernel_shape: ints, "
    .. "output_padding: ints, output_shape: ints, pads: ints, strides: ints, "
    .. "auto_pad: string = 'NOTSET') -> (Y)", { 1, 11 }, transposed)

  op("ConvInteger(x, w, x_zero_point?, w_zero_point?; " .. WINDOWS .. ") -> (y)", 10,
    function(n, x, w, x_zero, w_zero)
      return convolve_integers(n, x, x_zero, w, w_zero):to(torch.int32)
    end)

  op("QLinearConv(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B?; "
    .. WINDOWS .. ") -> (y)", 10,
    function(n, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b)
      local sum = convolve_integers(n, x, x_zero, w, w_zero)
      if b then
        sum = sum + beside(b:to(sum.dtype), sum)
      end
      local scale = x_scale:to(sum.dtype):reshape({})
        * beside(w_scale:to(sum.dtype), sum) / y_scale:to(sum.dtype):reshape({})
      local least, most = limits(y_zero.dtype)
      local y = (sum * scale):round() + y_zero:to(sum.dtype):reshape({})
      return y:clamp(least, most):to(y_zero.dtype)
    end)
end
