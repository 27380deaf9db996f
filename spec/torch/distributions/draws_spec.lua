-- torch.distributions: draws by what is known of them, and their gradients.
local float64 = require("spec.support.float64")
local torch = require("torch")
local D = torch.distributions
local f64, close = float64.tensor, float64.close

describe("draws through which gradients go", function()
  -- The mean of the gradients of draws is the gradient of the mean.
  local function slopes(make, params, n)
    torch.manual_seed(11)
    local leaves = {}
    for i, v in ipairs(params) do
      leaves[i] = f64(v):requires_grad_()
    end
    local d = make(table.unpack(leaves))
    d:rsample({ n }):mean(0):select(-1, 0):backward(nil, true)
    local got = {}
    for i, leaf in ipairs(leaves) do
      got[i] = leaf.grad
      leaf.grad = nil
    end
    d.mean:select(-1, 0):backward()
    for i, leaf in ipairs(leaves) do
      local want = leaf.grad or torch.zeros_like(leaf)
      assert.is_true((got[i] - want):abs():max():item() < 0.05, ("parameter %d: %s, mean %s")
        :format(i, tostring(got[i]), tostring(want)))
    end
  end

  it("have the gradients of their mean", function()
    slopes(D.Gamma, { { 0.7 }, { 2.0 } }, 20000)
    slopes(D.Chi2, { { 3.0 } }, 20000)
    slopes(D.InverseGamma, { { 6.0 }, { 2.0 } }, 20000)
    slopes(D.Beta, { { 0.6 }, { 1.4 } }, 20000)
    slopes(D.Dirichlet, { { 0.6, 1.4, 2.0 } }, 20000)
    slopes(D.StudentT, { { 7.0 }, { 0.5 }, { 1.0 } }, 20000)
    slopes(D.Weibull, { { 0.8 }, { 2.0 } }, 20000)
    slopes(D.Pareto, { { 0.8 }, { 6.0 } }, 20000)
    slopes(D.HalfNormal, { { 0.8 } }, 20000)
    slopes(D.MultivariateNormal, { { 0.3, 1.0 }, { { 2.0, 0.5 }, { 0.5, 1.0 } } }, 20000)
    local logits = f64({ 0.1, 0.7 }):requires_grad_()
    local hot = D.OneHotCategoricalStraightThrough({ logits = logits }):rsample()
    assert.equal(1, hot:detach():sum():item());
    (hot * f64({ 1.0, 3.0 })):sum():backward()
    local p = logits:detach():softmax(0)
    local product = p[0]:item() * p[1]:item()
    close(logits.grad, { -2 * product, 2 * product }, "straight through")
  end)
end)

it("angles lie around their place", function()
  torch.manual_seed(7)
  local d = D.VonMises(f64({ 0.3, -1, 3 }), f64({ 0.7, 4, 1e-6 }))
  local x, n = d:sample({ 20000 }), 20000
  assert.is_true(x:abs():max():item() <= math.pi)
  local along = (x - d.loc):cos():mean(0)
  close((along - (1 - d.variance)):abs():lt(5 / math.sqrt(n)):double(), { 1, 1, 1 }, "cosine")
  close(((x - d.loc):sin():mean(0)):abs():lt(5 / math.sqrt(n)):double(), { 1, 1, 1 }, "sine")
end)

it("factors of correlations have rows of length 1", function()
  torch.manual_seed(7)
  local x = D.LKJCholesky(4, f64({ 0.5, 3 })):sample({ 3000 })
  close(x:pow(2):sum(-1):mean({ 0, 1 }), { 1, 1, 1, 1 }, "rows")
  -- a correlation's variance is 1 / (2 concentration + dim - 1)
  local r = x:matmul(x.mT):select(-1, 0):select(-1, 3)
  assert.is_true((r:pow(2):mean(0) - f64({ 1 / 4, 1 / 9 })):abs():max():item() < 0.02)
end)
