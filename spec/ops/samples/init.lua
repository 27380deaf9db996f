--- Sample calls of every operator: name -> list of samples (make.lua). Those
--- of pointwise operators are made from their records' domains.
local control = require("lupine.control")
local core = require("lupine.core")
local custom_ops = require("spec.support.custom_ops")
local make = require("spec.ops.samples.make")
local torch = require("torch")
local x, y, b, i = make.x, make.y, make.b, make.i

local FILES = { "reduce", "view", "shape", "index", "network", "linalg", "other" }
-- family: by name of an operator; "pointwise", or the file with its samples.
local M = { of = {}, families = { "pointwise", table.unpack(FILES) }, family = {} }

for _, family in ipairs(FILES) do
  for name, list in pairs(require("spec.ops.samples." .. family)) do
    assert(not M.of[name], name .. " has samples in two files")
    M.of[name], M.family[name] = list, family
  end
end

-- Arguments of pointwise operators beyond their operands.
local more = {
  polygamma = { 2 },
  elu_backward = { 0.7, 1.3, 1.1 }, leaky_relu_backward = { 0.2 },
  two_parts_loss = { 0.7, 1.5 },
  threshold = { 0.5, 0.25 },
  cast = { torch.float64 },
}

-- Samples of pointwise operators in place of, or besides, generated ones.
local own = {
  clone = { { x{ 2, 3 } } },
  positive = { { x{ 2, 3 } } },
  modified_bessel_i0 = { { x{ 2, 3 } } },
  modified_bessel_i1 = { { x{ 2, 3 } } },
  where = { { b{ 2, 3 }, x{ 2, 3 }, y{ 3 } }, { b{ 2, 1 }, x{ 3 }, 0.5 } },
  rsub = { { x{ 2, 3 }, y{ 3 }, kw = { alpha = 2 } } },
  float_power = { { x({ 2, 3 }, 0.3, 3), y{ 3 } } },
  polygamma = { { x({ 4 }, 0.3, 4), 1 } },
  clamp = { { x{ 2, 3 }, -0.5, 0.7 }, { x{ 2, 3 }, torch.none, 0.1 },
    { x{ 2, 3 }, y({ 3 }, -1, 0), x({ 3 }, 0.1, 1) } },
  mvlgamma = { { x({ 2, 3 }, 2, 4), 3 } },
  igamma = { { i({ 2, 3 }, 4), x({ 3 }, 0.3, 3) } },
  igammac = { { i({ 2, 3 }, 4), x({ 3 }, 0.3, 3) } },
  zeta = { { 2.5, x({ 2, 3 }, 0.3, 3) }, { i({ 3 }, 5), 2.5 } },
  gcd = { { i({ 2, 3 }, 12), i({ 3 }, 20) } },
  lcm = { { i({ 2, 3 }, 12), i({ 3 }, 20) } },
  standard_gamma_slope = { { x({ 2, 3 }, 0.3, 3), y({ 2, 3 }, 0.3, 3) } },
  ldexp_whole = { { x({ 2, 3 }, 1, 2), i({ 3 }, 4) } },
  ldexp = { { x{ 2, 3 }, i({ 3 }, 4) }, { x{ 3 }, y{ 3 } } },
  conj = { { x{ 2, 3 } } },
  frexp = { { x({ 2, 3 }, 1.1, 1.9) } },
  frexp_mantissa = { { x({ 2, 3 }, 1.1, 1.9) } },
  nextafter = { { x{ 2, 3 }, y{ 3 }, kink = "a step", loose = "steps differ" } },
}

local also = {
  add = { { x{ 3 }, 2, kw = { alpha = 3 } }, { i({ 3 }, 5), x{ 3 } }, { 1.5, x{ 3 } } },
  mul = { { b{ 3 }, i({ 3 }, 5) }, { x{ 3 }, x{} } },
  div = { { x{ 2, 3 }, y({ 3 }, 1, 2), kw = { rounding_mode = "floor" } }, { i({ 3 }, 5), 2 } },
  pow = { { x({ 3 }, 0.5, 2), 3 }, { 2.0, x{ 3 } }, { i({ 3 }, 4), 2 } },
  eq = { { i({ 2, 3 }, 3), i({ 3 }, 3) } },
  logit = { { x({ 3 }, 0.2, 0.8), 0.1 } },
  hermite_polynomial_h = { { x{ 4 }, i({ 4 }, 5) }, { x{ 3 }, 4 } },
  chebyshev_polynomial_v = { { x({ 4 }, -0.9, 0.9), 8 }, { x{ 4 }, i({ 4 }, 5) } },
  gelu = { { x{ 2, 3 }, kw = { approximate = "tanh" } } },
  round = { { x{ 3 }, kw = { decimals = 2 }, kink = "a step function" } },
}

-- Intervals of the operand beside the one of the record, clear of kinks: those
-- where the function has other branches.
local branches = {
  abs = "(-3,-0.2)", sign = "(-3,-0.2)", sgn = "(-3,-0.2)", reciprocal = "(-4,-0.2)",
  relu = "(-3,-0.2)", elu = "(-3,-0.1)", selu = "(-3,-0.1)", celu = "(-3,-0.1)",
  leaky_relu = "(-3,-0.1)", softsign = "(-3,-0.1)", threshold = "(0.7,3)(-3,0.3)",
  hardtanh = "(1.2,3)(-3,-1.2)", hardsigmoid = "(3.2,5)(-5,-3.2)",
  hardswish = "(3.2,5)(-5,-3.2)", softshrink = "(-3,-0.7)(-0.4,0.4)",
  hardshrink = "(-3,-0.7)(-0.4,0.4)", softplus = "(21,30)", logsigmoid = "(10,20)",
  lgamma = "(-1.9,-1.1)", digamma = "(-1.9,-1.1)", sinc = "(-3,-0.2)", i0e = "(-3,-0.2)",
  i1 = "(-3,-0.2)", i1e = "(-3,-0.2)", bessel_j1 = "(-3,-0.2)", round = "(-1.4,-1.1)",
  floor = "(-1.9,-1.1)", ceil = "(-1.9,-1.1)", trunc = "(-1.9,-1.1)", frac = "(-1.9,-1.1)",
}

local function intervals(domain)
  local list = {}
  for low, high in domain:gmatch("%(([^,]+),([^)]+)%)") do
    list[#list + 1] = { tonumber(low), tonumber(high) }
  end
  list[1] = list[1] or { -2, 2 }
  return list
end

local function generate(op, list)
  local sample, integers = {}, op.name:find("^bitwise")
  for k = 1, op.operands do
    local shape = k == 1 and { 2, 3 } or { 3 }
    if integers then
      sample[k] = i(shape, 4)
    else
      local at = list[k] or list[#list]
      sample[k] = (k == 2 and y or x)(shape, at[1], at[2])
    end
  end
  for _, value in ipairs(more[op.name] or {}) do
    sample[#sample + 1] = value
  end
  return sample
end

local function generated(op)
  local out = { generate(op, intervals(op.domain)) }
  for _, at in ipairs(branches[op.name] and intervals(branches[op.name]) or {}) do
    out[#out + 1] = generate(op, { at })
  end
  branches[op.name] = nil
  return out
end

for _, op in ipairs(core.ops()) do
  if own[op.name] then
    M.of[op.name] = own[op.name]
  elseif op.domain and not M.of[op.name] then
    M.of[op.name] = generated(op)
  end
  M.family[op.name] = M.family[op.name] or "pointwise"
  for _, sample in ipairs(also[op.name] or {}) do
    table.insert(M.of[op.name], sample)
  end
end
assert(next(branches) == nil, "branches of no generated sample: " .. tostring(next(branches)))

-- Functions that compute in float32 and float64 only.
local WIDE = [[erfcx log_ndtr ndtri zeta modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
  modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 bessel_j0 bessel_j1
  bessel_y0 bessel_y1 spherical_bessel_j0 airy_ai chebyshev_polynomial_t chebyshev_polynomial_u
  chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t
  shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
  hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p]]
for name in WIDE:gmatch("%S+") do
  for _, sample in ipairs(M.of[name]) do
    sample.loose = "it refuses half types"
  end
end

-- The first form of each operator, and all its names.
local forms = {}
for _, form in ipairs(core.form_list()) do
  forms[form.op] = forms[form.op] or {}
  table.insert(forms[form.op], form)
end
M.forms = forms

local surfaces = {
  { "function", core.forms.functions }, { "nn", core.forms.nn },
  { "special", core.forms.special }, { "linalg", core.forms.linalg },
  { "internal", core.forms.internal }, { "method", core.methods },
}

--- The function behind a form, on a surface if one is named.
function M.callable(form, surface)
  for _, s in ipairs(surfaces) do
    if form[s[1]] and (not surface or surface == s[1]) then
      return s[2][form.name]
    end
  end
  return core.methods[form.name .. "_"]
end

-- Stands for all functions with a rule of the script's.
local Product = torch.autograd.Function:extend("Product")
function Product.forward(ctx, a, c)
  ctx:save_for_backward(a, c)
  return a * c
end
function Product.backward(ctx, g)
  local a, c = table.unpack(ctx.saved_tensors)
  return g * c, g * a
end

-- Operators that no form calls: what a script has to write for them.
local SCRIPTS = { custom_function = Product.apply }

local function step(p, q)
  return p * q, p + q
end

function SCRIPTS.loop(p, q)
  return control.loop(3, step, { p, q })
end

local function cube(form, tensors, wanted)
  custom_ops.load("cube")
  local call = { domain = "com.acme", name = "Cube", version = 1, library = "", attributes = "",
    wanted = wanted }
  return core.forms.internal[form](tensors, call)
end

function SCRIPTS.custom(p, q)
  return cube("custom", { p, q })
end

function SCRIPTS.custom_grad(p, q)
  p, q = p:detach(), q:detach()
  return cube("custom_grad", { p, q, q, p, p, q }, { 0, 1 })
end

-- Only to be traced: spec/poptorch/cpu_spec.lua runs such calls.
function SCRIPTS.host_call(p)
  return core.forms.internal.host_call({ p }, { id = "f", types = "float32[3], int32[]" })
end

function SCRIPTS.branch(condition, p, q)
  return control.branch(condition, step, { p, q }, function()
    return p - q, p
  end, {})
end

function SCRIPTS.call(p, q)
  return control.call(function(r)
    return step(r, q)
  end, { p })
end

-- The host makes one of this, compiled.
SCRIPTS.chain = step

--- The function that a sample of the operator calls; whether it writes into
--- its first argument.
function M.function_of(name)
  if SCRIPTS[name] then
    return SCRIPTS[name], false
  end
  local form = forms[name][1]
  local in_place = form.inplace and not (form["function"] or form.nn or form.method
    or form.special or form.linalg or form.internal)
  return M.callable(form), in_place
end

return M
