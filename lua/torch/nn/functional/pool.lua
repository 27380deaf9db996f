--- Pooling with options: indices of maxima, power-average pooling, unpooling,
--- windows at random places.
local check = require("lupine.base.check")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")
local tuple = require("torch.nn.tuple")

-- Sizes of an adaptive pool: none keeps the input's.
local function sizes(input, size, n)
  if type(size) ~= "table" then
    return tuple.of(size, n, "output_size")
  end
  errors.check(next(size) ~= nil and #size <= n, "RuntimeError",
    "adaptive pooling: output_size must hold %d sizes, got %d", n, #size)
  local out = {}
  for i = 1, n do
    out[i] = math.type(size[i]) == "integer" and size[i] or input:size(i - 1 - n)
  end
  return out
end

-- The size that pools to the input, or the last n of output_size.
local function unpooled(input, n, kernel, stride, padding, output_size)
  local out = {}
  for i = 1, n do
    local usual = (input:size(i - 1 - n) - 1) * stride[i] - 2 * padding[i] + kernel[i]
    out[i] = usual
    if output_size then
      out[i] = output_size[#output_size - n + i]
      errors.check(math.abs(out[i] - usual) < stride[i], "ValueError",
        "max_unpool: invalid output_size: dimension %d must be between %d and %d, got %d", i - 1,
        usual - stride[i] + 1, usual + stride[i] - 1, out[i])
    end
  end
  return out
end

local function unpool(input, indices, n, kernel, stride, padding, output_size)
  for i = 1, n == 3 and n or 0 do -- in fewer dimensions PyTorch takes any
    errors.check(stride[i] > 0, "RuntimeError", "max_unpool3d: strides should be greater than "
      .. "zero, but got stride: [%s]", table.concat(stride, ", "))
  end
  errors.check(input:dim() == n + 1 or input:dim() == n + 2, "RuntimeError",
    "max_unpool%dd: expected an input of %d or %d dimensions, got %d", n, n + 1, n + 2, input:dim())
  errors.check(input.dtype.is_floating_point, "RuntimeError",
    "max_unpool%dd: input must be a floating point tensor, got %s", n, tostring(input.dtype))
  errors.check(input.shape == indices.shape, "RuntimeError",
    "max_unpool: input has shape %s, indices have %s", tostring(input.shape),
    tostring(indices.shape))
  local size = unpooled(input, n, kernel, stride, padding, output_size)
  local shape, plane = {}, 1
  for d = 1, input:dim() - n do
    shape[d] = input:size(d - 1)
  end
  for i = 1, n do
    shape[#shape + 1] = size[i]
    plane = plane * size[i]
  end
  local flat = input:flatten(-n)
  local zeros = { table.unpack(shape, 1, input:dim() - n) }
  zeros[#zeros + 1] = plane
  return require("torch").zeros(zeros, { dtype = input.dtype })
    :scatter(-1, indices:flatten(-n), flat):reshape(shape)
end

-- ---- fractional (Graham, "Fractional Max-Pooling", 2014) --------------------

-- First elements [N, C, count] of the windows along one dimension: they go by
-- alpha from the sample u [N, C], the last one ends with the input.
local function starts(u, size, count, window)
  local torch = require("torch")
  if count == 1 then
    return torch.full({ u:size(0), u:size(1), 1 }, size - window)
  end
  local kind = { dtype = u.dtype }
  local alpha = torch.tensor(size - window + 0.0, kind) / torch.tensor(count - 1.0, kind)
  u = u:unsqueeze(-1)
  local at = ((torch.arange(count - 1, kind) + u) * alpha):to(torch.int64)
    - (u * alpha):to(torch.int64)
  local last = torch.full({ u:size(0), u:size(1), 1 }, size - window)
  return torch.cat({ at, last }, -1)
end

-- Places [N, C, windows, elements of a window] in the plane: of the first n
-- dimensions, from those of the first n - 1.
local function places(before, at, size, window)
  local torch = require("torch")
  local own = at:unsqueeze(-1) + torch.arange(window)
  local n, c = at:size(0), at:size(1)
  if not before then
    return own
  end
  local all = before:reshape({ n, c, before:size(2), 1, before:size(3), 1 }) * size
    + own:reshape({ n, c, 1, own:size(2), 1, window })
  return all:reshape({ n, c, all:size(2) * all:size(3), before:size(3) * window })
end

local function fractional_size(input, n, size, ratio)
  local where = ("fractional_max_pool%dd"):format(n)
  if not check.is_none(size) then
    return tuple.of(size, n, "output_size")
  end
  errors.check(not check.is_none(ratio), "ValueError",
    "%s requires specifying either an output_size or an output_ratio", where)
  local out = {}
  for i = 1, n do
    local r = type(ratio) == "table" and ratio[i] or ratio
    check.number(r, where .. ": output_ratio")
    out[i] = math.floor(input:size(i - 1 - n) * r)
  end
  return out
end

local function fractional(input, n, window, size, samples)
  local torch = require("torch")
  local where = ("fractional_max_pool%dd"):format(n)
  errors.check(input:dim() == n + 1 or input:dim() == n + 2, "RuntimeError",
    "%s: expected an input of %d or %d dimensions, got %d", where, n + 1, n + 2, input:dim())
  errors.check(input:is_floating_point(), "NotImplementedError",
    "%s: input must be a floating point tensor, got %s", where, tostring(input.dtype))
  local x = input:dim() == n + 1 and input:unsqueeze(0) or input
  for i = 1, n do
    errors.check(size[i] > 0 and size[i] + window[i] - 1 <= x:size(i + 1), "RuntimeError",
      "%s: %d windows of %d do not fit into the %d elements of dimension %d", where, size[i],
      window[i], x:size(i + 1), i - 1 - n)
  end
  local shape = { x:size(0), x:size(1), n }
  samples = check.is_none(samples) and torch.rand(shape, { dtype = x.dtype }) or samples
  errors.check(samples:dim() == 3 and samples:size(0) >= shape[1] and samples:size(1) == shape[2]
    and samples:size(2) == n, "RuntimeError",
    "%s: _random_samples: expected shape %s, got %s", where, tostring(torch.Size(shape)),
    tostring(samples.shape))
  errors.check(samples.dtype == x.dtype, "RuntimeError",
    "Expect _random_samples to have the same dtype as input, got %s and %s",
    tostring(samples.dtype), tostring(x.dtype))
  samples = samples:narrow(0, 0, shape[1])
  local at
  for i = 1, n do -- of a plane's two samples the first is for the width
    local u = samples:select(2, n == 2 and 2 - i or i - 1)
    at = places(at, starts(u, x:size(i + 1), size[i], window[i]), x:size(i + 1), window[i])
  end
  local flat = x:flatten(2):gather(2, at:flatten(2)):reshape(at.shape)
  local values, which = flat:max(-1)
  local indices = at:gather(-1, which:unsqueeze(-1)):squeeze(-1)
  local out = { shape[1], shape[2], table.unpack(size) }
  values, indices = values:reshape(out), indices:reshape(out)
  if input:dim() == n + 1 then
    return values:squeeze(0), indices:squeeze(0)
  end
  return values, indices
end

return function(F)
  local M = {}

  for n = 2, 3 do
    local name = ("fractional_max_pool%dd"):format(n)
    local args = "(input, kernel_size, output_size=None, output_ratio=None, "
      .. "return_indices=False, _random_samples=None)"
    local function both(input, kernel, size, ratio, _, samples)
      return fractional(input, n, tuple.of(kernel, n, "kernel_size"),
        fractional_size(input, n, size, ratio), samples)
    end
    define(M, name .. "_with_indices" .. args, both)
    define(M, name .. args, function(input, kernel, size, ratio, return_indices, samples)
      if return_indices then
        return both(input, kernel, size, ratio, true, samples)
      end
      return (both(input, kernel, size, ratio, false, samples))
    end)
  end

  for n = 1, 3 do
    local name = ("max_pool%dd"):format(n)
    local plain, pair = F[name], F[name .. "_with_indices"]
    define(M, name .. "(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, "
      .. "return_indices=False)",
      function(input, kernel, stride, padding, dilation, ceil_mode, return_indices)
        local f = return_indices and pair or plain
        return f(input, kernel, stride, padding, dilation, ceil_mode)
      end)

    local adaptive = ("adaptive_max_pool%dd"):format(n)
    local one, both = F[adaptive], F[adaptive .. "_with_indices"]
    define(M, adaptive .. "(input, output_size, return_indices=False)",
      function(input, size, return_indices)
        size = sizes(input, size, n)
        if return_indices then
          return both(input, size)
        end
        return one(input, size)
      end)

    local average = ("adaptive_avg_pool%dd"):format(n)
    local mean = F[average]
    define(M, average .. "(input, output_size)", function(input, size)
      return mean(input, sizes(input, size, n))
    end)

    define(M, ("lp_pool%dd"):format(n)
      .. "(input, norm_type, kernel_size, stride=None, ceil_mode=False)",
      function(input, p, kernel, stride, ceil_mode)
        errors.check(p ~= 0, "ValueError", "lp_pool%dd: norm_type is 0; it must be another number",
          n)
        local k = tuple.of(kernel, n, "kernel_size")
        local count = 1
        for _, size in ipairs(k) do
          count = count * size
        end
        local out = F[("avg_pool%dd"):format(n)](input:pow(p), k, stride, 0, ceil_mode)
        -- a negative mean of odd powers has no root: its sign stays outside
        return (out:sign() * out:abs():relu()):mul(count):pow(1 / p)
      end)

    define(M, ("max_unpool%dd"):format(n)
      .. "(input, indices, kernel_size, stride=None, padding=0, output_size=None)",
      function(input, indices, kernel, stride, padding, output_size)
        return unpool(input, indices, n, tuple.of(kernel, n, "kernel_size"),
          tuple.of(stride or kernel, n, "stride"), tuple.of(padding, n, "padding"), output_size)
      end)
  end

  return M
end
