--- interpolate: arguments; its kernel, gradients and compiled regions against
--- lookups and products by single operators.
local helper = require("spec.helper")
local torch = require("torch")

local F = torch.nn.functional
local nn = torch.nn
local raises = helper.raises

-- out[i] = 0.25 x[i // 2 - 1 or + 1] + 0.75 x[i // 2] along `dim`: twice the size.
local function doubled(x, dim)
  local n = x:size(dim)
  local at = torch.arange(2 * n)
  local near = at:div(2, { rounding_mode = "floor" })
  local far = (near + at:remainder(2) * 2 - 1):clamp(0, n - 1)
  return x:index_select(dim, near) * 0.75 + x:index_select(dim, far) * 0.25
end

describe("interpolate", function()
  it("weighs two neighbours when a picture doubles, and their gradients", function()
    torch.manual_seed(3)
    for _, dtype in ipairs({ torch.float32, torch.float64 }) do
      for _, shape in ipairs({ { 2, 3, 5, 7 }, { 1, 1, 1, 3 }, { 40, 40, 9, 8 } }) do
        local x = torch.randn(shape):to(dtype):requires_grad_()
        local got = F.interpolate(x, nil, 2, "bilinear")
        local want = doubled(doubled(x, 3), 2)
        local seed = torch.randn(want.shape):to(dtype)
        local tolerance = dtype == torch.float64 and { 1e-12, 1e-12 } or { 1e-5, 1e-5 }
        helper.near(got:detach(), want:detach(), tolerance)
        helper.near(torch.autograd.grad(got, { x }, seed)[1],
          torch.autograd.grad(want, { x }, seed)[1], tolerance)
      end
    end
  end)

  it("has second gradients in every mode", function()
    for mode, shape in pairs({ linear = { 2, 1, 4 }, bilinear = { 1, 2, 3, 4 },
      bicubic = { 1, 1, 4, 3 }, trilinear = { 1, 1, 2, 3, 2 } }) do
      local x = torch.randn(shape):double():requires_grad_()
      local function f(v)
        return F.interpolate(v, nil, 1.5, mode) ^ 2
      end
      assert.is_true(torch.autograd.gradcheck(f, { x }))
      assert.is_true(torch.autograd.gradgradcheck(f, { x }))
    end
  end)

  it("refuses gradients of weights and places that are not there", function()
    local resample = require("lupine.core").forms.internal.resample
    local x, w = torch.ones({ 2, 3 }), torch.ones({ 2 }):requires_grad_()
    raises("RuntimeError", "weights have no gradient", function()
      resample(x, { torch.tensor({ 0, 1 }), w }, 1):sum():backward()
    end)
    raises("IndexError", "index 3 is out of bounds", function()
      resample(x, { torch.tensor({ 0, 3 }), w:detach() }, 1)
    end)
  end)

  it("names the shape that has nothing to resize", function()
    raises("NotImplementedError", "3, 4 or 5 dimensions", function()
      nn.functional.interpolate(torch.ones(2, 3), { scale_factor = 2 })
    end)
  end)
end)
