--- Layers that take the number of input features from their first input: until
--- then they have no parameters, afterwards they are the ordinary layer. Run a
--- model of them once on the host before its optimizer is made.
local Module = require("torch.nn.module")
local check = require("lupine.base.check")
local conv = require("torch.nn.layers.conv")
local errors = require("lupine.base.errors")
local linear = require("torch.nn.layers.linear")
local norm = require("torch.nn.layers.norm")

local M = {}

-- `dim` of the input has what is the parent's first argument.
local function define(parent, dim)
  local name = "Lazy" .. parent.__name
  local cls = Module:extend(name)

  function cls:init(...)
    self._arguments = table.pack(...)
  end

  --- Becomes the ordinary layer for that input; harmless when it is already.
  function cls:initialize_parameters(input)
    errors.check(not Module.tracer, "RuntimeError",
      "%s: its parameters are made by the first input; call the model once on the host before it "
      .. "is compiled", name)
    local a, training = self._arguments, self.training
    local size = input:size(dim)
    self._arguments = nil
    setmetatable(self, parent)
    parent.init(self, size, table.unpack(a, 1, a.n))
    self:train(training)
  end

  function cls:forward(input, ...)
    errors.check(input:dim() >= 1, "ValueError", "%s: input: expected a Tensor with dimensions, "
      .. "got %s", name, check.describe(input))
    self:initialize_parameters(input)
    return self(input, ...)
  end

  --- True until the first input.
  function cls.has_uninitialized_params()
    return true
  end

  function cls.extra_repr()
    return "not initialized"
  end
  M[name] = cls
end

define(linear.Linear, -1)
for n = 1, 3 do
  local behind = -n - 1 -- channels stand before n spatial dimensions
  define(conv[("Conv%dd"):format(n)], behind)
  define(conv[("ConvTranspose%dd"):format(n)], behind)
  define(norm[("BatchNorm%dd"):format(n)], n == 1 and 1 or behind)
  define(norm[("InstanceNorm%dd"):format(n)], behind)
end

return M
