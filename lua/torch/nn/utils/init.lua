--- torch.nn.utils: gradient clipping, parameters as one vector, computed weights
--- (reparameterize.lua, parametrize.lua), weights held at 0 (prune.lua), layers
--- with the normalization behind them (fusion.lua),
--- sequences of different lengths (rnn.lua).
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")

local M = {}

-- The parameters of a tensor, a list or an iterator.
local function list_of(parameters)
  errors.check(not class.of(parameters) or core.is_tensor(parameters[1]), "TypeError",
    "parameters: expected a Tensor, a list or an iterator of Tensors, got %s; did you mean its "
    .. "parameters()?", check.describe(parameters))
  if core.is_tensor(parameters) then
    return { parameters }
  elseif type(parameters) == "function" then
    local out = {}
    for a, b in parameters do
      out[#out + 1] = b == nil and a or b
    end
    return out
  end
  check.dense(check.table(parameters, "parameters"), "parameters")
  for i, p in ipairs(parameters) do
    errors.check(core.is_tensor(p), "TypeError",
      "parameters, element %d: expected a Tensor, got %s",
      i, check.describe(p))
  end
  return parameters
end

local function gradients(parameters)
  local out = {}
  for _, p in ipairs(list_of(parameters)) do
    out[#out + 1] = p.grad
  end
  return out
end

-- norm_type may be text, "inf" or "2", as for Python's float().
local function total_norm(list, norm_type, error_if_nonfinite)
  local torch = require("torch")
  local order = norm_type == "inf" and math.huge or tonumber(norm_type)
  errors.check(order, "ValueError", "norm_type: a number or 'inf' is needed, got %s",
    check.describe(norm_type))
  local norms = {}
  for i, t in ipairs(list) do
    norms[i] = t:detach():norm(order)
  end
  local norm = #norms > 0 and torch.stack(norms):norm(order) or torch.tensor(0.0)
  if error_if_nonfinite then
    errors.check(norm:isfinite():item(), "RuntimeError",
      "The total norm of order %s for gradients from `parameters` is non-finite, so it cannot be "
      .. "clipped. To disable this error and scale the gradients by the non-finite norm anyway, "
      .. "set `error_if_nonfinite=False`", tostring(norm_type))
  end
  return norm
end

local function scale(list, max_norm, norm)
  local factor = (max_norm / (norm + 1e-6)):clamp_max(1)
  for _, g in ipairs(list) do
    g:mul_(factor:to(g.dtype))
  end
end

local function define(sig, fn)
  local parsed = signature(sig)
  M[parsed.name] = function(...)
    local a = parsed:list(...)
    return require("torch").no_grad(function()
      return fn(table.unpack(a, 1, a.n))
    end)
  end
end

--- Norm of all tensors as one vector.
define("get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None)",
  function(tensors, norm_type, error_if_nonfinite)
    return total_norm(list_of(tensors), norm_type, error_if_nonfinite)
  end)

--- Scales the gradients so that their norm, as one vector, is at most
--- max_norm. Returns the norm they had.
define("clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, "
  .. "foreach=None)", function(parameters, max_norm, norm_type, error_if_nonfinite)
  local list = gradients(parameters)
  local norm = total_norm(list, norm_type, error_if_nonfinite)
  scale(list, max_norm, norm)
  return norm
end)

--- Scales the gradients for a norm that is known.
define("clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None)",
  function(parameters, max_norm, norm)
    scale(gradients(parameters), max_norm, norm)
  end)

--- Clamps every gradient to ±clip_value.
define("clip_grad_value_(parameters, clip_value, foreach=None)", function(parameters, clip_value)
  for _, g in ipairs(gradients(parameters)) do
    g:clamp_(-clip_value, clip_value)
  end
end)

--- All parameters in one row.
--- Source: PyTorch documentation, nn.utils.parameters_to_vector
---@param parameters torch.Tensor|torch.Tensor[]|function a tensor, a list or an iterator
---@return torch.Tensor [the number of elements of all]
function M.parameters_to_vector(parameters)
  local flat = {}
  for i, p in ipairs(list_of(parameters)) do
    flat[i] = p:reshape({ -1 })
  end
  return require("torch").cat(flat)
end

--- The reverse: the row's parts become the parameters' values.
define("vector_to_parameters(vec, parameters)", function(vec, parameters)
  errors.check(core.is_tensor(vec), "TypeError", "vector_to_parameters: vec: expected a Tensor, "
    .. "got %s", check.describe(vec))
  local at = 0
  for _, p in ipairs(list_of(parameters)) do
    p:copy_(vec:narrow(0, at, p:numel()):reshape(p.shape))
    at = at + p:numel()
  end
end)

for _, file in ipairs({ "reparameterize", "fusion" }) do
  for name, fn in pairs(require("torch.nn.utils." .. file)) do
    M[name] = fn
  end
end

--- A module whose parameters are undefined: their starting values, which would
--- be overwritten, are not drawn.
--- Source: PyTorch documentation, nn.utils.skip_init
---@param module_cls table a class whose constructor takes `device`
---@param ... any the constructor's arguments
---@return torch.nn.Module
function M.skip_init(module_cls, ...)
  errors.check(class.is_class(module_cls), "RuntimeError", "skip_init: expected a Module, got %s",
    check.describe(module_cls))
  local args = table.pack(...)
  local by_name = {}
  if args.n > 0 and check.is_keywords(args[args.n]) then
    for name, value in pairs(args[args.n]) do
      by_name[name] = value
    end
    args.n = args.n - 1
  end
  local device = by_name.device or "cpu"
  by_name.device = "meta"
  args[args.n + 1] = by_name
  return module_cls(table.unpack(args, 1, args.n + 1)):to_empty({ device = device })
end

M.rnn = require("torch.nn.utils.rnn")
M.parametrize = require("torch.nn.utils.parametrize")
M.parametrizations = require("torch.nn.utils.parametrizations")
M.prune = require("torch.nn.utils.prune")

return require("lupine.base.namespace").close(M, "torch.nn.utils")
