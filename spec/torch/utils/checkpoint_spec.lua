-- torch.utils.checkpoint: the same values, gradients and random numbers as
-- without it.
local helper = require("spec.helper")
local torch = require("torch")
local checkpoint = torch.utils.checkpoint.checkpoint

describe("checkpoint", function()
  it("computes again what backward needs, with the same random numbers", function()
    local layer, runs = torch.nn.Linear(3, 3), 0
    local function f(x, k)
      runs = runs + 1
      return torch.dropout(layer(x):tanh() * k, 0.5, true), x * 2
    end
    local function gradients(call)
      local x = torch.arange(6.0):reshape(2, 3):requires_grad_(true)
      layer:zero_grad()
      torch.manual_seed(3)
      local y, z = call(x)
      local after = torch.rand(1)
      local loss = y:sum() + z:sum()
      loss:backward()
      return y:detach(), after, x.grad, layer.weight.grad, torch.rand(1)
    end
    local want = { gradients(function(x) return f(x, 2) end) }
    runs = 0
    local got = { gradients(function(x) return checkpoint(f, x, 2, { use_reentrant = false }) end) }
    assert.equal(2, runs)
    for i, w in ipairs(want) do
      helper.near(got[i], w)
    end
  end)

  it("serves parameters alone and other checkpoints", function()
    local layer = torch.nn.Linear(3, 2)
    checkpoint(layer, torch.ones(4, 3)):sum():backward()
    helper.near(layer.weight.grad, { { 4, 4, 4 }, { 4, 4, 4 } })
    local x = torch.ones(2, { requires_grad = true })
    checkpoint(function(a)
      return checkpoint(function(b) return b:pow(3) end, a) * 2
    end, x):sum():backward()
    helper.near(x.grad, { 6, 6 })
  end)

  it("marks what is stored in a traced model", function()
    local poptorch = require("poptorch")
    local net = torch.nn.Module:extend("Net")
    function net:init()
      self.layer = torch.nn.Linear(2, 2)
    end
    function net:forward(x)
      return checkpoint(self.layer, x)
    end
    local model, x = net(), torch.ones(1, 2)
    helper.near(poptorch.inferenceModel(model)(x), model(x):detach():tolist(), { 1e-5, 1e-5 })
  end)

  it("names what it does not know", function()
    helper.raises("TypeError", "no parameter 'other'", function()
      checkpoint(torch.sin, torch.ones(1), { other = 1 })
    end)
    helper.raises("TypeError", "expected a function", function()
      checkpoint(3)
    end)
  end)
end)
