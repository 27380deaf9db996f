-- Kernels that split their work over threads, at sizes at which they do: what
-- three threads give is what one gives for a few rows at a time, each of them
-- too few to be split, or what a formula gives.
local F = require("torch.nn.functional")
local lupine = require("lupine")
local nn = require("torch.nn")
local torch = require("torch")

local THREADS, PIECES = 3, 17 -- the sizes below leave remainders by both

local before
setup(function()
  before = torch.get_num_threads()
end)
after_each(function()
  torch.set_num_threads(before)
end)
before_each(function()
  torch.manual_seed(3)
  torch.set_num_threads(THREADS)
end)

local function near(got, want, what)
  assert.same({ table.unpack(want.shape) }, { table.unpack(got.shape) })
  assert.equal(want.dtype, got.dtype)
  if not torch.equal(got, want) then
    got, want = got:double(), want:double()
    local worst = ((got - want):abs() / (want:abs() + 1)):max():item()
    assert.is_true(worst < 1e-4, ("%s: an element is %g apart"):format(what, worst))
  end
end

-- Results, gradients by the rows and by the parameters of fn(rows, …).
local function run(fn, rows, parameters)
  local leaves, all = {}, {}
  for i, t in ipairs(rows) do
    leaves[i] = t:detach()
    if t.dtype.is_floating_point then
      leaves[i]:requires_grad_(true)
      all[#all + 1] = leaves[i]
    end
  end
  local y = fn(table.unpack(leaves))
  if #all == 0 or not y.requires_grad then
    return y, {}, {}
  end
  for _, p in ipairs(parameters) do
    all[#all + 1] = p
  end
  local g = torch.autograd.grad({ (y * y):sum() * 0.5 }, all)
  local n = #all - #parameters
  return y:detach(), { table.unpack(g, 1, n) }, { table.unpack(g, n + 1) }
end

-- fn over the rows (dimension 0 of each operand) as a whole, and in pieces.
local function in_pieces(name, fn, rows, parameters)
  parameters = parameters or {}
  local y, gx, gp = run(fn, rows, parameters)
  torch.set_num_threads(1)
  local n = rows[1]:size(0)
  local size = -(-n // PIECES)
  local ys, gxs, sums = {}, {}, {}
  for first = 0, n - 1, size do
    local part = {}
    for i, t in ipairs(rows) do
      part[i] = t:narrow(0, first, math.min(size, n - first))
    end
    local py, pgx, pgp = run(fn, part, parameters)
    ys[#ys + 1] = py
    for i, g in ipairs(pgx) do
      gxs[i] = gxs[i] or {}
      table.insert(gxs[i], g)
    end
    for i, g in ipairs(pgp) do
      sums[i] = sums[i] and sums[i] + g or g
    end
  end
  near(y, torch.cat(ys), name)
  for i, g in ipairs(gx) do
    near(g, torch.cat(gxs[i]), ("%s, gradient by operand %d"):format(name, i))
  end
  for i, g in ipairs(gp) do
    near(g / n, sums[i] / n, ("%s, gradient by parameter %d"):format(name, i))
  end
end

local function x(...)
  return torch.randn({ ... })
end

local function whole(n, ...)
  return torch.randint(0, n, { ... })
end

local function parameter(...)
  return nn.Parameter(torch.randn({ ... }) * 0.1)
end

local W, W3, W4 = parameter(57, 43), parameter(8, 6, 5), parameter(12, 8, 3, 3)
local D4 = nn.Parameter(W4:detach():double())
local LSTM = nn.LSTM(8, 24, { batch_first = true })
local GRU = nn.GRU(8, 24, { batch_first = true })
local PARAMETERS = { LSTM.weight_ih_l0, LSTM.weight_hh_l0, LSTM.bias_hh_l0 }
local TABLE = torch.linspace(-1, 1, 90):reshape({ 30, 3 })

-- name, function of rows, rows, parameters
local ROWS = {
  { "pointwise", function(a, b) return a:exp() * b end, { x(401, 301), x(401, 301) } },
  { "pointwise, broadcast", function(a, b) return a * b end, { x(401, 301), x(401, 1) } },
  { "cast", function(a) return a:to(torch.int64) end, { x(401, 301) * 50 } },
  { "a copy of a transpose", function(a) return a:transpose(1, 2):contiguous() end,
    { x(101, 41, 67) } },
  { "cat", function(a, b) return torch.cat({ a, b }, 1) end, { x(401, 301), x(401, 200) } },
  { "sum", function(a) return a:sum(1) end, { x(401, 301) } },
  { "sum of columns", function(a) return a:sum(1) end, { x(101, 41, 67) } },
  { "mean", function(a) return a:mean(1) end, { x(401, 301) } },
  { "prod", function(a) return a:prod(1) end, { x(401, 301) * 0.1 + 1 } },
  { "amax", function(a) return a:amax(1) end, { x(401, 301) } },
  { "max", function(a) return (a:max(1)) end, { x(401, 301) } },
  { "argmin", function(a) return a:argmin(1) end, { x(401, 301) } },
  { "logsumexp", function(a) return a:logsumexp(1) end, { x(401, 301) } },
  { "var", function(a) return a:var(1) end, { x(401, 301) } },
  { "norm", function(a) return a:norm(2, 1) end, { x(401, 301) } },
  { "cumsum", function(a) return a:cumsum(1) end, { x(401, 301) } },
  { "cumprod", function(a) return a:cumprod(1) end, { x(401, 301) * 0.1 + 1 } },
  { "gather", function(a, i) return a:gather(1, i) end, { x(401, 301), whole(301, 401, 301) } },
  { "gather from short rows", function(a, i) return a:gather(1, i) end,
    { x(401, 5), whole(5, 401, 301) } },
  { "scatter", function(a, b)
    return a:scatter(1, (torch.arange(301) * 7 % 301):expand_as(a), b)
  end, { x(401, 301), x(401, 301) } },
  { "scatter_add", function(a, i, b) return a:scatter_add(1, i, b) end,
    { x(401, 301), whole(301, 401, 301), x(401, 301) } },
  { "index_select", function(a) return a:index_select(1, torch.arange(300, 0, -2)) end,
    { x(401, 301) } },
  { "take_along_dim", function(a, i) return torch.take_along_dim(a, i, 1) end,
    { x(401, 301), whole(301, 401, 301) } },
  { "sort", function(a) return (a:sort(1)) end, { x(401, 301) } },
  { "argsort", function(a) return a:argsort(1, { stable = true }) end, { x(401, 301) } },
  { "topk", function(a) return (a:topk(5, 1)) end, { x(401, 301) } },
  { "embedding", function(i) return F.embedding(i, TABLE) end, { whole(30, 30011, 4) } },
  { "matmul by a matrix", function(a) return a:matmul(W) end, { x(401, 31, 57) }, { W } },
  { "bmm", function(a, b) return a:bmm(b) end, { x(101, 31, 57), x(101, 57, 43) } },
  { "bmm of few rows", function(a, b) return a:bmm(b) end, { x(2001, 1, 57), x(2001, 57, 3) } },
  { "linear in bfloat16", function(a)
    return F.linear(a, torch.linspace(-1, 1, 120 * 130):reshape({ 120, 130 }):bfloat16())
  end, { x(801, 130):bfloat16() } },
  { "softmax", function(a) return a:softmax(1) end, { x(401, 301) } },
  { "softmax of columns", function(a) return a:softmax(1) end, { x(101, 41, 67) } },
  { "log_softmax", function(a) return a:log_softmax(1) end, { x(401, 301) } },
  { "nll_loss", function(a, i) return F.nll_loss(a, i, { reduction = "none" }) end,
    { x(20011, 7), whole(7, 20011) } },
  { "cross_entropy", function(a, i) return F.cross_entropy(a, i, { reduction = "none" }) end,
    { x(20011, 7), whole(7, 20011) } },
  { "conv2d", function(a) return F.conv2d(a, W4, { padding = 1 }) end, { x(41, 8, 19, 21) },
    { W4 } },
  { "conv2d in float64", function(a) return F.conv2d(a, D4, { padding = 1, groups = 2 }) end,
    { x(41, 16, 19, 21):double() }, { D4 } },
  { "conv_transpose1d", function(a) return F.conv_transpose1d(a, W3, { stride = 2 }) end,
    { x(101, 8, 61) }, { W3 } },
  { "lstm", function(a) return (LSTM(a)) end, { x(201, 19, 8) }, PARAMETERS },
  { "gru", function(a) return (GRU(a)) end, { x(201, 19, 8) }, { GRU.weight_ih_l0 } },
  { "attention", function(q, k, v) return F.scaled_dot_product_attention(q, k, v) end,
    { x(31, 4, 33, 16), x(31, 4, 35, 16), x(31, 4, 35, 16) } },
  { "gelu", function(a) return F.gelu(a) end, { x(401, 301) } },
  { "avg_pool2d", function(a) return F.avg_pool2d(a, 3, 2, 1) end, { x(41, 3, 31, 33) } },
  { "max_pool2d", function(a) return F.max_pool2d(a, 3, 2, 1) end, { x(41, 3, 31, 33) } },
  { "max_pool2d of 16 channels", function(a) return F.max_pool2d(a, 2) end, { x(41, 16, 30, 32) } },
  { "adaptive_avg_pool2d", function(a) return F.adaptive_avg_pool2d(a, { 5, 7 }) end,
    { x(41, 3, 31, 33) } },
  { "max_pool1d", function(a) return F.max_pool1d(a, 3) end, { x(401, 3, 61) } },
  { "layer_norm", function(a) return F.layer_norm(a, { 301 }) end, { x(401, 301) } },
  { "group_norm", function(a) return F.group_norm(a, 3) end, { x(101, 6, 201) } },
  { "instance_norm", function(a) return F.instance_norm(a) end, { x(101, 6, 201) } },
}

describe("work that is split over threads gives what small pieces give:", function()
  for _, case in ipairs(ROWS) do
    it(case[1], function()
      in_pieces(table.unpack(case))
    end)
  end
end)

-- ---- what runs across the rows ---------------------------------------------
local function same(got, want)
  assert.is_true(torch.equal(got, torch.is_tensor(want) and want or torch.tensor(want)))
end

describe("work that is split over threads", function()
  it("of one long row has no gaps", function()
    local ones, n = torch.ones({ 300007 }, { dtype = torch.int64 }), 300007
    same(ones:sum(), n)
    same(ones:neg():prod(), -1)
    same(ones:cumsum(0), torch.arange(1, n + 1))
    same(ones:float():mean(), 1.0)
    same(ones:any(), true)
    local row = torch.arange(n) * 7919 % n -- 7919 and 300007 are primes
    same(row:max(), n - 1)
    same(row:argmax(), row:eq(n - 1):nonzero()[0][0])
    local sorted, at = row:sort()
    same(sorted, torch.arange(n))
    same(row:index_select(0, at), sorted)
    same(row:gather(0, at), sorted)
    same(row:topk(5), { n - 1, n - 2, n - 3, n - 4, n - 5 })
    same(torch.bincount(row % 7):sum(), n)
    same(torch.unique(row % 7), torch.arange(7))
    same(torch.randperm(n):sort(), torch.arange(n))
    same(row:masked_select(row:lt(5)):sort(), { 0, 1, 2, 3, 4 })
    same(torch.zeros({ 50 }):index_put({ row % 50 }, torch.ones({ n }), true):sum(), n + 0.0)
    same(torch.zeros({ 50 }):index_add(0, row % 50, torch.ones({ n })):sum(), n + 0.0)
    same(torch.zeros({ n }, { dtype = torch.int64 }):scatter(0, row, row), torch.arange(n))
  end)

  it("of long columns has none either", function()
    local a = torch.arange(701 * 301):reshape({ 701, 301 })
    -- sum over r of (301 r + c) = 301 * 701 * 700 / 2 + 701 c
    same(a:sum(0), torch.arange(301) * 701 + 301 * 701 * 350)
    same(a:amax(0), a[700])
    same(a:amin(0), a[0])
    same(a:argmax(0), torch.full({ 301 }, 700))
    same(a:flip({ 0 }):sort(0), a)
    same(a:flip({ 0 }):gather(0, (torch.arange(700, -1, -1)):unsqueeze(1):expand(701, 301)), a)
    same(a:gt(-1):all(0), torch.ones({ 301 }, { dtype = torch.bool }))
    same(torch.ones({ 701, 301 }):cumsum(0), torch.arange(1.0, 702):unsqueeze(1):expand(701, 301))
  end)

  it("of a batch norm takes the moments of all rows", function()
    local a = x(501, 6, 41)
    local b = a:transpose(1, 2):reshape({ 501 * 41, 6 }):double()
    local mean, var = b:mean(0), b:var(0, { unbiased = false })
    local want = ((b - mean) / (var + 1e-5):sqrt()):reshape({ 501, 41, 6 }):transpose(1, 2)
    near(F.batch_norm(a, torch.none, torch.none, torch.none, torch.none, true), want:float(),
      "batch_norm")
  end)

  it("of an optimizer's step moves each element", function()
    for _, name in ipairs({ "SGD", "Adam", "AdamW", "RMSprop" }) do
      local p = nn.Parameter(torch.zeros({ 70003 }))
      local q = nn.Parameter(torch.zeros({ 1 }))
      p.grad, q.grad = torch.full({ 70003 }, 0.5), torch.full({ 1 }, 0.5)
      torch.optim[name]({ p, q }, { lr = 0.1 }):step()
      assert.is_true(q:item() < -0.01)
      near(p:detach(), q:detach():expand(70003):clone(), name)
    end
  end)

  it("of dropout keeps or clears each element", function()
    local y = F.dropout(torch.ones({ 70003 }), 0.5)
    same(y:eq(2):logical_or(y:eq(0)):all(), true)
    assert.is_true(math.abs(y:eq(2):sum():item() - 35001.5) < 5 * math.sqrt(70003) / 2)
  end)

  it("of random numbers draws each", function()
    for threads = 1, THREADS do
      torch.set_num_threads(threads)
      same(torch.full({ 70003 }, -5.0):uniform_():ge(0):all(), true)
    end
  end)

  it("in compiled programs is what it is in eager calls", function()
    local function fn(a, b)
      local h = (a * 2 + b):tanh() * b
      return h, h:sum(1), h:sum(0), (h - h:mean(1, { keepdim = true })):exp()
    end
    local a, b = x(701, 301), x(701, 301)
    local got = { lupine.compile(fn, { a, b })(a, b) }
    torch.set_num_threads(1)
    for i, want in ipairs({ fn(a, b) }) do
      near(got[i], want, "result " .. i)
    end
  end)
end)
