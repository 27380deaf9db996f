--- The module torch: tensors, operators, autograd, random numbers.
---
--- Operators come from the core's forms; what is no operator stands here or
--- in a file of its own. Sub-modules (torch.nn, torch.optim, …) load when
--- first named. Dimensions and tensor indices count from 0, Lua lists from 1.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local contraction = require("torch.contraction")
local defaults = require("torch.defaults")
local functional = require("torch.functional")
local grad_mode = require("torch.grad_mode")
local limits = require("torch.limits")
local methods = require("torch.methods")
local printing = require("torch.printing")
local sampled = require("torch.sampled")
local typed = require("torch.typed")
local windows = require("torch.windows")

require("lupine.base.suggest") -- for the host, which prints errors

local M = { errors = errors }

for name, fn in pairs(core.forms.functions) do
  M[name] = fn
end
for name, dtype in pairs(core.dtypes) do
  M[name] = dtype
end
for _, name in ipairs({
  "Size", "device", "slice", "none", "ellipsis",
  "tensor", "as_tensor", "frombuffer", "is_tensor",
  "is_grad_enabled", "is_anomaly_enabled", "manual_seed", "initial_seed", "seed", "Generator",
  "get_rng_state", "set_rng_state",
  "get_float32_matmul_precision", "set_float32_matmul_precision",
  "get_num_threads", "set_num_threads", "use_deterministic_algorithms",
  "are_deterministic_algorithms_enabled", "set_default_dtype", "get_default_dtype",
  "promote_types", "can_cast", "result_type", "memory",
}) do
  M[name] = core[name]
end
for _, module in ipairs({ contraction, defaults, functional, grad_mode, limits, sampled,
  windows, methods }) do
  for name, fn in pairs(module) do
    M[name] = fn
  end
end
M.set_printoptions = printing.set_printoptions
core.Tensor.__tostring = printing.format

M.special = require("lupine.base.namespace").close(core.forms.special, "torch.special")
M.linalg = require("torch.linalg")

--- The class of torch.float32 and its like: torch.dtype:is(x). There are no others
--- to make.
M.dtype = setmetatable({ __name = "torch.dtype", is = function(_, x)
  return debug.getmetatable(x) == debug.getmetatable(core.dtypes.float32)
end }, {
  __tostring = function()
    return "class torch.dtype"
  end,
})

--- torch.Tensor:is(x) is isinstance(x, torch.Tensor).
local of_default_type = typed.constructor("Tensor")
M.Tensor = setmetatable({ __name = "torch.Tensor" }, {
  __methods = core.methods,
  __call = function(_, ...)
    return of_default_type(...)
  end,
})
core.Tensor.__methods = core.methods -- for completion
function M.Tensor.is(_, x)
  return core.is_tensor(x)
end

for name, make in pairs(typed) do
  if name:find("Tensor$") then
    M[name] = make
  end
end

function core.methods.cuda()
  M.cuda()
end

M.asarray = core.as_tensor

--- Files of plain data: torch/serialization.lua.
---@param ... any as torch/serialization.lua's save
---@return nil
function M.save(...)
  return require("torch.serialization").save(...)
end
--- See save.
---@param ... any as torch/serialization.lua's load
---@return any
function M.load(...)
  return require("torch.serialization").load(...)
end

--- The version of PyTorch whose interface this is, and ours.
M.__version__ = "2.0.1+lupine-" .. core.version

-- Functions of torch.nn.functional that torch has under the same name.
local SHARED = { alpha_dropout = true, channel_shuffle = true, cosine_similarity = true,
  feature_alpha_dropout = true, pairwise_distance = true, rrelu = true }

-- Functions of torch.amp that torch has under the same name.
local AMP = { GradScaler = true, autocast = true, is_autocast_enabled = true,
  get_autocast_dtype = true, set_autocast_dtype = true }

return setmetatable(M, {
  __lazy = { nn = "torch.nn", optim = "torch.optim", utils = "torch.utils",
    autograd = "torch.autograd", testing = "torch.testing", amp = "torch.amp",
    ops = "torch.ops" },
  __index = function(t, name)
    if type(name) ~= "string" then
      return nil
    end
    if name:find("_$") and type(core.methods[name]) == "function" then
      return core.methods[name] -- torch.relu_(x) is x:relu_()
    end
    if AMP[name] then
      rawset(t, name, require("torch.amp")[name])
      return t[name]
    end
    if SHARED[name] then
      rawset(t, name, require("torch.nn.functional")[name])
      return t[name]
    end
    local module = "torch." .. name
    if not package.loaded[module] and not package.searchpath(module, package.path) then
      return require("lupine.base.namespace").unknown(t, name, "torch")
    end
    local value = require(module)
    rawset(t, name, value)
    return value
  end,
})
