-- Layers against values, texts and starting distributions of PyTorch 2.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn

describe("arguments of layers", function()
  it("may end in nil", function()
    local x = torch.arange(3.0):reshape(1, 3)
    helper.near(nn.ReflectionPad1d(1, nil)(x), nn.ReflectionPad1d(1)(x))
    helper.refuses("TypeError", "takes at most 1 argument %(padding%), got 2",
      nn.ReflectionPad1d, 1, 2)
  end)
end)

describe("Linear", function()
  it("computes x W^T + b", function()
    local m = nn.Linear(3, 2)
    m:load_state_dict({ weight = torch.tensor({ { 1.0, 2, 3 }, { -1, 0.5, 0.25 } }),
      bias = torch.tensor({ 0.5, -0.5 }) })
    helper.near(m(torch.tensor({ { 1, 0.5, -1 }, { 2, 2, 2 } })), { { -0.5, -1.5 }, { 12.5, -1 } })
  end)

  it("starts uniform in 1/sqrt(fan in)", function()
    torch.manual_seed(0)
    local m = nn.Linear(100, 400)
    for _, p in ipairs(m:parameters()) do
      assert.is_true(p:abs():max():item() <= 0.1)
      assert.is_true(p:abs():max():item() > 0.098)
    end
    assert.is_true(math.abs(m.weight:mean():item()) < 0.003)
    assert.equal(torch.float64, nn.Linear(1, 1, { dtype = torch.float64 }).weight.dtype)
  end)

  it("names what is missing or unknown", function()
    helper.raises("TypeError", "missing required argument 'out_features'", function()
      nn.Linear(3)
    end)
    helper.raises("TypeError", "no parameter 'bais'.*nearest: 'bias'", function()
      nn.Linear(3, 3, { bais = false })
    end)
  end)
end)

describe("a layer's constructor", function()
  local raises = helper.refuses

  it("names its own argument", function()
    raises("TypeError", "Linear: in_features: expected int", nn.Linear, "a", 2)
    raises("TypeError", "Linear: out_features: expected int", nn.Linear, 2, 2.5)
    raises("RuntimeError", "Linear: in_features: expected int >= 0, got int %-1", nn.Linear, -1, 2)
    raises("TypeError", "Linear: bias: expected bool", nn.Linear, 1, 2, 0)
    raises("RuntimeError", "Conv2d: out_channels: expected int >= 0", nn.Conv2d, 1, -2, 3)
    raises("TypeError", "Conv2d: stride: expected a number", nn.Conv2d, 1, 2, 3,
      { stride = "x" })
    raises("TypeError", "BatchNorm1d: eps: expected a number", nn.BatchNorm1d, 3, { eps = "x" })
    raises("TypeError", "Embedding: num_embeddings: expected int", nn.Embedding, {}, 2)
    raises("ValueError", "LSTM: hidden_size: expected int >= 0", nn.LSTM, 2, -3)
    raises("TypeError", "CrossEntropyLoss: reduction: expected string", nn.CrossEntropyLoss,
      { reduction = 1 })
  end)

  it("takes what PyTorch takes", function()
    assert.same({ 2, 0 }, nn.Linear(0, 2).weight.shape)
    assert.equal("same", nn.Conv2d(1, 1, 3, { padding = "same" }).padding)
    nn.BatchNorm1d(3, { momentum = torch.none })
    nn.TransformerEncoderLayer(4, 2, { activation = nn.functional.gelu })
  end)

  it("of a batch norm tells forward how many channels there are", function()
    raises("RuntimeError", "BatchNorm2d: input: expected 4 channels %(num_features%).*got 3",
      nn.BatchNorm2d(4), torch.ones(2, 3, 4, 4))
    raises("RuntimeError", "batch_norm: weight: expected shape %(3,%).*got %(4", function()
      nn.functional.batch_norm(torch.ones(2, 3), nil, nil, torch.ones(4), nil, true)
    end)
  end)
end)

describe("activations", function()
  it("print their settings", function()
    local shown = {
      { nn.Threshold(0.1, 20), "Threshold(threshold=0.1, value=20)" },
      { nn.Softmax(1), "Softmax(dim=1)" },
      { nn.GELU("tanh"), "GELU(approximate='tanh')" },
      { nn.Hardtanh(-2, 2), "Hardtanh(min_val=-2, max_val=2)" },
      { nn.PReLU(), "PReLU(num_parameters=1)" },
      { nn.Softshrink(), "Softshrink(0.5)" },
      { nn.LeakyReLU({ inplace = true }), "LeakyReLU(negative_slope=0.01, inplace=True)" },
      { nn.Softplus(), "Softplus(beta=1.0, threshold=20.0)" },
    }
    for _, pair in ipairs(shown) do
      assert.equal(pair[2], tostring(pair[1]))
    end
  end)

  it("can write over their argument", function()
    local x = torch.tensor({ -1.0, 2 })
    nn.ReLU(true)(x)
    helper.near(x, { 0, 2 })
  end)
end)

describe("losses", function()
  -- computed with PyTorch for these arguments
  local x = torch.tensor({ { 1, 2, 0.5 }, { 0.1, -1, 3 } })
  local y = torch.tensor({ { 0.5, 2.5, 1 }, { 0, 1, 0 } })
  local ids = torch.tensor({ 2, 0 })

  it("agree with PyTorch", function()
    local p = y:clamp(0, 1)
    helper.near(nn.L1Loss()(x, y), 1.1)
    helper.near(nn.MSELoss({ reduction = "sum" })(x, y), 13.76)
    helper.near(nn.HuberLoss({ delta = 0.5 })(x, y), 0.43833336)
    helper.near(nn.SmoothL1Loss()(x, y), 0.73)
    helper.near(nn.CrossEntropyLoss()(x, ids), 2.46757174)
    helper.near(nn.CrossEntropyLoss(torch.tensor({ 1.0, 2, 3 }), { label_smoothing = 0.1 })(x,
      ids), 2.1577971)
    helper.near(nn.NLLLoss()(x:log_softmax(1), ids), 2.46757174)
    helper.near(nn.BCELoss()(x:sigmoid(), p), 1.08675206)
    helper.near(nn.BCEWithLogitsLoss({ pos_weight = torch.tensor({ 2.0, 1, 1 }) })(x, p),
      1.1128571)
    helper.near(nn.KLDivLoss({ reduction = "batchmean" })(x:log_softmax(1), y:softmax(1)),
      1.03646696)
  end)

  it("keep class weights as buffers", function()
    local m = nn.CrossEntropyLoss(torch.ones({ 3 }))
    assert.equal(1, #m:buffers())
    assert.equal("CrossEntropyLoss()", tostring(m))
  end)
end)

describe("torch.nn", function()
  it("suggests a name for an unknown one", function()
    helper.raises("AttributeError", "no attribute 'Liner'; did you mean 'Linear'", function()
      return nn.Liner
    end)
  end)
end)

describe("functions of layers", function()
  it("take lengths of any shape, and labels of the scores' shape", function()
    local F = nn.functional
    local logp = torch.zeros({ 4, 2, 3 }):log_softmax(2)
    local labels = torch.tensor({ { 1, 2 }, { 2, 1 } })
    local flat = F.ctc_loss(logp, labels, torch.tensor({ 4, 3 }), torch.tensor({ 2, 1 }))
    helper.near(F.ctc_loss(logp, labels, torch.tensor({ { 4, 3 } }),
      torch.tensor({ { 2 }, { 1 } })), flat:item())
    helper.raises("RuntimeError", "inconsistent target size", function()
      F.multilabel_margin_loss(torch.ones({ 1, 3 }), torch.tensor({ 0, 1, -1 }))
    end)
    -- log(1 + exp(-x)) and log(1 + exp(x)) of 1, summed over the input's classes
    local out = F.multilabel_soft_margin_loss(torch.ones({ 3 }), torch.tensor({ { 1.0, 0, 1 } }),
      { reduction = "none" })
    helper.near(out, { 0.31326169 / 3, 1.31326169 / 3, 0.31326169 / 3 })
  end)

  it("have gradients where the quadratic part of a loss has no end", function()
    for _, case in ipairs({ { "huber_loss", "delta", 2.5, { 0.5, -1.5 } },
      { "smooth_l1_loss", "beta", 0, { 0, 0 } } }) do
      local x = torch.tensor({ 1.0, -2 }, { requires_grad = true })
      local loss = nn.functional[case[1]](x, torch.tensor({ 0.0, 1 }), { [case[2]] = math.huge })
      loss:backward()
      assert.equal(case[3], loss:item())
      helper.near(x.grad, case[4])
    end
  end)

  it("refuse what is no number, no size and no weight", function()
    for _, case in ipairs({
      { "expected a number, got a list", "LSTM", { 2, 3, { dropout = { 1, 2 } } } },
      { "expected int, got a list", "Conv2d", { 2, 4, 3, { groups = { 1, 2 } } } },
      { "expected a number, got None", "GRU", { 2, torch.none } },
      { "expected a number, got None", "MultiheadAttention", { 4, torch.none } },
      { "expected int, got a list", "Embedding", { 4, 2, { padding_idx = { 0 } } } },
      { "activation: expected 'relu'", "TransformerEncoderLayer",
        { 4, 2, { activation = { 1 } } } },
      { "cannot assign", "MultiLabelSoftMarginLoss", { 0.5 } },
    }) do
      helper.raises("TypeError", case[1], function()
        nn[case[2]](table.unpack(case[3]))
      end)
    end
    nn.BatchNorm1d(2, { momentum = torch.none })
  end)

  it("weigh the elements of a loss", function() -- PyTorch's values
    local x = torch.tensor({ { 1.0, 2 }, { 3, -4 } }, { requires_grad = true })
    local y = torch.tensor({ { 0.5, 0 }, { 3.5, 1 } })
    local w = torch.tensor({ { 1.0, 2 }, { 0, 0.5 } })
    local F = nn.functional
    for name, want in pairs({
      mse_loss = { { { 0.25, 8 }, { 0, 12.5 } }, 20.75, 5.9285714,
        { { 0.2857143, 2.2857143 }, { 0, -1.4285714 } } },
      l1_loss = { { { 0.5, 4 }, { 0, 2.5 } }, 7, 2,
        { { 0.1428571 * 2, 0.5714286 }, { 0, -0.1428571 } } },
      huber_loss = { { { 0.125, 3 }, { 0, 2.25 } }, 5.375, 1.34375,
        { { 0.125, 0.5 }, { 0, -0.125 } } },
    }) do
      for i, how in ipairs({ "none", "sum", "mean" }) do
        helper.near(F[name](x, y, { reduction = how, weight = w }), want[i])
      end
      x.grad = nil
      F[name](x, y, { weight = w }):backward()
      helper.near(x.grad, want[4])
      helper.near(F[name](x, y, { weight = torch.none }), F[name](x, y):item())
      helper.raises("ValueError", "must have the same size", function()
        F[name](x, y, { weight = w[0] })
      end)
    end
    helper.near(F.mse_loss(x, y, nil, nil, "mean", w), 5.9285714)
    helper.near(F.huber_loss(x, y, "mean", 1.0, w), 1.34375)
  end)

  it("leave the padding out of a bag, when compiled too", function() -- PyTorch's values
    local ids, offsets = torch.tensor({ 0, 1, 2, 1, 1 }), torch.tensor({ 0, 2, 3 })
    local weights = torch.tensor({ { 1.0, 2 }, { 3, 4 }, { 5, 6 } })
    local Bag = nn.Module:extend("Bag")
    function Bag:init(mode)
      self.bag = nn.EmbeddingBag(3, 2, { mode = mode, padding_idx = 1 })
      self.bag.weight.data = torch.tensor({ { 1.0, 2 }, { 3, 4 }, { 0.5, -1 } })
    end
    function Bag:forward(i, o)
      return self.bag(i, o)
    end
    for _, mode in ipairs({ "sum", "mean", "max" }) do
      local net = Bag(mode)
      local out = net(ids, offsets)
      helper.near(out, { { 1, 2 }, { 0.5, -1 }, { 0, 0 } })
      out:backward(weights)
      helper.near(net.bag.weight.grad, { { 1, 2 }, { 0, 0 }, { 3, 4 } })
      helper.near(require("poptorch").inferenceModel(net)(ids, offsets),
        { { 1, 2 }, { 0.5, -1 }, { 0, 0 } })
    end
    local rows = torch.tensor({ { 1.0, 2 }, { 3, 4 }, { 0.5, -1 } })
    nn.functional.embedding_bag(ids, rows, offsets,
      { mode = "sum", padding_idx = 1, max_norm = 1.0 })
    helper.near(rows, { { 0.4472, 0.8944 }, { 0.6, 0.8 }, { 0.4472, -0.8944 } }, { 1e-4, 0 })
  end)

  it("end the last bag of embedding_bag at the last offset, if that is one", function()
    local rows = torch.arange(10):float():reshape(5, 2)
    local ids, offsets = torch.arange(5), torch.tensor({ 0, 2, 3 })
    for mode, want in pairs({ sum = { { 2, 4 }, { 4, 5 } }, mean = { { 1, 2 }, { 4, 5 } },
      max = { { 2, 3 }, { 4, 5 } } }) do
      local function bags(last, more)
        return nn.functional.embedding_bag(ids, rows, torch.tensor({ 0, 2, last }),
          { mode = mode, include_last_offset = true, padding_idx = more })
      end
      helper.near(bags(3), want)
      assert.same(nn.functional.embedding_bag(ids, rows, offsets["0:2"], { mode = mode }):tolist(),
        bags(5):tolist())
      helper.near(bags(3, 0), { { 2, 3 }, { 4, 5 } })
    end
  end)

  it("sum and compare wide rows of bags as loops would", function()
    local rows = (torch.arange(7 * 150) * 37 % 101 - 50):double():reshape(7, 150)
    local ids, ends = { 3, 6, 3, 0, 5, 1, 6 }, { 0, 3, 3, 6, 7 }
    for _, dtype in ipairs({ torch.float32, torch.float64 }) do
      local w = rows:to(dtype):requires_grad_()
      for _, mode in ipairs({ "sum", "mean", "max" }) do
        local got = nn.functional.embedding_bag(torch.tensor(ids), w, torch.tensor(ends),
          { mode = mode, include_last_offset = true, padding_idx = 6 })
        local want = {}
        for b = 1, #ends - 1 do
          local held = {}
          for j = ends[b] + 1, ends[b + 1] do
            held[#held + 1] = ids[j] ~= 6 and w[ids[j]] or nil
          end
          local all = #held > 0 and torch.stack(held) or torch.zeros({ 1, 150 }, { dtype = dtype })
          want[b] = mode == "max" and all:amax(0) or all[mode](all, 0)
        end
        want = torch.stack(want)
        helper.near(got, want, { 1e-6, 1e-6 })
        local seed = torch.arange(600):to(dtype):view_as(want)
        helper.near(torch.autograd.grad(got, { w }, seed)[1],
          torch.autograd.grad(want, { w }, seed)[1], { 1e-6, 1e-6 })
      end
    end
    local ties = torch.tensor({ { 1.0, 0 / 0, 2 }, { 1.0, 5, 3 } }):requires_grad_()
    local most = nn.functional.embedding_bag(torch.tensor({ { 0, 1 } }), ties, { mode = "max" })
    assert.is_true(most[0][1]:isnan():item())
    most:sum():backward()
    assert.same({ { 1, 1, 0 }, { 0, 0, 1 } }, ties.grad:tolist())
    helper.raises("RuntimeError", "offsets have to ascend", function()
      nn.functional.embedding_bag(torch.tensor({ 0, 1, 0 }), ties, torch.tensor({ 0, 2, 1 }))
    end)
  end)

  it("say what is wrong with embedding_bag's offsets", function()
    local ids = torch.arange(3)
    local function refuses(class, message, offsets, input)
      helper.raises(class, "^embedding_bag: " .. message, function()
        nn.EmbeddingBag(5, 2)(input or ids, offsets)
      end)
    end
    refuses("ValueError", "offsets: expected a tensor of 1 dimension .*, got nil")
    refuses("ValueError", "offsets: .*, got a list of 2", { 0, 2 })
    refuses("ValueError", "offsets: .*, got Tensor torch.int64 %[2, 1%]",
      torch.tensor({ { 0 }, { 2 } }))
    refuses("RuntimeError", "offsets: expected dtype int32 or int64, got torch.float32",
      torch.tensor({ 0.0, 2 }))
    refuses("RuntimeError", "offsets%[0%] has to be 0, .*, got 1", torch.tensor({ 1, 2 }))
    refuses("RuntimeError", "the last offset .*, 3, got 9", torch.tensor({ 0, 9 }))
    refuses("ValueError", "input has to have 1 or 2 dimensions, got 3", nil, ids:reshape(1, 1, 3))
    helper.raises("ValueError", "^embedding_bag: per_sample_weights must have the shape", function()
      nn.EmbeddingBag(5, 2, { mode = "sum" })(ids, torch.tensor({ 0, 2 }), torch.ones(2))
    end)
  end)

  it("take embedding_bag's old order of arguments", function()
    local level = torch.tensor({ { 0, 1 }, { 2, 3 } })
    local weight = torch.arange(8.0):reshape(4, 2)
    helper.near(nn.functional.embedding_bag(weight, level), { { 1, 2 }, { 5, 6 } })
    helper.near(nn.functional.embedding_bag(level, weight), { { 1, 2 }, { 5, 6 } })
  end)

  it("normalise a vector without elements", function()
    local y = nn.functional.batch_norm(torch.zeros(0), torch.zeros(0), torch.ones(0), nil, nil,
      true)
    assert.equal(torch.Size({ 0 }), y.shape)
  end)
end)
