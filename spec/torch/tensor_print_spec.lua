-- How tensors print. The texts are what PyTorch 2 prints for the same tensors.
local torch = require("torch")

local function range(n, offset)
  local t = {}
  for i = 0, n - 1 do
    t[i + 1] = i + (offset or 0)
  end
  return torch.tensor(t)
end

local function prints(x, text)
  assert.equal(text, tostring(x))
end

describe("tostring of a tensor", function()
  after_each(function()
    torch.set_printoptions({ profile = "default" })
  end)

  it("prints whole floats with a point and aligns columns", function()
    prints(torch.tensor({ { 1.0, -2 }, { 300, 4 } }),
      "tensor([[  1.,  -2.],\n        [300.,   4.]])")
  end)

  it("prints fractions with four places", function()
    prints(torch.tensor({ 1.5, 2, 3 }), "tensor([1.5000, 2.0000, 3.0000])")
    prints(torch.tensor(3.25), "tensor(3.2500)")
  end)

  it("goes scientific when magnitudes are far apart", function()
    prints(torch.tensor({ 1e-5, 1.0 }), "tensor([1.0000e-05, 1.0000e+00])")
    prints(torch.tensor({ 12345.678, 0.5 }), "tensor([1.2346e+04, 5.0000e-01])")
    prints(torch.tensor({ 1e9, 1 }), "tensor([1.0000e+09, 1.0000e+00])")
  end)

  it("keeps non-finite values out of the choice of format", function()
    prints(torch.tensor({ 0 / 0, 1 / 0, -1 / 0, 1.5 }),
      "tensor([   nan,    inf,   -inf, 1.5000])")
    prints(torch.tensor({ 1 / 0, 2.0 }), "tensor([inf, 2.])")
  end)

  it("prints integers and booleans", function()
    prints(torch.tensor({ { 1, -20 }, { 300, 4 } }), "tensor([[  1, -20],\n        [300,   4]])")
    prints(torch.tensor({ true, false }), "tensor([ True, False])")
  end)

  it("puts blank lines between matrices", function()
    prints(torch.tensor({ { { 1.0, 2 } }, { { 5, 6 } } }),
      "tensor([[[1., 2.]],\n\n        [[5., 6.]]])")
  end)

  it("breaks lines at 80 columns", function()
    prints(range(25),
      "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n" ..
      "        18, 19, 20, 21, 22, 23, 24])")
  end)

  it("summarises more than 1,000 elements", function()
    prints(range(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])")
    prints(range(3000, 0.0):view(50, 60), [==[
tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 5.7000e+01, 5.8000e+01,
         5.9000e+01],
        [6.0000e+01, 6.1000e+01, 6.2000e+01,  ..., 1.1700e+02, 1.1800e+02,
         1.1900e+02],
        [1.2000e+02, 1.2100e+02, 1.2200e+02,  ..., 1.7700e+02, 1.7800e+02,
         1.7900e+02],
        ...,
        [2.8200e+03, 2.8210e+03, 2.8220e+03,  ..., 2.8770e+03, 2.8780e+03,
         2.8790e+03],
        [2.8800e+03, 2.8810e+03, 2.8820e+03,  ..., 2.9370e+03, 2.9380e+03,
         2.9390e+03],
        [2.9400e+03, 2.9410e+03, 2.9420e+03,  ..., 2.9970e+03, 2.9980e+03,
         2.9990e+03]])]==])
  end)

  it("says what is unusual: dtype, size, gradient", function()
    prints(torch.tensor({ 1.5 }, { dtype = torch.float64 }),
      "tensor([1.5000], dtype=torch.float64)")
    prints(torch.tensor({ 1.1 }, { dtype = torch.float16 }),
      "tensor([1.0996], dtype=torch.float16)")
    prints(torch.tensor({ 1 }, { dtype = torch.int32 }), "tensor([1], dtype=torch.int32)")
    prints(torch.tensor({}), "tensor([])")
    prints(torch.full({ 0, 3 }, 0.0), "tensor([], size=(0, 3))")
    prints(torch.full({ 0 }, 0), "tensor([], dtype=torch.int64)")
    prints(torch.tensor({ 1.5 }, { requires_grad = true }), "tensor([1.5000], requires_grad=True)")
    prints(torch.full({ 2, 3 }, 0.0, { device = "meta" }),
      "tensor(..., device='meta', size=(2, 3))")
  end)

  it("follows set_printoptions", function()
    torch.set_printoptions({ precision = 2 })
    prints(torch.tensor({ 1.234567, 2 }), "tensor([1.23, 2.00])")
    torch.set_printoptions({ sci_mode = true })
    prints(torch.tensor({ 1.234567, 2 }), "tensor([1.23e+00, 2.00e+00])")
    torch.set_printoptions({ profile = "default", linewidth = 20 })
    prints(range(8), "tensor([0, 1, 2, 3,\n        4, 5, 6, 7])")
    assert.has_error(function()
      torch.set_printoptions({ precsion = 2 })
    end)
  end)
end)
