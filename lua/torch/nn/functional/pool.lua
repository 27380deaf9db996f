--- Pooling with options: indices of maxima, power-average pooling, unpooling.
local define = require("torch.nn.functional.define")
local errors = require("torch.errors")
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

return function(F)
  local M = {}

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
