--- PopTorch's losses_test.py, by the names of its functions. Each loss stands
--- behind a linear layer: values, the loss and the weights after a step are the
--- host's.
local core = require("lupine.core")
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local F, near = nn.functional, helper.near

local function same(...)
  return ...
end

-- One step of `loss`, a function of what `op` makes of the inputs.
local function step(loss, inputs, op)
  device.trains(op or same, inputs, { loss = loss, lr = 0.01 })
end

local function reductions(fn)
  for _, reduction in ipairs({ "mean", "sum" }) do
    torch.manual_seed(42)
    fn(reduction)
  end
end

-- A linear layer, then `op`, trained with this loss. Calls give out, loss.
local function trainer(n, op, loss)
  local net = models.of(function(self, x)
    local out = op(self.lin(x:flatten()):reshape_as(x))
    return out, loss(out)
  end)
  net.lin = nn.Linear(n, n)
  return poptorch.trainingModel(net), net
end

local function run(model, x, n)
  local out, loss
  for _ = 1, n do
    out, loss = model(x)
  end
  return out, loss:item()
end

describe("losses_test.py", function()
  local level
  setup(function()
    level = core.host.log_level()
    poptorch.setLogLevel("ERR")
  end)
  teardown(function()
    core.host.log_level(level)
  end)

  it("test_L1Loss", function()
    reductions(function(reduction)
      local target, input = torch.randn(10), torch.randn(10)
      local function loss(x)
        return F.l1_loss(x, target, { reduction = reduction })
      end
      step(loss, { input })
      local model, net = trainer(10, same, loss)
      local out, first = run(model, input, 1)
      assert.is_true(first > 0.1)
      assert.is_false(torch.allclose(out, target, 1e-2, 1e-2))
      run(model, input, 500)
      model:setOptimizer(torch.optim.SGD(net:parameters(), { lr = 0.001 }))
      local last
      out, last = run(model, input, 500)
      assert.is_true(last < first and last < (reduction == "sum" and 0.1 or 0.001))
      near(out, target, { 1e-2, 1e-2 })
    end)
  end)

  it("test_MSELoss", function()
    reductions(function(reduction)
      local target, input = torch.randn(10), torch.randn(10)
      local function loss(x)
        return F.mse_loss(x, target, { reduction = reduction })
      end
      step(loss, { input })
      local model = trainer(10, same, loss)
      assert.is_true(select(2, run(model, input, 1)) > 0.1)
      local out, last = run(model, input, 1000)
      assert.is_true(last < 0.001)
      near(out, target, { 1e-2, 1e-2 })
    end)
  end)

  it("test_CrossEntropy", function()
    for _, case in ipairs({ { { 1, 10 }, "mean" }, { { 1, 10, 2 }, "sum" },
      { { 1, 10, 2, 3 }, "mean" } }) do
      torch.manual_seed(42)
      local input = torch.randn(case[1])
      local label = torch.randint(0, 10, { 1, table.unpack(case[1], 3) })
      local function loss(x)
        return F.cross_entropy(x, label, { reduction = case[2] })
      end
      step(loss, { input })
      local model = trainer(input:numel(), same, loss)
      local _, first = run(model, input, 1)
      local out, last = run(model, input, 100)
      assert.is_true(last < first)
      assert.is_true(out:argmax(1):eq(label):all():item())
    end
  end)

  local function each_dim(x, low, high)
    for _, layer in ipairs({ nn.Softmax, nn.LogSoftmax }) do
      for dim = low, high do
        device.same(layer({ dim = dim }), { x })
      end
    end
  end

  it("test_op_withdim_4d", function()
    each_dim(torch.randn(11, 22, 33, 44), -4, 2)
  end)

  it("test_op_withdim_2d", function()
    each_dim(torch.randn(17, 13), -2, 0)
  end)

  -- The likelihood of labels, learnt.
  local function nll(shape, classes, label)
    reductions(function(reduction)
      local input = torch.randn(shape)
      local target = label()
      local function op(x)
        return F.log_softmax(x, { dim = 1 })
      end
      local function loss(x)
        return F.nll_loss(x, target, { reduction = reduction })
      end
      step(loss, { input }, op)
      local model = trainer(input:numel(), op, loss)
      local _, first = run(model, input, 1)
      local out, last = run(model, input, 100)
      assert.is_true(last < first)
      if classes == 10 or reduction == "sum" then
        assert.is_true(out:argmax(1):eq(target):all():item())
      end
    end)
  end

  it("test_NLLLoss", function()
    nll({ 1, 10 }, 10, function()
      return torch.randint(0, 10, { 1 })
    end)
  end)

  it("test_NLLLoss2d", function()
    nll({ 3, 2, 5, 5 }, 2, function()
      return torch.randint(0, 2, { 3, 5, 5 })
    end)
  end)

  it("test_BCE", function()
    reductions(function(reduction)
      local target, input = torch.rand(10) * 0.6 + 0.2, torch.randn(10)
      local function loss(x)
        return F.binary_cross_entropy(x, target, { reduction = reduction })
      end
      step(loss, { input }, torch.sigmoid)
      local model = trainer(10, torch.sigmoid, loss)
      local _, first = run(model, input, 1)
      local out, last = run(model, input, reduction == "sum" and 2500 or 10000)
      assert.is_true(last < first)
      near(out, target, { 1e-2, 1e-2 })
    end)
  end)

  it("test_KLDiv", function()
    for _, reduction in ipairs({ "mean", "sum", "batchmean" }) do
      for _, log_target in ipairs({ true, false }) do
        torch.manual_seed(42)
        local target = torch.empty({ 3, 10 }):uniform_(log_target and -1 or 0.1, 1)
        step(function(x)
          return F.kl_div(x, target, { reduction = reduction, log_target = log_target })
        end, { torch.randn(3, 10) })
      end
    end
  end)

  it("test_PoissonNLLLoss", function()
    reductions(function(reduction)
      for _, log_input in ipairs({ true, false }) do
        for _, full in ipairs({ true, false }) do
          local target = torch.poisson(torch.rand(10) * 5)
          step(function(x)
            return F.poisson_nll_loss(x, target, { reduction = reduction, full = full,
              log_input = log_input })
          end, { torch.rand(10) }, log_input and same or function(x)
            return x:abs() + 0.1
          end)
        end
      end
    end)
  end)

  local function signs(...)
    return torch.randint(0, 2, { ... }) * 2 - 1
  end

  it("test_HingeEmbeddingLoss", function()
    reductions(function(reduction)
      local margin, target = torch.rand(1):item() + 0.5, signs(10)
      step(function(x)
        return F.hinge_embedding_loss(x, target, { reduction = reduction, margin = margin })
      end, { torch.rand(10) })
    end)
  end)

  it("test_BCEWithLogitsLoss", function()
    reductions(function(reduction)
      for _, case in ipairs({
        { torch.rand(10, 3), torch.rand(10, 3), torch.rand(10, 3), torch.rand(3) },
        { torch.tensor({ 88.0 }), torch.tensor({ 0.5 }) },
      }) do
        step(function(x)
          return F.binary_cross_entropy_with_logits(x, case[2], { reduction = reduction,
            weight = case[3], pos_weight = case[4] })
        end, { case[1] })
      end
    end)
  end)

  it("test_SmoothL1Loss", function()
    reductions(function(reduction)
      local target = torch.rand(10)
      step(function(x)
        return F.smooth_l1_loss(x, target, { reduction = reduction })
      end, { torch.randn(10) })
    end)
  end)

  it("test_SoftMarginLoss", function()
    reductions(function(reduction)
      local target = signs(10)
      step(function(x)
        return F.soft_margin_loss(x, target, { reduction = reduction })
      end, { torch.rand(10) })
    end)
  end)

  it("test_MultiLabelSoftMarginLoss", function()
    reductions(function(reduction)
      for _, weight in ipairs({ torch.randn(3, 10), false }) do
        local target = torch.randint(0, 2, { 3, 10 })
        step(function(x)
          return F.multilabel_soft_margin_loss(x, target, { reduction = reduction,
            weight = weight or nil })
        end, { torch.rand(3, 10) })
      end
    end)
  end)

  it("test_CosineEmbeddingLoss", function()
    reductions(function(reduction)
      local margin, target = torch.rand(1):item() * 2 - 1, signs(10)
      step(function(x, y)
        return F.cosine_embedding_loss(x, y, target, { reduction = reduction, margin = margin })
      end, { torch.rand(10, 3), torch.rand(10, 3) })
    end)
  end)

  it("test_MarginRankingLoss", function()
    reductions(function(reduction)
      local margin, target = torch.rand(1):item() * 2 - 1, signs(10, 10)
      step(function(x, y)
        return F.margin_ranking_loss(x, y, target, { reduction = reduction, margin = margin })
      end, { torch.rand(10, 10), torch.rand(10, 10) })
    end)
  end)

  it("test_TripletMarginLoss", function()
    reductions(function(reduction)
      for _, p in ipairs({ 2.0, 3.0 }) do
        for _, swap in ipairs({ true, false }) do
          local margin = torch.rand(1):item() * 2
          step(function(a, b, c)
            return F.triplet_margin_loss(a, b, c, { reduction = reduction, margin = margin, p = p,
              swap = swap })
          end, { torch.randn(10, 5), torch.randn(10, 5), torch.randn(10, 5) })
        end
      end
    end)
  end)

  it("test_CTCLoss", function()
    reductions(function(reduction)
      for _, blank in ipairs({ 0, 3 }) do
        for _, zero_infinity in ipairs({ true, false }) do
          for _, tensors in ipairs({ true, false }) do
            local size = zero_infinity and 10 or 6
            local input = torch.randn(10, 4, 5):log_softmax(-1)
            local lengths = torch.randint(3, size, { 4 })
            local target = torch.randint(0, 4, { 4, size })
            target = target + target:gt(blank):long()
            step(function(x)
              return F.ctc_loss(x, target, tensors and torch.full({ 4 }, 10) or { 10, 10, 10, 10 },
                tensors and lengths or { table.unpack(lengths:tolist()) },
                { reduction = reduction, blank = blank, zero_infinity = zero_infinity })
            end, { input })
          end
        end
      end
    end)
  end)

  it("test_identity_with_linear_out_returned", function()
    reductions(function(reduction)
      local net = models.of(function(self, x)
        local out = self.lin(x)
        return poptorch.identity_loss(out, reduction), out
      end)
      net.lin = nn.Linear(2, 2)
      local x = torch.rand(1, 1, 2)
      local native_loss, native_out = net(x)
      local loss, out = poptorch.trainingModel(net)(x)
      device.close(loss, native_loss:detach())
      device.close(out, native_out:detach())
      assert.is_false(loss:is_same_size(out))
    end)
  end)
end)
