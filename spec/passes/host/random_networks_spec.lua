--- Random convolutional networks: odd channels, strides, groups, padding,
--- pools, batch norm, residuals, writes on slices, dropout, a loss on top.
--- Compiled with and without each host pass they give the eager results,
--- gradients and statistics.
local compiled = require("spec.support.compiled")
local torch = require("torch")
local F = require("torch.nn.functional")

-- Small linear congruential numbers: the same networks everywhere.
local function numbers(seed)
  local state = seed * 7919 + 1
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return 1 + (state >> 12) % n
  end
end

-- A network grows layer by layer on a sample of its input. A layer is a
-- function of the value, the pool of earlier values, the parameters and
-- buffers, and a dropout function.
local Builder = {}
Builder.__index = Builder

function Builder:parameter(shape, scale)
  self.parameters[#self.parameters + 1] = torch.randn(shape) * (scale or 0.3)
  return #self.parameters
end

function Builder:buffer(t)
  self.buffers[#self.buffers + 1] = t
  return #self.buffers
end

local function channels(h)
  return h.shape[2]
end

local layers = {}

function layers.conv(b, random, h)
  local c = channels(h)
  local groups = random(3) == 1 and c or random(4) == 1 and c % 2 == 0 and 2 or 1
  local out = groups * (groups == 1 and ({ 1, 3, 5, 7, 8, 16, 17 })[random(7)] or random(2))
  local k = { random(3), random(3) }
  local keywords = { stride = { random(2), random(2) }, groups = groups,
    padding = { random(3) - 1, random(3) - 1 }, dilation = random(5) == 1 and 2 or 1 }
  local w = b:parameter({ out, c // groups, k[1], k[2] })
  local bias = random(2) == 1 and b:parameter({ out }) or nil
  return function(x, s)
    return F.conv2d(x, s.p[w], bias and s.p[bias] or torch.none, keywords)
  end
end

function layers.transposed(b, random, h)
  local out, stride = random(5), random(2)
  local w = b:parameter({ channels(h), out, 2, 3 })
  return function(x, s)
    return F.conv_transpose2d(x, s.p[w], torch.none, { stride = stride, padding = 1 })
  end
end

function layers.pool(_, random)
  local how, k, stride = random(3), 1 + random(2), random(2)
  return function(x)
    if how == 1 then
      return F.max_pool2d(x, k, stride, k // 2)
    elseif how == 2 then
      return F.avg_pool2d(x, k, stride, k // 2, { count_include_pad = stride == 1 })
    end
    return F.adaptive_avg_pool2d(x, { k, 3 })
  end
end

function layers.norm(b, random, h)
  local c, training = channels(h), random(3) > 1
  local w, bias = b:parameter({ c }, 1), b:parameter({ c })
  local mean, var = b:buffer(torch.randn(c) * 0.1), b:buffer(torch.rand(c) + 0.5)
  return function(x, s)
    return F.batch_norm(x, s.b[mean], s.b[var], s.p[w], s.p[bias], training, 0.1)
  end
end

function layers.activation(_, random)
  local f = ({ F.relu, torch.tanh, F.gelu, F.silu, torch.sigmoid, F.leaky_relu })[random(6)]
  return function(x)
    return f(x)
  end
end

function layers.residual(_, random)
  local far = random(6)
  return function(x, s)
    for i = #s.pool - far, 1, -1 do
      if s.pool[i].shape == x.shape then
        return x + s.pool[i]
      end
    end
    return x * 0.5 + 0.1
  end
end

function layers.together(_, random)
  local far = random(4)
  return function(x, s)
    local y = s.pool[math.max(1, #s.pool - far)]
    if y.shape[3] == x.shape[3] and y.shape[4] == x.shape[4] and channels(x) < 24 then
      return torch.cat({ x, y }, 1)
    end
    return x
  end
end

function layers.slices(_, random)
  local how = random(3)
  return function(x)
    local y = x * 1
    if how == 1 then
      y[":, 0:1"]:mul_(0.5)
    elseif how == 2 then
      y["..., ::2"]:add_(1)
    else
      y[":, -1"]:copy_(x[":, 0"] * 2)
      y["0"]:sub_(x["-1"] * 0.5)
    end
    return y
  end
end

function layers.dropout(b, random)
  local p = 0.1 * random(6)
  b.masks = b.masks + 1
  local i = b.masks
  return function(x, s)
    return s.dropout(x + 0.5, p, i)
  end
end

local heads = {
  function(y, target) return F.cross_entropy(y, target) end,
  function(y, target) return F.nll_loss(F.log_softmax(y, 1), target) end,
  function(y, target)
    return F.mse_loss(F.softmax(y, -1), F.one_hot(target, 5):float() * 0.5)
  end,
}

local KINDS = { "conv", "conv", "conv", "transposed", "pool", "norm", "norm", "activation",
  "activation", "residual", "residual", "together", "slices", "dropout" }

local function plain_dropout(x, p)
  return F.dropout(x, p, true)
end

local function apply(list, x, s)
  s.pool = { x }
  for _, layer in ipairs(list) do
    s.pool[#s.pool + 1] = layer(s.pool[#s.pool], s)
  end
  return s.pool[#s.pool]
end

-- Layers, parameters, buffers, input and target of a seed.
local function network(seed)
  torch.manual_seed(seed)
  local random = numbers(seed)
  local b = setmetatable({ parameters = {}, buffers = {}, masks = 0 }, Builder)
  local x = torch.randn(2 + random(2), ({ 1, 3, 4, 7 })[random(4)], 5 + random(5), 6 + random(4))
  local s = { p = b.parameters, b = b.buffers, dropout = plain_dropout, pool = { x } }
  local list, names = {}, {}
  for _ = 1, 4 + random(8) do
    local kind = KINDS[random(#KINDS)]
    local layer = layers[kind](b, random, s.pool[#s.pool])
    local ok, y = pcall(layer, s.pool[#s.pool], s)
    if ok and y:numel() > 0 and y:numel() < 20000 then -- a window may be too large
      list[#list + 1], names[#names + 1] = layer, kind
      s.pool[#s.pool + 1] = y
    end
  end
  local flat = s.pool[#s.pool]:numel() // x.shape[1]
  local w, bias = b:parameter({ 5, flat }, flat ^ -0.5), b:parameter({ 5 })
  list[#list + 1] = function(h, t)
    return F.linear(h:flatten(1), t.p[w], t.p[bias])
  end
  b.layers, b.x, b.target = list, x, torch.randint(0, 5, { x.shape[1] })
  b.head, b.names = heads[random(#heads)], table.concat(names, " ")
  return b
end

local function clones(list, grad)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = t:clone()
    if grad then
      out[i]:requires_grad_()
    end
  end
  return out
end

local function near(got, want, what)
  local scale = 1e-2 + want:abs():max():item()
  local d = (got - want):abs():max():item() / scale
  assert(d < 5e-4, ("%s differs by %g of its largest"):format(what, d))
end

-- Runs the step under compile options: its outputs, parameters and buffers.
local function train(b, options)
  local s = { p = clones(b.parameters), b = clones(b.buffers) }
  local declared = {}
  for i, t in ipairs(s.p) do
    declared[i] = { "parameter", "p" .. i, t }
  end
  for i, t in ipairs(s.b) do
    declared[#declared + 1] = { "buffer", "b" .. i, t }
  end
  local outputs
  local step, losses = compiled.step(function(x)
    local dropped = {}
    s.dropout = function(h, p, i)
      dropped[i] = F.dropout(h, p, true)
      return dropped[i]
    end
    local y = apply(b.layers, x, s)
    outputs = #dropped + 2
    return y, b.head(y, b.target), table.unpack(dropped)
  end, { b.x }, declared)
  step:complete({ loss = losses[#losses],
    rules = compiled.descent(compiled.vars(step), declared) })
  local at = compiled.vars(step)
  local exec = step:compile(options)
  exec:rng(11, 0)
  local got = exec:run(compiled.feed(at, { b.x }), {})
  local result = { p = {}, b = {}, out = {} }
  for i in ipairs(s.p) do
    result.p[i] = exec:read(at["parameter p" .. i])
  end
  for i in ipairs(s.b) do
    result.b[i] = exec:read(at["buffer b" .. i])
  end
  for i = 1, outputs do
    result.out[i] = got[at["output output_" .. i]]
  end
  return result
end

-- The same eagerly; `dropped` are values of which the masks are taken.
local function eager(b, dropped)
  local s = { p = clones(b.parameters, true), b = clones(b.buffers) }
  s.dropout = function(h, p, i)
    return h * dropped[i]:ne(0):float() * (1 / (1 - p))
  end
  local y = apply(b.layers, b.x, s)
  local loss = b.head(y, b.target)
  loss:backward()
  local result = { p = {}, b = s.b, out = { y:detach(), loss:detach() } }
  for i, p in ipairs(s.p) do
    result.p[i] = p.grad and b.parameters[i] - p.grad or b.parameters[i]
  end
  return result
end

local OPTIONS = { {}, { remat = 0 }, { fuse = false }, { blocked = false }, { packed = false },
  { fuse = false, blocked = false, packed = false } }

local function check(seed)
  local b = network(seed)
  local want
  for k, options in ipairs(OPTIONS) do
    local got = train(b, options)
    want = want or eager(b, { table.unpack(got.out, 3) })
    local what = ("network %d (%s), options %d: "):format(seed, b.names, k)
    for _, group in ipairs({ "out", "b", "p" }) do
      for i, t in ipairs(want[group]) do
        near(got[group][i]:reshape(t.shape), t, what .. group .. " " .. i)
      end
    end
  end
end

describe("an operator that overwrites a part of its first operand", function()
  it("does not take the memory of another operand of the same size", function()
    local index = torch.tensor({ { 2, 0, 1 }, { 1, 1, 0 } })
    local writers = {
      function(a, b) return torch.slice_scatter(a, b, 0, 0, 2) end,
      function(a, b) return torch.scatter(a, 1, index, b) end,
      function(a, b) return torch.scatter_add(a, 1, index, b) end,
      function(a, b) return torch.index_add(a, 0, torch.tensor({ 1, 0 }), b) end,
      function(a, b) return torch.index_copy(a, 0, torch.tensor({ 1, 0 }), b) end,
    }
    local x = torch.tensor({ { 1.0, 2, 3 }, { 4, 5, 6 } })
    for i, write in ipairs(writers) do
      local function f(a)
        local first = a:cumsum(1) -- is read again later, the second not
        return write(first, (a * a):cumsum(0)):cumsum(0) + first
      end
      local got = compiled.run(f, { x })[1]
      assert.is_true(compiled.same_bits(got, f(x)), "writer " .. i)
    end
  end)
end)

describe("random networks", function()
  it("compiled by each set of passes give what they give eagerly", function()
    for seed = 1, 30 do
      check(seed)
    end
  end)

  it("give it a thousand times #slow", function()
    for seed = 31, 1030 do
      check(seed)
    end
  end)
end)
