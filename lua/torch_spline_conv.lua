--- The functions of PyTorch Geometric's package torch_spline_conv that PopTorch
--- runs: products of B-spline bases as weights of a continuous kernel.
--- Source: Fey, Lenssen, Weichert and Müller, "SplineCNN" (2018), section 3;
--- PopTorch user guide, "Supported operations", PyTorch Geometric.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- The pieces of the uniform B-spline of a degree, of the fraction v.
local PIECES = {
  [0] = { -- the cell itself
    function(v) return (v * 0 + 1):detach() end,
  },
  {
    function(v) return 1 - v end,
    function(v) return v end,
  },
  {
    function(v) return 0.5 * v * v - v + 0.5 end,
    function(v) return -v * v + v + 0.5 end,
    function(v) return 0.5 * v * v end,
  },
  {
    function(v) return (1 - v) * (1 - v) * (1 - v) / 6 end,
    function(v) return (3 * v * v * v - 6 * v * v + 4) / 6 end,
    function(v) return (-3 * v * v * v + 3 * v * v + 3 * v + 1) / 6 end,
    function(v) return v * v * v / 6 end,
  },
}

local function vector(t, n, where)
  errors.check(core.is_tensor(t) and t:dim() == 1 and t:size(0) == n, "ValueError",
    "spline_basis: %s: expected a Tensor of %d elements, got %s", where, n,
    core.is_tensor(t) and tostring(t.shape) or check.describe(t))
  return t
end

--- The same of operands that are checked; the kernel's sizes may be values that only a
--- run of a program knows, and the degree 0.
---@param pseudo torch.Tensor
---@param kernel_size torch.Tensor
---@param is_open_spline torch.Tensor
---@param degree integer
---@return torch.Tensor basis
---@return torch.Tensor weight_index
function M._basis(pseudo, kernel_size, is_open_spline, degree)
  local torch = require("torch")
  local dims = pseudo:size(1)
  local sizes = kernel_size:to(torch.int64)
  local spans = sizes - is_open_spline:ne(0):to(torch.int64) * degree
  local bases, places = {}, {}
  for s = 0, (degree + 1) ^ dims - 1 do
    local rest, offset, b, at = math.tointeger(s), 1, nil, nil
    for d = 0, dims - 1 do
      local piece = rest % (degree + 1)
      rest = rest // (degree + 1)
      local v = pseudo:select(1, d) * spans:select(0, d):to(pseudo.dtype)
      local whole = v:detach():floor()
      local size = sizes:select(0, d)
      local place = (whole:to(torch.int64) + piece) % size * offset
      local value = PIECES[degree][piece + 1](v - whole)
      b, at = b and b * value or value, at and at + place or place
      offset = size * offset
    end
    bases[s + 1], places[s + 1] = b, at
  end
  return torch.stack(bases, 1), torch.stack(places, 1)
end

--- The values and the kernel places of the products of bases that are not zero.
---@param pseudo torch.Tensor [edges, dims], coordinates in 0 … 1
---@param kernel_size torch.Tensor [dims] int64
---@param is_open_spline torch.Tensor [dims] uint8: 1 open, 0 closed (periodic)
---@param degree? integer 1, 2 or 3; 1 unless given
---@return torch.Tensor basis [edges, (degree + 1)^dims]
---@return torch.Tensor weight_index int64, the same shape
function M.spline_basis(pseudo, kernel_size, is_open_spline, degree)
  errors.check(core.is_tensor(pseudo) and pseudo:dim() == 2 and pseudo:is_floating_point(),
    "ValueError", "spline_basis: pseudo: expected a floating Tensor [edges, dims]")
  degree = check.int(degree or 1, "spline_basis: degree", { min = 1, max = 3 })
  local dims = pseudo:size(1)
  return M._basis(pseudo, vector(kernel_size, dims, "kernel_size"),
    vector(is_open_spline, dims, "is_open_spline"), degree)
end

--- The features x of each edge times the kernel at its coordinates:
--- out[e] = sum over s of basis[e, s] * (x[e] @ weight[weight_index[e, s]]).
---@param x torch.Tensor [edges, in]
---@param weight torch.Tensor [kernel, in, out]
---@param basis torch.Tensor [edges, s]
---@param weight_index torch.Tensor int64 [edges, s]
---@return torch.Tensor [edges, out]
function M.spline_weighting(x, weight, basis, weight_index)
  for name, t in pairs({ x = x, weight = weight, basis = basis, weight_index = weight_index }) do
    errors.check(core.is_tensor(t) and t:dim() == (name == "weight" and 3 or 2), "ValueError",
      "spline_weighting: %s: expected a Tensor of %d dimensions, got %s", name,
      name == "weight" and 3 or 2, core.is_tensor(t) and tostring(t.shape) or check.describe(t))
  end
  local edges, s = basis:size(0), basis:size(1)
  local n, out = weight:size(1), weight:size(2)
  local kernels = weight:index_select(0, weight_index:flatten()):reshape({ edges, s, n, out })
  local scaled = basis:unsqueeze(-1) * x:unsqueeze(1) -- [edges, s, in]
  return scaled:reshape({ edges, 1, s * n }):bmm(kernels:reshape({ edges, s * n, out })):squeeze(1)
end

return M
