--- No family of kernels that stores halves has a bias: a million draws of each
--- are, together, what the same operators compute of the same numbers in
--- float32, within four standard errors.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local torch = require("torch")

local F, internal = torch.nn.functional, core.forms.internal
local N = 1000000

-- Numbers of `dtype` without a period that a kernel could have.
local function pattern(shape, dtype, scale)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  local t = torch.sin(torch.arange(n):double() * 1.2345678 + 0.37) * (scale or 1)
  return t:reshape(shape):to(dtype)
end

-- {name, shapes of the operands, what is computed of them}
local FAMILIES = {
  { "pointwise", { { N }, { N } }, function(x, y) return x * y end },
  { "pointwise, strided", { { 1000, 1000 }, { 1000, 1 } }, function(x, y) return x:t() + y end },
  { "three operands", { { N }, { N }, { N } }, torch.addcmul },
  { "a sum over rows", { { N, 3 } }, function(x) return (x:sum(1)) end },
  { "a mean over columns", { { 5, N } }, function(x) return (x:mean(0)) end },
  { "logsumexp", { { N, 3 } }, function(x) return torch.logsumexp(x, 1) end },
  { "a norm", { { N, 3 } }, function(x) return internal.vector_norm(x, { 1 }, false, 2) end },
  { "running sums", { { N // 10, 10 } }, function(x) return x:cumsum(1) end, 0.9 },
  { "mm", { { 1000, 20 }, { 20, 1000 } }, torch.mm },
  { "bmm", { { 10, 200, 9 }, { 10, 9, 500 } }, torch.bmm },
  { "mm with an addend", { { 1000 }, { 1000, 20 }, { 20, 1000 } }, torch.addmm },
  { "convolution", { { 4, 3, 64, 64 }, { 64, 3, 3, 3 } },
    function(x, w) return F.conv2d(x, w, nil, 1, 1) end },
  { "convolution with an addend", { { 4, 3, 64, 64 }, { 64, 3, 3, 3 }, { 64 } },
    function(x, w, b) return F.conv2d(x, w, b, 1, 1) end },
  { "gradient to an image", { { 4, 8, 64, 64 }, { 8, 64, 3, 3 } }, F.conv_transpose2d },
  { "gradient to weights", { { 2, 1000, 4, 4 }, { 2, 1000, 4, 4 } }, function(d, x)
    return internal.convolution_backward_weight(d, x, { 1000, 1000, 1, 1 }, { 1, 1 },
      { 0, 0, 0, 0 }, { 1, 1 }, false, { 0, 0 }, 1)
  end },
  { "average pooling", { { 4, 16, 256, 256 } }, function(x) return F.avg_pool2d(x, 2) end },
  { "adaptive pooling", { { 16, 256, 256 } },
    function(x) return F.adaptive_avg_pool2d(x, 250) end },
  { "layer normalisation", { { 1000, 1000 } }, function(x) return F.layer_norm(x, { 1000 }) end },
  { "group normalisation", { { 4, 16, 125, 126 } }, function(x) return F.group_norm(x, 4) end },
  { "batch normalisation", { { 8, 16, 90, 90 } },
    function(x) return F.batch_norm(x, nil, nil, nil, nil, true) end },
  { "softmax", { { 1000, 1000 } }, function(x) return x:softmax(1) end },
  { "log_softmax", { { 1000, 1000 } }, function(x) return x:log_softmax(1) end },
  { "gradient of softmax", { { 1000, 1000 }, { 1000, 1000 } },
    function(d, x) return internal.softmax_backward(d, x:abs(), 1) end },
  { "rows that meet", { { 2 * N // 10, 10 } }, function(x)
    return internal.embedding_backward(x, torch.arange(2 * N // 10) % (N // 10), N // 10)
  end },
  { "elements that meet", { { 1, N }, { 1, N } },
    function(x, y) return x:scatter_add(0, torch.zeros({ 1, N }, { dtype = torch.int64 }), y) end },
  { "an update", { { N }, { N }, { N } }, function(w, g, m)
    return (internal.sgd_step(w, g, m, torch.tensor(0.01), torch.tensor(0.9),
      torch.tensor(0.0), torch.tensor(0.0)))
  end },
}

local function run(fn, inputs, numerics)
  local step = compiled.step(fn, inputs)
  step:complete({ numerics = numerics })
  local at, exec = compiled.vars(step), step:compile({})
  exec:rng(5, 0)
  return exec:run(compiled.feed(at, inputs), {})[at["output output_1"]]
end

-- How far the sum of halves is from that of what they were rounded from, in standard errors.
local function off(y, exact)
  local wide, half = y:double(), exact:to(y.dtype)
  local near = half:double()
  local function beside(towards)
    return torch.nextafter(half, torch.full_like(half, towards)):double()
  end
  exact = exact:double()
  local low = torch.where(near:le(exact), near, beside(-math.huge))
  local high = torch.where(near:ge(exact), near, beside(math.huge))
  local gap = high - low
  local p = torch.where(gap:eq(0), gap, (exact - low) / gap)
  local error = (wide - exact) / torch.where(gap:eq(0), gap + 1, gap)
  assert(error:abs():max():item() < 1.001, "further than a neighbour")
  local variance = (p * (1 - p)):sum():item()
  assert(variance > N / 50, "hardly anything rounds")
  return error:sum():item() / math.sqrt(variance)
end

describe("a million draws have no bias", function()
  for _, family in ipairs(FAMILIES) do
    local name, shapes, fn, scale = table.unpack(family)
    for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
      it(("%s, %s"):format(name, dtype), function()
        local half, wide = {}, {}
        for i, shape in ipairs(shapes) do
          half[i] = pattern(shape, dtype, (scale or 1) * (1 + 0.1 * i))
          wide[i] = half[i]:float()
        end
        local y = run(fn, half, { stochastic = true })
        assert.equal(dtype, y.dtype)
        assert.is_true(y:numel() >= N * 0.99, y:numel())
        local far = off(y, run(fn, wide))
        assert.is_true(math.abs(far) < 4, far)
      end)
    end
  end
end)
