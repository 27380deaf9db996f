--- How layers make their parameters and start them.
local core = require("lupine.core")
local init = require("torch.nn.init")

local M = {}

--- An undefined parameter of a shape; `a` may name dtype and device.
---@param shape integer[]
---@param a {dtype: torch.dtype?, device: any} a layer's arguments
---@return torch.nn.Parameter
function M.parameter(shape, a)
  local t = require("torch").empty(shape, { dtype = a.dtype, device = a.device })
  return core.parameter(t, true)
end

--- The parameter `weight`, undefined.
---@param self torch.nn.Module
---@param shape integer[]
---@param a {dtype: torch.dtype?, device: any} a layer's arguments
function M.weight(self, shape, a)
  self.weight = M.parameter(shape, a)
end

--- A bias, or the name alone without one.
---@param self torch.nn.Module
---@param shape integer[]
---@param a {bias: boolean?, dtype: torch.dtype?, device: any} a layer's arguments
function M.bias(self, shape, a)
  self:register_parameter("bias", a.bias and M.parameter(shape, a) or nil)
end

--- Uniform in ±bound, in all parameters given (nil is skipped).
---@param bound number
---@param ... torch.nn.Parameter?
function M.uniform(bound, ...)
  for i = 1, select("#", ...) do
    local p = (select(i, ...))
    if p then
      init.uniform_(p, -bound, bound)
    end
  end
end

--- The start of Linear and of convolutions: weight and bias uniform in
--- ±1/sqrt(fan_in) (kaiming_uniform with a = sqrt(5)).
function M.reset(self)
  init.kaiming_uniform_(self.weight, { a = math.sqrt(5) })
  if self.bias then
    local fan_in = init._calculate_fan_in_and_fan_out(self.weight)
    if fan_in > 0 then
      M.uniform(1 / math.sqrt(fan_in), self.bias)
    end
  end
end

return M
