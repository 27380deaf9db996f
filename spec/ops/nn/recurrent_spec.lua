-- lstm, gru and rnn over whole sequences against the equations of one step
-- (the cells of torch.nn, and packed sequences, which run them), in sizes that
-- take the library's products and in sizes that take ours.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.helper")
local lupine_compile = require("lupine.compile")
local torch = require("torch")
local pack = require("torch.nn.utils.rnn")
local nn = torch.nn

local CASES = {
  { "LSTM", {} }, { "LSTM", { bias = false, bidirectional = true } },
  { "LSTM", { proj_size = 3, bidirectional = true } },
  { "GRU", {} }, { "GRU", { bias = false, bidirectional = true } },
  { "RNN", { bidirectional = true } }, { "RNN", { nonlinearity = "relu" } },
}

-- steps, batch, input, hidden; the gradients of the last are summed in chunks
local SIZES = { { 1, 1, 2, 4 }, { 4, 3, 5, 4 }, { 6, 17, 40, 48 }, { 8, 32, 9, 24 } }

local function layer(case, size, dtype)
  torch.manual_seed(3)
  local options = { num_layers = 2 }
  for k, v in pairs(case[2]) do
    options[k] = v
  end
  local m = nn[case[1]](size[3], size[4], options):to(dtype)
  local per = (case[2].bidirectional and 2 or 1) * 2
  local function state(n)
    return torch.randn({ per, size[2], n }):to(dtype):requires_grad_(true)
  end
  local h = state(case[2].proj_size or size[4])
  local c = case[1] == "LSTM" and state(size[4]) or nil
  local x = torch.randn({ size[1], size[2], size[3] }):to(dtype):requires_grad_(true)
  return m, x, c and { h, c } or h
end

local function packed(m, x, hx)
  local lengths = {}
  for i = 1, x:size(1) do
    lengths[i] = x:size(0)
  end
  local out, last = m(pack.pack_padded_sequence(x, torch.tensor(lengths)), hx)
  return pack.pad_packed_sequence(out), last
end

-- All results, and gradients of a sum of them with different weights.
local function everything(m, x, hx, out, last)
  local all, wrt = { out }, { x }
  for _, part in ipairs(torch.is_tensor(last) and { last } or last) do
    all[#all + 1] = part
  end
  for _, part in ipairs(torch.is_tensor(hx) and { hx } or hx) do
    wrt[#wrt + 1] = part
  end
  for _, p in ipairs(m:parameters()) do
    wrt[#wrt + 1] = p
  end
  torch.manual_seed(8)
  local cotangents = {}
  for i, y in ipairs(all) do
    cotangents[i] = torch.randn(y.shape):to(y.dtype)
  end
  for _, d in ipairs(torch.autograd.grad(all, wrt, cotangents)) do
    all[#all + 1] = d
  end
  return all
end

local function each(check)
  for _, case in ipairs(CASES) do
    for _, size in ipairs(SIZES) do
      check(case, size)
    end
  end
end

describe("a recurrent layer as one operator", function()
  it("gives the values and gradients of its steps one by one", function()
    each(function(case, size)
      for dtype, tolerance in pairs({ [torch.float64] = 1e-12, [torch.float32] = 2e-5 }) do
        local m, x, hx = layer(case, size, dtype)
        local got = everything(m, x, hx, m(x, hx))
        local want = everything(m, x, hx, packed(m, x, hx))
        for i, w in ipairs(want) do
          helper.near(got[i]:detach(), w:detach(), { tolerance, tolerance })
        end
      end
    end)
  end)

  it("is float32 rounded in float16", function()
    each(function(case, size)
      local m, x, hx = layer(case, size, torch.float32)
      local want = m(x, hx)
      local states = torch.is_tensor(hx) and hx:half() or { hx[1]:half(), hx[2]:half() }
      local got = m:half()(x:half(), states)
      assert.equal(torch.float16, got.dtype)
      helper.near(got:float():detach(), want:detach(), { 1e-2, 1e-2 })
    end)
  end)

  it("has the gradients of gradients that differences have", function()
    for _, case in ipairs(CASES) do
      local m, x, hx = layer(case, { 2, 2, 2, 4 }, torch.float64)
      torch.autograd.gradgradcheck(function(input)
        return (m(input, hx))
      end, { x })
    end
  end)

  it("is one node for each layer and direction, in both halves of a step", function()
    for _, kind in ipairs({ "LSTM", "GRU", "RNN" }) do
      local m = nn[kind](4, 6, { num_layers = 2, bidirectional = true })
      local step = compiled.step(function(x)
        return (m(x))
      end, { torch.randn({ 5, 3, 4 }) })
      local _, n = step:text("micro"):gsub("= " .. kind:lower() .. "%(", "")
      assert.equal(4, n)
    end
  end)

  it("is compiled, bit by bit, what it is in eager calls", function()
    each(function(case, size)
      local m, x, hx = layer(case, size, torch.float32)
      x = x:detach()
      local function whole(input)
        return (m(input, hx))
      end
      assert(compiled.same_bits(lupine_compile(whole, { x })(x), whole(x)))
    end)
  end)

  -- Bits may tell the width a kernel was prepared for; the library's products do
  -- with AVX2, where only what is asked for must hold.
  it("has the same bits with one thread and with two", function()
    local before = torch.get_num_threads()
    local simd = core.host.cpu().simd
    torch.use_deterministic_algorithms(simd == "avx2")
    each(function(case, size)
      local all = {}
      for threads = 1, 2 do
        torch.set_num_threads(threads)
        local m, x, hx = layer(case, size, torch.float32)
        all[threads] = everything(m, x, hx, m(x, hx))
      end
      torch.set_num_threads(before)
      for i, first in ipairs(all[1]) do
        assert(compiled.same_bits(first:detach(), all[2][i]:detach()))
      end
    end)
    torch.use_deterministic_algorithms(false)
  end)

  it("makes no gradient that is not asked for", function()
    local m, x = layer({ "LSTM", {} }, { 3, 2, 4, 5 }, torch.float64)
    local want = torch.autograd.grad(m(x):sum(), { m.weight_hh_l1 })[1]
    m:requires_grad_(false)
    m.weight_hh_l1:requires_grad_(true)
    local got = torch.autograd.grad(m(x:detach()):sum(), { m.weight_hh_l1 })[1]
    assert(compiled.same_bits(got, want))
  end)

  it("refuses sequences without steps and states of another type", function()
    helper.raises("RuntimeError", "at least one step", function()
      nn.GRU(2, 3)(torch.zeros({ 0, 1, 2 }))
    end)
    helper.raises("RuntimeError", "`h_0` must have the same dtype", function()
      nn.RNN(2, 3)(torch.zeros({ 1, 1, 2 }), torch.zeros({ 1, 1, 3 }):double())
    end)
  end)
end)
