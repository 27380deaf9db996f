--- Padding layers and layers that change the size of images.
local F = require("torch.nn.functional")
local layer = require("torch.nn.layer")
local text = require("torch.nn.text")
local tuple = require("torch.nn.tuple")

local M = {}

local MODES = { ReflectionPad = "reflect", ReplicationPad = "replicate", CircularPad = "circular" }

for n = 1, 3 do
  local function padding(self)
    self.padding = tuple.of(self.padding, 2 * n, "padding")
  end

  for class, mode in pairs(MODES) do
    local name = ("%s%dd"):format(class, n)
    M[name] = layer(name .. "(padding)", {
      build = padding,
      repr = "{padding}",
      forward = function(self, input)
        return F.pad(input, self.padding, mode)
      end,
    })
  end

  local constant = ("ConstantPad%dd"):format(n)
  M[constant] = layer(constant .. "(padding, value)", {
    build = padding,
    repr = "padding={padding}, value={value}",
    forward = function(self, input)
      return F.pad(input, self.padding, "constant", self.value)
    end,
  })

  local zero = ("ZeroPad%dd"):format(n)
  M[zero] = layer(zero .. "(padding)", {
    build = function(self)
      padding(self)
      self.value = 0.0
    end,
    repr = "{padding}",
    forward = M[constant].forward,
  })
end

-- ---- sizes -----------------------------------------------------------------

local function describe(self)
  local first = self.scale_factor and "scale_factor=" .. text.repr(self.scale_factor)
    or "size=" .. text.repr(self.size)
  return ("%s, mode=%s"):format(first, text.repr(self.mode))
end

local function as_floats(self)
  local s = self.scale_factor
  if type(s) == "table" then
    self.scale_factor = {}
    for i, v in ipairs(s) do
      self.scale_factor[i] = v + 0.0
    end
  elseif s then
    self.scale_factor = s + 0.0
  end
end

local function forward(self, input)
  return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
    self.recompute_scale_factor)
end

M.Upsample = layer("Upsample(size=None, scale_factor=None, mode='nearest', align_corners=None, "
  .. "recompute_scale_factor=None)", { repr = describe, forward = forward, build = as_floats })

for name, mode in pairs({ UpsamplingNearest2d = "nearest", UpsamplingBilinear2d = "bilinear" }) do
  M[name] = layer(name .. "(size=None, scale_factor=None)", {
    repr = describe,
    forward = forward,
    build = function(self)
      as_floats(self)
      self.mode = mode
      self.align_corners = mode == "bilinear" and true or nil
    end,
  })
end

M.Unfold = layer("Unfold(kernel_size, dilation=1, padding=0, stride=1)", {
  repr = "kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}",
  forward = function(self, input)
    return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
  end,
})

M.Fold = layer("Fold(output_size, kernel_size, dilation=1, padding=0, stride=1)", {
  repr = "output_size={output_size}, kernel_size={kernel_size}, dilation={dilation}, "
    .. "padding={padding}, stride={stride}",
  forward = function(self, input)
    return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding,
      self.stride)
  end,
})

return M
