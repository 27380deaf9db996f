--- Pooling layers of one to three dimensions.
local F = require("torch.nn.functional")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local tuple = require("torch.nn.tuple")

local M = {}

-- stride defaults to the kernel's size
local function stride(self)
  if self.stride == nil then
    self.stride = self.kernel_size
  end
end

local function tuples(n, fields)
  return function(self)
    stride(self)
    for _, name in ipairs(fields) do
      self[name] = tuple.of(self[name], n, name)
    end
  end
end

-- Exactly one of the output's size and its ratio to the input's.
local function check_fractional(n)
  return function(self, a)
    local name = ("FractionalMaxPool%dd"):format(n)
    local size, ratio = not check.is_none(a.output_size), not check.is_none(a.output_ratio)
    errors.check(size or ratio, "ValueError",
      "%s requires specifying either an output size, or a pooling ratio", name)
    errors.check(not (size and ratio), "ValueError",
      "only one of output_size and output_ratio may be specified")
    if ratio then
      for i = 1, n do
        local r = type(a.output_ratio) == "table" and a.output_ratio[i] or a.output_ratio
        errors.check(check.number(r, name .. ": output_ratio") > 0 and r < 1, "ValueError",
          "output_ratio must be between 0 and 1 (got %s)", tostring(r))
      end
    end
    if core.is_tensor(a._random_samples) then
      self._random_samples = nil
      self:register_buffer("_random_samples", a._random_samples)
    end
  end
end

for n = 1, 3 do
  local function define(class, args, fn, body)
    local name = ("%s%dd"):format(class, n)
    body.forward = fn
    M[name] = layer(name .. args, body)
  end
  local function f(name)
    return F[name:format(n)]
  end

  local max = f("max_pool%dd")
  define("MaxPool", "(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, "
    .. "ceil_mode=False)", function(self, input)
    return max(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
      self.return_indices)
  end, {
    build = stride,
    repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}, "
      .. "dilation={dilation}, ceil_mode={ceil_mode}",
  })

  local avg = f("avg_pool%dd")
  local divisor = n > 1 and ", divisor_override=None)" or ")"
  define("AvgPool", "(kernel_size, stride=None, padding=0, ceil_mode=False, "
    .. "count_include_pad=True" .. divisor, function(self, input)
    return avg(input, self.kernel_size, self.stride, self.padding,
      { ceil_mode = self.ceil_mode, count_include_pad = self.count_include_pad,
        divisor_override = self.divisor_override })
  end, {
    build = n == 1 and tuples(1, { "kernel_size", "stride", "padding" }) or stride,
    repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}",
  })

  local adaptive_avg = f("adaptive_avg_pool%dd")
  define("AdaptiveAvgPool", "(output_size)", function(self, input)
    return adaptive_avg(input, self.output_size)
  end, { repr = "output_size={output_size}" })

  local adaptive_max = f("adaptive_max_pool%dd")
  define("AdaptiveMaxPool", "(output_size, return_indices=False)", function(self, input)
    return adaptive_max(input, self.output_size, self.return_indices)
  end, { repr = "output_size={output_size}" })

  local lp = f("lp_pool%dd")
  define("LPPool", "(norm_type, kernel_size, stride=None, ceil_mode=False)", function(self, input)
    return lp(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
  end, {
    repr = "norm_type={norm_type}, kernel_size={kernel_size}, stride={stride}, "
      .. "ceil_mode={ceil_mode}",
  })

  if n > 1 then
    local fractional = f("fractional_max_pool%dd")
    define("FractionalMaxPool", "(kernel_size, output_size=None, output_ratio=None, "
      .. "return_indices=False, _random_samples=None)", function(self, input)
      return fractional(input, self.kernel_size, self.output_size, self.output_ratio,
        self.return_indices, self._random_samples)
    end, { build = check_fractional(n) })
  end

  local unpool = f("max_unpool%dd")
  define("MaxUnpool", "(kernel_size, stride=None, padding=0)",
    function(self, input, indices, output_size)
      return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)
    end, {
      build = tuples(n, { "kernel_size", "stride", "padding" }),
      repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}",
    })
end

return M
