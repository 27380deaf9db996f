-- Special functions against figures computed with 40 digits (mpmath 1.2),
-- integer functions against their definitions, and the identities that tie
-- them together.
local torch = require("torch")
local helper = require("spec.helper")

local near, raises = helper.near, helper.refuses
local inf, nan = math.huge, 0 / 0
local special = torch.special

local function f64(values)
  return torch.tensor(values, { dtype = torch.float64 })
end

-- name -> arguments, values
local figures = {
  bessel_j0 = { { 0.5, 5, 30 }, { 0.93846980724081, -0.17759677131434, -0.08636798358104 } },
  bessel_j1 = { { 0.5, -5, 30 }, { 0.24226845767487, 0.32757913759147, -0.11875106261662 } },
  bessel_y0 = { { 0.5, 5, 30 }, { -0.44451873350671, -0.30851762524903, -0.11729573168666 } },
  bessel_y1 = { { 0.5, 5, 30 }, { -1.4714723926702, 0.14786314339123, 0.084425570661747 } },
  i0 = { { 0.5, -5, 30 }, { 1.0634833707413, 27.239871823604, 781672297823.98 } },
  i0e = { { 0.5, -5, 300 }, { 0.64503527044915, 0.18354081260933, 0.023042558415085 } },
  i1 = { { 0.5, -5, 30 }, { 0.2578943053909, -24.335642142451, 768532038938.96 } },
  i1e = { { 0.5, -5, 300 }, { 0.15642080318487, -0.16397226694454, 0.023004122040269 } },
  modified_bessel_k0 = { { 0.01, 1, 20 },
    { 4.7212447301611, 0.42102443824071, 5.7412378153365e-10 } },
  modified_bessel_k1 = { { 0.01, 1, 20 },
    { 99.973894118296, 0.60190723019723, 5.883057969557e-10 } },
  scaled_modified_bessel_k0 = { { 0.01, 1, 500 },
    { 4.7686940285445, 1.1444630798069, 0.056035915417235 } },
  scaled_modified_bessel_k1 = { { 0.01, 1, 500 },
    { 100.97864845824, 1.6361534862633, 0.056091923370556 } },
  airy_ai = { { -12, -4, -1, 0, 1, 6 }, { -0.066555175054373, -0.07026553294929,
    0.53556088329235, 0.35502805388782, 0.13529241631288, 9.9476943602529e-6 } },
  spherical_bessel_j0 = { { 0, 0.5, 20 }, { 1.0, 0.95885107720841, 0.045647262536381 } },
  erfcx = { { -3, 0.5, 3, 50 },
    { 16205.988854, 0.61569034419293, 0.17900115118139, 0.011281536265324 } },
  ndtr = { { -8, -1, 0.5 }, { 6.2209605742718e-16, 0.15865525393146, 0.69146246127401 } },
  log_ndtr = { { -40, -1, 2 }, { -804.60844201375, -1.8410216450093, -0.023012909328963 } },
  ndtri = { { 1e-05, 0.1, 0.75 }, { -4.2648907939228, -1.2815515655446, 0.67448975019608 } },
  entr = { { 0.25, 3, 0, -1 }, { 0.34657359027997, -3.2958368660043, 0, -inf } },
  sinc = { { 0.25, -2.5, 0 }, { 0.90031631615711, 0.12732395447352, 1 } },
  gammaln = { { 0.25, 30 }, { 1.2880225246981, 71.257038967168 } },
  digamma = { { 0.25, 30 }, { -4.2274535333763, 3.3844381326855 } },
  logit = { { 0.75, 0, 1, 2 }, { 1.0986122886681, -inf, inf, nan } },
}

describe("torch.special", function()
  it("has the figures of every function of one operand", function()
    for name, f in pairs(figures) do
      local got = special[name](f64(f[1])):tolist()
      for i, want in ipairs(f[2]) do
        local same = got[i] == want or want ~= want and got[i] ~= got[i]
          or math.abs(got[i] - want) <= 2e-12 * math.abs(want)
        assert(same, ("%s(%g) is %.15g, expected %.15g"):format(name, f[1][i], got[i], want))
      end
    end
  end)

  it("computes float32 in double and rounds once", function()
    local x = torch.rand({ 50 }, { dtype = torch.float32 }) * 8 + 0.1
    for _, name in ipairs({ "i0", "i1e", "bessel_y1", "erfcx", "airy_ai" }) do
      near(special[name](x), special[name](x:double()):float(), helper.exact)
    end
  end)

  it("zeta is Hurwitz's, with its poles", function()
    near(special.zeta(f64{ 3, 1.5, 2 }, f64{ 2, 0.25, -0.5 }),
      f64{ 0.20205690315959, 10.213055360467, 8.9348022005447 }, { 1e-12, 1e-12 })
    near(special.zeta(f64{ 1, 0.5, 2, 2.5 }, f64{ 2, 2, -1, -0.5 }), f64{ inf, nan, inf, nan })
  end)

  it("the incomplete gamma functions add up to 1", function()
    local a, x = f64{ 0.5, 3, 30, 2000 }, f64{ 0.3, 5, 25, 2050 }
    local p, q = special.gammainc(a, x), special.gammaincc(a, x)
    near(p, f64{ 0.561421973919, 0.87534798051692, 0.18210391597746, 0.86785074040351 },
      { 1e-12, 1e-12 })
    near(p + q, torch.ones_like(p), { 1e-12, 1e-12 })
    near(torch.igamma(f64{ 0, 0, 2, -1 }, f64{ 1, 0, 0, 1 }), f64{ 1, nan, 0, nan })
  end)

  it("polynomials have the figures of degrees 3, 9, 4", function()
    local n, x = torch.tensor({ 3, 9, 4 }), f64{ 0.3, 0.3, 1.5 }
    local o = { 1e-12, 1e-12 }
    near(special.chebyshev_polynomial_t(x, n), f64{ -0.792, 0.388827648, 23.5 }, o)
    near(special.chebyshev_polynomial_u(x, n), f64{ -0.984, 0.099088896, 55 }, o)
    near(special.hermite_polynomial_h(x, n), f64{ -3.384, 7010.287658496, -15 }, o)
    near(special.laguerre_polynomial_l(x, n), f64{ 0.2305, -0.41794299755201, -0.2890625 }, o)
    near(special.legendre_polynomial_p(x, n), f64{ -0.3825, 0.063700381757813, 14.0859375 }, o)
    near(special.shifted_chebyshev_polynomial_t((x + 1) / 2, n),
      special.chebyshev_polynomial_t(x, n), o)
    -- T_n at cos t is cos(n t); V and W mirror each other
    local w = special.chebyshev_polynomial_w(x, n)
    near(special.chebyshev_polynomial_v(-x, n), w * f64{ -1, -1, 1 }, o)
    near(special.chebyshev_polynomial_t(f64{ 2, 2 }, f64{ -1, 0 }), f64{ 0, 1 })
  end)

  it("polynomials of what is no degree are 0", function()
    local n = f64{ 1e20, inf, -inf, nan }
    for _, name in ipairs({ "chebyshev_polynomial_t", "hermite_polynomial_he",
      "laguerre_polynomial_l", "legendre_polynomial_p" }) do
      near(special[name](f64{ 0.5, 0.5, 0.5, 0.5 }, n), f64{ 0, 0, 0, 0 })
    end
  end)

  it("multigammaln is a sum of log gamma functions", function()
    local x = f64{ 2.5, 7 }
    near(special.multigammaln(x, 3), torch.lgamma(x) + torch.lgamma(x - 0.5)
      + torch.lgamma(x - 1) + 1.5 * math.log(math.pi), { 1e-13, 1e-13 })
    raises("RuntimeError", "p is 0", torch.mvlgamma, x, 0)
  end)

  it("refuses a derivative by the order, gives that by the argument", function()
    local a, x = f64{ 2 }, f64{ 1 }
    x:requires_grad_(true)
    special.gammainc(a, x):backward()
    near(x.grad, f64{ math.exp(-1) }, { 1e-12, 1e-12 })
    a:requires_grad_(true)
    local y = special.gammainc(a, x)
    raises("NotImplementedError", "first operand", y.backward, y)
  end)
end)

describe("pointwise", function()
  it("gcd and lcm are never negative", function()
    local a, b = torch.tensor({ 12, -18, 0, 7 }), torch.tensor({ 20, 12, 5, 0 })
    near(torch.gcd(a, b), torch.tensor({ 4, 6, 5, 7 }))
    near(torch.lcm(a, b), torch.tensor({ 60, 36, 0, 0 }))
    raises("RuntimeError", "integer", torch.gcd, f64{ 1 }, f64{ 2 })
  end)

  it("frexp takes apart what ldexp puts together", function()
    local x = f64{ 0, 1, -3, 1e-310, inf }
    local m, e = torch.frexp(x)
    near(m, f64{ 0, 0.5, -0.75, 1e-310 * 2.0 ^ 1029, inf }, { 1e-12, 1e-12 })
    assert.are.equal(torch.int32, e.dtype)
    near(torch.ldexp(m[{ torch.slice(0, 3) }], e[{ torch.slice(0, 3) }]), f64{ 0, 1, -3 })
  end)

  it("ldexp of an integer has no power that overflows", function()
    local y = torch.ldexp(torch.tensor({ 3.0 }, { dtype = torch.bfloat16 }), torch.tensor({ 2 }))
    assert.are.equal(torch.bfloat16, y.dtype)
    near(y, { 12 })
    near(torch.ldexp(torch.tensor({ 2.0 ^ -120 }), torch.tensor({ 200 })), { 2.0 ^ 80 })
  end)

  it("logit between bounds clips and stops the gradient", function()
    local x = f64{ 0.05, 0.5, 0.99 }:requires_grad_(true)
    local y = torch.logit(x, 0.1)
    near(y, f64{ -math.log(9), 0, math.log(9) }, { 1e-12, 1e-12 })
    y:sum():backward()
    near(x.grad, f64{ 0, 4, 0 })
  end)

  it("isin finds nothing among nothing", function()
    local x = torch.tensor({ 1, 2 })
    near(torch.isin(x, torch.tensor({}, { dtype = torch.int64 })), { false, false })
    near(torch.isin(x, 2), { false, true })
  end)

  it("has the functions of float32 and float64 alone in no half type", function()
    for name in ([[erfcx log_ndtr ndtri modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
      modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 bessel_j0 bessel_j1
      bessel_y0 bessel_y1 spherical_bessel_j0 airy_ai]]):gmatch("%S+") do
      raises("NotImplementedError", name .. "\" not implemented for 'Half'", special[name],
        torch.ones(2):half())
      raises("NotImplementedError", "'BFloat16'", special[name], torch.ones(2):bfloat16())
    end
    for _, name in ipairs({ "zeta", "hermite_polynomial_h", "legendre_polynomial_p" }) do
      raises("NotImplementedError", "'Half'", special[name], torch.ones(2):half(), 2)
    end
    near(special.i0(torch.ones(1):half()), { 1.2656 }, { 1e-3, 0 })
  end)

  it("ends where the reciprocal of x is nearly all of its value", function()
    local tiny = f64{ 5e-324, 1e-310, 1e-300, 1e-290, 1e-200 }
    local want = { math.huge, math.huge, 1e300, 1e290, 1e200 }
    near(special.modified_bessel_k1(tiny), want, { 0, 1e-14 })
    near(special.scaled_modified_bessel_k1(tiny), want, { 0, 1e-14 })
  end)

  it("takes a tensor at least for polynomials", function()
    near(special.chebyshev_polynomial_t(f64{ 0.5 }, 3), { -1 }) -- 4 x^3 - 3 x
    near(special.chebyshev_polynomial_t(0.5, torch.tensor({ 2 })), { -0.5 })
    raises("TypeError", "must be a Tensor", special.chebyshev_polynomial_t, 0.5, 3)
  end)

  it("bends sinc at 0 by minus a third of the square of pi", function()
    local x = f64{ 0 }:requires_grad_(true)
    local slope = torch.autograd.grad(torch.sinc(x):sum(), x, nil, nil, true)[1]
    near(slope, { 0 })
    near(torch.autograd.grad(slope:sum(), x)[1], { -math.pi ^ 2 / 3 }, { 1e-12, 0 })
  end)
end)

-- (-1)^(n+1) n! sum 1/(x+k)^(n+1): of every type, as PyTorch's
describe("polygamma at its poles", function()
  for _, dtype in ipairs({ torch.float16, torch.bfloat16, torch.float32, torch.float64 }) do
    it("is infinite, of one sign for each order: " .. tostring(dtype), function()
      local x = torch.tensor({ 0, -0.0, -1, -2 }, { dtype = dtype }):requires_grad_()
      for n = 1, 4 do
        local sign = n % 2 == 1 and 1 or -1
        local y = torch.polygamma(n, x)
        x.grad = nil
        y:backward(torch.ones_like(y))
        assert.is_true(y:eq(sign * math.huge):all():item())
        assert.is_true(x.grad:eq(-sign * math.huge):all():item())
      end
      x.grad = nil
      local y = torch.digamma(x)
      y:backward(torch.ones_like(y))
      assert.same({ -math.huge, math.huge }, y:narrow(0, 0, 2):tolist())
      assert.is_true(y:narrow(0, 2, 2):isnan():all():item())
      assert.is_true(x.grad:eq(math.huge):all():item())
    end)
  end
end)
