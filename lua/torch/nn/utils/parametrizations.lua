--- torch.nn.utils.parametrizations: weight_norm, spectral_norm and orthogonal as
--- parametrizations (parametrize.lua), with PyTorch's names in state
--- dictionaries. (torch.nn.utils.weight_norm and spectral_norm are the older
--- ones, which compute the weight before a forward.)
--- Source: PyTorch documentation, torch.nn.utils.parametrizations.
local F = require("torch.nn.functional")
local Module = require("torch.nn.module")
local Orthogonal = require("torch.nn.utils.orthogonal")
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local parametrize = require("torch.nn.utils.parametrize")

local M = {}

local function torch()
  return require("torch")
end

local function tensor_of(module, name, where)
  errors.check(Module:is(module), "TypeError", "%s: expected a Module, got %s", where,
    check.describe(module))
  return errors.check(module[name], "ValueError", "Module '%s' has no parameter or buffer with "
    .. "name '%s'", module:_get_name(), tostring(name))
end

-- ---- length and direction ------------------------------------------------------

local WeightNorm = Module:extend("_WeightNorm")

function WeightNorm:init(dim)
  self.dim = dim
end

-- Norm over all dimensions but dim, which keeps its size; dim -1: over all.
function WeightNorm:norm(v)
  if self.dim == -1 then
    return v:norm()
  end
  local over = {}
  for d = 0, v:dim() - 1 do
    over[#over + 1] = d ~= self.dim and d or nil
  end
  return #over == 0 and v:abs() or v:pow(2):sum(over, { keepdim = true }):sqrt()
end

function WeightNorm:forward(g, v)
  return v * (g / self:norm(v))
end

function WeightNorm:right_inverse(weight)
  return self:norm(weight), weight:clone()
end

--- The weight as its length (original0) times its direction (that of original1)
--- (Salimans and Kingma, 2016). The length is taken over all dimensions but
--- `dim`; dim = torch.none takes one of all.
--- errors: TypeError, ValueError (no such tensor)
---@param module torch.nn.Module
---@param ... any name ("weight"), dim (0)
---@return torch.nn.Module the same
function M.weight_norm(module, ...)
  local a, given = check.arguments("weight_norm", { "module", "name", "dim" }, nil, module, ...)
  local name = check.string(a[2] or "weight", "weight_norm: name")
  local weight, dim = tensor_of(module, name, "weight_norm"), 0
  if given.dim then
    dim = check.is_none(a[3]) and -1 or check.int(a[3], "weight_norm: dim",
      { min = -weight:dim(), max = weight:dim() - 1 })
    dim = dim < -1 and dim % weight:dim() or dim
  end
  return parametrize.register_parametrization(module, name, WeightNorm(dim), { unsafe = true })
end

-- ---- the largest singular value --------------------------------------------------

local START = 15 -- steps of the power method from random vectors

local SpectralNorm = Module:extend("_SpectralNorm")

local function normalized(x, eps)
  return F.normalize(x, { dim = 0, eps = eps })
end

function SpectralNorm:init(weight, steps, eps, dim)
  self.n_power_iterations, self.eps, self.dim = steps, eps, dim
  if weight:dim() > 1 then
    local rows = self:matrix(weight:detach())
    local kind = { dtype = weight.dtype }
    self:register_buffer("_u", normalized(torch().randn({ rows:size(0) }, kind), eps))
    self:register_buffer("_v", normalized(torch().randn({ rows:size(1) }, kind), eps))
    self:improve(rows, START)
  end
end

-- The weight as rows along dim.
function SpectralNorm:matrix(weight)
  local x = self.dim == 0 and weight or weight:transpose(0, self.dim)
  return x:flatten(1)
end

-- Steps of the power method.
function SpectralNorm:improve(rows, steps)
  torch().no_grad(function()
    for _ = 1, steps do
      self._u:copy_(normalized(rows:mv(self._v), self.eps))
      self._v:copy_(normalized(rows:t():mv(self._u), self.eps))
    end
  end)
end

function SpectralNorm:forward(weight)
  if weight:dim() == 1 then
    return normalized(weight, self.eps)
  end
  local rows = self:matrix(weight)
  if self.training then
    self:improve(rows:detach(), self.n_power_iterations)
  end
  return weight / self._u:clone():dot(rows:mv(self._v:clone()))
end

function SpectralNorm.right_inverse(_, value)
  return value -- it may have any norm: forward divides by it
end

--- The weight divided by its largest singular value, which the power method
--- follows: n_power_iterations steps whenever the weight is read while training
--- (Miyato et al., 2018). A weight of one dimension is divided by its norm.
--- errors: TypeError, ValueError (no such tensor; no steps)
---@param module torch.nn.Module
---@param ... any name ("weight"), n_power_iterations (1), eps (1e-12), dim (0; 1 for
---        transposed convolutions)
---@return torch.nn.Module the same
function M.spectral_norm(module, ...)
  local a = check.arguments("spectral_norm",
    { "module", "name", "n_power_iterations", "eps", "dim" }, nil, module, ...)
  local name = check.string(a[2] or "weight", "spectral_norm: name")
  local weight = tensor_of(module, name, "spectral_norm")
  local steps = check.int(a[3] or 1, "spectral_norm: n_power_iterations", { min = 1 })
  local transposed = module:_get_name():find("ConvTranspose", 1, true)
  local dim = check.int(check.is_none(a[5]) and (transposed and 1 or 0) or a[5],
    "spectral_norm: dim", { min = -weight:dim(), max = weight:dim() - 1 }) % weight:dim()
  local eps = check.number(a[4] or 1e-12, "spectral_norm: eps")
  return parametrize.register_parametrization(module, name, SpectralNorm(weight, steps, eps, dim))
end

-- ---- orthonormal columns or rows ------------------------------------------------

local MAPS = { matrix_exp = true, cayley = true, householder = true }

--- The weight as a matrix, or a batch of them, with orthonormal columns (rows,
--- if it is wide). It starts from the weight itself if that is orthogonal, or
--- from its QR decomposition; without use_trivialization the maps matrix_exp
--- and cayley start from what they make of it.
--- errors: TypeError, ValueError (no such tensor, a vector, another map)
---@param module torch.nn.Module
---@param ... any name ("weight"), orthogonal_map ("matrix_exp", "cayley" or "householder";
---        default "matrix_exp" for a square weight, else "householder"), use_trivialization (true)
---@return torch.nn.Module the same
function M.orthogonal(module, ...)
  local a = check.arguments("orthogonal",
    { "module", "name", "orthogonal_map", "use_trivialization" }, nil, module, ...)
  local name = check.string(a[2] or "weight", "orthogonal: name")
  local weight = tensor_of(module, name, "orthogonal")
  errors.check(weight:dim() >= 2, "ValueError", "Expected a matrix or batch of matrices. Got a "
    .. "tensor of %d dimensions.", weight:dim())
  local map = not check.is_none(a[3]) and a[3]
    or weight:size(-2) == weight:size(-1) and "matrix_exp" or "householder"
  errors.check(MAPS[map], "ValueError", "orthogonal_map has to be one of \"matrix_exp\", "
    .. "\"cayley\", \"householder\". Got: %s", tostring(map))
  local use_base = check.bool(a[4] == nil or a[4], "orthogonal: use_trivialization")
  return parametrize.register_parametrization(module, name,
    Orthogonal(weight.shape, map, use_base), { unsafe = true })
end

return require("lupine.base.namespace").close(M, "torch.nn.utils.parametrizations")
