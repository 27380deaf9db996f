-- Windows: values by PyTorch 2.15.
local helper = require("spec.helper")
local torch = require("torch")

it("windows have PyTorch's values, periodic and symmetric", function()
  local want = {
    bartlett = { { 0.0, 0.4, 0.8, 0.8, 0.4 }, { 0.0, 0.66667, 0.66667, 0.0 } },
    blackman = { { 0.0, 0.20077, 0.84923, 0.84923, 0.20077 }, { 0.0, 0.63, 0.63, 0.0 } },
    hamming = { { 0.08, 0.39785, 0.91215, 0.91215, 0.39785 }, { 0.08, 0.77, 0.77, 0.08 } },
    hann = { { 0.0, 0.34549, 0.90451, 0.90451, 0.34549 }, { 0.0, 0.75, 0.75, 0.0 } },
    kaiser = { { 5e-05, 0.10172, 0.79294, 0.79294, 0.10172 }, { 5e-05, 0.51884, 0.51884, 5e-05 } },
  }
  for name, w in pairs(want) do
    local f = torch[name .. "_window"]
    helper.near(f(5), w[1], { 1e-5, 0 })
    helper.near(f(4, { periodic = false }), w[2], { 1e-5, 0 })
    assert.same({ 1.0 }, f(1):tolist())
    assert.same({ 0 }, { table.unpack(f(0).shape) })
    assert.equal(torch.float64, f(3, true, { dtype = torch.float64 }).dtype)
  end
  helper.near(torch.hamming_window(3, true, 0.5, 0.4), { 0.1, 0.7, 0.7 })
  helper.near(torch.kaiser_window(3, true, 2.0), { 0.4386763, 0.924314, 0.924314 })
  helper.raises("RuntimeError", "expects floating point", function()
    torch.hann_window(3, { dtype = torch.int64 })
  end)
end)
