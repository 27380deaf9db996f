--- torch.autograd: gradients as functions, grad modes. Custom functions
--- (torch.autograd.Function), checks (gradcheck, gradgradcheck) and
--- torch.autograd.functional load when first named.
local core = require("lupine.core")
local grad_mode = require("torch.grad_mode")
local namespace = require("lupine.base.namespace")

local M = {
  --- Adds the gradients of `tensors` to the leaves' .grad.
  backward = core.backward,
  --- grad(outputs, inputs, grad_outputs, retain_graph, create_graph,
  --- {allow_unused}): a list with a gradient for each input; torch.none for
  --- an unused one, if allowed.
  grad = core.grad,
  no_grad = grad_mode.no_grad,
  enable_grad = grad_mode.enable_grad,
  set_grad_enabled = grad_mode.set_grad_enabled,
  inference_mode = grad_mode.inference_mode,
}

local lazy = {
  gradcheck = "torch.autograd.gradcheck",
  gradgradcheck = "torch.autograd.gradcheck",
  Function = "torch.autograd.function",
  detect_anomaly = "torch.autograd.anomaly",
  set_detect_anomaly = "torch.autograd.anomaly",
  once_differentiable = "torch.autograd.function",
}

return setmetatable(M, {
  __index = function(t, name)
    if name ~= "functional" and not lazy[name] then
      return type(name) == "string" and namespace.unknown(t, name, "torch.autograd") or nil
    end
    local value = name == "functional" and require("torch.autograd.functional")
      or require(lazy[name])[name]
    rawset(t, name, value)
    return value
  end,
})
