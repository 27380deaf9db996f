-- Random operators: moments and ranges, and that threads do not matter.
local helper = require("spec.helper")
local torch = require("torch")

local N = 200000
local function moments(x)
  local m = x:mean():item()
  return m, ((x - m) * (x - m)):mean():item()
end

describe("random numbers", function()
  before_each(function()
    torch.manual_seed(17)
  end)

  it("have the distribution's mean and variance", function()
    -- allowed: about five standard errors
    local z = torch.zeros({ N })
    for _, case in ipairs({
      { torch.rand({ N }), 1 / 2, 1 / 12 },
      { torch.randn({ N }), 0, 1 },
      { z:uniform_(-1, 3), 1, 16 / 12 },
      { torch.zeros({ N }):normal_(2, 3), 2, 9 },
      { torch.zeros({ N }):exponential_(2), 1 / 2, 1 / 4 },
      { torch.zeros({ N }):geometric_(0.25), 4, 12 },
      { torch.bernoulli(torch.full({ N }, 0.3)), 0.3, 0.21 },
    }) do
      local m, v = moments(case[1])
      local sd = math.sqrt(case[3] / N)
      assert.is_true(math.abs(m - case[2]) < 5 * sd, ("mean %g, want %g"):format(m, case[2]))
      assert.is_true(math.abs(v / case[3] - 1) < 0.06, ("variance %g, want %g"):format(v, case[3]))
    end
  end)

  it("stay in their range in every type", function()
    for _, t in ipairs({ torch.float16, torch.bfloat16, torch.float32, torch.float64 }) do
      local x = torch.rand({ 20000 }, { dtype = t })
      assert.is_true(x:max():item() < 1 and x:min():item() >= 0)
    end
    local k = torch.randint(-3, 4, { 20000 })
    assert.equal(-3, k:min():item())
    assert.equal(3, k:max():item())
    for _, high in ipairs({ 9, 100 }) do
      local wide = torch.bincount(torch.randint(0, high, { N }), { minlength = high })
      assert.equal(high, wide:size(0))
      local sd = math.sqrt(N / high) -- of each count
      assert.is_true(((wide - N / high):abs():max():item()) < 6 * sd)
    end
    -- of 1000 … 1010 the last 40th part of a step rounds to 1010 in float16
    for _, t in ipairs({ torch.float16, torch.bfloat16, torch.float32 }) do
      local x = torch.zeros({ 20000 }, { dtype = t }):uniform_(1000, 1010)
      assert.is_true(x:max():item() < 1010 and x:min():item() >= 1000)
    end
    local t = torch.zeros({ 20000 }):trunc_normal_(0, 1, -0.5, 1)
    assert.is_true(t:min():item() >= -0.5 and t:max():item() <= 1)
  end)

  it("permute all of 0 … n - 1", function()
    local v = torch.sort(torch.randperm(1000))
    assert.same(torch.arange(1000):tolist(), v:tolist())
  end)

  it("are permuted whatever their number", function()
    for _, n in ipairs({ 0, 1, 2, 3, 1023, 1025, 70000 }) do
      local order = torch.randperm(n)
      assert.is_true(torch.equal(torch.arange(n), (order:sort())), n)
      assert.is_true(n < 1000 or not torch.equal(torch.arange(n), order))
    end
  end)
  it("are drawn without replacement from long rows, each once", function()
    local rows = torch.multinomial(torch.ones(3, 2503), 2500)
    for i = 0, 2 do
      assert.equal(2500, rows[i]:unique():numel())
    end
    assert.is_false(torch.equal(rows[0], rows[1]))
  end)
  it("are drawn without replacement by weight", function()
    local counts = { 0, 0, 0 }
    for _ = 1, 600 do
      local i = torch.multinomial(torch.tensor({ 1.0, 0.0, 3.0 }), 1):item()
      counts[i + 1] = counts[i + 1] + 1
    end
    assert.equal(0, counts[2])
    assert.is_true(math.abs(counts[3] - 450) < 60)
    -- P(i, then j) = w_i / W * w_j / (W - w_i)
    local w, seen = { 1.0, 2.0, 3.0 }, {}
    local pairs_drawn = torch.multinomial(torch.tensor({ w }):expand(6000, 3):contiguous(), 2)
    for _, p in ipairs(pairs_drawn:tolist()) do
      local key = p[1] * 3 + p[2]
      seen[key] = (seen[key] or 0) + 1
    end
    for i = 0, 2 do
      assert.is_nil(seen[i * 4])
      for j = 0, 2 do
        local p = w[i + 1] / 6 * w[j + 1] / (6 - w[i + 1])
        assert.is_true(i == j or math.abs(seen[i * 3 + j] - 6000 * p)
          < 5 * math.sqrt(6000 * p * (1 - p)))
      end
    end
    assert.has_error(function()
      torch.multinomial(torch.tensor({ 1.0, 0.0 }), 2)
    end)
    helper.raises("RuntimeError", "a floating dtype is needed", function()
      torch.multinomial(torch.tensor({ 1, 2 }), 1)
    end)
  end)

  it("do not depend on the number of threads, only on the seed", function()
    local before = torch.get_num_threads()
    local function draw(threads)
      torch.set_num_threads(threads)
      torch.manual_seed(5)
      return torch.randn({ 70001 }):tobytes()
    end
    local a, b = draw(1), draw(3)
    torch.set_num_threads(before)
    assert.is_true(a == b)
    torch.manual_seed(6)
    assert.is_true(a ~= torch.randn({ 70001 }):tobytes())
  end)

  it("are drawn over a tensor by a tensor of probabilities", function()
    local p = torch.tensor({ 0.0, 0.25, 1.0 })
    local x = torch.full({ 20000, 3 }, 7, { dtype = torch.int64 })
    assert.is_true(rawequal(x, x:bernoulli_(p)))
    local share = x:double():mean(0):tolist()
    assert.equal(0, share[1])
    assert.is_true(math.abs(share[2] - 0.25) < 0.02)
    assert.equal(1, share[3])
  end)

  it("need a spread above zero where PyTorch does", function()
    local x = torch.zeros({ 3 })
    assert.error_matches(function() x:log_normal_(0, 0) end, "std > 0")
    assert.error_matches(function() x:cauchy_(0, 0) end, "sigma > 0")
    assert.same({ 2, 2, 2 }, x:normal_(2, 0):tolist())
  end)

  it("come from the generator that an initialisation is given", function()
    local init = torch.nn.init
    for name, rest in pairs({ uniform_ = {}, normal_ = {}, trunc_normal_ = {},
      xavier_uniform_ = {}, xavier_normal_ = {}, kaiming_uniform_ = {}, kaiming_normal_ = {},
      orthogonal_ = {}, sparse_ = { sparsity = 0.5 } }) do
      local function draw()
        rest.tensor, rest.generator = torch.zeros({ 4, 5 }), torch.Generator():manual_seed(3)
        return init[name](rest)
      end
      local before = torch.get_rng_state()
      assert.is_true(torch.equal(draw(), draw()), name)
      assert.is_true(torch.equal(before, torch.get_rng_state()), name)
    end
  end)
end)
