-- Samples of reductions and of operators along a dimension.
local make = require("spec.ops.samples.make")
local torch = require("torch")
local x, f, b, v = make.x, make.f, make.b, make.v

local positions = "positions do not move"

return {
  sum = { { x{ 2, 3 } }, { x{ 2, 3 }, 1, true }, { x{ 2, 3, 2 }, { 0, -1 } }, { b{ 4 } },
    { x{ 2, 3 }, 0, kw = { dtype = torch.float64 } } },
  mean = { { x{ 2, 3 } }, { x{ 2, 3 }, { -1 }, true } },
  prod = { { x({ 2, 3 }, 0.5, 2) }, { x{ 2, 3 }, 1 }, { f{ { 0, 2 }, { 3, 4 } }, 0, true } },
  amax = { { x{ 2, 3 } }, { x{ 2, 3, 2 }, { 0, 2 } } },
  amin = { { x{ 2, 3 } }, { x{ 2, 3 }, 1, true } },
  any = { { b{ 2, 3 } }, { b{ 2, 3 }, 1 }, { x{ 2, 3 }, 0, true } },
  all = { { b{ 2, 3 } }, { b{ 2, 3 }, 0 } },
  count_nonzero = { { f{ 0, 1, 0, 2 } }, { f{ { 0, 1 }, { 0, 0 } }, 1 } },
  logsumexp = { { x{ 2, 3 }, 1 }, { x{ 2, 3 }, { 0, 1 }, true } },
  vector_norm = { { x{ 2, 3 } }, { x{ 2, 3 }, { 1 }, true, 3 }, { x{ 2, 3 }, 0, false, 1 } },
  argmax = { { x{ 2, 3 } }, { x{ 2, 3 }, 1, true } },
  argmin = { { x{ 2, 3 } }, { x{ 2, 3 }, 0 } },
  max_dim = { { x{ 2, 3 }, 1 }, { x{ 2, 3 }, 0, true } },
  min_dim = { { x{ 2, 3 }, -1 } },
  median_dim = { { x{ 2, 3 }, 1 }, { x{ 4, 2 }, 0, true } },
  cumsum = { { x{ 2, 3 }, 1 }, { x{ 2, 3 }, 0, torch.float64, true } },
  cumprod = { { x{ 2, 3 }, 1 }, { f{ { 0, 2, 3 }, { 1, 0, 0 } }, 1, first = positions } },
  prod_others = { { x({ 2, 3 }, 0.5, 2), { 1 } }, { x({ 2, 3 }, 0.5, 2), { 0, 1 } } },
  var = { { x{ 2, 3 } }, { x{ 2, 3 }, 1, false, true } },
  std = { { x{ 2, 3 } }, { x{ 2, 3 }, { 0, 1 }, torch.none, false, 0 } },
  var_mean = { { x{ 2, 3 } }, { x{ 2, 3 }, 1 } },
  std_mean = { { x{ 2, 3 } }, { x{ 2, 3 }, 0, true, true } },
  norm = { { x{ 2, 3 } }, { x{ 2, 3 }, 1, 1 }, { x{ 2, 3 }, math.huge } },
  norm_named = { { x{ 2, 3 }, "fro" } },
  nansum = { { x{ 2, 3 } }, { f{ 0 / 0, 1, 2 }, kink = "of NaN" } },
  median = { { x{ 2, 3 } } },
  histc = { { x{ 8 }, 4, -2, 2 } },
  bincount = { { v{ 1, 0, 3, 1 } }, { v{ 1, 0, 1 }, x{ 3 }, 4, kink = "counts",
    loose = "weights other than float32 are added in float64" } },
}
