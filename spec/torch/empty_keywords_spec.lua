--- A trailing {} has no keywords in it, wherever keywords are taken; where a list
--- may be empty it is one.
local helper = require("spec.helper")
local torch = require("torch")

local nn, F, optim = torch.nn, torch.nn.functional, torch.optim

describe("a trailing {}", function()
  local x = torch.ones(2, 3, 5, 5)

  it("leaves a constructor its defaults", function()
    local ps = nn.Linear(2, 2):parameters()
    assert.same({ 0.9, 0.999 }, optim.Adam(ps, 0.1, {}).param_groups[1].betas)
    assert.equal(0, optim.SGD(ps, 0.1, {}).param_groups[1].momentum)
    assert.equal(1e-3, optim.SGD(ps, {}).param_groups[1].lr)
    assert.equal(tostring(nn.Conv2d(3, 4, 3)), tostring(nn.Conv2d(3, 4, 3, {})))
    assert.equal("ReLU()", tostring(nn.ReLU({})))
    assert.equal(1, optim.lr_scheduler.StepLR(optim.SGD(ps, 1), 3, {}):get_last_lr()[1])
    assert.equal(0, torch.distributions.Normal(0, 1, {}).mean:item())
    assert.equal(3, torch.utils.data.DataLoader({ 1, 2, 3 }, {}):__len())
  end)

  it("leaves a function its defaults", function()
    local y = F.conv2d(x, torch.ones(4, 3, 2, 2), nil, {})
    assert.same({ 2, 4, 4, 4 }, { table.unpack(y.shape) })
    assert.same({ 2, 3, 2, 2 }, { table.unpack(F.avg_pool2d(x, 2, {}).shape) })
    assert.is_true(torch.equal(F.dropout(x, 0, {}), x))
    assert.same({ 2, 3 }, { table.unpack(torch.zeros(2, 3, {}).shape) })
    assert.equal(torch.float64, x:to(torch.float64, {}).dtype)
    assert.is_true(torch.allclose(x, x, {}))
    torch.testing.assert_close(x, x, {})
  end)

  it("is no argument of a layer", function()
    local layer = nn.Linear(3, 2)
    assert.is_true(torch.equal(layer(torch.ones(3), {}), layer(torch.ones(3))))
    for name in layer:named_parameters({}) do
      assert.is_nil(name:find("%."))
    end
  end)

  it("is a list where that may be empty", function()
    assert.equal(0, torch.zeros({}):dim())
    assert.equal(0, torch.ones(1):view({}):dim())
    assert.equal(300 // 2, x:sum({}):item())
    torch.testing.assert_close({}, {})
    helper.raises("ValueError", "empty parameter list", function()
      optim.SGD({})
    end)
    helper.raises("ValueError", "lengths", function()
      torch.utils.data.random_split({ 1, 2 }, {})
    end)
  end)
end)
