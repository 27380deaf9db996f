-- PopTorch's list of supported operators (user guide 3.4, "PyTorch operators"):
-- each in an inference model against the host, and, where it has a gradient,
-- in a training model, whose weights then move as the host's gradients say; in
-- float16, too.
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local nn = require("torch.nn")
local poptorch = require("poptorch")
local scatter = require("torch_scatter")
local spline = require("torch_spline_conv")
local torch = require("torch")
local F = nn.functional

local LOOSE = { rtol = 1e-3, atol = 1e-4 }

local r = torch.randn
local function u(...) return torch.rand(...) * 0.8 + 0.1 end
local function i(...) return torch.randint(0, 3, { ... }) end
local function b(...) return torch.rand(...):gt(0.5) end

-- A method or function by name on its operands.
local function fn(name, ...)
  local more = { ... }
  return function(...)
    local args = { ... }
    return torch[name](table.unpack(table.move(more, 1, #more, #args + 1, args)))
  end
end

local function method(name, ...)
  local more = { ... }
  return function(x, ...)
    local args = { ... }
    return x[name](x, table.unpack(table.move(more, 1, #more, #args + 1, args)))
  end
end

-- {title, function, operands}; `still`: it has no gradient (or is not float).
local GROUPS = {}

local function unary(names, make)
  local list = {}
  for name in names:gmatch("%S+") do
    list[#list + 1] = { name, fn(name), { make(3, 4) } }
  end
  return list
end

GROUPS["creation"] = {
  { "arange", function(x) return x + torch.arange(4.0) end, { r(3, 4) } },
  { "fill_", function(x) return x * torch.empty(3, 4):fill_(2.0) end, { r(3, 4) } },
  { "full", function(x) return x * torch.full({ 3, 4 }, 2.0) end, { r(3, 4) } },
  { "full_like", function(x) return x * torch.full_like(x, 2.0) end, { r(3, 4) } },
  { "new_ones", function(x) return x + x:new_ones(3, 4) end, { r(3, 4) } },
  { "new_zeros", function(x) return x + x:new_zeros(3, 4) end, { r(3, 4) } },
  { "ones", function(x) return x + torch.ones(3, 4) end, { r(3, 4) } },
  { "ones_like", function(x) return x + torch.ones_like(x) end, { r(3, 4) } },
  { "zeros", function(x) return x + torch.zeros(3, 4) end, { r(3, 4) } },
  { "zeros_like", function(x) return x + torch.zeros_like(x) end, { r(3, 4) } },
}

GROUPS["indexing and shape"] = {
  { "bincount", function(x) return torch.bincount(x, { minlength = 5 }) end, { i(7) },
    still = true },
  { "bucketize", fn("bucketize"), { r(3, 4), torch.tensor({ -1.0, 0, 1 }) }, still = true },
  { "cat", function(x, y) return torch.cat({ x, y }, 1) end, { r(3, 4), r(3, 2) } },
  { "chunk", function(x) return torch.chunk(x, 2, 1)[2] end, { r(3, 4) } },
  { "gather", function(x, at) return torch.gather(x, 1, at) end, { r(3, 4), i(3, 2) } },
  { "index_select", function(x, at) return torch.index_select(x, 1, at) end, { r(3, 4), i(2) } },
  { "index_reduce", function(x, at, y) return x:index_reduce(0, at, y, "mean") end,
    { r(3, 4), i(2), r(2, 4) } },
  { "reshape", method("reshape", 4, 3), { r(3, 4) } },
  { "roll", fn("roll", 1, 0), { r(3, 4) } },
  { "scatter", function(x, at, y) return x:scatter(1, at, y) end,
    { r(3, 4), torch.tensor({ { 0, 2 }, { 1, 3 }, { 2, 0 } }), r(3, 2) } },
  { "scatter_add", function(x, at, y) return x:scatter_add(1, at, y) end,
    { r(3, 4), i(3, 2), r(3, 2) } },
  { "scatter_reduce", function(x, at, y) return x:scatter_reduce(1, at, y, "amax") end,
    { r(3, 4), i(3, 2), r(3, 2) } },
  { "stack", function(x, y) return torch.stack({ x, y }, 1) end, { r(3, 4), r(3, 4) } },
  { "split", function(x) return torch.split(x, 2, 1)[2] end, { r(3, 4) } },
  { "squeeze", fn("squeeze"), { r(3, 1, 4) } },
  { "t", fn("t"), { r(3, 4) } },
  { "take_along_dim", function(x, at) return torch.take_along_dim(x, at, 1) end,
    { r(3, 4), i(3, 2) } },
  { "transpose", fn("transpose", 0, 1), { r(3, 4) } },
  { "unbind", function(x) return torch.unbind(x, 1)[3] end, { r(3, 4) } },
  { "unsqueeze", fn("unsqueeze", 1), { r(3, 4) } },
  { "where", function(x, m, y) return torch.where(m, x, y) end, { r(3, 4), b(3, 4), r(3, 4) } },
  { "expand", method("expand", 3, 4), { r(1, 4) } },
  { "expand_as", method("expand_as"), { r(1, 4), r(3, 4) } },
  { "masked_fill", function(x, m) return x:masked_fill(m, 0.5) end, { r(3, 4), b(3, 4) } },
  { "index_fill_", function(x, at) return (x + 0):index_fill_(1, at, 0.5) end,
    { r(3, 4), i(2) } },
  { "slices", function(x) return x["1:, ::2"] end, { r(3, 4) } },
}
GROUPS["pointwise"] = {
  { "add", fn("add"), { r(3, 4), r(4) } },
  { "addcdiv", function(x, y, z) return torch.addcdiv(x, y, z) end, { r(3), r(3), u(3) } },
  { "addcmul", fn("addcmul"), { r(3), r(3), r(3) } },
  { "amax", fn("amax", 1), { r(3, 4) } }, { "amin", fn("amin", 1), { r(3, 4) } },
  { "atan2", fn("atan2"), { r(3, 4), r(3, 4) } },
  { "bitwise_and", fn("bitwise_and"), { i(3, 4), i(4) }, still = true },
  { "bitwise_not", fn("bitwise_not"), { i(3, 4) }, still = true },
  { "bitwise_or", fn("bitwise_or"), { i(3, 4), i(4) }, still = true },
  { "bitwise_xor", fn("bitwise_xor"), { i(3, 4), i(4) }, still = true },
  { "cdist", fn("cdist"), { r(3, 4), r(5, 4) } },
  { "clamp", fn("clamp", -0.5, 0.5), { r(3, 4) } },
  { "clamp_max", fn("clamp_max", 0.5), { r(3, 4) } },
  { "clamp_min", fn("clamp_min", -0.5), { r(3, 4) } },
  { "div", fn("div"), { r(3, 4), u(4) } },
  { "floor_divide", fn("floor_divide"), { i(3, 4), i(4) + 1 }, still = true },
  { "fmod", fn("fmod", 0.7), { r(3, 4) } },
  { "logical_and", fn("logical_and"), { b(3, 4), b(4) }, still = true },
  { "logical_or", fn("logical_or"), { b(3, 4), b(4) }, still = true },
  { "mul", fn("mul"), { r(3, 4), r(4) } }, { "norm", fn("norm"), { r(3, 4) } },
  { "pow", fn("pow", 3), { r(3, 4) } }, { "remainder", fn("remainder", 0.7), { r(3, 4) } },
  { "sub", fn("sub"), { r(3, 4), r(4) } }, { "true_divide", fn("true_divide"), { r(3, 4), u(4) } },
  { "acosh", function(x) return torch.acosh(x * x + 1.5) end, { r(3, 4) } },
  table.unpack(unary("abs asin asinh atan ceil cos cosh exp expm1 floor frac neg round sigmoid "
    .. "sign sin sinh square tan tanh trunc erf", function(...) return u(...) - 0.5 end)),
}
for _, case in ipairs(unary("acos atanh log log10 log1p log2 reciprocal rsqrt sqrt", u)) do
  case[2] = function(x) return torch[case[1]](x * 0.1 + 0.5) end
  table.insert(GROUPS["pointwise"], case)
end

GROUPS["reductions"] = {
  { "all", fn("all"), { b(3, 4) }, still = true }, { "any", fn("any"), { b(3, 4) }, still = true },
  { "argmax", fn("argmax", 1), { r(3, 4) }, still = true },
  { "argmin", fn("argmin", 1), { r(3, 4) }, still = true },
  { "count_nonzero", fn("count_nonzero"), { i(3, 4) }, still = true },
  { "mean", fn("mean", 1), { r(3, 4) } }, { "median", fn("median"), { r(3, 5) } },
  { "median of a dimension", fn("median", 1), { r(3, 5) } },
  { "prod", fn("prod", 1), { r(3, 4) } }, { "logsumexp", fn("logsumexp", 1), { r(3, 4) } },
  { "std", fn("std", 1), { r(3, 4) } }, { "std_mean", fn("std_mean", 1), { r(3, 4) } },
  { "sum", fn("sum", 1), { r(3, 4) } }, { "var", fn("var", 1), { r(3, 4) } },
  { "var_mean", fn("var_mean", 1), { r(3, 4) } },
}

GROUPS["comparison and sorting"] = {
  { "max", fn("max"), { r(3, 4) } }, { "max of two", fn("max"), { r(3, 4), r(3, 4) } },
  { "max of a dimension", fn("max", 1), { r(3, 4) } }, { "min", fn("min"), { r(3, 4) } },
  { "min of two", fn("min"), { r(3, 4), r(3, 4) } },
  { "isnan", fn("isnan"), { torch.tensor({ 1.0, 0 / 0 }) }, still = true },
  { "topk", fn("topk", 2), { r(3, 4) } },
  { "topk of the smallest", fn("topk", 2, 1, false), { r(3, 4) } },
  { "argsort", fn("argsort"), { r(3, 4) }, still = true }, { "sort", fn("sort"), { r(3, 4) } },
}
for name in ("eq ge gt le lt ne"):gmatch("%S+") do
  table.insert(GROUPS["comparison and sorting"], { name, fn(name), { i(3, 4), i(4) },
    still = true })
end

GROUPS["linear algebra and others"] = {
  { "linalg.norm", function(x) return torch.linalg.norm(x, "fro") end, { r(3, 4) } },
  { "linalg.matrix_norm", function(x) return torch.linalg.matrix_norm(x, 1) end, { r(3, 4) } },
  { "linalg.vector_norm", function(x) return torch.linalg.vector_norm(x, 3) end, { r(3, 4) } },
  { "cumsum", fn("cumsum", 1), { r(3, 4) } }, { "cumprod", fn("cumprod", 1), { r(3, 4) } },
  { "cross", fn("cross"), { r(4, 3), r(4, 3) } },
  { "meshgrid", function(x, y) return torch.meshgrid({ x, y }, { indexing = "ij" })[1] end,
    { r(3), r(4) } },
  { "cartesian_prod", function(x, y) return torch.cartesian_prod({ x, y }) end, { r(3), r(4) } },
  { "tensordot", fn("tensordot", 1), { r(3, 4), r(4, 5) } },
  { "addmm", fn("addmm"), { r(3, 5), r(3, 4), r(4, 5) } },
  { "matmul", fn("matmul"), { r(2, 3, 4), r(4, 5) } },
  { "bmm", fn("bmm"), { r(2, 3, 4), r(2, 4, 5) } },
}

GROUPS["activations"] = {
  { "glu", F.glu, { r(3, 4) } }, { "prelu", F.prelu, { r(3, 4), r(1) } },
  { "softmax", function(x) return F.softmax(x, 1) end, { r(3, 4) } },
  { "log_softmax", function(x) return F.log_softmax(x, 1) end, { r(3, 4) } },
  { "threshold", function(x) return F.threshold(x, 0.1, 2.0) end, { r(3, 4) } },
  { "rrelu", function(x) return F.rrelu(x, 0.1, 0.3, false) end, { r(3, 4) } },
}
for name in ("elu celu gelu hardshrink leaky_relu mish relu selu silu sigmoid softplus softsign "
  .. "softshrink tanh hardtanh"):gmatch("%S+") do
  table.insert(GROUPS["activations"], { name, F[name], { r(3, 4) } })
end

local function layer(made)
  return function(x)
    return made(x)
  end
end

GROUPS["layers"] = {
  { "MaxPool1d", layer(nn.MaxPool1d(2)), { r(1, 2, 8) } },
  { "MaxPool2d", layer(nn.MaxPool2d(2)), { r(1, 2, 4, 6) } },
  { "MaxPool3d", layer(nn.MaxPool3d(2)), { r(1, 2, 4, 4, 4) } },
  { "AvgPool1d", layer(nn.AvgPool1d(2)), { r(1, 2, 8) } },
  { "AvgPool2d", layer(nn.AvgPool2d(3, { stride = 1, padding = 1 })), { r(1, 2, 4, 6) } },
  { "AvgPool3d", layer(nn.AvgPool3d(2)), { r(1, 2, 4, 4, 4) } },
  { "AdaptiveAvgPool1d", layer(nn.AdaptiveAvgPool1d(3)), { r(1, 2, 8) } },
  { "AdaptiveAvgPool2d", layer(nn.AdaptiveAvgPool2d(2)), { r(1, 2, 5, 6) } },
  { "AdaptiveAvgPool3d", layer(nn.AdaptiveAvgPool3d(2)), { r(1, 2, 4, 4, 4) } },
  { "ReflectionPad1d", layer(nn.ReflectionPad1d(2)), { r(1, 2, 5) } },
  { "ReflectionPad2d", layer(nn.ReflectionPad2d({ 1, 2, 0, 1 })), { r(1, 2, 3, 4) } },
  { "ReplicationPad1d", layer(nn.ReplicationPad1d(2)), { r(1, 2, 5) } },
  { "ReplicationPad2d", layer(nn.ReplicationPad2d(1)), { r(1, 2, 3, 4) } },
  { "ReplicationPad3d", layer(nn.ReplicationPad3d(1)), { r(1, 2, 3, 3, 3) } },
  { "ZeroPad2d", layer(nn.ZeroPad2d(1)), { r(1, 2, 3, 4) } },
  { "ConstantPad1d", layer(nn.ConstantPad1d(2, 3.5)), { r(1, 2, 5) } },
  { "ConstantPad2d", layer(nn.ConstantPad2d(1, 3.5)), { r(1, 2, 3, 4) } },
  { "ConstantPad3d", layer(nn.ConstantPad3d(1, 3.5)), { r(1, 2, 3, 3, 3) } },
  { "Identity", layer(nn.Identity()), { r(3, 4) } },
  { "Upsample nearest", layer(nn.Upsample({ scale_factor = 2, mode = "nearest" })),
    { r(1, 2, 3, 4) } },
  { "Upsample bicubic", layer(nn.Upsample({ scale_factor = 2, mode = "bicubic" })),
    { r(1, 2, 4, 4) } },
  { "one_hot", function(x) return F.one_hot(x, 5) end, { i(3, 4) }, still = true },
}

local lstm = nn.LSTM(4, 5)

GROUPS["layers with weights"] = {
  { "Conv1d", layer(nn.Conv1d(2, 3, 3)), { r(1, 2, 8) } },
  { "Conv2d", layer(nn.Conv2d(2, 3, 3)), { r(1, 2, 5, 5) } },
  { "Conv3d", layer(nn.Conv3d(2, 3, 2)), { r(1, 2, 3, 3, 3) } },
  { "ConvTranspose1d", layer(nn.ConvTranspose1d(2, 3, 3)), { r(1, 2, 5) } },
  { "ConvTranspose2d", layer(nn.ConvTranspose2d(2, 3, 3)), { r(1, 2, 3, 3) } },
  { "ConvTranspose3d", layer(nn.ConvTranspose3d(2, 3, 2)), { r(1, 2, 3, 3, 3) } },
  { "BatchNorm1d", layer(nn.BatchNorm1d(4)), { r(3, 4) } },
  { "BatchNorm2d", layer(nn.BatchNorm2d(2)), { r(3, 2, 3, 3) } },
  { "BatchNorm3d", layer(nn.BatchNorm3d(2)), { r(2, 2, 2, 3, 2) } },
  { "LayerNorm", layer(nn.LayerNorm(4)), { r(3, 4) } },
  { "GroupNorm", layer(nn.GroupNorm(2, 4)), { r(3, 4, 2) } },
  { "InstanceNorm1d", layer(nn.InstanceNorm1d(4, { affine = true })), { r(2, 4, 5) } },
  { "InstanceNorm2d", layer(nn.InstanceNorm2d(4, { affine = true })), { r(2, 4, 3, 3) } },
  { "InstanceNorm3d", layer(nn.InstanceNorm3d(2, { affine = true })), { r(1, 2, 3, 3, 3) } },
  { "weight_norm", layer(nn.utils.weight_norm(nn.Linear(4, 5))), { r(3, 4) } },
  { "RNN", layer(nn.RNN(4, 5)), { r(3, 2, 4) } }, { "GRU", layer(nn.GRU(4, 5)), { r(3, 2, 4) } },
  { "GRU without bias", layer(nn.GRU(4, 5, { bias = false })), { r(3, 2, 4) } },
  { "LSTM", function(x)
    local out, state = lstm(x)
    return out, state[1], state[2]
  end, { r(3, 2, 4) } },
  { "Linear", layer(nn.Linear(4, 5)), { r(3, 4) } },
  { "Bilinear", nn.Bilinear(4, 5, 2), { r(3, 4), r(3, 5) } },
  { "Embedding", layer(nn.Embedding(3, 5)), { i(4, 2) }, still = true },
  { "EmbeddingBag", layer(nn.EmbeddingBag(3, 5)), { i(4, 2) }, still = true },
}
local function target(n, classes)
  return torch.randint(0, classes, { n })
end

GROUPS["losses"] = {
  { "l1", F.l1_loss, { r(3, 4), r(3, 4) } }, { "mse", F.mse_loss, { r(3, 4), r(3, 4) } },
  { "cross_entropy", F.cross_entropy, { r(3, 4), target(3, 4) } },
  { "nll", function(x, t) return F.nll_loss(F.log_softmax(x, 1), t) end,
    { r(3, 4), target(3, 4) } },
  { "bce", function(x, t) return F.binary_cross_entropy(torch.sigmoid(x), t) end,
    { r(3, 4), u(3, 4) } },
  { "bce_with_logits", F.binary_cross_entropy_with_logits, { r(3, 4), u(3, 4) } },
  { "kl_div", function(x, t) return F.kl_div(x, t, { reduction = "batchmean" }) end,
    { r(3, 4), u(3, 4) } },
  { "poisson_nll", F.poisson_nll_loss, { r(3, 4), u(3, 4) } },
  { "hinge_embedding", F.hinge_embedding_loss, { r(3, 4), b(3, 4):float() * 2 - 1 } },
  { "smooth_l1", F.smooth_l1_loss, { r(3, 4), r(3, 4) } },
  { "soft_margin", F.soft_margin_loss, { r(3, 4), b(3, 4):float() * 2 - 1 } },
  { "multilabel_soft_margin", F.multilabel_soft_margin_loss, { r(3, 4), b(3, 4):float() } },
  { "cosine_embedding", F.cosine_embedding_loss, { r(3, 4), r(3, 4), b(3):float() * 2 - 1 } },
  { "margin_ranking", F.margin_ranking_loss, { r(3), r(3), b(3):float() * 2 - 1 } },
  { "triplet_margin", F.triplet_margin_loss, { r(3, 4), r(3, 4), r(3, 4) } },
  { "ctc", function(x, t)
    return F.ctc_loss(F.log_softmax(x, 2), t, torch.tensor({ 6, 6 }), torch.tensor({ 2, 3 }))
  end, { r(6, 2, 5), torch.randint(1, 5, { 2, 3 }) } },
}

-- The node of each edge.
local nodes = torch.tensor({ 0, 2, 0, 1 })

GROUPS["PyTorch Geometric"] = {
  { "scatter", function(x) return scatter.scatter(x, nodes, 0, nil, 3, "sum") end, { r(4, 2) } },
  { "spline_basis", function(x)
    return (spline.spline_basis(x, torch.tensor({ 5, 4 }), torch.tensor({ 1, 1 }), 1))
  end, { u(4, 2) } },
  { "spline_weighting", spline.spline_weighting, { r(4, 2), r(6, 2, 3), u(4, 3), i(4, 3) } },
}
for name in ("softmax log_softmax std logsumexp"):gmatch("%S+") do
  table.insert(GROUPS["PyTorch Geometric"], { "scatter_" .. name, function(x)
    return scatter["scatter_" .. name](x, nodes, { dim = 0, dim_size = 3 })
  end, { r(4, 2) } })
end

local function converted(list, to)
  local out = {}
  for k, x in ipairs(list) do
    out[k] = x:is_floating_point() and x[to](x) or x
  end
  return out
end

-- PopTorch's tolerance of operators in half that a host lacks.
local HALF = { rtol = 0.01, atol = 0.01, check_dtype = false }

-- Every operator takes halves; its values are those of floats.
local function in_half(case)
  local given = converted(case[3], "half")
  local got = table.pack(device.infer(case[2])(table.unpack(given)))
  device.close(got, { case[2](table.unpack(converted(given, "float"))) }, HALF)
end

local function trains(case)
  if case.still then
    return
  end
  device.trains(case[2], case[3], LOOSE)
end

describe("PopTorch's list:", function()
  for title, cases in pairs(GROUPS) do
    it(title, function()
      local failed = {}
      for _, case in ipairs(cases) do
        for what, run in pairs({ inference = function(c)
          device.same(c[2], c[3], LOOSE)
        end, ["in half"] = in_half, training = trains }) do
          local ok, e = pcall(run, case)
          if not ok then
            failed[#failed + 1] = ("%s, %s: %s"):format(case[1], what, tostring(e))
          end
        end
      end
      assert(#failed == 0, table.concat(failed, "\n"))
    end)
  end

  it("no_grad, as a scope and as a decorator", function()
    local function doubled(x) return x * 2 end
    for name, f in pairs({
      scope = function(x)
        local _ <close> = torch.no_grad()
        return x * 2
      end,
      decorator = torch.no_grad()(doubled),
    }) do
      local module = device.module(function(self, x)
        return poptorch.identity_loss(f(x * self.still) * self.moves, "sum")
      end, function(self)
        self.still, self.moves = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
      end)
      poptorch.trainingModel(module, nil, torch.optim.SGD(module:parameters(), { lr = 0.5 }))(
        torch.ones(1))
      assert.same({ 1, 0 }, { module.still:item(), module.moves:item() }, name)
    end
  end)

  it("layers and Sequential, wrapped as they are", function()
    local x = torch.randn(2, 4)
    for _, net in ipairs({ nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), nn.ReLU()) }) do
      device.same(net, { x })
    end
  end)

  it("embeddings, whose weights are trained", function()
    local at = torch.tensor({ { 0, 2 }, { 2, 2 } })
    for _, embedding in ipairs({ nn.Embedding(3, 2), nn.EmbeddingBag(3, 2) }) do
      local function wrapped(one)
        return device.module(function(self, v)
          return poptorch.identity_loss(self.layer(v) ^ 2, "sum")
        end, function(self) self.layer = one end)
      end
      local host, on_device = wrapped(embedding:deepcopy()), wrapped(embedding)
      local optimizer = torch.optim.SGD(host:parameters(), { lr = 0.1 })
      host(at):backward()
      optimizer:step()
      poptorch.trainingModel(on_device, nil,
        torch.optim.SGD(on_device:parameters(), { lr = 0.1 }))(at)
      torch.testing.assert_close(embedding.weight:detach(), host.layer.weight:detach())
    end
  end)

  it("what has no size before it runs is refused by name", function()
    local x, k = r(4), i(4)
    for name, f in pairs({
      one_hot = function() return F.one_hot(k) end,
      nonzero = function(v) return torch.nonzero(v) end,
      ["a mask as an index"] = function(v) return v[v:gt(0)] end,
      unique = function(v) return torch.unique(v) end,
      bincount = function(_, v) return torch.bincount(v) end,
      ["x[mask] = values"] = function(v) return torch.masked_select(v, v:gt(0)) end,
      ["no value"] = function(v) return v * v:sum():item() end,
    }) do
      local e = raises("Error", device.infer(f), x, k)
      assert.matches(name, e.message, 1, true)
    end
  end)

  -- {name, draw, mean, deviation} of many numbers
  it("random numbers", function()
    local D = torch.distributions
    local x = torch.zeros(100, 100)
    for _, case in ipairs({
      { "bernoulli", function(v) return torch.bernoulli(v + 0.3) end, 0.3, 0.458 },
      { "bernoulli_", function(v) return (v + 0):bernoulli_(0.3) end, 0.3, 0.458 },
      { "randn", function(v) return v + torch.randn(100, 100) end, 0, 1 },
      { "randn_like", function(v) return torch.randn_like(v) end, 0, 1 },
      { "normal", function(v) return torch.normal(v + 2, v + 3) end, 2, 3 },
      { "normal_", function(v) return (v + 0):normal_(2, 3) end, 2, 3 },
      { "rand", function(v) return v + torch.rand(100, 100) end, 0.5, 0.289 },
      { "uniform_", function(v) return (v + 0):uniform_(-1, 3) end, 1, 1.155 },
      { "exponential_", function(v) return (v + 0):exponential_(2) end, 0.5, 0.5 },
      { "Bernoulli", function(v) return D.Bernoulli(v + 0.3):sample() end, 0.3, 0.458 },
      { "Normal", function(v) return D.Normal(v + 2, v + 3):sample() end, 2, 3 },
      { "Uniform", function(v) return D.Uniform(v - 1, v + 3):sample() end, 1, 1.155 },
      { "Exponential", function(v) return D.Exponential(v + 2):sample() end, 0.5, 0.5 },
      { "randperm", function(v) return v + torch.randperm(100) / 100 end, 0.495, 0.289 },
      { "Dropout", function(v) return F.dropout(v + 1, 0.25, true) end, 1, 0.577 },
    }) do
      local name, draw, mean, deviation = table.unpack(case)
      local model = device.infer(draw)
      local got, again = model(x), model(x)
      local what = ("%s: mean %.3f, deviation %.3f"):format(name, got:mean():item(),
        got:std():item())
      assert(math.abs(got:mean():item() - mean) < 0.1, what)
      assert(math.abs(got:std():item() - deviation) < 0.1, what)
      assert(not torch.equal(got, again), name .. " draws the same again")
    end
  end)
end)
