-- MixtureSameFamily: values by PyTorch 2.15 in float64.
local helper = require("spec.helper")
local float64 = require("spec.support.float64")
local torch = require("torch")
local D = torch.distributions
local f64, close = float64.tensor, float64.close

describe("a mixture of one family", function()
  it("has PyTorch's density and moments", function()
    local m = D.MixtureSameFamily(D.Categorical(f64({ .2, .5, .3 })),
      D.Normal(f64({ 0, 1, -2 }), f64({ .5, 1, 2 })))
    close(m:log_prob(f64({ 0.3, -1 })), { -1.13847459, -2.28866573 }, "log_prob")
    close(m:cdf(f64({ 0.3, -1 })), { 0.528609622, 0.223363831 }, "cdf")
    close(m.mean, -0.1, "mean")
    close(m.variance, 3.44, "variance")
  end)

  it("has the events of its components", function()
    local loc = (torch.arange(12, { dtype = torch.float64 }):reshape(2, 2, 3) * .7):sin()
    local m = D.MixtureSameFamily(D.Categorical(f64({ { .2, .8 }, { .6, .4 } })),
      D.Independent(D.Normal(loc, torch.full_like(loc, 0.8)), 1))
    assert.same({ 2 }, { table.unpack(m.batch_shape) })
    assert.same({ 3 }, { table.unpack(m.event_shape) })
    close(m:log_prob(f64({ .3, -1, .5 })), { -4.32319941, -4.2762646 }, "log_prob")
    close(m.mean,
      { { 0.690567493, 0.396834058, -0.0835366362 }, { -0.516219903, -0.326676928, 0.0165073108 } },
      "mean")
    close(m.variance,
      { { 0.759220866, 0.655299665, 0.925682963 },
        { 0.829416691, 1.28506262, 1.26941663 } }, "variance")
    torch.manual_seed(3)
    local x = m:sample({ 20000 })
    assert.same({ 20000, 2, 3 }, { table.unpack(x.shape) })
    assert.is_true((x:mean(0) - m.mean):abs():max():item() < 0.05)
    assert.is_true((x:var(0) - m.variance):abs():max():item() < 0.05)
  end)

  it("refuses components of another number", function()
    helper.raises("ValueError", "does not equal", function()
      D.MixtureSameFamily(D.Categorical(torch.ones(3)), D.Normal(torch.zeros(2), 1))
    end)
    helper.raises("ValueError", "Mixture distribution needs to be", function()
      D.MixtureSameFamily(D.Normal(0, 1), D.Normal(torch.zeros(2), 1))
    end)
    helper.raises("NotImplementedError", "no rsample", function()
      D.MixtureSameFamily(D.Categorical(torch.ones(2)), D.Normal(torch.zeros(2), 1)):rsample()
    end)
  end)
end)
