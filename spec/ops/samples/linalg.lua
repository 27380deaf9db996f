-- Samples of linear algebra. LAPACK's operators are of float32 and float64.
local make = require("spec.ops.samples.make")
local torch = require("torch")
local x, y, f, v = make.x, make.y, make.f, make.v
local none = torch.none

local LOOSE = "float32 and float64 alone"
local TRIANGLE = "one triangle is read, the gradient is of both"

-- A sample of LAPACK's.
local function s(sample)
  sample.loose = LOOSE
  return sample
end

local SQUARE = { { 2, -0.3, 0.5 }, { 0.4, 1.5, -0.6 }, { -0.7, 0.2, 1.8 } }
local OTHER = { { 1.2, 0.5, -0.9 }, { -0.4, -1.6, 0.3 }, { 0.1, 0.8, 2.1 } }
local TALL = { { 1.3, 0.2 }, { -0.5, 1.1 }, { 0.7, 0.9 } }
local WIDE = { { 1.3, 0.2, -0.4 }, { -0.5, 1.1, 0.6 } }
local LOWER = { { 1.5, 0, 0 }, { 0.4, 1.2, 0 }, { -0.3, 0.6, 1.7 } }
local SYMMETRIC = { { 3, 0.5, -0.2 }, { 0.5, 2, 0.3 }, { -0.2, 0.3, 1 } }

local function batch(...)
  return f{ ... }
end

return {
  einsum = { { "ij,jk->ik", { x{ 2, 3 }, y{ 3, 2 } } }, { "bij,bjk,k->bi", { x{ 2, 2, 3 },
    y{ 2, 3, 2 }, x{ 2 } } }, { "...ii->...i", { x{ 2, 3, 3 } } }, { "i...,j->...j", { x{ 2, 3 },
    y{ 2 } } }, { "ij", { x{ 2, 3 } } } },
  tensordot = { { x{ 2, 3, 2 }, y{ 3, 2, 2 } }, { x{ 2, 2 }, y{ 3 }, kw = { dims = 0 } } },
  tensordot_lists = { { x{ 2, 3, 4 }, y{ 4, 3 }, { 1, 2 }, { 1, 0 } } },

  dist = { { x{ 2, 3 }, y{ 3 } }, { x{ 2, 3 }, y{ 2, 3 }, 3 } },
  cdist = { { x{ 2, 3 }, y{ 4, 3 }, loose = LOOSE }, { x{ 2, 2, 3 }, y{ 4, 3 }, 1.5,
    loose = LOOSE }, { x{ 2, 3 }, y{ 4, 3 }, 2.0, "use_mm_for_euclid_dist", loose = LOOSE } },
  pdist = { { x{ 4, 3 } }, { x{ 3, 2 }, 3.0 } },

  multi_dot = { { { x{ 2, 3 }, y{ 3, 4 }, x{ 4, 2 } } }, { { x{ 3 }, y{ 3, 2 }, x{ 2 } } } },
  chain_matmul = { { { x{ 2, 3 }, y{ 3, 2 }, x{ 2, 2 } } } },
  vander = { { x{ 3 } }, { x{ 3 }, 4, true } },
  vander_rows = { { x{ 2, 3 } }, { x{ 3 }, kw = { N = 2 } } },

  lu_factor_ex = { s{ f(SQUARE) }, s{ f(TALL) }, s{ f(WIDE) } },
  lu_matrix = { s{ v({ 2, 3, 3 }, "int32"), 3, torch.float32 } },
  lu_unpack = { s{ f(SQUARE), v({ 2, 3, 3 }, "int32") }, s{ f(TALL), v({ 2, 3 }, "int32") } },
  lu_parts = { s{ f(SQUARE) }, s{ f(WIDE) } },
  lu_solve = { s{ f(SQUARE), v({ 2, 3, 3 }, "int32"), x{ 3, 2 } },
    s{ f(SQUARE), v({ 2, 3, 3 }, "int32"), x{ 2, 3 }, false, true } },
  cholesky_ex = { s{ f(SYMMETRIC), kink = TRIANGLE }, s{ f(SYMMETRIC), true, kink = TRIANGLE } },
  cholesky_solve_matrix = { s{ f(LOWER), x{ 3, 2 }, kink = TRIANGLE } },
  cholesky_inverse = { s{ f(LOWER), kink = TRIANGLE } },
  cholesky_solve = { s{ x{ 3, 2 }, f(LOWER), kink = TRIANGLE } },
  ldl_factor_ex = { s{ f(SYMMETRIC) } },
  ldl_solve = { s{ f(SYMMETRIC), v({ 1, 2, 3 }, "int32"), x{ 2, 3, 2 } } },
  ldl_solve_matrix = { s{ f(SYMMETRIC), v({ 1, 2, 3 }, "int32"), x{ 3, 2 } } },

  qr = { s{ f(SQUARE) }, s{ f(TALL) }, s{ f(WIDE) }, s{ batch(SQUARE, OTHER), "complete" } },
  geqrf = { s{ f(TALL) } },
  householder_product = { s{ f(TALL), f{ 1.2, 0.7 } } },
  ormqr = { s{ f(TALL), f{ 1.2, 0.7 }, x{ 3, 2 } }, s{ f(TALL), f{ 1.2, 0.7 }, x{ 2, 3 }, false,
    true } },

  solve_matrix = { s{ f(SQUARE), x{ 3, 2 }, only = 1 } },
  solve_turned = { s{ f(SQUARE), f(OTHER), v({ 2, 3, 3 }, "int32"), x{ 3, 2 },
    kink = "the factors are constants here" } },
  inverse_matrix = { s{ f(SQUARE) }, s{ batch(SQUARE, OTHER) } },
  triangular = { s{ f(SQUARE), x{ 3, 2 }, true }, s{ f(SQUARE), x{ 2, 3 }, false, false, true } },
  solve_triangular = { s{ batch(SQUARE, OTHER), x{ 3, 2 }, false } },
  triangular_solve = { s{ x{ 3, 2 }, f(SQUARE), true, true } },
  solve_ex = { s{ f(SQUARE), x{ 3 } }, s{ batch(SQUARE, OTHER), x{ 3, 2 } },
    s{ f(SQUARE), x{ 2, 3 }, false } },
  inv_ex = { s{ f(SQUARE) }, s{ batch(SQUARE, OTHER) } },
  det = { s{ f(SQUARE) }, s{ batch(SQUARE, OTHER) } },
  cofactor = { s{ f(OTHER) } },
  slogdet = { s{ f(SQUARE) }, s{ batch(SQUARE, OTHER) } },
  logdet = { s{ f(SQUARE) } },
  matrix_power = { { f(SQUARE), 3 }, s{ f(SQUARE), -2 }, { f(SQUARE), 0 } },
  tensorinv = { s{ f{ { { 2, 0.3 }, { -0.4, 0.6 } }, { { 0.2, 0.5 }, { 1.4, -0.1 } },
    { { -0.3, 1.9 }, { 0.7, 0.2 } }, { { 0.6, -0.8 }, { 0.1, 2.2 } } }, 1 } },
  tensorsolve = { s{ f(SQUARE), x{ 3 } } },
  lstsq_matrix = { s{ f(TALL), x{ 3, 2 }, "gelsd", none, only = 1 },
    s{ f(WIDE), x{ 2, 2 }, "gels", none } },
  lstsq_residuals = { s{ x{ 2 }, v({ 2 }), 2, whole = true } },
  lstsq = { s{ f(TALL), x{ 3, 2 } }, s{ f(TALL), x{ 3, 1 }, none, "gels" },
    s{ f(SQUARE), x{ 3 }, none, "gelss", only = 2 } },

  svd = { s{ f(SQUARE) }, s{ f(TALL), false }, s{ f(WIDE), false } },
  svd_old = { s{ f(TALL) } },
  svdvals = { s{ f(TALL) }, s{ batch(SQUARE, OTHER) } },
  eigh = { s{ f(SYMMETRIC), kink = TRIANGLE } },
  eigvalsh = { s{ f(SYMMETRIC), "U", kink = TRIANGLE } },
  pinv_matrix = { s{ f(TALL), none, none } },
  pinv = { s{ f(WIDE) }, s{ f(TALL), 0.01, 0.01 } },
  matrix_rank = { s{ f(SQUARE) }, s{ f(SQUARE), 0.5 }, s{ f(SYMMETRIC), none, 0.5, true } },
  matrix_exp = { s{ f(SQUARE) }, s{ batch(SQUARE, OTHER) } },

  matrix_norm = { s{ x{ 2, 3 }, 1 }, s{ f(TALL), 2 } },
  matrix_norm_named = { s{ x{ 2, 3, 2 } }, s{ f(TALL), "nuc" } },
  linalg_norm = { s{ x{ 2, 3 } }, s{ f(SQUARE), -2 }, { x{ 2, 3 }, 3, 1 } },
  linalg_norm_named = { s{ f(WIDE), "nuc" } },
  cond = { s{ f(TALL) }, s{ f(SQUARE), 1 } },
  cond_named = { s{ f(SQUARE), "fro" } },
}
