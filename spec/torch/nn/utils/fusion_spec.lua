--- Layers with the normalization behind them, against the two one after the other.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local utils = nn.utils

-- A normalization with statistics and weights of its own.
local function conditioned(bn)
  torch.manual_seed(3)
  bn.running_mean:normal_()
  bn.running_var:uniform_(0.5, 2)
  torch.no_grad(function()
    bn.weight:normal_()
    bn.bias:normal_()
  end)
  return bn:eval()
end

describe("a normalization", function()
  for name, case in pairs({
    ["is folded into a convolution"] = { nn.Conv2d(3, 4, 3, { bias = false }), false },
    ["is folded into a convolution with a bias"] = { nn.Conv2d(3, 4, 3), false },
    ["is folded into a transposed convolution"] = { nn.ConvTranspose2d(3, 4, 3), true },
  }) do
    it(name, function()
      local conv, bn = case[1]:eval(), conditioned(nn.BatchNorm2d(4))
      local fused = utils.fuse_conv_bn_eval(conv, bn, case[2])
      local x = torch.randn(2, 3, 5, 5)
      torch.testing.assert_close(fused(x), bn(conv(x)), 1e-5, 1e-5)
      assert.equal("Conv", tostring(fused):match("^Conv"))
      assert.is_true(nn.Parameter:is(fused.weight))
    end)
  end

  it("is folded into a linear layer", function()
    local linear, bn = nn.Linear(3, 4):eval(), conditioned(nn.BatchNorm1d(4))
    local fused, x = utils.fuse_linear_bn_eval(linear, bn), torch.randn(6, 3)
    torch.testing.assert_close(fused(x), bn(linear(x)), 1e-5, 1e-5)
    helper.raises("AssertionError", "linear.out_features=3 and bn.num_features=4", function()
      utils.fuse_linear_bn_eval(nn.Linear(3, 3):eval(), bn)
    end)
  end)

  it("is folded for evaluation only", function()
    helper.raises("AssertionError", "only for eval", function()
      utils.fuse_conv_bn_eval(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    end)
  end)
end)

describe("skip_init", function()
  it("makes a module of that shape", function()
    local layer = utils.skip_init(nn.Linear, 3, 4, { bias = false })
    assert.same({ 4, 3 }, { table.unpack(layer.weight.shape) })
    assert.equal("cpu", tostring(layer.weight.device.type))
    assert.is_nil(layer.bias)
    helper.raises("RuntimeError", "expected a Module", function()
      utils.skip_init(3)
    end)
  end)
end)
