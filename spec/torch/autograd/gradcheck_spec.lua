local class = require("lupine.base.class")
local helper = require("spec.helper")
local torch = require("torch")

local gradcheck, gradgradcheck = torch.autograd.gradcheck, torch.autograd.gradgradcheck

local function leaf(values)
  return torch.tensor(values, { dtype = torch.float64, requires_grad = true })
end

describe("gradcheck", function()
  local x, y = leaf({ 0.5, 1.5, -1.0 }), leaf({ { 2.0 }, { -0.5 } })

  it("is true for functions of several inputs and results", function()
    local function fn(a, b)
      return (a * b):sin(), { a:exp(), b:pow(3) }
    end
    assert.is_true(gradcheck(fn, { x, y }))
    assert.is_true(gradgradcheck(fn, { x, y }))
  end)

  it("takes one tensor, and inputs that are no tensors", function()
    assert.is_true(gradcheck(torch.exp, x))
    assert.is_true(gradcheck(torch.sum, { y, 1 }))
  end)

  it("names output, input, element and both numbers", function()
    local function half_constant(a)
      return a:exp(), a:detach() * a -- 2 a by differences, a by the gradient
    end
    helper.raises("RuntimeError",
      "output 1, element 0.*input 0, element 0.*gradient is 0%.5, differences give 1", function()
        gradcheck(half_constant, { x })
      end)
    assert.is_false(gradcheck(half_constant, { x }, { raise_exception = false }))
  end)

  it("finds a second gradient that is wrong", function()
    local function fn(a)
      return a:detach() * a -- the gradient is a, but a constant
    end
    helper.raises("RuntimeError", "gradgradcheck: d%(output 0", function()
      gradgradcheck(fn, { x })
    end)
  end)

  it("leaves the inputs as they are, also when the function fails", function()
    local before = x:tolist()
    pcall(gradcheck, function(a)
      if a[0]:item() ~= 0.5 then
        error("moved")
      end
      return a * 2
    end, { x })
    assert.are.same(before, x:tolist())
    assert.is_nil(class.of(x.grad))
  end)

  it("refuses inputs without a gradient and unknown options", function()
    helper.raises("ValueError", "no input requires a gradient", function()
      gradcheck(torch.exp, { x:detach() })
    end)
    helper.raises("TypeError", "unknown option 'epsilon'", function()
      gradcheck(torch.exp, { x }, { epsilon = 1e-3 })
    end)
  end)
end)
