local torch = require("torch")

-- Large products and convolutions run in parts (src/kernel/product/dnn.c,
-- conv_kernel.c). Operands of rank one with small whole numbers: sums are exact,
-- and known.
describe("a large", function()
  local function numbers(n, of)
    return torch.arange(n):fmod(of):to(torch.float32)
  end

  it("matrix product has all rows", function()
    local u, v, p, q = numbers(2999, 5), numbers(1500, 2), numbers(1500, 3), numbers(2503, 7)
    local sum = (v * p):sum():item()
    local a, b = u:unsqueeze(1) * v, p:unsqueeze(1) * q
    local want = u:unsqueeze(1) * q * sum
    assert.is_true(torch.equal(want, a:matmul(b)))
    assert.is_true(torch.equal(want:t(), b:t():matmul(a:t())))
    local both = torch.stack({ a, a + a }):matmul(b)
    assert.is_true(torch.equal(torch.stack({ want, want + want }), both))
    local sums = torch.ones(2999, 2503)
    sums:addmm_(a, b)
    assert.is_true(torch.equal(want + 1, sums))
  end)

  it("convolution has all images, and their gradients", function()
    local u, v = numbers(6, 5), numbers(64, 3)
    local x = (u:view(6, 1, 1, 1) * torch.ones(6, 32, 64, 64)):requires_grad_()
    x = x:detach():requires_grad_()
    local w = v:view(64, 1, 1, 1) * torch.ones(64, 32, 7, 7)
    local y = torch.nn.functional.conv2d(x, w)
    local want = (u:view(6, 1, 1, 1) * v:view(1, 64, 1, 1) * (32 * 49)):expand(6, 64, 58, 58)
    assert.is_true((y - want):abs():max():item() <= 1e-5 * want:max():item())
    y:backward(u:view(6, 1, 1, 1):expand(6, 64, 58, 58):contiguous())
    local middle = x.grad["3, 5, 30, 30"]:item()
    assert.near(3 * v:sum():item() * 49, middle, 1e-3 * middle)
    assert.equal(0, x.grad["0"]:abs():max():item())
  end)
end)
