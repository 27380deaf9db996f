--- torch.nn.parameter: Parameter, a tensor that a module registers when it is
--- assigned to a field.
local check = require("lupine.base.check")
local core = require("lupine.core")
local namespace = require("lupine.base.namespace")
local signatures = require("lupine.base.signatures")

--- Parameter(data, requires_grad = true); Parameter:is(x).
--- A tensor that a module registers as its own when it is assigned to a field.
---@overload fun(data: torch.Tensor, requires_grad: boolean?): torch.Tensor
local Parameter = { __name = "torch.nn.Parameter" }

--- Whether a value is a parameter.
---@param _ table the class
---@param x any
---@return boolean
function Parameter.is(_, x)
  return core.is_parameter(x)
end

setmetatable(Parameter, {
  __call = function(_, ...)
    local a = check.arguments("Parameter", { "data", "requires_grad" }, nil, ...)
    return core.parameter(a[1] or core.tensor({}), a[2])
  end,
  __tostring = function()
    return "class torch.nn.Parameter"
  end,
})

signatures.note(Parameter, "Parameter(data=None, requires_grad=True)", 1)

return namespace.close({ Parameter = Parameter }, "torch.nn.parameter")
