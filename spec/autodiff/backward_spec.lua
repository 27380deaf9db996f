-- What backward leaves in .grad: memory of its own, whatever the gradient was
-- computed in.
local nn = require("torch.nn")
local torch = require("torch")

local function leaf(...)
  return torch.tensor({ ... }, { requires_grad = true })
end

--- Each of the leaves' gradients can be written without another one changing.
local function apart(leaves, want)
  for i, x in ipairs(leaves) do
    assert.same(want[i], x.grad:tolist())
  end
  for _, x in ipairs(leaves) do
    x.grad:add_(1000)
  end
  for i, x in ipairs(leaves) do
    assert.same((torch.tensor(want[i]) + 1000):tolist(), x.grad:tolist())
  end
end

describe("the gradient of a leaf", function()
  it("is its own where one gradient goes to several leaves", function()
    local x, y = leaf(1.0, 2.0), leaf(3.0, 4.0);
    ((x + y) * 2):sum():backward()
    apart({ x, y }, { { 2, 2 }, { 2, 2 } })
  end)

  it("is its own where it comes from the caller", function()
    local x, g = leaf(1.0, 2.0), torch.tensor({ 5.0, 6.0 })
    x:backward(g)
    apart({ x }, { { 5, 6 } })
    assert.same({ 5, 6 }, g:tolist())
  end)

  it("is whole where it was a view of part of something", function()
    local x, y = leaf(1.0, 2.0), leaf(3.0)
    torch.cat({ x, y }):backward(torch.tensor({ 1.0, 2.0, 3.0 }))
    apart({ x, y }, { { 1, 2 }, { 3 } })
    local z = leaf(1.0, 2.0, 3.0)
    z:expand(2, 3):sum():backward()
    assert.is_true(z.grad:is_contiguous())
    apart({ z }, { { 2, 2, 2 } })
  end)

  it("adds up where one leaf is met twice by one operator", function()
    local x = leaf(1.0, 2.0)
    local y = torch.cat({ x, x });
    (y * torch.tensor({ 1.0, 2.0, 3.0, 4.0 })):sum():backward()
    apart({ x }, { { 4, 6 } })
    local w = leaf(3.0, 4.0);
    (w + w):backward(torch.tensor({ 1.0, 2.0 }))
    apart({ w }, { { 2, 4 } })
  end)

  it("is no view, though it was computed as one", function()
    local layer = nn.Linear(3, 2)
    layer(torch.ones(4, 3)):sum():backward()
    assert.is_nil(layer.weight.grad._base)
    apart({ layer.weight, layer.bias }, { { { 4, 4, 4 }, { 4, 4, 4 } }, { 4, 4 } })
    layer(torch.ones(4, 3)):sum():backward()
    assert.same({ 1008, 1008 }, layer.bias.grad:tolist())
  end)

  it("is its own when another gradient fails", function()
    local x, y, z = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(5.0, 6.0)
    local early = z * 1
    local broken = early:exp()
    local sum = broken * 2
    broken:register_hook(function()
      error("no further")
    end)
    local ok = pcall(function()
      (sum + (x + y)):sum():backward()
    end)
    assert.is_false(ok)
    assert.is_nil(z.grad)
    apart({ x, y }, { { 1, 1 }, { 1, 1 } })
  end)
end)

describe("the gradient that a tensor retains", function()
  it("is its own", function()
    local x, up = leaf(1.0, 2.0), torch.tensor({ 3.0, 4.0 })
    local a, b = x * 2, x * 3
    local sum = a + b
    for _, t in ipairs({ a, b, sum }) do
      t:retain_grad()
    end
    sum:backward(up)
    apart({ a, b, sum, x }, { { 3, 4 }, { 3, 4 }, { 3, 4 }, { 15, 20 } })
    assert.same({ 3, 4 }, up:tolist())
    local c = x * 2
    c:retain_grad()
    c:sum():backward()
    c.grad:zero_() -- memory for each element
    assert.same({ 0, 0 }, c.grad:tolist())
  end)

  it("adds up over passes, with inputs= and in torch.autograd.grad too", function()
    local x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    local z = x + w
    z:retain_grad()
    local sum = z:sum()
    sum:backward(nil, { inputs = { x }, retain_graph = true })
    assert.same({ 1, 1 }, z.grad:tolist())
    assert.is_nil(w.grad)
    torch.autograd.grad(sum, { x })
    assert.same({ 2, 2 }, z.grad:tolist())
  end)
end)
