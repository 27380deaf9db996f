-- torch.distributions.transforms and TransformedDistribution: values by PyTorch
-- 2.15 in float64.
local helper = require("spec.helper")
local float64 = require("spec.support.float64")
local torch = require("torch")
local D = torch.distributions
local f64, close = float64.tensor, float64.close
local inf = math.huge

-- name, arguments, x, y, log_abs_det_jacobian
local TRANSFORMS = {
  { "ExpTransform", {}, { 0.3, -1.2 },
    { 1.34985881, 0.301194212 },
    { 0.3, -1.2 } },
  { "PowerTransform", { 2.5 }, { 0.3, 1.2 },
    { 0.0492950302, 1.57744097 },
    { -0.889668475, 1.18977307 } },
  { "SigmoidTransform", {}, { 0.3, -1.2 },
    { 0.574442517, 0.231475217 },
    { -1.40871049, -1.72656493 } },
  { "SoftplusTransform", {}, { 0.3, -1.2 },
    { 0.854355244, 0.263282467 },
    { -0.554355244, -1.46328247 } },
  { "TanhTransform", {}, { 0.3, -1.2 },
    { 0.291312612, -0.833654607 },
    { -0.0886815399, -1.18737794 } },
  { "AffineTransform", { 0.5, -2 }, { 0.3, -1.2 },
    { -0.1, 2.9 },
    { 0.693147181, 0.693147181 } },
  { "SoftmaxTransform", {}, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { 0.368330249, 0.0821855875, 0.549484163 }, { 0.589648394, 0.264946102, 0.145405504 } },
    nil },
  { "StickBreakingTransform", {}, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { 0.310322442, 0.0902691687, 0.400517356, 0.198891033 }, { 0.475366886, 0.198915932,
      0.130714324, 0.195002857 } },
    { -6.10509905, -6.02802351 } },
  { "CorrCholeskyTransform", {}, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { { 1, 0, 0 }, { 0.291312612, 0.956627912, 0 }, { -0.833654607, 0.333783955, 0.440009395 } },
      { { 1, 0, 0 }, { 0.761594156, 0.648054274, 0 }, { 0.19737532, -0.372474605, 0.906810703 } }
      },
    { -2.32428891, -1.08307285 } },
  { "ReshapeTransform", { { 2, 3 }, { 3, 2 } }, { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } },
    { { 0.3, -1.2 }, { 0.7, 1 }, { 0.2, -0.4 } },
    0 },
  { "LowerCholeskyTransform", {}, { { 0.3, 0 }, { -0.5, 0.2 } },
    { { 1.34985881, 0 }, { -0.5, 1.22140276 } },
    nil },
  { "PositiveDefiniteTransform", {}, { { 0.3, 0 }, { -0.5, 0.2 } },
    { { 1.8221188, -0.674929404 }, { -0.674929404, 1.7418247 } },
    nil },
}

describe("a transform", function()
  for _, c in ipairs(TRANSFORMS) do
    it(c[1] .. " is PyTorch's", function()
      local t, x = D[c[1]](table.unpack(c[2])), f64(c[3])
      local y = t(x)
      close(y, c[4], "forward")
      if c[1] ~= "SoftmaxTransform" then
        close(t.inv(y), c[3], "inverse")
      end
      if c[5] then
        close(t:log_abs_det_jacobian(x, y), c[5], "slope")
        close(t.inv:log_abs_det_jacobian(y, x), (-f64(c[5])):tolist(), "slope of the inverse")
      end
      assert.same({ table.unpack(y.shape) }, { table.unpack(t:forward_shape(x.shape)) })
      assert.same({ table.unpack(x.shape) }, { table.unpack(t:inverse_shape(y.shape)) })
      assert.is_true(t.inv.inv == t)
    end)
  end

  local x = { { 0.3, -1.2, 0.7 }, { 1, 0.2, -0.4 } }

  it("is composed, and goes over parts", function()
    local t = D.ComposeTransform({ D.AffineTransform(1, 2), D.TanhTransform(),
      D.IndependentTransform(D.ExpTransform(), 1) })
    local y = t(f64(x))
    close(y, { { 2.51348077, 0.412569069, 2.67426575 }, { 2.70487244, 2.42383658, 1.21820117 } },
      "composed")
    close(t:log_abs_det_jacobian(f64(x), y), { -3.75604806, -2.03294118 }, "slope")
    close(t.inv(y), x, "inverse")
    assert.same({ 1, 1 }, { t.domain.event_dim, t.codomain.event_dim })
    t = D.CatTransform({ D.ExpTransform(), D.AffineTransform(0, 3) }, 1, { 1, 2 })
    y = t(f64(x))
    close(y, { { 1.34985881, -3.6, 2.1 }, { 2.71828183, 0.6, -1.2 } }, "cat")
    close(t:log_abs_det_jacobian(f64(x), y),
      { { 0.3, 1.09861229, 1.09861229 }, { 1, 1.09861229, 1.09861229 } }, "slope")
    close(t.inv(y), x, "inverse")
    t = D.StackTransform({ D.ExpTransform(), D.TanhTransform() }, 0)
    y = t(f64(x))
    close(y, { { 1.34985881, 0.301194212, 2.01375271 }, { 0.761594156, 0.19737532, -0.379948962 } },
      "stack")
    close(t:log_abs_det_jacobian(f64(x), y),
      { { 0.3, -1.2, 0.7 }, { -0.867561661, -0.0397361437, -0.155906971 } }, "slope")
    close(t.inv(y), x, "inverse")
    close(D.identity_transform(f64(x)), x, "identity")
  end)

  it("keeps its last value when asked to, so that 1 has an inverse", function()
    local t, big = D.TanhTransform({ cache_size = 1 }), f64({ 30 })
    close(t.inv(t(big)), { 30 }, "kept")
    close(D.TanhTransform().inv(D.TanhTransform()(big)), { inf }, "not kept")
    assert.equal(1, D.ComposeTransform({ D.ExpTransform() }, 1).parts[1].cache_size)
  end)

  it("of one's own is a class", function()
    local Cube = D.Transform:extend("Cube")
    Cube.bijective, Cube.sign = true, 1
    function Cube._call(_, v) return v:pow(3) end
    function Cube._inverse(_, v) return v:sign() * v:abs():pow(1 / 3) end
    function Cube.log_abs_det_jacobian(_, v) return (3 * v * v):log() end
    local d = D.TransformedDistribution(D.Normal(f64(0), f64(1)), Cube())
    local want = D.Normal(f64(0), f64(1)):log_prob(f64(2)) - math.log(12)
    close(d:log_prob(f64(8)), want:item(), "density")
    helper.raises("NotImplementedError", "Bare has no _inverse", function()
      return D.Transform:extend("Bare")().inv(f64(1))
    end)
  end)

  it("equals another with the same options", function()
    assert.is_true(D.ExpTransform() == D.ExpTransform())
    assert.is_true(D.AffineTransform(0, 1) == D.AffineTransform(f64(0), 1))
    assert.is_false(D.AffineTransform(0, 1) == D.AffineTransform(0, 2))
    assert.is_false(D.ExpTransform() == D.TanhTransform())
    assert.equal("ComposeTransform(\n    ExpTransform(),\n    TanhTransform()\n)",
      tostring(D.ComposeTransform({ D.ExpTransform(), D.TanhTransform() })))
  end)

  it("refuses shapes and options that it cannot take", function()
    helper.raises("ValueError", "cache_size must be 0 or 1", function()
      D.ExpTransform(2)
    end)
    helper.raises("ValueError", "different numbers of elements", function()
      D.ReshapeTransform({ 2 }, { 3 })
    end)
    helper.raises("ValueError", "not a flattened lower%-diagonal number", function()
      D.CorrCholeskyTransform()(torch.zeros(4))
    end)
    helper.raises("TypeError", "parts%[1%]: expected a Transform", function()
      D.ComposeTransform({ 3 })
    end)
  end)
end)

describe("a transformed distribution", function()
  it("has PyTorch's density and quantiles, of decreasing maps too", function()
    local d = D.TransformedDistribution(D.Normal(f64({ 0.3, -.5 }), f64({ .7, 1.2 })),
      { D.AffineTransform(0.5, -2), D.SigmoidTransform() })
    close(d:log_prob(f64({ 0.4, 0.8 })), { 0.147902287, 0.0370518866 }, "log_prob")
    close(d:cdf(f64({ 0.4, 0.8 })), { 0.413640786, 0.481106241 }, "cdf")
    close(d:icdf(f64({ 0.2, 0.9 })), { 0.217844898, 0.989806142 }, "icdf")
  end)

  it("has the batch that its transforms make", function()
    local d = D.TransformedDistribution(D.Normal(f64({ 0.3, -.5 }), f64({ .7, 1.2 })),
      D.AffineTransform(f64({ { 1 }, { 2 } }), f64({ 2, 3 }), { event_dim = 1 }))
    assert.same({ 2 }, { table.unpack(d.batch_shape) })
    assert.same({ 2 }, { table.unpack(d.event_shape) })
    close(d:log_prob(f64({ 0.4, .2 })), { -3.84153441, -4.69344925 }, "log_prob")
    assert.same({ 7, 2, 2 }, { table.unpack(d:sample({ 7 }).shape) })
  end)

  it("passes gradients to the parameters of its base", function()
    local loc = f64({ 0.3, -.5 }):requires_grad_()
    local scale = f64({ .7, 1.2 }):requires_grad_()
    local d = D.TransformedDistribution(D.Independent(D.Normal(loc, scale), 1),
      { D.TanhTransform(), D.StickBreakingTransform() })
    local p = d:log_prob(f64({ 0.4266186206, 0.2156905298, 0.3576908496 }))
    p:backward()
    close(p:detach(), 2.20184363, "log_prob")
    close(loc.grad, { 0.246245515, -0.0396544885 }, "loc")
    close(scale.grad, { -1.38612563, -0.831446359 }, "scale")
    assert.is_true(d:rsample().requires_grad)
    assert.is_false(d:sample().requires_grad)
  end)

  it("refuses a value outside of its support, and has no moments", function()
    local d = D.TransformedDistribution(D.Normal(0, 1), { D.ExpTransform() })
    helper.raises("ValueError", "within the support", function()
      d:log_prob(torch.tensor(-1.0))
    end)
    helper.raises("NotImplementedError", "TransformedDistribution has no mean", function()
      return d.mean
    end)
    helper.raises("TypeError", "expected a distribution", function()
      D.TransformedDistribution(3, {})
    end)
  end)

  it("is drawn in a program", function()
    local function f(u)
      return D.TransformedDistribution(D.Normal(u, 1.0), { D.TanhTransform() })
        :log_prob(u:tanh() * 0.9)
    end
    local u = torch.randn(4)
    helper.near(require("lupine").compile(f, { u })(u), f(u))
  end)
end)
