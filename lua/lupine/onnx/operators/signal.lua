--- Signal processing of ONNX. Complex numbers are pairs in the last dimension, and a
--- Fourier transform is made of products with constant matrices, so that it has a
--- gradient and runs in compiled programs.
local core = require("lupine.core")
local torch = require("torch")
local operands = require("lupine.onnx.operands")
local tensors = require("lupine.onnx.tensors")

-- An input that is one number above 0.
local function positive(n, i)
  local x = n:number(i)
  n:check(x == nil or x > 0, "input '%s' is %s. Allowed: above 0", operands.name(n, i),
    tostring(x))
  return x
end

-- ---- windows -------------------------------------------------------------------------------

-- ONNX's Hamming window has the exact fractions that 0.54 and 0.46 round.
local WINDOWS = {
  HannWindow = torch.hann_window,
  HammingWindow = function(size, periodic, keywords)
    return torch.hamming_window(size, periodic, 25 / 46, 21 / 46, keywords)
  end,
  BlackmanWindow = torch.blackman_window,
}

local function window(make)
  return function(n)
    local size = n:number(1)
    n:check(size >= 0, "input 'size' is %d. Allowed: 0 or more", size)
    return make(size, operands.flag(n, "periodic"), { dtype = torch.float64 })
      :to(tensors.dtype(n.attr.output_datatype))
  end
end

-- ---- the mel scale ---------------------------------------------------------------------------

local function mel(hertz)
  return 2595 * math.log(1 + hertz / 700, 10)
end

-- The bins of a spectrum where the triangles begin, peak and end.
local function mel_bins(count, length, rate, low, high)
  local step = (mel(high) - mel(low)) / (count + 2)
  local mels = torch.arange(count + 2, { dtype = torch.float64 }) * step + mel(low)
  return ((10 ^ (mels / 2595) - 1) * (700 * (length + 1)) / rate):floor()
end

-- Triangles of height 1, one a column; one whose peak is its first bin begins there.
local function mel_weights(n)
  local count, length, rate = positive(n, 1), positive(n, 2), positive(n, 3)
  local bins = mel_bins(count, length, rate, n:number(4), n:number(5))
  local left, peak, right = bins:narrow(0, 0, count), bins:narrow(0, 1, count),
    bins:narrow(0, 2, count)
  local place = torch.arange(length // 2 + 1, { dtype = torch.float64 }):unsqueeze(1)
  local one = torch.ones({}, { dtype = torch.float64 })
  local rising = torch.where(peak:eq(left), one, (place - left) / (peak - left))
  local falling = (right - place) / (right - peak)
  local zero = torch.zeros({}, { dtype = torch.float64 })
  local up = place:ge(left):logical_and(place:le(peak))
  local down = place:ge(peak):logical_and(place:lt(right))
  return torch.where(down, falling, torch.where(up, rising, zero))
    :to(tensors.dtype(n.attr.output_datatype))
end

-- ---- Fourier transforms --------------------------------------------------------------------

-- Up to so many points a transform is one product with a matrix; more are split in two
-- factors, if there are.
local DIRECT = 512

-- cos and sin of 2 pi i k / length for i < rows, k < columns; negative if `sign` is.
local function circle(rows, columns, length, sign)
  local i = torch.arange(rows):unsqueeze(1)
  local k = torch.arange(columns):unsqueeze(0)
  local angle = (i * k):remainder(length):double() * (sign * 2 * math.pi / length)
  return angle:cos(), angle:sin()
end

-- The matrix of a transform of `length` points to `bins`: from rows of [point, part] to
-- columns of [bin, part], where a part is real or imaginary.
local function dft_matrix(length, bins, parts, inverse)
  local cos, sin = circle(length, bins, length, inverse and 1 or -1)
  if inverse then
    cos, sin = cos / length, sin / length
  end
  local of_real = torch.stack({ cos, sin }, -1)
  if parts == 1 then
    return of_real:reshape({ length, bins * 2 })
  end
  local of_imaginary = torch.stack({ -sin, cos }, -1)
  return torch.stack({ of_real, of_imaginary }, 1):reshape({ length * 2, bins * 2 })
end

-- x with other sizes in place of its last `last` ones.
local function reshaped(x, last, ...)
  local sizes = { table.unpack(x.shape, 1, x:dim() - last) }
  for _, size in ipairs({ ... }) do
    sizes[#sizes + 1] = size
  end
  return x:reshape(sizes)
end

local function product(x, length, bins, inverse)
  local parts = x:size(-1)
  local matrix = core.untraced(dft_matrix, length, bins, parts, inverse):to(x.dtype)
  local y = torch.matmul(reshaped(x, 2, length * parts), matrix)
  return reshaped(y, 1, bins, 2)
end

-- x [..., rows, columns, 2], each number turned by its row times its column.
local function turned(x, rows, columns, inverse)
  local cos, sin = core.untraced(function()
    local c, s = circle(rows, columns, rows * columns, inverse and 1 or -1)
    return c:unsqueeze(-1):to(x.dtype), torch.stack({ -s, s }, -1):to(x.dtype)
  end)
  return x * cos + x:flip({ -1 }) * sin
end

-- The largest factor of a number up to its root.
local function factor(number)
  local root = math.floor(math.sqrt(number))
  while number % root ~= 0 do
    root = root - 1
  end
  return root
end

-- The transform of x [..., length, parts]. Point n of a * b is n1 * b + n2, and bin k is
-- k2 * a + k1: transforms over n1, turns by n2 * k1, transforms over n2.
local function spectrum(x, length, inverse)
  local a = length > DIRECT and factor(length) or 1
  if a == 1 then
    return product(x, length, length, inverse)
  end
  local b = length // a
  local y = spectrum(reshaped(x, 2, a, b, x:size(-1)):transpose(-3, -2), a, inverse)
  y = spectrum(turned(y, b, a, inverse):transpose(-3, -2), b, inverse)
  return reshaped(y:transpose(-3, -2), 3, length, 2)
end

-- x with exactly `size` places in the dimension before the last: cut, or zeros behind.
local function fitted(x, size)
  local has = x:size(-2)
  if has > size then
    return x:narrow(-2, 0, size)
  end
  return has < size and torch.constant_pad_nd(x, { 0, 0, 0, size - has }) or x
end

-- The real points of which x has the bins of one side: the others are conjugates.
local function real_points(x, length)
  local bins, rest = fitted(x, length // 2 + 1), (length - 1) // 2
  local other = bins:narrow(-2, 1, rest):flip({ -2 })
  local conjugate = torch.cat({ other:narrow(-1, 0, 1), -other:narrow(-1, 1, 1) }, -1)
  return spectrum(torch.cat({ bins, conjugate }, -2), length, true):narrow(-1, 0, 1)
end

-- The transform of x [..., points, parts] over its points.
local function transform(n, x, length, inverse, onesided)
  local parts = x:size(-1)
  n:check(parts == 1 or parts == 2, "input '%s' has the shape %s. Allowed: a last dimension of 1 "
    .. "(real) or 2 (complex)", operands.name(n, 1), operands.shown(n.inputs[1]))
  n:check(not onesided or parts == (inverse and 2 or 1), "attribute 'onesided' is 1, and input "
    .. "'%s' is %s", operands.name(n, 1), parts == 1 and "real" or "complex")
  if onesided and inverse then
    length = length or 2 * (x:size(-2) - 1)
    n:check(length > 0, "input '%s' has %d bins. Allowed: 2 or more", operands.name(n, 1),
      x:size(-2))
    return real_points(x, length)
  end
  length = length or x:size(-2)
  n:check(length > 0, "input '%s' of the shape %s has no points", operands.name(n, 1),
    operands.shown(n.inputs[1]))
  x = fitted(x, length)
  if onesided and length <= DIRECT then
    return product(x, length, length // 2 + 1, false)
  end
  local y = spectrum(x, length, inverse)
  return onesided and y:narrow(-2, 0, length // 2 + 1) or y
end

local function dft(n, x, axis, what)
  operands.floating(n, 1)
  n:check(x:dim() >= 2, "input 'input' has the shape %s. Allowed: 2 dimensions or more",
    operands.shown(x))
  axis = n:axis(axis, x:dim(), what)
  n:check(axis < x:dim() - 1, "%s is %d, the dimension of real and imaginary parts", what, axis)
  local moved = x:transpose(axis, -2)
  local y = transform(n, moved, positive(n, 2), operands.flag(n, "inverse"),
    operands.flag(n, "onesided"))
  return y:transpose(axis, -2)
end

-- frame_length, by the window or the signal if it is left out.
local function frame_length(n, signal, window_input)
  local length = positive(n, 4)
  if window_input then
    n:check(window_input:dim() == 1 and (not length or length == window_input:size(0)),
      "input 'window' has the shape %s. Allowed: [frame_length]", operands.shown(window_input))
    length = window_input:size(0)
  end
  length = length or signal:size(1)
  n:check(length <= signal:size(1), "input 'signal' has %d samples, a frame %d", signal:size(1),
    length)
  return length
end

local function stft(n, signal, _, window_input)
  operands.floating(n, 1)
  n:check(signal:dim() == 3, "input 'signal' has the shape %s. Allowed: [batch, samples, 1 or 2]",
    operands.shown(signal))
  local length = frame_length(n, signal, window_input)
  local frames = signal:unfold(1, length, positive(n, 2)):transpose(-1, -2)
  if window_input then
    operands.same_type(n, 1, 3)
    frames = frames * window_input:unsqueeze(-1)
  end
  return transform(n, frames, nil, false, operands.flag(n, "onesided"))
end

return function(op)
  for name, make in pairs(WINDOWS) do
    op(name .. "(size; output_datatype: dtype = 1, periodic: int = 1) -> (output)", 17,
      window(make), { constants = { true } })
  end
  op("MelWeightMatrix(num_mel_bins, dft_length, sample_rate, lower_edge_hertz,"
    .. " upper_edge_hertz; output_datatype: dtype = 1) -> (output)", 17, mel_weights,
    { constants = { true, true, true, true, true } })
  op("DFT(input, dft_length?; axis: int = 1, inverse: int = 0, onesided: int = 0) -> (output)",
    17, function(n, x)
      return dft(n, x, n.attr.axis, "attribute 'axis'")
    end, { constants = { [2] = true } })
  op("DFT(input, dft_length?, axis?; inverse: int = 0, onesided: int = 0) -> (output)", 20,
    function(n, x)
      return dft(n, x, n:number(3) or -2, "input 'axis'")
    end, { constants = { [2] = true, [3] = true } })
  op("STFT(signal, frame_step, window?, frame_length?; onesided: int = 1) -> (output)", 17, stft,
    { constants = { [2] = true, [4] = true } })
end
