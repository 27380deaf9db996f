--- The orthogonal parametrization (parametrizations.lua): a matrix with
--- orthonormal columns, or rows if it is wide, made of a free matrix X by
--- one of three maps:
---   matrix_exp   exp(A), A = L - Lᵀ with the lower triangle L of X
---   cayley       (I - A/2)⁻¹ (I + A/2) with the same A
---   householder  the product of the reflections whose vectors stand below X's
---                diagonal; the diagonal holds signs
--- With a base B ("trivialization") the matrix is B times the map, and X starts
--- where the map is the identity (Lezcano-Casado, 2019).
--- Source: PyTorch documentation, torch.nn.utils.parametrizations.orthogonal.
local Module = require("torch.nn.module")
local errors = require("lupine.base.errors")

local Orthogonal = Module:extend("_Orthogonal")

local function torch()
  return require("torch")
end

--- The parametrization of one weight.
---@param shape torch.Size of the weight
---@param map string
---@param use_base boolean
function Orthogonal:init(shape, map, use_base)
  self.shape, self.map, self.use_base = shape, map, use_base
end

local function eye(n, like)
  return torch().eye(n, { dtype = like.dtype })
end

-- The square orthogonal matrix of a skew-symmetric one.
local MAPS = {
  matrix_exp = function(a)
    return torch().matrix_exp(a)
  end,
  cayley = function(a)
    local unit = eye(a:size(-1), a)
    return torch().linalg.solve(unit - a * 0.5, unit + a * 0.5)
  end,
}

-- [.., n, k], n >= k, with columns added up to n.
local function squared(x, rest)
  return x:size(-2) == x:size(-1) and x or torch().cat({ x, rest }, -1)
end

local function with_columns(x)
  local shape = { table.unpack(x.shape) }
  shape[#shape] = shape[#shape - 1] - shape[#shape]
  return shape
end

local function reflected(x)
  local a = x:tril(-1)
  local q = torch().linalg.householder_product(a, 2 / (1 + (a * a):sum(-2)))
  return q * x:diagonal(0, -2, -1):detach():trunc():unsqueeze(-2)
end

--- The orthogonal matrix of a free one.
---@param x torch.Tensor
---@return torch.Tensor
function Orthogonal:forward(x)
  local wide = x:size(-2) < x:size(-1)
  x = wide and x.mT or x
  local k = x:size(-1)
  local q
  if self.map == "householder" then
    q = reflected(x)
  else
    x = x:tril()
    x = squared(x, torch().zeros(with_columns(x), { dtype = x.dtype }))
    q = MAPS[self.map](x - x.mT):narrow(-1, 0, k)
  end
  q = self.use_base and self.base:matmul(q) or q
  return wide and q.mT or q
end

-- Householder's form of a tall matrix, R's diagonal made positive.
local function decomposed(q)
  local a, tau = torch().geqrf(q)
  return a, tau, a:diagonal(0, -2, -1):sign()
end

local function orthogonalised(q)
  local a, tau, sign = decomposed(q)
  return torch().linalg.householder_product(a, tau) * sign:unsqueeze(-2)
end

local function is_orthogonal(q)
  local eps = 10 * q:size(-2) * torch().finfo(q.dtype).eps
  return torch().allclose(q.mT:matmul(q), eye(q:size(-1), q), { atol = eps })
end

-- The X of the reflections that make q.
local function reflections(q)
  local a, tau, sign = decomposed(q)
  sign = torch().where(tau:eq(0), -sign, sign) -- there is no reflection
  a:diagonal(0, -2, -1):copy_(sign)
  return a
end

--- The X of a matrix, which becomes the base.
--- errors: ValueError for another shape, NotImplementedError where no inverse
--- is known: without a base only householder has one
---@param q torch.Tensor
---@return torch.Tensor
function Orthogonal:right_inverse(q)
  errors.check(q.shape == self.shape, "ValueError", "Expected a matrix or batch of matrices of "
    .. "shape %s. Got a tensor of shape %s.", tostring(self.shape), tostring(q.shape))
  errors.check(self.use_base or self.map == "householder", "NotImplementedError",
    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
    .. "use_trivialization=False.")
  return torch().no_grad(function()
    local wide, x = q:size(-2) < q:size(-1), torch().zeros_like(q)
    q = wide and q.mT or q
    if not self.use_base then
      local a = reflections(q)
      return wide and a.mT or a
    end
    local whole = squared(q, torch().randn(with_columns(q), { dtype = q.dtype }))
    local square = q:size(-2) == q:size(-1)
    self:register_buffer("base",
      square and is_orthogonal(whole) and whole:clone() or orthogonalised(whole))
    x:diagonal(0, -2, -1):fill_(-1) -- the reflections of nothing
    return x
  end)
end

return Orthogonal
