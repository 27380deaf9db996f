--- The floating-point operations that a profile states, against formulas.
local compiled = require("spec.support.compiled")
local control = require("lupine.control")
local torch = require("torch")
local F = require("torch.nn").functional

-- What fn's trained step computes, by part and label.
local function flops(fn, x, w)
  local list = { { "parameter", "w", w } }
  local step, losses = compiled.step(function(t)
    local y = fn(t, w)
    return F.mse_loss(y, torch.zeros_like(y))
  end, { x }, list)
  local at = compiled.vars(step)
  step:complete({ loss = losses[1], rules = compiled.descent(at, list) })
  local exec, out = step:compile({ fuse = false }), {}
  exec:profile(true)
  exec:run(compiled.feed(at, { x }), {})
  for _, row in ipairs(exec:profile().rows) do
    local key = row.part .. " " .. row.label
    out[key] = (out[key] or 0) + (row.flops or 0)
  end
  return out
end

describe("the operations of", function()
  it("a convolution are a multiplication and an addition for each pair of a result", function()
    local got = flops(function(t, w)
      return F.conv2d(t, w, nil, { stride = 2, groups = 2 })
    end, torch.randn(3, 8, 9, 7), torch.randn(6, 4, 3, 3))
    local one = 2 * (3 * 6 * 4 * 3) * (4 * 3 * 3)
    assert.equal(one, got["forward convolution"])
    assert.equal(one, got["backward convolution_backward_weight"])
  end)

  it("a transposed convolution are those for each pair of an operand", function()
    local got = flops(function(t, w)
      return F.conv_transpose2d(t * w:sum(), w, nil, { stride = 2 })
    end, torch.randn(3, 8, 4, 3), torch.randn(8, 5, 3, 2))
    local one = 2 * (3 * 8 * 4 * 3) * (5 * 3 * 2)
    assert.equal(one, got["forward convolution"])
    assert.equal(one, got["backward convolution_backward_weight"])
    assert.equal(one, got["backward convolution_backward_input"])
  end)

  it("a loop are those of its body in all rounds", function()
    local rounds, n = 5, 4
    local got = flops(function(t, w)
      return control.loop(rounds, function(v) return torch.matmul(v, w) end, { t })[1]
    end, torch.randn(3, n), torch.randn(n, n))
    assert.equal(rounds * 2 * 3 * n * n, got["forward loop"])
    -- two products, what each round adds to the sum of the gradients
    assert.equal(rounds * (2 * 2 * 3 * n * n + n * n), got["backward loop"])
  end)

  it("moving data are none", function()
    local got = flops(function(t, w)
      return torch.cat({ t, w }, 0):flip(0):roll(1, 1) * 2
    end, torch.randn(4, 6), torch.randn(3, 6))
    assert.equal(0, got["forward cat"])
    assert.equal(7 * 6, got["forward mul"] or got["forward mul*2"])
  end)
end)
