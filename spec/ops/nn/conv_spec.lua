-- Convolutions against sums over the definition; gradients by differences.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local differences = require("spec.support.differences")
local near, raises, numbers = helper.near, helper.raises, differences.numbers

-- y[n][o][i][j] = sum over c, k, l of x[n][c][s i + d k - p][…] w[o][c][k][l]
local function conv2d(x, w, o)
  local groups, out = o.groups or 1, {}
  local s, p, d = o.stride or { 1, 1 }, o.padding or { 0, 0 }, o.dilation or { 1, 1 }
  local xs, ws = x:tolist(), w:tolist()
  local h, wd, kh, kw = #xs[1][1], #xs[1][1][1], #ws[1][1], #ws[1][1][1]
  local oh = (h + 2 * p[1] - d[1] * (kh - 1) - 1) // s[1] + 1
  local ow = (wd + 2 * p[2] - d[2] * (kw - 1) - 1) // s[2] + 1
  for n = 1, #xs do
    out[n] = {}
    for f = 1, #ws do
      out[n][f] = {}
      local first = (f - 1) // (#ws // groups) * #ws[1]
      for i = 1, oh do
        out[n][f][i] = {}
        for j = 1, ow do
          local sum = 0
          for c = 1, #ws[1] do
            for k = 1, kh do
              for l = 1, kw do
                -- beyond the edges there is nothing
                local row = rawget(xs[n][first + c], (i - 1) * s[1] + (k - 1) * d[1] - p[1] + 1)
                local v = row and rawget(row, (j - 1) * s[2] + (l - 1) * d[2] - p[2] + 1) or 0
                sum = sum + v * ws[f][c][k][l]
              end
            end
          end
          out[n][f][i][j] = sum
        end
      end
    end
  end
  return out
end

describe("conv2d", function()
  for name, c in pairs({
    ["plain"] = { { 2, 3, 6, 5 }, { 4, 3, 3, 2 }, {} },
    ["strided, padded"] = { { 2, 3, 7, 5 }, { 4, 3, 3, 2 },
      { stride = { 2, 1 }, padding = { 1, 0 } } },
    ["dilated"] = { { 1, 2, 8, 9 }, { 3, 2, 3, 3 }, { dilation = { 2, 3 }, padding = { 2, 1 } } },
    ["grouped"] = { { 2, 4, 5, 5 }, { 6, 2, 3, 3 }, { groups = 2, padding = { 1, 1 } } },
    ["by channel"] = { { 2, 8, 5, 6 }, { 8, 1, 3, 3 }, { groups = 8 } },
    ["wide"] = { { 2, 16, 8, 8 }, { 32, 16, 3, 3 }, { padding = { 1, 1 } } },
  }) do
    it("is the sum of its definition: " .. name, function()
      local x, w = numbers(c[1], 1), numbers(c[2], 2)
      local want = conv2d(x, w, c[3])
      near(F.conv2d(x, w, c[3]), want)
      near(F.conv2d(x:float(), w:float(), c[3]), want, { 5e-5, 2e-5 })
      near(F.conv2d(x:half(), w:half(), c[3]), want, { 3e-2, 1e-2 })
      near(F.conv2d(x:bfloat16(), w:bfloat16(), c[3]), want, { 2e-1, 5e-2 })
    end)
  end

  it("adds a bias and takes an input without a batch", function()
    local x, w, b = numbers({ 3, 6, 5 }, 1), numbers({ 4, 3, 3, 2 }, 2), numbers({ 4 }, 3)
    local y, want = F.conv2d(x, w, b), conv2d(x:unsqueeze(0), w, {})[1]
    for f, v in ipairs(b:tolist()) do
      for _, row in ipairs(want[f]) do
        for j = 1, #row do
          row[j] = row[j] + v
        end
      end
    end
    near(y, want)
  end)

  it("keeps the size with padding 'same', the odd one behind", function()
    local x, w = numbers({ 1, 2, 5, 6 }, 1), numbers({ 3, 2, 2, 3 }, 2)
    local y = F.conv2d(x, w, { padding = "same" })
    assert.same({ 1, 3, 5, 6 }, { table.unpack(y.shape) })
    local wide = conv2d(x, w, { padding = { 1, 1 } })
    for f = 1, 3 do -- padding 1 on both sides has one row more in front
      near(y[0][f - 1], { table.unpack(wide[1][f], 2, 6) })
    end
    assert.same({ 1, 3, 4, 4 }, { table.unpack(F.conv2d(x, w, { padding = "valid" }).shape) })
  end)

  it("reads expanded and transposed inputs", function()
    local x, w = numbers({ 1, 3, 6, 5 }, 1):float(), numbers({ 4, 3, 3, 2 }, 2):float()
    near(F.conv2d(x:expand({ 2, 3, 6, 5 }), w), conv2d(torch.cat({ x, x }, 0), w, {}),
      { 5e-5, 2e-5 })
    local last = x:permute({ 0, 2, 3, 1 }):contiguous():permute({ 0, 3, 1, 2 })
    near(F.conv2d(last, w), conv2d(x, w, {}), { 5e-5, 2e-5 })
  end)

  it("has first and second gradients", function()
    local x, w, b = numbers({ 1, 2, 4, 3 }, 1), numbers({ 2, 2, 2, 2 }, 2), numbers({ 2 }, 3)
    differences.check(function(p, q, r)
      return F.conv2d(p, q, r, { stride = { 2, 1 }, padding = { 1, 0 } })
    end, { x, w, b })
    differences.check(function(p, q)
      return F.conv2d(p, q, { groups = 2, dilation = 2, padding = 2 })
    end, { numbers({ 1, 2, 3, 3 }, 1), numbers({ 2, 1, 2, 2 }, 2) })
  end)

  it("gives the gradients of float32 that float64 gives", function()
    local x, w = numbers({ 2, 5, 9, 7 }, 1), numbers({ 6, 5, 3, 3 }, 2)
    local function both(p, q)
      p, q = p:requires_grad_(true), q:requires_grad_(true)
      local y = F.conv2d(p, q, { padding = 1, stride = 2 })
      return torch.autograd.grad({ (y * y):sum() }, { p, q })
    end
    local exact, fast = both(x:clone(), w:clone()), both(x:float(), w:float())
    near(fast[1], exact[1], { 1e-3, 1e-4 })
    near(fast[2], exact[2], { 1e-3, 1e-4 })
  end)

  it("names what does not fit", function()
    local x, w = torch.zeros({ 1, 3, 5, 5 }), torch.zeros({ 4, 3, 3, 3 })
    raises("RuntimeError", "to have 3 channels.* but got 2 channels", function()
      F.conv2d(torch.zeros({ 1, 2, 5, 5 }), w)
    end)
    raises("RuntimeError", "groups", function()
      F.conv2d(x, w, { groups = 3 })
    end)
    raises("RuntimeError", "`stride` must be at least 1", function()
      F.conv2d(x, w, { stride = 0 })
    end)
    raises("RuntimeError", "can't be greater than the padded input", function()
      F.conv2d(torch.zeros({ 1, 3, 2, 2 }), w)
    end)
    raises("RuntimeError", "1%-dimensional with 4 elements", function()
      F.conv2d(x, w, torch.zeros({ 3 }))
    end)
    raises("RuntimeError", "3D .* or 4D", function()
      F.conv2d(torch.zeros({ 5, 5 }), w)
    end)
    raises("ValueError", "'valid' or 'same', got 'full'", function()
      F.conv2d(x, w, { padding = "full" })
    end)
    raises("RuntimeError", "strided", function()
      F.conv2d(x, w, { padding = "same", stride = 2 })
    end)
  end)
end)

describe("conv1d and conv3d", function()
  it("are conv2d with an axis less or more", function()
    local x, w = numbers({ 2, 3, 9 }, 1), numbers({ 4, 3, 3 }, 2)
    near(F.conv1d(x, w, { stride = 2 }):unsqueeze(2),
      conv2d(x:unsqueeze(2), w:unsqueeze(2), { stride = { 1, 2 } }))
    local x3, w3 = numbers({ 1, 2, 3, 4, 5 }, 1), numbers({ 3, 2, 1, 2, 3 }, 2)
    local y = F.conv3d(x3, w3)
    for d = 0, 2 do
      near(y:select(2, d), conv2d(x3:select(2, d), w3:select(2, 0), {}))
    end
    differences.check(F.conv1d, { numbers({ 1, 2, 5 }, 1), numbers({ 2, 2, 3 }, 2) })
    local p, q = numbers({ 1, 1, 2, 3, 3 }, 1), numbers({ 2, 1, 2, 2, 2 }, 2)
    differences.check(F.conv3d, { p, q }, true)
  end)
end)

describe("the weights' gradient by channel", function()
  -- <dy, conv(x, w)> is linear in w: its gradient at a place is its value for the
  -- window that is 1 there and 0 elsewhere.
  local function gradient(x, w, dy, o)
    local conv = w:dim() == 3 and F.conv1d or F.conv2d
    local places, out = w[0]:numel(), {}
    for i = 0, places - 1 do
      local one = torch.zeros({ places }, { dtype = torch.float64 })
      one[i] = 1
      local y = conv(x, one:view({ 1, 1, table.unpack(w.shape, 3) }):expand_as(w), o)
      out[i + 1] = (dy * y):sum({ 0, table.unpack({ 2, 3 }, 1, w:dim() - 2) })
    end
    return torch.stack(out, 1):view(w.shape)
  end
  for name, c in pairs({
    ["7 by 7"] = { { 3, 32, 9, 8 }, { 32, 1, 7, 7 }, { padding = 3, groups = 32 } },
    ["larger than the image"] = { { 2, 16, 3, 3 }, { 16, 1, 7, 7 },
      { padding = 3, groups = 16 } },
    ["strided"] = { { 2, 16, 9, 11 }, { 16, 1, 5, 4 },
      { padding = { 2, 1 }, stride = { 2, 3 }, groups = 16 } },
    ["dilated"] = { { 2, 16, 12, 11 }, { 16, 1, 2, 6 },
      { padding = { 0, 4 }, dilation = { 3, 2 }, groups = 16 } },
    ["of a sequence"] = { { 2, 48, 40 }, { 48, 1, 31 }, { padding = 15, groups = 48 } },
    ["not of whole blocks"] = { { 2, 20, 30 }, { 20, 1, 9 }, { padding = 4, groups = 20 } },
  }) do
    it("is the sum of its definition: " .. name, function()
      local x, w = numbers(c[1], 1), numbers(c[2], 2)
      local function made(p, q)
        q:requires_grad_()
        local y = (w:dim() == 3 and F.conv1d or F.conv2d)(p, q, c[3])
        local dy = numbers({ table.unpack(y.shape) }, 3)
        y:backward(dy:to(y.dtype))
        return q.grad, dy
      end
      local got, dy = made(x:float(), w:float())
      local want = gradient(x, w, dy, c[3]):tolist()
      near(got, want, { 1e-4, 2e-5 })
      near(made(x:float():transpose(-1, -2):contiguous():transpose(-1, -2), w:float()), want,
        { 1e-4, 2e-5 })
      near(made(x:half(), w:half()), want, { 1e-1, 2e-2 })
    end)
  end
end)

describe("conv_transpose", function()
  it("is the adjoint of the convolution with the same attributes", function()
    for _, o in ipairs({
      {}, { stride = 2 }, { padding = 1 }, { stride = { 2, 3 }, padding = { 0, 1 } },
      { dilation = 2 }, { groups = 2 },
    }) do
      local g = o.groups or 1
      local y, w = numbers({ 2, 4, 3, 4 }, 1), numbers({ 4, 6 // g, 3, 3 }, 2)
      local x = F.conv_transpose2d(y, w, o)
      local u = numbers({ table.unpack(x.shape) }, 3)
      -- <conv(u), y> = <u, conv_transpose(y)>
      local left, right = (F.conv2d(u, w, o) * y):sum():item(), (u * x):sum():item()
      assert.near(left, right, 1e-9 * (1 + math.abs(left)))
    end
  end)

  it("grows by output_padding and adds a bias", function()
    local y, w, b = numbers({ 1, 2, 3 }, 1), numbers({ 2, 3, 2 }, 2), numbers({ 3 }, 3)
    local x = F.conv_transpose1d(y, w, b, { stride = 2, output_padding = 1 })
    assert.same({ 1, 3, 7 }, { table.unpack(x.shape) })
    near(x:select(2, 6), { b:tolist() })
    differences.check(function(p, q, r)
      return F.conv_transpose1d(p, q, r, { stride = 2, output_padding = 1 })
    end, { y, w, b })
    raises("RuntimeError", "`output_padding` %(2%) must be smaller", function()
      F.conv_transpose1d(y, w, { stride = 2, output_padding = 2 })
    end)
  end)
end)

describe("the dtypes of a convolution", function()
  -- Small numbers are exact in float64, whose sums the rest of this file checks.
  it("may be integers, summed exactly in all passes", function()
    local op = require("lupine.core").forms.internal
    local function both(name, a, b, ...)
      local kept = a:clone()
      local whole = op[name](a, b, ...)
      assert.equal(torch.int64, whole.dtype)
      near(op[name](a:double(), b:double(), ...), whole:double():tolist())
      assert.is_true(torch.equal(kept, a)) -- no pass writes into an operand
      return whole
    end
    torch.manual_seed(0)
    local shared = { { 2, 1 }, { 1, 0 }, { 1, 2 } }
    for _, transposed in ipairs({ false, true }) do
      local x, w = torch.randint(-9, 10, { 2, 4, 6, 7 }), torch.randint(-9, 10, { 4, 2, 3, 2 })
      local function call(name, a, b, ...)
        local arg = table.pack(...)
        for i = 1, 3 do
          table.insert(arg, shared[i])
        end
        table.insert(arg, transposed)
        table.insert(arg, { 0, 0 })
        table.insert(arg, 2)
        return both(name, a, b, table.unpack(arg))
      end
      local y = call("convolution", x, w)
      local g = torch.randint(-9, 10, y.shape)
      call("convolution_backward_input", g, w, x.shape)
      call("convolution_backward_weight", g, x, w.shape)
    end
  end)

  it("must be one on the host, as in PyTorch", function()
    local x, w = numbers({ 1, 2, 4, 4 }, 1):float(), numbers({ 2, 2, 3, 3 }, 2):float()
    local bias = torch.zeros({ 2 })
    for _, name in ipairs({ "conv2d", "conv_transpose2d" }) do
      raises("RuntimeError", "`weight` must have the same dtype.*float16 and float32", function()
        F[name](x, w:half())
      end)
      raises("RuntimeError", "`bias` must have the same dtype.*float64 and float32", function()
        F[name](x, w, bias:double())
      end)
      F[name](x, w, bias)
    end
  end)
end)

describe("a window of one element", function()
  local function check(x, w)
    local function all(a, b)
      local y = F.conv2d(a, b)
      y:mul(y:detach():cos()):sum():backward()
      return y, a.grad, b.grad
    end
    local wide = { all(x:double():requires_grad_(), w:double():requires_grad_()) }
    for i, t in ipairs({ all(x:clone():requires_grad_(), w:clone():requires_grad_()) }) do
      local far = (t:double() - wide[i]):abs():max():item()
      assert.is_true(far < 1e-4, ("%d: %g"):format(i, far))
    end
  end

  it("is a product with each picture, of rows and other strides", function()
    for _, size in ipairs({ { 1, 3, 2, 5 }, { 1, 1, 1, 1 }, { 2, 8, 8, 4 }, { 3, 5, 9, 7 },
      { 2, 16, 32, 33 }, { 4, 3, 7, 6 } }) do
      local n, from, side, to = table.unpack(size)
      local x, w = torch.randn(n, from, side, side + 1), torch.randn(to, from, 1, 1)
      check(x, w)
      check(x:transpose(2, 3), w)
      check(x, torch.randn(from, to, 1, 1):transpose(0, 1))
    end
  end)
end)
