--- scaled_dot_product_attention against its formula, and its gradients.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")

local function tensors(dtype, q, k, e, v, lead)
  torch.manual_seed(4)
  local function make(...)
    local sizes = { table.unpack(lead) }
    for _, s in ipairs({ ... }) do
      sizes[#sizes + 1] = s
    end
    return torch.randn(sizes):to(dtype):requires_grad_(true)
  end
  return make(q, e), make(k, e), make(k, v)
end

-- softmax(q k^T / sqrt(e) + mask) v by single operators.
local function formula(q, k, v, mask)
  local s = q:matmul(k:transpose(-1, -2)) / math.sqrt(q:size(-1))
  return torch.softmax(mask and s + mask or s, -1):matmul(v)
end

local function later(rows, cols)
  return torch.full({ rows, cols }, -math.huge):to(torch.float64):triu(1)
end

local function agree(q, k, v, got, want, tolerance)
  helper.near(got:detach(), want:detach(), tolerance)
  torch.manual_seed(9)
  local cotangent = torch.randn(want.shape):to(want.dtype)
  local a = torch.autograd.grad(got, { q, k, v }, cotangent)
  local b = torch.autograd.grad(want, { q, k, v }, cotangent)
  for i = 1, 3 do
    helper.near(a[i], b[i], tolerance)
  end
end

local EXACT = { 1e-12, 1e-12 }

describe("scaled_dot_product_attention", function()
  it("is its formula, with as many queries as fill several blocks or less than one", function()
    for _, queries in ipairs({ 1, 5, 64, 150 }) do
      local q, k, v = tensors(torch.float64, queries, 37, 6, 4, { 2, 3 })
      agree(q, k, v, F.scaled_dot_product_attention(q, k, v), formula(q, k, v), EXACT)
    end
  end)

  it("adds a mask that broadcasts over any leading dimension", function()
    local q, k, v = tensors(torch.float64, 7, 9, 3, 3, { 2, 3 })
    for _, sizes in ipairs({ { 7, 9 }, { 3, 1, 9 }, { 2, 1, 7, 1 }, { 2, 3, 7, 9 } }) do
      local mask = torch.randn(sizes):to(torch.float64)
      agree(q, k, v, F.scaled_dot_product_attention(q, k, v, mask), formula(q, k, v, mask), EXACT)
    end
  end)

  it("hides later keys when causal, and where a boolean mask is false", function()
    local q, k, v = tensors(torch.float64, 70, 80, 3, 3, { 2 })
    local hidden = later(70, 80)
    agree(q, k, v, F.scaled_dot_product_attention(q, k, v, { is_causal = true }),
      formula(q, k, v, hidden), EXACT)
    agree(q, k, v, F.scaled_dot_product_attention(q, k, v, hidden:eq(0)),
      formula(q, k, v, hidden), EXACT)
  end)

  -- One query is another loop where vectors divide the sizes.
  it("is its formula for one query: of any number of keys, masked, causal, in halves", function()
    for _, dtype in ipairs({ torch.float64, torch.float32, torch.float16 }) do
      local tolerance = ({ float64 = EXACT, float32 = { 1e-5, 1e-5 } })[dtype.name]
        or { 2e-3, 2e-3 }
      for _, sizes in ipairs({ { 1, 16, 16 }, { 3, 16, 32 }, { 37, 64, 144 }, { 256, 48, 16 } }) do
        local keys = sizes[1]
        local q, k, v = tensors(dtype, 1, keys, sizes[2], sizes[3], { 2, 3 })
        local mask = torch.randn(3, 1, keys)
        mask:select(2, 0):fill_(-math.huge) -- one key, or all there are
        for _, m in ipairs({ false, mask }) do
          local got = F.scaled_dot_product_attention(q, k, v, m and m:to(dtype) or nil)
          local want = formula(q:double(), k:double(), v:double(), m and m:double() or nil)
          helper.near(got:detach():double(), want:detach():nan_to_num(0), tolerance)
        end
        local first = F.scaled_dot_product_attention(q, k, v, { is_causal = true })
        helper.near(first:detach(), v:narrow(-2, 0, 1):detach(), { 0, 0 })
        k:detach():view(-1)[0] = 0 / 0
        assert.is_true(F.scaled_dot_product_attention(q, k, v)[{ 0, 0 }]:isnan():all():item())
      end
    end
  end)

  it("reads and writes heads where they lie in one wide matrix", function()
    for _, size in ipairs({ 5, 16, 32, 48 }) do
      torch.manual_seed(6)
      local b, t, heads = 2, 70, 3
      local wide = torch.randn(b, t, 3 * heads * size)
      local cotangent = torch.randn(b, heads, t, size)
      local function run(x, attend)
        local function parted(i)
          return x:split(heads * size, -1)[i]:view(b, t, heads, size):transpose(1, 2)
        end
        local y = attend(parted(1), parted(2), parted(3))
        return y, torch.autograd.grad(y, { x }, cotangent:to(x.dtype))[1]
      end
      local y, g = run(wide:clone():requires_grad_(true), function(q, k, v)
        return F.scaled_dot_product_attention(q, k, v, { is_causal = true })
      end)
      local want, slope = run(wide:double():requires_grad_(true), function(q, k, v)
        return formula(q, k, v, later(t, t))
      end)
      helper.near(y:detach():double(), want:detach(), { 1e-5, 1e-5 })
      helper.near(g:double(), slope, { 1e-5, 1e-5 })
    end
  end)

  it("gives a key far below the others no weight, and one far above them all", function()
    local q, k = torch.ones(1, 40, 16), torch.zeros(1, 40, 16)
    local v = torch.arange(40):float():view(1, 40, 1)
    k:select(1, 7):fill_(100)
    local y = F.scaled_dot_product_attention(q, k, v, { scale = 1.0 })
    helper.near(y, torch.full({ 1, 40, 1 }, 7.0), { 0, 0 })
    k:fill_(0)
    k:select(1, 7):fill_(-100)
    local rest = (39 * 40 / 2 - 7) / 39
    helper.near(F.scaled_dot_product_attention(q, k, v, { scale = 1.0 }),
      torch.full({ 1, 40, 1 }, rest), { 1e-6, 0 })
  end)

  it("lets several query heads share a key head", function()
    local q = tensors(torch.float64, 4, 4, 3, 3, { 1, 6 })
    local _, k, v = tensors(torch.float64, 4, 5, 3, 3, { 1, 2 })
    local wide_k, wide_v = k:repeat_interleave(3, 1), v:repeat_interleave(3, 1)
    agree(q, k, v, F.scaled_dot_product_attention(q, k, v, { enable_gqa = true }),
      formula(q, wide_k, wide_v), EXACT)
  end)

  -- as PyTorch 2.5 and later
  it("gives 0 for a query from which a mask hides all keys, and no gradient", function()
    for _, dtype in ipairs({ torch.float32, torch.float64 }) do
      local mask = torch.ones(3, 5):bool()
      mask[1] = false
      mask[{ 2, 0 }] = false
      for _, m in ipairs({ mask, torch.zeros(3, 5):to(dtype):masked_fill(mask:logical_not(),
        -math.huge) }) do
        local q, k, v = tensors(dtype, 3, 5, 4, 4, { 2 })
        local out = F.scaled_dot_product_attention(q, k, v, m)
        helper.near(out[":, 1"]:detach(), torch.zeros(2, 4):to(dtype), { 0, 0 })
        local want = formula(q, k, v, torch.zeros(3, 5):to(dtype):masked_fill(
          mask:logical_not(), -1e9))
        helper.near(out[":, ::2"]:detach(), want[":, ::2"]:detach(), { 1e-5, 1e-5 })
        out:sum():backward()
        helper.near(q.grad[":, 1"], torch.zeros(2, 4):to(dtype), { 0, 0 })
        for _, t in ipairs({ q, k, v }) do
          assert.is_false(t.grad:isnan():any():item())
        end
      end
    end
  end)

  it("computes half types in float32 and rounds once", function()
    local q, k, v = tensors(torch.float16, 6, 8, 4, 4, { 2 })
    local wide = formula(q:float(), k:float(), v:float())
    helper.near(F.scaled_dot_product_attention(q, k, v):detach(), wide:detach():half(),
      { 1e-3, 1e-3 })
  end)

  it("has gradients of gradients, and a gradient of its mask", function()
    local q, k, v = tensors(torch.float64, 3, 4, 2, 2, { 1 })
    local mask = torch.randn(3, 4):to(torch.float64):requires_grad_(true)
    local function again(f)
      local y = f(q, k, v, mask)
      local g = torch.autograd.grad((y * y):sum(), { q, mask }, { create_graph = true })
      local s = (g[1] * g[1]):sum() + (g[2] * g[2]):sum()
      return torch.autograd.grad(s, { q, k, v, mask })
    end
    local got, want = again(F.scaled_dot_product_attention), again(formula)
    for i = 1, 4 do
      helper.near(got[i], want[i], { 1e-10, 1e-10 })
    end
  end)

  it("refuses what does not fit, naming the shapes", function()
    local q, k, v = tensors(torch.float32, 3, 4, 2, 2, { 2 })
    helper.raises("RuntimeError", "value %[2, 3, 2%]", function()
      F.scaled_dot_product_attention(q, k, v["..., :3, :"])
    end)
    helper.raises("RuntimeError", "mask of shape %[5%]", function()
      F.scaled_dot_product_attention(q, k, v, torch.zeros(5))
    end)
    helper.raises("RuntimeError", "is_causal", function()
      F.scaled_dot_product_attention(q, k, v, torch.zeros(3, 4), { is_causal = true })
    end)
  end)
end)
