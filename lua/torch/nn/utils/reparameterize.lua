--- torch.nn.utils.weight_norm and spectral_norm: a layer's weight computed from
--- other parameters before every forward, so that it trains through them.
local F = require("torch.nn.functional")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")

local M = {}

--- A pre-hook that computes a parameter of its module from others; what it is made
--- of is plain data, so that files of modules have it.
---@class torch.nn.utils.reparameterize.Computed
---@field name string the parameter
local Computed = class.new("Computed")
classes.note_data(Computed)

function Computed:__call(module)
  module[self.name] = self:compute(module)
end

local function parameter_of(module, name, where)
  local p = module._parameters.values[name]
  errors.check(p, "AttributeError", "%s: the module has no parameter '%s'", where, name)
  return p
end

-- The hook that computes a parameter, and its place.
local function hook_of(module, name)
  for i, entry in ipairs(rawget(module, "_pre_hooks") or {}) do
    if Computed:is(entry.fn) and entry.fn.name == name then
      return entry.fn, i
    end
  end
  return nil
end

-- What hook:compute(module) gives stands in the parameter's place.
local function replace(module, hook, where)
  errors.check(not hook_of(module, hook.name), "RuntimeError", "%s: parameter '%s' is computed "
    .. "already", where, hook.name)
  module._parameters:remove(hook.name)
  hook(module)
  module:register_forward_pre_hook(hook)
end

local function restore(module, name, cls, where)
  local hook, at = hook_of(module, name)
  errors.check(cls:is(hook), "ValueError", "%s of '%s' not found in %s", where, name,
    check.describe(module))
  local value = hook:compute(module):detach():clone()
  table.remove(rawget(module, "_pre_hooks"), at)
  module[name] = nil
  return value
end

-- Norm over all dimensions but `dim`, which keeps its size; of all if nil.
local function norm_except(v, dim)
  if not dim then
    return v:norm()
  end
  local over = {}
  for d = 0, v:dim() - 1 do
    if d ~= dim then
      over[#over + 1] = d
    end
  end
  return #over == 0 and v:abs() or v:pow(2):sum(over, { keepdim = true }):sqrt()
end

local function dim_of(value)
  if check.is_none(value) then
    return nil
  end
  value = check.int(value, "weight_norm: dim", { min = -1 })
  return value >= 0 and value or nil
end

local WeightNorm = Computed:extend("WeightNorm")

function WeightNorm:init(name, dim)
  self.name, self.dim = name, dim
end

function WeightNorm:compute(module)
  local v = module[self.name .. "_v"]
  return v * (module[self.name .. "_g"] / norm_except(v, self.dim))
end

--- The weight as its direction and its length: weight = g v / |v|, with the
--- parameters NAME_g and NAME_v (Salimans and Kingma, 2016). The norm is taken
--- over all dimensions but `dim`; dim = -1 takes one norm of all.
---@param module torch.nn.Module
---@param ... any name = "weight", dim = 0
---@return torch.nn.Module the same
function M.weight_norm(module, ...)
  local a, given = check.arguments("weight_norm", { "module", "name", "dim" }, nil, module, ...)
  local name = check.string(a[2] or "weight", "weight_norm: name")
  local dim = 0
  if given.dim then
    dim = dim_of(a[3])
  end
  local torch = require("torch")
  local w = parameter_of(module, name, "weight_norm")
  module[name .. "_g"] = torch.nn.Parameter(norm_except(w:detach(), dim))
  module[name .. "_v"] = torch.nn.Parameter(w:detach():clone())
  replace(module, WeightNorm(name, dim), "weight_norm")
  return module
end

--- Makes the weight a parameter again, with the value it has.
---@param module torch.nn.Module
---@param name? string "weight" unless given
---@return torch.nn.Module the same
function M.remove_weight_norm(module, name)
  name = name or "weight"
  local value = restore(module, name, WeightNorm, "weight_norm")
  module._parameters:remove(name .. "_g")
  module._parameters:remove(name .. "_v")
  module[name] = require("torch").nn.Parameter(value)
  return module
end

local SpectralNorm = Computed:extend("SpectralNorm")

function SpectralNorm:init(name, steps, eps, dim)
  self.name, self.steps, self.eps, self.dim = name, steps, eps, dim
end

local function matrix(x, dim)
  return (dim == 0 and x or x:transpose(0, dim)):reshape({ x:size(dim), -1 })
end

function SpectralNorm:compute(module)
  local weight = module[self.name .. "_orig"]
  local mat, u, v = matrix(weight, self.dim), module[self.name .. "_u"], module[self.name .. "_v"]
  if module.training then
    local fixed, how = mat:detach(), { dim = 0, eps = self.eps }
    for _ = 1, self.steps do
      v:copy_(F.normalize(fixed:t():mv(u), how))
      u:copy_(F.normalize(fixed:mv(v), how))
    end
    u, v = u:clone(), v:clone()
  end
  return weight / u:dot(mat:mv(v))
end

--- The weight divided by its largest singular value, which the power method
--- keeps an eye on: n_power_iterations steps in every forward while training
--- (Miyato et al., 2018). NAME_orig is the parameter, NAME_u and NAME_v are
--- buffers.
---@param module torch.nn.Module
---@param ... any name = "weight", n_power_iterations = 1, eps = 1e-12, dim = 0
---        (1 for transposed convolutions)
---@return torch.nn.Module the same
function M.spectral_norm(module, ...)
  local a = check.arguments("spectral_norm",
    { "module", "name", "n_power_iterations", "eps", "dim" }, nil, module, ...)
  local torch = require("torch")
  local name = check.string(a[2] or "weight", "spectral_norm: name")
  local steps = check.int(a[3] or 1, "spectral_norm: n_power_iterations", { min = 1 })
  local eps = check.number(a[4] or 1e-12, "spectral_norm: eps")
  local transposed = module.transposed or (getmetatable(module).__name or ""):find("Transpose")
  local dim = check.int(a[5] or (transposed and 1 or 0), "spectral_norm: dim", { min = 0 })
  local w = parameter_of(module, name, "spectral_norm")
  local flat = matrix(w:detach(), dim)
  module[name .. "_orig"] = torch.nn.Parameter(w:detach():clone())
  module:register_buffer(name .. "_u", F.normalize(torch.randn({ flat:size(0) }), { dim = 0,
    eps = eps }))
  module:register_buffer(name .. "_v", F.normalize(torch.randn({ flat:size(1) }), { dim = 0,
    eps = eps }))
  replace(module, SpectralNorm(name, steps, eps, dim), "spectral_norm")
  return module
end

--- Makes the weight a parameter again, with the value it has.
---@param module torch.nn.Module
---@param name? string "weight" unless given
---@return torch.nn.Module the same
function M.remove_spectral_norm(module, name)
  name = name or "weight"
  local training = module.training
  module.training = false
  local value = restore(module, name, SpectralNorm, "spectral_norm")
  module.training = training
  module._parameters:remove(name .. "_orig")
  module._buffers:remove(name .. "_u")
  module._buffers:remove(name .. "_v")
  module[name] = require("torch").nn.Parameter(value)
  return module
end

classes.space("torch.nn.utils.reparameterize", { WeightNorm = WeightNorm,
  SpectralNorm = SpectralNorm })

return M
