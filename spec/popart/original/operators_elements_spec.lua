-- PopART's own tests of operators on each element, of orders and losses
-- (tests/integration/operators_test), of ai.graphcore unless said.
local F = require("torch.nn.functional")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")
local wave = require("spec.lupine.onnx.recorded").wave

local function agrees(reference, op, inputs, values, options)
  options = options or {}
  options.domain = options.domain or "ai.graphcore"
  node.agrees(reference, op, inputs, values, options)
end

local function int(list)
  return torch.tensor(list, { dtype = torch.int32 })
end

describe("atan2_test", function()
  local y, x = wave({ 2, 7 }, 1) * 3, wave({ 2, 7 }, 5) * 3
  it("test_atan2_basic", function()
    agrees(torch.atan2, "Atan2", { y, x })
  end)

  it("test_atan2_float16", function()
    agrees(torch.atan2, "Atan2", { y:half(), x:half() }, {}, { infer = true })
  end)

  it("test_atan2_broadcasting_y", function()
    agrees(torch.atan2, "Atan2", { wave({ 2, 1 }, 1), x })
  end)
end)

describe("activation tests", function()
  local x = wave({ 4, 5 }, 1) * 4

  it("test_gelu, test_gelu_torch, test_gelu_training, test_gelu_torch_training", function()
    agrees(function(v)
      local inner = (v + v * v * v * 0.044715) * math.sqrt(2 / math.pi)
      return v * 0.5 * (inner:tanh() + 1)
    end, "Gelu", { x }, {}, { tolerance = { 1e-5, 1e-5 } })
  end)

  it("test_geluerf, test_geluerf_training", function()
    agrees(function(v)
      return v * 0.5 * ((v / math.sqrt(2)):erf() + 1)
    end, "GeluErf", { x }, {}, { tolerance = { 1e-5, 1e-5 } })
  end)

  it("test_swish, test_swish_grad", function()
    agrees(function(v)
      return v * v:sigmoid()
    end, "Swish", { x }, {}, { tolerance = { 1e-5, 1e-5 } })
  end)
end)

describe("expm1_test and log1p_test", function()
  it("test_expm1_0, test_expm1_grad_0, test_expm1_grad_1", function()
    agrees(torch.expm1, "Expm1", { wave({ 2, 7 }, 1) * 4 })
  end)

  it("test_log1p_0, test_log1p_grad_0, test_log1p_grad_1", function()
    agrees(torch.log1p, "Log1p", { wave({ 2, 7 }, 1):abs() * 4 })
  end)

  it("test_log1p_nan", function()
    local y = node("Log1p", { torch.tensor({ -2.0 }) }, {}, { domain = "ai.graphcore" }):item()
    assert.not_equal(y, y)
  end)
end)

describe("operators_test", function()
  local x, y = wave({ 2, 7 }, 1) * 5, wave({ 2, 7 }, 4) * 3 + 4

  it("test_fmod, test_fmod_grad, test_fmod_mixed_sign_float16", function()
    agrees(torch.fmod, "Fmod", { x, y })
    agrees(torch.fmod, "Fmod", { x:half(), -y:half() }, {}, { infer = true })
  end)

  it("test_remainder_grad, test_mod_mixed_sign_float16", function()
    agrees(torch.remainder, "Remainder", { x, y })
    agrees(torch.remainder, "Remainder", { x:half(), -y:half() }, {}, { infer = true })
  end)

  it("test_round_graphcore", function()
    agrees(torch.round, "Round", { x }, {}, { infer = true })
  end)

  it("test_nearbyint", function()
    agrees(torch.round, "NearbyInt", { torch.tensor({ -1.5, -0.5, 0.5, 1.5, 2.5, 2.6 }) }, {},
      { infer = true })
  end)

  it("test_bitwise_not", function()
    agrees(function(a)
      return -1 - a
    end, "BitwiseNot", { int({ 5, -3, 0 }) })
  end)

  it("test_bitwise_binary_op", function()
    local a, b = int({ 12, -7, 255 }), int({ 10, 3, -1 })
    for name, want in pairs({ And = { 8, 1, 255 }, Or = { 14, -5, -1 }, Xor = { 6, -6, -256 },
      Xnor = { -7, 5, 255 } }) do
      agrees(function()
        return int(want)
      end, "Bitwise" .. name, { a, b })
    end
  end)
end)

describe("scaledadd_test", function()
  local a, b = wave({ 3, 2 }, 1), wave({ 3, 2 }, 2)
  it("test_scaledadd_constant", function()
    agrees(function(s, t)
      return s * 0.5 + t * 0.8
    end, "ScaledAdd", { a, b }, { scale0 = 0.5, scale1 = 0.8 })
  end)

  it("test_scaledadd_tensor", function()
    agrees(function(s, t)
      return s * 0.5 + t * 0.8
    end, "ScaledAdd", { a, b, torch.tensor(0.5), torch.tensor(0.8) }, {}, { infer = true })
  end)
end)

describe("incrementmod_test", function()
  it("test_incrementmod", function()
    for _, modulus in ipairs({ 3, 7 }) do
      agrees(function(v)
        return (v + 1) % modulus
      end, "IncrementMod", { int({ 0, 1, 2, 5, 6 }) }, { increment = 1.0, modulus = modulus + 0.0 })
    end
    for _, modulus in ipairs({ 0.0, -1.0 }) do
      node.refuses("attribute 'modulus' must be positive, got " .. ("%g"):format(modulus),
        "IncrementMod", { int({ 1 }) }, { increment = 1.0, modulus = modulus },
        { domain = "ai.graphcore" })
    end
  end)
end)

describe("bucketize_test", function()
  local bounds = torch.tensor({ 1.0, 3, 5, 7, 9 })
  local function check(x, boundaries)
    for right = 0, 1 do
      agrees(function(v, b)
        return torch.bucketize(v, b, { right = right == 1 }):int()
      end, "Bucketize", { x, boundaries }, { right = right }, { infer = true })
    end
  end

  it("test_basic, test_fp, test_scalar", function()
    check(int({ { 3, 6, 9 }, { 3, 6, 9 } }), int({ 1, 3, 5, 7, 9 }))
    check(torch.tensor({ { 3.0, 6, 9.5 }, { 0, 7, 1 } }), bounds)
    check(torch.tensor(3.0), bounds)
  end)

  it("test_special_case_fp", function()
    check(torch.tensor({ -math.huge, math.huge, 0.0 }), torch.tensor({ -math.huge, 0, math.huge }))
  end)
end)

describe("sort_test", function()
  it("test_sort_basic", function()
    local x = wave({ 3, 4, 2 }, 1)
    for axis = -3, 2 do
      for _, descending in ipairs({ 0, 1 }) do
        agrees(function(v)
          local values, places = v:sort(axis, descending == 1)
          return values, places:int()
        end, "Sort", { x }, { axis = axis, descending = descending })
      end
    end
  end)

  it("test_sort_stable", function()
    local x = int({ 2, 1, 2, 1, 2, 1, 0, 2 })
    local _, places = node("Sort", { x }, { stable = 1 }, { domain = "ai.graphcore", outputs = 2 })
    assert.same({ 6, 1, 3, 5, 0, 2, 4, 7 }, places:tolist())
  end)
end)

describe("reducemedian_test", function()
  -- median and place by sorting lines that are moved to the end
  local function by_sorting(axes, keepdims, shape)
    return function(x)
      local order, lines, kept = {}, {}, {}
      for d = 0, x:dim() - 1 do
        local over = not axes
        for _, a in ipairs(axes or {}) do
          over = over or a == d
        end
        table.insert(over and lines or order, d)
        if not over or keepdims == 1 then
          kept[#kept + 1] = over and 1 or shape[d + 1]
        end
      end
      local before = {}
      for i, d in ipairs(order) do
        before[i] = shape[d + 1]
      end
      before[#before + 1] = -1
      table.move(lines, 1, #lines, #order + 1, order)
      local flat = x:permute(order):reshape(before)
      local values, places = flat:sort(-1)
      local middle = (flat:size(-1) - 1) // 2
      return values:select(-1, middle):reshape(kept), places:select(-1, middle):int():reshape(kept)
    end
  end

  it("O8: test_reducemedian_values, test_reducemedian_indices_1, _2, test_reducemedian_training",
    function()
      local shape = { 1, 3, 4, 5 }
      local x = wave(shape, 1)
      for _, axes in ipairs({ { 0 }, { 1 }, { 3 }, { 1, 2 }, { 0, 1, 3 }, { 0, 1, 2, 3 }, {},
        false }) do
        for keepdims = 0, 1 do
          agrees(by_sorting(axes or nil, keepdims, shape), "ReduceMedian", { x },
            { axes = axes or nil, keepdims = keepdims })
        end
      end
    end)

  it("test_reducemedian_values of integers", function()
    agrees(by_sorting({ 1 }, 1, { 2, 3 }), "ReduceMedian", { int({ { 7, 3, 5 }, { 1, 9, 4 } }) },
      { axes = { 1 } })
  end)
end)

local REDUCE = {
  Sum = function(v)
    return v:sum()
  end,
  Mean = function(v)
    return v:mean()
  end,
  None = function(v)
    return v
  end,
}

describe("l1_test", function()
  it("O2: test_l1, test_l1_training", function()
    local x = wave({ 3, 4 }, 1):clone()
    x[{ 0, 0 }] = 0.0 -- whose gradient is 0
    for how, reduce in pairs(REDUCE) do
      agrees(function(v)
        return reduce(v:abs() * 0.2)
      end, "L1", { x }, { lambda = 0.2, reduction = how })
    end
  end)

  it("test_l1 of a scalar", function()
    node.refuses("not valid for a tensor of no dimensions", "L1", { torch.tensor(1.0) },
      { lambda = 0.1 }, { domain = "ai.graphcore" })
  end)
end)

describe("loss_test", function()
  local p, labels = F.softmax(wave({ 4, 5 }, 1) * 2, 1), int({ 1, 0, 4, 2 })

  local function chosen(v, l)
    return v:gather(-1, l:long():unsqueeze(-1)):squeeze(-1)
  end

  it("O1: test_nllloss_reduction_equiv", function()
    for how, reduce in pairs(REDUCE) do
      agrees(function(v, l)
        return reduce(-chosen(v, l):log())
      end, "Nll", { p, labels }, { reduction = how })
    end
  end)

  it("O1: test_3d_nll_loss_input", function()
    agrees(function(v, l)
      return -chosen(v, l):log():mean()
    end, "Nll", { p:reshape(2, 2, 5), labels:reshape(2, 2) }, { reduction = "Mean" })
  end)

  it("test_nll_loss_input_with_invalid_input", function()
    node.refuses("probabilities of 3 dimensions take labels of 2, got 1", "Nll",
      { p:reshape(2, 2, 5), labels }, {}, { domain = "ai.graphcore" })
  end)

  it("O1: test_nll_loss_with_ignored_index, test_nll_loss_grad_with_ignored_index", function()
    for how, reduce in pairs(REDUCE) do
      agrees(function(v, l)
        local kept = -chosen(v, l):log() * torch.tensor({ 1.0, 0, 1, 1 })
        return how == "Mean" and kept:sum() / 3 or reduce(kept)
      end, "Nll", { p, labels }, { reduction = how, ignoreIndex = 0 })
    end
  end)

  it("O1: test_nll_all_ignore_index", function()
    for how in pairs(REDUCE) do
      agrees(function(v)
        return how == "None" and (v * 0):sum(1) or (v * 0):sum()
      end, "Nll", { p, int({ 9, 9, 9, 9 }) }, { reduction = how, ignoreIndex = 9 })
    end
  end)

  it("O1: test_nll_no_underflow", function()
    for _, dtype in ipairs({ torch.float32, torch.float16 }) do
      local x = torch.tensor({ { 1.0, 0.0 } }):to(dtype):requires_grad_(true)
      local y = node("Nll", { x, int({ 1 }) }, {}, { domain = "ai.graphcore" })
      assert.is_true(y:item() > 9 and y:item() < 20)
      y:backward()
      assert.is_true(x.grad[{ 0, 1 }]:item() < -1e4 and x.grad[{ 0, 1 }]:item() > -math.huge)
      assert.equal(0, x.grad[{ 0, 0 }]:item())
    end
  end)

  it("O1: test_nll_input_is_log_probability, test_nll_input_is_log_probability_training", function()
    agrees(function(v, l)
      return -chosen(v, l):mean()
    end, "Nll", { p:log(), labels }, { inputIsLogProbability = 1 })
  end)

  it("test_ctc_loss", function()
    local logits = wave({ 6, 2, 4 }, 1) * 2
    for _, blank in ipairs({ 0, 1 }) do
      local targets = int(blank == 0 and { { 1, 2, 2 }, { 3, 1, 0 } }
        or { { 0, 2, 2 }, { 3, 0, 0 } })
      local lengths = { int({ 6, 5 }), int({ 3, 2 }) }
      for how, name in pairs({ Sum = "sum", Mean = "mean", None = "none" }) do
        agrees(function(v)
          return F.ctc_loss(v, targets:long(), lengths[1]:long(), lengths[2]:long(),
            { blank = blank, reduction = name })
        end, "Ctc", { F.log_softmax(logits, 2), targets, lengths[1], lengths[2] },
          { blank = blank, reduction = how })
      end
    end
  end)

  it("the identity loss reduces", function()
    for how, reduce in pairs(REDUCE) do
      agrees(reduce, "IdentityLoss", { wave({ 2, 3 }, 1) }, { reduction = how })
    end
    node.refuses("'reduction': got 'Max'. Allowed: Sum, Mean, None", "IdentityLoss",
      { torch.ones(2) }, { reduction = "Max" }, { domain = "ai.graphcore" })
  end)
end)

describe("ctc_beam_search_decoder", function()
  it("test_ctc_beam_search_decoder", function()
    -- with as many beams as there are paths the best labelling is the likeliest of all
    local logp = F.log_softmax(wave({ 3, 1, 3 }, 1) * 2, 2)
    local p = logp:exp():reshape(3, 3):tolist()
    local sums, best = {}, nil
    for a = 1, 3 do
      for b = 1, 3 do
        for c = 1, 3 do
          local text, last = "", 0
          for _, k in ipairs({ a - 1, b - 1, c - 1 }) do
            text = text .. ((k ~= 0 and k ~= last) and tostring(k) or "")
            last = k
          end
          sums[text] = (sums[text] or 0) + p[1][a] * p[2][b] * p[3][c]
        end
      end
    end
    for text, sum in pairs(sums) do
      best = (not best or sum > sums[best]) and text or best
    end
    local y, length, labels = node("CtcBeamSearchDecoder", { logp, int({ 3 }) },
      { beam_width = 27 }, { domain = "ai.graphcore", outputs = 3 })
    local got = ""
    for i = 0, length:item() - 1 do
      got = got .. labels[{ 0, 0, i }]:item()
    end
    assert.equal(best, got)
    assert.is_true(math.abs(y:item() - math.log(sums[best])) < 1e-5)
  end)
end)
