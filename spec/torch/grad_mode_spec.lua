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
