--- Half partials (numerics.half_partials): products and sums of float16 are
--- running sums that are rounded after each 16 products, in the order of their
--- index, bit by bit as spec/support/half_sums.lua has them.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local half_sums = require("spec.support.half_sums")
local report = require("lupine.report")
local torch = require("torch")

local F = torch.nn.functional
local HALF = { half_partials = true }

-- Numbers whose sums lose bits, of both signs.
local function pattern(shape, scale)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  local t = torch.arange(n):float()
  return ((torch.sin(t * 1.91 + 0.37) + 0.21) * (scale or 1)):half():reshape(shape)
end

local function step_of(fn, inputs, numerics)
  local step = compiled.step(fn, inputs)
  step:complete({ numerics = numerics or HALF })
  return step
end

local function ran(step, inputs, options)
  local at, exec = compiled.vars(step), step:compile(options or {})
  exec:rng(7, 0)
  return exec:run(compiled.feed(at, inputs), {})[at["output output_1"]]
end

local function flat(t)
  return t:double():reshape(-1):tolist()
end

-- Compares y with want(indices from 0) for every element, or every `each`-th.
local function compare(y, want, each)
  local sizes, list, wrong = y.shape, flat(y), {}
  for at = 1, #list, each or 1 do
    local index, rest = {}, at - 1
    for d = #sizes, 1, -1 do
      index[d], rest = rest % sizes[d], rest // sizes[d]
    end
    local exact = half_sums.f16(want(table.unpack(index)))
    if list[at] ~= exact and (exact == exact or list[at] == list[at]) then
      wrong[#wrong + 1] = ("%s: %.17g, not %.17g"):format(table.concat(index, " "), list[at], exact)
    end
  end
  assert(#wrong == 0, #wrong .. " differ: " .. (wrong[1] or ""))
end

local function product(a, b, m, k, n)
  a, b = flat(a), flat(b)
  assert(#a == m * k and #b == k * n)
  return function(i, j)
    return half_sums.sum(k, function(q)
      return a[i * k + q] * b[(q - 1) * n + j + 1]
    end)
  end
end

describe("half partials of products", function()
  local sizes = { { 5, 16, 7 }, { 3, 17, 40 }, { 1, 100, 1 }, { 40, 33, 2 }, { 2, 15, 70 },
    { 33, 300, 65 }, { 70, 521, 1 }, { 1, 48, 70 } }

  it("round after each 16, whatever the sizes", function()
    for _, s in ipairs(sizes) do
      local m, k, n = table.unpack(s)
      local a, b = pattern({ m, k }, 3), pattern({ k, n }, 2)
      local step = step_of(torch.matmul, { a, b })
      assert.matches("mm%b()[^\n]*half_partials", step:text("micro"))
      compare(ran(step, { a, b }), product(a, b, m, k, n), m * n > 1000 and 17 or 1)
    end
  end)

  it("do so for transposed and strided operands, and their gradients", function()
    local m, k, n = 19, 37, 21
    local a, b = pattern({ k, m }, 3), pattern({ n, 2 * k }, 2)
    local bt = b[":, ::2"]:t():contiguous()
    compare(ran(step_of(function(x, y) return x:t():matmul(y[":, ::2"]:t()) end, { a, b }),
      { a, b }), product(a:t():contiguous(), bt, m, k, n))
    -- x y^T by rows of y, with y 0 and then x: what is left are the gradients
    local x, y, dy = a:t():contiguous(), b[":, ::2"]:contiguous(), pattern({ m, n }, 0.7)
    local function gradients(v, w)
      local declared = { { "parameter", "v", v }, { "parameter", "w", w } }
      local step, losses = compiled.step(function(d)
        local p = declared[1][3]:matmul(declared[2][3]:t())
        return core.forms.internal.identity_loss((p * d):sum(), "none")
      end, { dy }, declared)
      local at = compiled.vars(step)
      step:complete({ loss = losses[1], rules = compiled.descent(at, declared), numerics = HALF })
      local exec = step:compile({})
      exec:run(compiled.feed(at, { dy }), {})
      return -exec:read(at["parameter v"]), -exec:read(at["parameter w"])
    end
    local dx = gradients(x * 0, y)
    compare(dx:reshape(m, k), product(dy, y, m, n, k))
    local _, dw = gradients(x, y * 0)
    compare(dw:reshape(n, k), product(dy:t():contiguous(), x, n, m, k))
  end)

  it("do so in batches, one by one", function()
    local a, b = pattern({ 3, 9, 50 }, 3), pattern({ 3, 50, 11 }, 2)
    local y = ran(step_of(torch.bmm, { a, b }), { a, b })
    for i = 0, 2 do
      compare(y[i], product(a[i], b[i], 9, 50, 11))
    end
  end)

  it("round with an addend what is left over, and before it what is not", function()
    for _, k in ipairs({ 32, 40, 521 }) do
      local x, w, c = pattern({ 6, k }, 3), pattern({ 5, k }, 2), pattern({ 5 }, 9)
      local y = ran(step_of(F.linear, { x, w, c }), { x, w, c })
      local of, bias = product(x, w:t():contiguous(), 6, k, 5), flat(c)
      compare(y, function(i, j) return half_sums.f32(of(i, j) + bias[j + 1]) end)
    end
  end)

  it("overflow as halves do", function()
    local a, b = torch.full({ 1, 32 }, 200.0):half(), torch.full({ 32, 1 }, 30.0):half()
    b["16:"] = -30
    assert.equal(math.huge, ran(step_of(torch.matmul, { a, b }), { a, b }):item())
    assert.equal(0, ran(step_of(torch.matmul, { a, b }, {}), { a, b }):item())
  end)

  it("are nothing to other types, nor without being asked for", function()
    for _, t in ipairs({ torch.float32, torch.bfloat16 }) do
      local a, b = pattern({ 4, 64 }):to(t), pattern({ 64, 4 }):to(t)
      local step = step_of(torch.matmul, { a, b })
      assert.is_nil(step:text("micro"):match(" half_partials\n"))
      assert.is_true(compiled.same_bits(ran(step, { a, b }),
        ran(step_of(torch.matmul, { a, b }, {}), { a, b })))
    end
    local a, b = pattern({ 4, 640 }, 3), pattern({ 640, 4 }, 2)
    local step = step_of(torch.matmul, { a, b }, {})
    assert.is_nil(step:text("step"):match(" half_partials\n"))
    assert.is_true(compiled.same_bits(a:matmul(b), ran(step, { a, b })))
  end)
end)

-- ---- convolutions ------------------------------------------------------------------------

-- Sums of one convolution of {n, groups, ic, oc (of a group), h, w, kh, kw,
-- stride, padding, dilation}, by the definition: forward, to input, to weights.
local function references(c, x, w, d)
  x, w, d = flat(x), flat(w), flat(d)
  local oh = (c.h + 2 * c.pad - c.dil * (c.kh - 1) - 1) // c.stride + 1
  local ow = (c.w + 2 * c.pad - c.dil * (c.kw - 1) - 1) // c.stride + 1
  local C, O, taps = c.groups * c.ic, c.groups * c.oc, c.kh * c.kw
  local function at_x(n, ch, y, z)
    return y >= 0 and y < c.h and z >= 0 and z < c.w and x[((n * C + ch) * c.h + y) * c.w + z + 1]
      or 0.0
  end
  local function at_w(o, i, t)
    return w[(o * c.ic + i) * taps + t + 1]
  end
  local function at_d(n, o, y, z)
    return d[((n * O + o) * oh + y) * ow + z + 1]
  end
  local function place(t)
    return t // c.kw * c.dil - c.pad, t % c.kw * c.dil - c.pad
  end
  local all = {}
  function all.forward(n, o, y, z)
    local first = o // c.oc * c.ic
    return half_sums.sum(c.ic * taps, function(q)
      local i, t = (q - 1) // taps, (q - 1) % taps
      local a, b = place(t)
      return at_w(o, i, t) * at_x(n, first + i, y * c.stride + a, z * c.stride + b)
    end)
  end
  function all.input(n, ch, y, z)
    local first, i = ch // c.ic * c.oc, ch % c.ic
    return half_sums.sum(c.oc * taps, function(q)
      local o, t = first + (q - 1) // taps, (q - 1) % taps
      local a, b = place(t)
      a, b = y - a, z - b
      if a % c.stride ~= 0 or b % c.stride ~= 0 or a < 0 or b < 0 or a // c.stride >= oh
        or b // c.stride >= ow then
        return 0.0
      end
      return at_w(o, i, t) * at_d(n, o, a // c.stride, b // c.stride)
    end)
  end
  function all.weight(o, i, kh, kw)
    local ch = o // c.oc * c.ic + i
    local a, b = place(kh * c.kw + kw)
    return half_sums.sum(c.n * oh * ow, function(q)
      local n, y, z = (q - 1) // (oh * ow), (q - 1) % (oh * ow) // ow, (q - 1) % ow
      return at_d(n, o, y, z) * at_x(n, ch, y * c.stride + a, z * c.stride + b)
    end)
  end
  return all
end

-- y and the gradients to x and w where dy is d, by the step.
local function convolved(c, x, w, d)
  local declared = { { "parameter", "x", x }, { "parameter", "w", w } }
  local step, losses = compiled.step(function(g)
    local y = F.conv2d(declared[1][3], declared[2][3], nil, c.stride, c.pad, c.dil, c.groups)
    return core.forms.internal.identity_loss((y * g):sum(), "none"), y
  end, { d }, declared)
  local at = compiled.vars(step)
  step:complete({ loss = losses[1], rules = compiled.descent(at, declared), numerics = HALF })
  assert.equal(4, select(2, step:text("micro"):gsub(" half_partials\n", "")))
  local exec = step:compile({})
  local y = exec:run(compiled.feed(at, { d }), {})[at["output output_2"]]
  return y, x - exec:read(at["parameter x"]):reshape(x.shape),
    w - exec:read(at["parameter w"]):reshape(w.shape)
end

describe("half partials of convolutions", function()
  local cases = {
    plain = { n = 2, groups = 1, ic = 3, oc = 5, h = 7, w = 9, kh = 3, kw = 3, stride = 1, pad = 1,
      dil = 1 },
    ["of single places"] = { n = 3, groups = 1, ic = 35, oc = 4, h = 3, w = 5, kh = 1, kw = 1,
      stride = 1, pad = 0, dil = 1 },
    strided = { n = 2, groups = 1, ic = 2, oc = 3, h = 8, w = 7, kh = 3, kw = 2, stride = 2,
      pad = 1, dil = 1 },
    ["dilated, in groups"] = { n = 1, groups = 2, ic = 3, oc = 2, h = 9, w = 8, kh = 2, kw = 3,
      stride = 1, pad = 2, dil = 2 },
    ["that drop positions"] = { n = 1, groups = 1, ic = 2, oc = 2, h = 10, w = 10, kh = 2, kw = 2,
      stride = 3, pad = 0, dil = 1 },
  }
  for name, c in pairs(cases) do
    it("round after each 16 weights, positions and gradients: " .. name, function()
      local x = torch.zeros({ c.n, c.groups * c.ic, c.h, c.w }):half()
      local w = torch.zeros({ c.groups * c.oc, c.ic, c.kh, c.kw }):half()
      local shape = F.conv2d(x, w, nil, c.stride, c.pad, c.dil, c.groups).shape
      -- the parameters are 0 but for one of them: x - 0 is exact
      local vx, vw, d = pattern(x.shape, 3), pattern(w.shape, 2), pattern(shape, 0.7)
      local want = references(c, vx, vw, d)
      compare(ran(step_of(function(a, b)
        return F.conv2d(a, b, nil, c.stride, c.pad, c.dil, c.groups)
      end, { vx, vw }), { vx, vw }), want.forward)
      local _, dx = convolved(c, x, vw, d)
      compare(dx, want.input)
      if c.h == 7 then -- the same by itself: no position is dropped
        assert.is_true(compiled.same_bits(dx, ran(step_of(function(v, k)
          return F.conv_transpose2d(v, k, nil, c.stride, c.pad, 0, c.groups, c.dil)
        end, { d, vw }), { d, vw })))
      end
      local _, _, dw = convolved(c, vx, w, d)
      compare(dw, want.weight)
    end)
  end
end)

-- ---- reductions --------------------------------------------------------------------------

describe("half partials of sums", function()
  local x = pattern({ 5, 37, 3, 19 }, 40)
  local list = flat(x)
  local function at(a, b, c, d)
    return list[((a * 37 + b) * 3 + c) * 19 + d + 1]
  end

  it("round after each 16 elements, over any dimensions", function()
    compare(ran(step_of(function(v) return (v:sum(1)) end, { x }), { x }), function(a, c, d)
      return half_sums.sum(37, function(q) return at(a, q - 1, c, d) end)
    end)
    compare(ran(step_of(function(v) return (v:sum(-1)) end, { x }), { x }), function(a, b, c)
      return half_sums.sum(19, function(q) return at(a, b, c, q - 1) end)
    end)
    compare(ran(step_of(function(v) return v:sum({ 0, 3 }) end, { x }), { x }), function(b, c)
      return half_sums.sum(5 * 19, function(q) return at((q - 1) // 19, b, c, (q - 1) % 19) end)
    end)
    compare(ran(step_of(function(v) return v:transpose(0, 3):sum({ 0, 1 }) end, { x }), { x }),
      function(c, a)
        return half_sums.sum(19 * 37, function(q) return at(a, (q - 1) % 37, c, (q - 1) // 37) end)
      end)
  end)

  it("round before a mean divides", function()
    local function mean(n, element)
      return half_sums.f32(half_sums.sum(n, element) / n)
    end
    compare(ran(step_of(function(v) return v:mean(1) end, { x }), { x }), function(a, c, d)
      return mean(37, function(q) return at(a, q - 1, c, d) end)
    end)
    local few = x[0][0]:contiguous()
    local y = ran(step_of(function(v) return v:mean() end, { few }), { few }):item()
    assert.equal(half_sums.f16(mean(57, function(q) return list[q] end)), y)
    assert.is_true(math.abs(y) < 100) -- no infinity
  end)

  it("stand still where a half does", function()
    local ones = torch.ones({ 100000 }):half()
    assert.equal(32768, ran(step_of(function(v) return v:sum() end, { ones }), { ones }):item())
  end)

  it("are not those of a sum in float32", function()
    local step = step_of(function(v) return v:sum({ dtype = torch.float32 }) end, { x })
    assert.is_nil(step:text("micro"):match(" half_partials\n"))
  end)
end)

-- ---- the same bits however it runs ---------------------------------------------------------

local function network(x, w1, w2)
  local h = F.gelu(F.conv2d(x, w1, nil, 1, 1))
  h = F.layer_norm(h:flatten(2):transpose(1, 2), { 6 })
  return F.scaled_dot_product_attention(h, h, h):matmul(w2):softmax(-1)
end

describe("a step with half partials", function()
  local inputs = { pattern({ 4, 3, 6, 6 }), pattern({ 6, 3, 3, 3 }), pattern({ 6, 40 }) }

  it("is the same on any number of threads, fused or not, replayed, read again", function()
    local step = step_of(network, inputs)
    local want = ran(step, inputs)
    for _, options in ipairs({ { threads = 4 }, { threads = 1 }, { fuse = false },
      { epilogues = false, packed = false, blocked = false }, { remat = 0 } }) do
      assert.is_true(compiled.same_bits(want, ran(step, inputs, options)))
    end
    local out = report.replay(step, {}, compiled.feed(compiled.vars(step), inputs), { seed = 7 })
    assert.is_true(compiled.same_bits(want, out[compiled.vars(step)["output output_1"]]))
    local again = core.step_parse(step:text("step"))
    assert.equal(step:text("step"), again:text("step"))
    assert.is_true(compiled.same_bits(want, ran(again, inputs)))
    assert.is_false(compiled.same_bits(want, ran(step_of(network, inputs, {}), inputs)))
  end)

  it("has its last rounding at random, if stores have", function()
    local a = torch.full({ 1000, 32 }, 1.015625):half()
    local b = torch.full({ 32, 1000 }, 0.7578125):half()
    local y = ran(step_of(torch.matmul, { a, b }, { half_partials = true, stochastic = true }),
      { a, b }):double():reshape(-1)
    local first = half_sums.sum(16, function() return 1.015625 * 0.7578125 end)
    local exact = first + 16 * 1.015625 * 0.7578125
    local p = (exact - y:min():item()) / 2 ^ -6
    assert.equal(2 ^ -6, y:max():item() - y:min():item())
    assert.is_true(math.abs(y:mean():item() - exact) < 4 * 2 ^ -6 * math.sqrt(p * (1 - p) / 1e6))
  end)

  it("is refused where what it says sums no halves", function()
    local text = step_of(function(x) return x * 3 end, { torch.ones({ 4 }):half() }):text("step")
    assert.error_matches(function()
      core.step_parse((text:gsub("(= mul[^\n]*)", "%1 half_partials", 1)))
    end, "mul has half partials, but sums no float16 numbers", 1, true)
  end)
end)
