-- Draws by parameters: counts in classes against the distribution's own
-- probabilities (a chi-squared sum of d classes exceeds d + 6 sqrt(2 d) about
-- once in 10^8), and the slope of gamma's draws against differences of the
-- incomplete gamma function.
local helper = require("spec.helper")
local torch = require("torch")

local N = 40000

local log_factorials = (torch.arange(5001):double() + 1):lgamma():tolist()

local function log_factorial(k)
  return log_factorials[k + 1]
end

local function poisson_p(rate, k)
  return math.exp(k * math.log(rate) - rate - log_factorial(k))
end

local function binomial_p(n, p, k)
  return math.exp(log_factorial(n) - log_factorial(k) - log_factorial(n - k) + k * math.log(p)
    + (n - k) * math.log(1 - p))
end

-- The draws are whole numbers; classes that would have fewer than 20 are taken
-- together with the next ones.
local function follows(draws, probability, last)
  local counts, sum, classes = {}, 0, 0
  assert.is_true(torch.equal(draws:floor(), draws))
  for _, v in ipairs(draws:double():tolist()) do
    counts[v] = (counts[v] or 0) + 1
  end
  local seen, want, left, mass = 0, 0, N, 1
  for k = 0, last do
    local p = probability(k)
    seen, want, mass = seen + (counts[k] or 0), want + p * N, mass - p
    if want >= 20 and mass * N >= 20 then
      sum, classes, left = sum + (seen - want) ^ 2 / want, classes + 1, left - seen
      seen, want = 0, 0
    end
  end
  local rest = want + mass * N
  sum = sum + (left - rest) ^ 2 / rest
  assert.is_true(sum < classes + 6 * math.sqrt(2 * classes + 1),
    ("%g in %d classes"):format(sum, classes))
end

local refuses = helper.refuses

describe("random numbers by parameters", function()
  before_each(function()
    torch.manual_seed(20)
  end)

  it("are Poisson's for small and large rates", function()
    for _, rate in ipairs({ 0.05, 1.0, 9.9, 10.0, 30.5, 400.0 }) do
      follows(torch.poisson(torch.full({ N }, rate)), function(k)
        return poisson_p(rate, k)
      end, math.floor(rate + 8 * math.sqrt(rate) + 8))
    end
    assert.same({ 0, 0 }, torch.poisson(torch.zeros({ 2 })):tolist())
  end)

  it("are binomial for few and many expected, rare and frequent", function()
    for _, c in ipairs({ { 1.0, 0.3 }, { 7.0, 0.5 }, { 40.0, 0.1 }, { 40.0, 0.9 }, { 21.0, 0.5 },
      { 300.0, 0.2 }, { 300.0, 0.97 }, { 5000.0, 0.5 } }) do
      local n, p = table.unpack(c)
      follows(torch.binomial(torch.full({ N }, n), torch.full({ N }, p)), function(k)
        return binomial_p(n, p, k)
      end, math.tointeger(n))
    end
    local nan = 0 / 0
    local edges = torch.binomial(torch.tensor({ 5., 5., 5., 0., -1. }),
      torch.tensor({ 0., 1., 2., .5, .5 }))
    assert.same({ 0, 5, 5, 0, 0 }, edges:tolist())
    assert.is_true(torch.binomial(torch.tensor({ 5. }), torch.tensor({ nan })):isnan():item())
  end)

  it("are gamma's: their distribution function is uniform", function()
    for _, shape in ipairs({ 0.05, 0.7, 1.0, 3.5, 200.0 }) do
      local a = torch.full({ N }, shape, { dtype = torch.float64 })
      local u = torch.special.gammainc(a, torch._standard_gamma(a))
      follows((u * 20):floor():clamp_max(19), function()
        return 1 / 20
      end, 19)
    end
  end)

  it("broadcast, keep their type, and depend on the seed alone", function()
    local n, p = torch.tensor({ 3.0, 5.0 }), torch.tensor({ { 0.2 }, { 0.4 }, { 1.0 } })
    assert.same({ 3, 2 }, { table.unpack(torch.binomial(n, p).shape) })
    assert.same({ 3, 5 }, torch.binomial(n, p)[2]:tolist())
    for _, t in ipairs({ torch.float16, torch.bfloat16, torch.float64 }) do
      assert.equal(t, torch.poisson(torch.ones({ 2 }, { dtype = t })).dtype)
    end
    local rates = torch.rand({ 500, 3 }):t() * 30
    local threads = torch.get_num_threads()
    local function draw(count)
      torch.set_num_threads(count)
      torch.manual_seed(9)
      return torch.poisson(rates):tolist()
    end
    local one, two = draw(1), draw(2)
    torch.set_num_threads(threads)
    assert.same(one, two)
    assert.not_same(one, torch.poisson(rates):tolist())
  end)

  it("have PyTorch's gradients: zero of counts, of gamma by its shape", function()
    local rate = torch.tensor({ 3.0 }, { requires_grad = true })
    torch.poisson(rate):backward()
    assert.same({ 0 }, rate.grad:tolist())
    for _, shape in ipairs({ 0.1, 0.9, 2.0, 30.0, 5000.0 }) do
      local a = torch.full({ 200 }, shape, { dtype = torch.float64, requires_grad = true })
      local x = torch._standard_gamma(a)
      x:sum():backward()
      local h, y, b = shape * 1e-5, x:detach(), a:detach()
      local P = torch.special.gammainc
      local rise = (P(b + h, y) - P(b - h, y)) / (2 * h)
      local density = ((b - 1) * y:log() - y - b:lgamma()):exp()
      local want = -rise / density
      local inside = P(b, y):gt(1e-4):logical_and(P(b, y):lt(1 - 1e-4))
      assert.is_true(inside:sum():item() > 150)
      assert.is_true((a.grad / want - 1)[inside]:abs():max():item() < 1e-4)
    end
  end)

  it("have slopes as mpmath gives them, out to the tails and for large shapes", function()
    -- shape, x, dx/dshape: x at the quantiles 10^-6, 0.999, 1 - 10^-9
    for _, c in ipairs({
      { 0.1, 6.073048362408003e-61, 8.394779309290517e-58 },
      { 0.1, 3.3636770117187536, 9.699806582664948 },
      { 0.1, 15.92723105274732, 12.57582581747058 },
      { 0.5, 7.853981633978593e-13, 4.3839473382067823e-11 },
      { 0.5, 5.413783085331366, 3.5198829608416577 },
      { 0.5, 18.66244655325936, 4.81692567588165 },
      { 2.0, 0.0014148806614793436, 0.005296734791236655 },
      { 2.0, 9.233413476451585, 2.1139662829434314 },
      { 2.0, 23.939727895037286, 2.911190874306794 },
      { 20.0, 5.363986586181651, 0.48611752869138364 },
      { 20.0, 36.70097875949551, 1.3451107193822192 },
      { 20.0, 59.34123674650317, 1.6537103725375843 },
      { 1000.0, 856.8146512793919, 0.92487644472504 },
      { 1000.0, 1100.5780982933145, 1.0488577926218121 },
      { 1000.0, 1201.4728731116943, 1.09476226437566 },
      { 1000000.0, 995253.7734127986, 0.9976232895972023 },
      { 1000000.0, 1001281.7654996209, 1.00064077587814 },
      { 1000000.0, 1003093.0823698544, 1.0015451160440725 },
    }) do
      local a = torch.tensor(c[1], { dtype = torch.float64 })
      local slope = torch._standard_gamma_grad(a, torch.tensor(c[2], { dtype = torch.float64 }))
      assert.is_true(math.abs(slope:item() / c[3] - 1) < 1e-8, ("%g %g"):format(c[1], c[2]))
    end
  end)

  it("need parameters in their range and of floating types", function()
    refuses("RuntimeError", "invalid Poisson rate", torch.poisson, torch.tensor({ 1.0, -1.0 }))
    refuses("RuntimeError", "invalid Poisson rate", torch.poisson, torch.tensor({ 0 / 0 }))
    refuses("NotImplementedError", "floating dtype", torch.poisson, torch.tensor({ 1 }))
    refuses("ValueError", "floating%-point dtypes for count", torch.binomial,
      torch.tensor({ 1 }), torch.tensor({ 0.5 }))
    refuses("RuntimeError", "dtype of count", torch.binomial, torch.tensor({ 1.0 }),
      torch.tensor({ 0.5 }, { dtype = torch.float64 }))
  end)

  it("are drawn anew by every run of a compiled program", function()
    local rate = torch.full({ 100 }, 20.0)
    local f = require("lupine").compile(function(r)
      return torch.poisson(r)
    end, { rate })
    assert.not_same(f(rate):tolist(), f(rate):tolist())
  end)
end)
