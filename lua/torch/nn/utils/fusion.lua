--- Normalization of a batch folded into the layer before it, for evaluation:
--- y = (w x + b - mean) / sqrt(var + eps) * gamma + beta is a layer of its own.
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")

local M = {}

local function torch()
  return require("torch")
end

local function define(sig, fn)
  local parsed = signature(sig)
  M[parsed.name] = function(...)
    local a = parsed:list(...)
    return fn(table.unpack(a, 1, a.n))
  end
  require("lupine.base.signatures").note(M[parsed.name], sig)
end

-- Parameters for a factor of each output, whose weights lie along `dim`.
local function folded(dim, w, b, mean, var, eps, gamma, beta)
  local t = torch()
  return t.no_grad(function()
    local scale = (var + eps):rsqrt() * (gamma or t.ones_like(mean))
    local shape = {}
    for d = 1, w:dim() do
      shape[d] = d == dim and -1 or 1
    end
    local bias = ((b or t.zeros_like(mean)) - mean) * scale + (beta or t.zeros_like(mean))
    local Parameter = t.nn.Parameter
    return Parameter((w * scale:reshape(shape)):to(w.dtype), w.requires_grad),
      Parameter(bias:to((b or w).dtype), not b or b.requires_grad)
  end)
end

local function ready(layer, bn)
  errors.check(not layer.training and not bn.training, "AssertionError", "Fusion only for eval!")
  errors.check(bn.running_mean and bn.running_var, "AssertionError",
    "bn.running_mean and bn.running_var must not be None")
end

--- The weight and the bias of a convolution that normalizes; transpose: of a
--- transposed one.
define("fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False)",
  function(w, b, mean, var, eps, gamma, beta, transpose)
    return folded(transpose and 2 or 1, w, b, mean, var, eps, gamma, beta)
  end)

--- A copy of the convolution that normalizes, too.
define("fuse_conv_bn_eval(conv, bn, transpose=False)", function(conv, bn, transpose)
  ready(conv, bn)
  local fused = conv:deepcopy()
  fused.weight, fused.bias = M.fuse_conv_bn_weights(fused.weight, fused.bias or torch().none,
    bn.running_mean, bn.running_var, bn.eps, bn.weight or torch().none, bn.bias or torch().none,
    transpose)
  return fused
end)

--- The same of a linear layer.
define("fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)",
  function(w, b, mean, var, eps, gamma, beta)
    return folded(1, w, b, mean, var, eps, gamma, beta)
  end)

define("fuse_linear_bn_eval(linear, bn)", function(linear, bn)
  ready(linear, bn)
  errors.check(linear.out_features == bn.num_features or bn.num_features == 1, "AssertionError",
    "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
    .. "linear.out_features=%d and bn.num_features=%d", linear.out_features, bn.num_features)
  local fused = linear:deepcopy()
  fused.weight, fused.bias = M.fuse_linear_bn_weights(fused.weight, fused.bias or torch().none,
    bn.running_mean, bn.running_var, bn.eps, bn.weight or torch().none, bn.bias or torch().none)
  return fused
end)

return M
