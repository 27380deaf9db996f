--- Convolutions and transposed convolutions of one to three dimensions.
local F = require("torch.nn.functional")
local errors = require("lupine.base.errors")
local fill = require("torch.nn.fill")
local layer = require("torch.nn.layer")
local text = require("torch.nn.text")
local tuple = require("torch.nn.tuple")

local M = {}

local MODES = { zeros = "constant", reflect = "reflect", replicate = "replicate",
  circular = "circular" }

local function describe(self)
  local parts = { ("%d, %d, kernel_size=%s, stride=%s"):format(self.in_channels,
    self.out_channels, text.repr(self.kernel_size), text.repr(self.stride)) }
  local function add(name, usual)
    local v = self[name]
    local plain = type(v) == "table" and tuple.all(v, usual) or v == usual
    if not plain then
      parts[#parts + 1] = name .. "=" .. (type(v) == "string" and v or text.repr(v))
    end
  end
  add("padding", 0)
  add("dilation", 1)
  add("output_padding", 0)
  add("groups", 1)
  if not self.bias then
    parts[#parts + 1] = "bias=False"
  end
  add("padding_mode", "zeros")
  return table.concat(parts, ", ")
end

local function check_channels(self, name)
  errors.check(self.groups > 0, "ValueError", "%s: groups must be a positive integer", name)
  for _, which in ipairs({ "in_channels", "out_channels" }) do
    errors.check(self[which] % self.groups == 0, "ValueError",
      "%s: %s must be divisible by groups, got %d and %d", name, which, self[which], self.groups)
  end
end

-- padding of F.pad for 'same': the larger half goes behind
local function same_padding(self, n)
  local out = {}
  for i = n, 1, -1 do
    local total = self.dilation[i] * (self.kernel_size[i] - 1)
    out[#out + 1] = total // 2
    out[#out + 1] = total - total // 2
  end
  return out
end

local function build(name, n, transposed)
  return function(self, a)
    for _, field in ipairs({ "kernel_size", "stride", "dilation" }) do
      self[field] = tuple.of(a[field], n, name .. ": " .. field)
    end
    if transposed then
      self.output_padding = tuple.of(a.output_padding, n, name .. ": output_padding")
      errors.check(a.padding_mode == "zeros", "ValueError",
        "%s: only 'zeros' padding mode is supported", name)
    else
      self.output_padding = tuple.of(0, n, name)
    end
    errors.check(MODES[a.padding_mode], "ValueError", "%s: padding_mode must be one of 'zeros', "
      .. "'reflect', 'replicate', 'circular', but got padding_mode='%s'", name,
      tostring(a.padding_mode))
    if type(a.padding) == "string" then
      errors.check(not transposed and (a.padding == "same" or a.padding == "valid"), "ValueError",
        "%s: Invalid padding string '%s', should be one of 'valid', 'same'", name, a.padding)
      errors.check(a.padding ~= "same" or tuple.all(self.stride, 1), "ValueError",
        "%s: padding='same' is not supported for strided convolutions", name)
    else
      self.padding = tuple.of(a.padding, n, name .. ": padding")
    end
    check_channels(self, name)
    local first, second = self.out_channels, self.in_channels
    if transposed then
      first, second = second, first
    end
    fill.weight(self, { first, second // self.groups, table.unpack(self.kernel_size) }, a)
    fill.bias(self, { self.out_channels }, a)
    self:reset_parameters()
  end
end

local function forward(n)
  local conv = F[("conv%dd"):format(n)]
  return function(self, input)
    local padding = self.padding
    if self.padding_mode ~= "zeros" and padding ~= "valid" then
      local pad = padding == "same" and same_padding(self, n) or tuple.reversed_twice(padding)
      input = F.pad(input, pad, MODES[self.padding_mode])
      padding = 0
    end
    return conv(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
  end
end

-- The output_padding that gives output_size (its last n entries).
local function output_padding(self, input, output_size, n)
  if not output_size then
    return self.output_padding
  end
  local out = {}
  for i = 1, n do
    local least = (input:size(i - 1 - n) - 1) * self.stride[i] - 2 * self.padding[i]
      + self.dilation[i] * (self.kernel_size[i] - 1) + 1
    local want = output_size[#output_size - n + i]
    errors.check(want and want >= least and want < least + self.stride[i], "ValueError",
      "requested an output size of %s in dimension %d, but valid sizes range from %d to %d",
      tostring(want), i - 1, least, least + self.stride[i] - 1)
    out[i] = want - least
  end
  return out
end

local function transposed_forward(n)
  local conv = F[("conv_transpose%dd"):format(n)]
  return function(self, input, output_size)
    return conv(input, self.weight, self.bias, self.stride, self.padding,
      output_padding(self, input, output_size, n), self.groups, self.dilation)
  end
end

for n = 1, 3 do
  local name = ("Conv%dd"):format(n)
  M[name] = layer(name .. "(in_channels, out_channels, kernel_size, stride=1, padding=0, "
    .. "dilation=1, groups=1, bias=True, padding_mode='zeros', device=None, dtype=None)", {
      drop = { "bias" },
      build = build(name, n, false),
      forward = forward(n),
      repr = describe,
    })
  local back = ("ConvTranspose%dd"):format(n)
  M[back] = layer(back .. "(in_channels, out_channels, kernel_size, stride=1, padding=0, "
    .. "output_padding=0, groups=1, bias=True, dilation=1, padding_mode='zeros', device=None, "
    .. "dtype=None)", {
      drop = { "bias" },
      build = build(back, n, true),
      forward = transposed_forward(n),
      repr = describe,
    })
  M[name].reset_parameters = fill.reset
  M[back].reset_parameters = fill.reset
end

return M
