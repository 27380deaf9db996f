--- The modes of autograd and how they are left.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("gradients that were switched off for good", function()
  it("are named by backward, with the place", function()
    local function forgets()
      local _ = torch.no_grad()
    end
    forgets()
    local loss = nn.Linear(2, 1)(torch.ones(1, 2)):sum()
    local ok, e = pcall(loss.backward, loss)
    torch.set_grad_enabled(true)
    assert.is_false(ok)
    assert.matches("since torch%.no_grad%(%) at .*grad_mode_spec%.lua:%d+", e.message)
    assert.matches("local _ <close> = torch.no_grad()", e.message, 1, true)
  end)

  it("are not named where a scope was closed", function()
    local loss = torch.no_grad(function()
      return nn.Linear(2, 1)(torch.ones(1, 2)):sum()
    end)
    local e = raises("RuntimeError", "requires a gradient", function()
      loss:backward()
    end)
    assert.not_matches("gradients are off", e.message)
  end)
end)

describe("a mode of gradients", function()
  it("gives a function what follows it", function()
    for name, on in pairs({ no_grad = false, inference_mode = false, enable_grad = true }) do
      assert.same({ on, 1, nil, 3 }, { torch[name](function(...)
        return torch.is_grad_enabled(), ...
      end, 1, nil, 3) })
    end
    assert.same({ false, 7 }, { torch.set_grad_enabled(false, function(x)
      return torch.is_grad_enabled(), x
    end, 7) })
  end)

  it("decorates a function", function()
    local w = torch.ones(2, { requires_grad = true })
    local function f(x, more)
      return x * w, more, torch.is_grad_enabled()
    end
    for name, on in pairs({ no_grad = false, inference_mode = false, enable_grad = true }) do
      local decorated = torch[name]()(f)
      torch.set_grad_enabled(not on)
      for _ = 1, 2 do
        local y, more, inside = decorated(torch.ones(2), 7)
        assert.same({ on, 7, on }, { y.requires_grad, more, inside })
        assert.equal(not on, torch.is_grad_enabled())
      end
      torch.set_grad_enabled(true)
    end
    raises("TypeError", "a function to decorate", function()
      torch.no_grad()(5)
    end)
    assert.is_true(torch.is_grad_enabled())
  end)
end)
