--- PopTorch's own tests of layers (activations, norms, pooling_and_padding,
--- misc_nn_layers, functional, distance_ops), on the device against the host, in
--- values and in training.
local assert = require("luassert")
local device = require("spec.support.on_device")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn
local F = nn.functional

local both, infer, train = device.both, device.same, device.trains

local function randn(...)
  return torch.randn({ ... })
end

-- A layer in training after a linear one, and in inference.
local function layer(make, shape, options)
  local module = make()
  infer(module, { torch.randn(shape) }, options and options.tol)
  train(module, { torch.randn(shape) }, options)
end

before_each(function()
  torch.manual_seed(42)
end)

describe("activations_test", function()
  local ACTIVATIONS = {}
  for name in ("ReLU Tanh Sigmoid SELU SiLU ELU Softsign LeakyReLU Hardtanh Softplus Softshrink "
    .. "Hardshrink CELU Hardsigmoid Hardswish"):gmatch("%S+") do
    ACTIVATIONS[#ACTIVATIONS + 1] = nn[name]
  end
  for _, name in ipairs({ "Softmax", "LogSoftmax" }) do
    ACTIVATIONS[#ACTIVATIONS + 1] = function()
      return nn[name](1)
    end
  end
  ACTIVATIONS[#ACTIVATIONS + 1] = function()
    return nn.Softplus({ beta = 5.0, threshold = 4.0 })
  end

  it("test_activations", function()
    for _, make in ipairs(ACTIVATIONS) do
      layer(make, { 2, 20 })
    end
  end)

  it("test_gelu", function()
    for _, approximate in ipairs({ "tanh", "none" }) do
      layer(function()
        return nn.GELU({ approximate = approximate })
      end, { 2, 20 })
    end
  end)

  it("test_prelu", function()
    for _, shape in ipairs({ { 4 }, { 2, 2 }, { 2, 8, 16 }, { 2, 8, 8, 8 } }) do
      infer(nn.PReLU(#shape > 1 and shape[2] or 1), { torch.randn(shape) })
    end
  end)

  it("test_glu", function()
    for dim = 0, 4 do
      layer(function()
        return nn.GLU(dim)
      end, { 2, 4, 2, 4, 6 })
    end
  end)

  it("test_activation_numerics", function()
    for _, make in ipairs(ACTIVATIONS) do
      infer(make(), { torch.tensor({ { 10.0, 100.0, 1000.0 } }) })
    end
  end)

  it("test_rrelu_training", function()
    local x = randn(3000)
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.w, self.op = nn.Parameter(torch.ones(3000)), nn.RReLU()
    end
    function Model:forward(y)
      y = self.op(self.w * y)
      return y, poptorch.identity_loss(y * y, "sum")
    end
    local model = Model()
    local got = poptorch.trainingModel(model, poptorch.Options():randomSeed(0))(x)
    local positive, slopes = x:ge(0), (got / x):masked_select(x:lt(0))
    torch.testing.assert_close(got:masked_select(positive), x:masked_select(positive))
    -- slopes are uniform in [1/8, 1/3]
    assert.is_true(slopes:min():item() >= 1 / 8 - 1e-6)
    assert.is_true(slopes:max():item() <= 1 / 3 + 1e-6)
    assert.near((1 / 8 + 1 / 3) / 2, slopes:mean():item(), 0.01)
    assert.near((1 / 3 - 1 / 8) ^ 2 / 12, slopes:var():item(), 5e-4)
  end)

  it("test_rrelu_inference", function()
    infer(nn.RReLU():eval(), { randn(200) })
  end)
end)

describe("norms_test", function()
  it("test_batchNorm", function()
    for _, case in ipairs({ { nn.BatchNorm1d, { 3, 4, 5 } }, { nn.BatchNorm2d, { 3, 4, 5, 6 } },
      { nn.BatchNorm3d, { 3, 4, 2, 2, 3 } } }) do
      for _, affine in ipairs({ true, false }) do
        for _, training in ipairs({ true, false }) do
          local norm = case[1](4, { affine = affine, track_running_stats = true })
          norm.running_mean:copy_(randn(4))
          norm.running_var:copy_(torch.clamp(randn(4) + 1, { min = 0.1 }))
          norm:train(training)
          if training then
            train(norm, { torch.randn(case[2]) },
              { weights = { rtol = 1e-3, atol = 1e-4 }, lr = 1e-4 })
          else
            infer(norm, { torch.randn(case[2]) })
          end
        end
      end
    end
  end)

  it("test_batchNorm_typing", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.bn = nn.BatchNorm1d(100)
    end
    function Model:forward(x, y)
      return self.bn(x) + y
    end
    local out = poptorch.inferenceModel(Model())(randn(20, 100):half(), randn(20, 100):half())
    assert.equal(torch.half, out.dtype)
  end)

  it("test_batchNorm_eval_during_training", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.bn = nn.BatchNorm1d(100)
    end
    function Model:forward(x, target)
      local y = self.bn(x)
      return y, F.mse_loss(y, target)
    end
    local model = Model()
    for _, p in ipairs(model:parameters()) do
      p.requires_grad = false
    end
    model.bn:eval()
    local mean, var = model.bn.running_mean:clone(), model.bn.running_var:clone()
    local x, target = randn(16, 100), randn(16, 100)
    local want = model(x, target)
    local executor = poptorch.trainingModel(model)
    device.close((executor(x, target)), want)
    executor:copyWeightsToHost()
    assert.is_true(torch.equal(mean, model.bn.running_mean))
    assert.is_true(torch.equal(var, model.bn.running_var))
  end)

  it("test_layerNorm", function()
    local shape = { 3, 2, 5, 2 }
    for dim = 0, 3 do
      layer(function()
        return nn.LayerNorm({ table.unpack(shape, dim + 1) },
          { elementwise_affine = dim % 2 == 1 })
      end, shape, { tol = { rtol = 1e-4, atol = 1e-4 }, weights = { rtol = 1e-3, atol = 1e-4 } })
    end
  end)

  it("test_layerNormPretrainedWeights", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.conv, self.norm = nn.Conv2d(5, 5, { 1, 1 }), nn.LayerNorm({ 5, 3, 10 })
    end
    function Model:forward(x)
      return self.norm(self.conv(x))
    end
    local model, x = Model(), randn(3, 5, 3, 10)
    infer(model, { x }, { rtol = 1e-4, atol = 1e-6 })
    local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.001, momentum = 0.9 })
    for _ = 1, 10 do
      optimizer:zero_grad()
      F.mse_loss(model(x), torch.ones({ 3, 5, 3, 10 })):backward()
      optimizer:step()
    end
    infer(model:eval(), { x }, { rtol = 1e-4, atol = 1e-6 })
  end)

  it("test_groupNorm", function()
    for _, shape in ipairs({ { 3, 10 }, { 3, 10, 4 }, { 3, 10, 2, 3 }, { 3, 10, 2, 3, 2 } }) do
      layer(function()
        return nn.GroupNorm(5, 10, { affine = #shape % 2 == 0 })
      end, shape, { weights = { rtol = 1e-3, atol = 1e-4 } })
    end
  end)

  it("test_groupNorm_typing", function()
    local out = poptorch.inferenceModel(nn.GroupNorm(4, 16))(randn(20, 16, 50):half())
    assert.equal(torch.half, out.dtype)
  end)

  it("test_instanceNorm", function()
    for d, norm in ipairs({ nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d }) do
      local Model = nn.Module:extend("Model")
      function Model:init()
        self.norm = norm(6, { affine = d % 2 == 1 })
        self.fc1 = nn.Linear(12 << d, 10)
      end
      function Model:forward(x, target)
        local out = self.fc1(self.norm(x):flatten(1))
        return out, F.cross_entropy(out, target)
      end
      local model = Model()
      local executor = poptorch.trainingModel(model,
        { optimizer = torch.optim.AdamW(model:parameters(), { lr = 0.01 }) })
      local shape = { 5, 6, 4, table.unpack({ 2, 2 }, 1, d - 1) }
      local x = torch.randn(shape) * 5 + 3
      local label = torch.randint(0, 10, { 5 })
      local _, first = executor(x, label)
      local out, loss
      for _ = 1, 150 do
        out, loss = executor(x, label)
      end
      assert.is_true(loss:item() < first:item())
      assert.is_true(loss:item() < 0.03)
      assert.is_true(torch.equal(out:argmax(1):to(torch.int64), label))
    end
  end)

  it("test_batchnorm_statistics", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.bn = nn.BatchNorm2d(4)
    end
    function Model:forward(x, label)
      local out = self.bn(x)
      if label == nil then
        return out
      end
      return out, F.cross_entropy(out:mean({ 2, 3 }), label)
    end
    local trained, host = Model(), Model()
    local executor = poptorch.trainingModel(trained,
      { optimizer = torch.optim.SGD(trained:parameters(), 0.0) })
    for _ = 1, 10 do
      local x = randn(4, 4, 3, 3)
      executor(x, torch.ones({ 4 }, { dtype = torch.int64 }))
      host(x)
    end
    executor:copyWeightsToHost()
    torch.testing.assert_close(trained.bn.running_mean, host.bn.running_mean)
    torch.testing.assert_close(trained.bn.running_var, host.bn.running_var)
  end)

  it("test_norm_in_loop", function()
    local embedding = nn.Parameter(randn(20, 10))
    for _, p in ipairs({ 1, 2, 1.0, 2.0, math.huge, -math.huge, "fro" }) do
      local function norm()
        return torch.norm(embedding, { p = p, dim = -1 })
      end
      local Model = nn.Module:extend("Model")
      function Model:init()
        self.embedding = embedding
      end
      function Model:forward() -- luacheck: ignore 212
        return poptorch.for_loop(3, function(sum)
          return sum + norm()
        end, { torch.zeros(20) })[1]
      end
      device.close(poptorch.inferenceModel(Model())(), norm():detach() * 3)
    end
  end)
end)

describe("pooling_and_padding_test", function()
  it("test_pool2D", function()
    for _, Pool in ipairs({ nn.MaxPool2d, nn.AvgPool2d }) do
      local cases = { { 3, { stride = 2 } }, { 3, { stride = 2, ceil_mode = true } },
        { { 3, 2 }, { stride = { 2, 1 } } }, { 3, { stride = 2, padding = 1 } } }
      if Pool == nn.AvgPool2d then
        cases[5] = { 3, { stride = 2, padding = 1, count_include_pad = false } }
      end
      for _, case in ipairs(cases) do
        layer(function()
          return Pool(case[1], case[2])
        end, { 1, 2, 8, 8 })
      end
    end
  end)

  it("test_adaptive_avg_pool", function()
    local shape, out = { 1, 2 }, {}
    for d, Pool in ipairs({ nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d }) do
      shape[d + 2], out[d] = 2 * d + 2, d + 1
      layer(function()
        return Pool({ table.unpack(out) })
      end, { table.unpack(shape) })
    end
  end)

  local function pads(names, shape, even, uneven)
    for _, name in ipairs(names) do
      local constant = name:find("Constant")
      for _, pad in ipairs({ even, uneven }) do
        layer(function()
          return nn[name](pad, constant and 4.7 or nil)
        end, shape)
      end
    end
  end

  it("test_1D_pads", function()
    pads({ "ReflectionPad1d", "ReplicationPad1d", "ConstantPad1d" }, { 1, 2, 4 }, 3, { 3, 2 })
  end)

  it("test_2D_pads", function()
    pads({ "ReflectionPad2d", "ReplicationPad2d", "ConstantPad2d", "ZeroPad2d" }, { 1, 2, 4, 4 },
      2, { 3, 2, 1, 3 })
  end)

  it("test_3D_pads", function()
    pads({ "ReplicationPad3d", "ConstantPad3d" }, { 1, 2, 4, 4, 4 }, 3, { 3, 2, 1, 5, 3, 4 })
  end)

  it("test_constant_pad_less_dims", function()
    both(function(x)
      return F.pad(x, { 1, 2 })
    end, { randn(1, 2, 3, 4) })
  end)

  it("test_constant_pad_n_dims", function()
    both(function(x)
      return F.pad(x, { 1, 2, 1, 2, 1, 2, 1, 2 })
    end, { randn(1, 2, 3, 4) })
  end)
end)

describe("misc_nn_layers_test", function()
  local LOOSE = { tol = { rtol = 1e-4, atol = 1e-5 }, weights = { rtol = 1e-3, atol = 1e-4 },
    lr = 1e-5 }

  it("test_upsample_nearest", function()
    for _, factor in ipairs({ 2, 3.5, 5.00001 }) do
      for _, shape in ipairs({ { 1, 2, 8 }, { 2, 2, 2, 4 }, { 1, 2, 2, 2, 4 } }) do
        layer(function()
          return nn.Upsample({ scale_factor = factor, mode = "nearest" })
        end, shape, LOOSE)
      end
    end
  end)

  it("test_downsample_nearest", function()
    layer(function()
      return nn.Upsample({ scale_factor = 0.435714, mode = "nearest" })
    end, { 1, 2, 14, 14 }, LOOSE)
  end)

  it("test_upsample_bilinear_factor", function()
    for _, factor in ipairs({ 2, 5 }) do
      for _, align in ipairs({ true, false }) do
        layer(function()
          return nn.Upsample({ scale_factor = factor, mode = "bilinear", align_corners = align })
        end, { 1, 2, 3, 4 }, LOOSE)
      end
    end
  end)

  it("test_upsample_bilinear_factor_shapes", function()
    for _, case in ipairs({ { { 1, 2, 3, 4 }, { 6, 8 } }, { { 2, 2, 2, 8 }, { 7, 28 } } }) do
      for _, align in ipairs({ true, false }) do
        layer(function()
          return nn.Upsample({ size = case[2], mode = "bilinear", align_corners = align })
        end, case[1], LOOSE)
      end
    end
  end)

  it("test_upsample_bicubic", function()
    infer(nn.Upsample({ scale_factor = 0.4357, mode = "bicubic" }), { randn(2, 2, 14, 14) })
  end)

  it("test_linear", function()
    infer(nn.Linear(20, 30), { randn(128, 20) })
  end)

  it("test_bilinear", function()
    for _, bias in ipairs({ true, false }) do
      for _, more in ipairs({ {}, { 3, 4 } }) do
        local function shape(n)
          local list = { 4, table.unpack(more) }
          list[#list + 1] = n
          return list
        end
        train(nn.Bilinear(5, 6, 7, { bias = bias }), { torch.randn(shape(5)),
          torch.randn(shape(6)) }, LOOSE)
      end
    end
  end)

  it("test_identity", function()
    layer(function()
      return nn.Identity(20, 30, 40)
    end, { 8, 20 }, LOOSE)
  end)

  local DROPOUTS = { nn.Dropout, nn.Dropout2d, nn.Dropout3d }
  local SHAPES = { { 16, 20 }, { 4, 4, 4, 4 }, { 2, 4, 2, 4, 4 } }

  it("test_dropout_inference", function()
    for i, Dropout in ipairs(DROPOUTS) do
      local x = torch.randn(SHAPES[i])
      assert.is_true(torch.equal(x, infer(Dropout():eval(), { x })[1]))
    end
  end)

  it("test_dropout_eval_during_training", function()
    for i, Dropout in ipairs(DROPOUTS) do
      local Model = nn.Module:extend("Model")
      function Model:init()
        self.dropout = Dropout():eval()
        self.param = nn.Parameter(torch.zeros(10))
      end
      function Model:forward(x, target)
        local out = self.dropout(x)
        return out, F.l1_loss(out, target)
      end
      local model, x = Model(), torch.randn(SHAPES[i])
      local out = poptorch.trainingModel(model)(x, torch.zeros_like(x))
      assert.is_true(torch.equal(x, out))
    end
  end)

  -- The share of zeros where whole slices of `ones` elements are dropped.
  local function dropped(Dropout, p, shape)
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.dropout = Dropout(p)
      self.w = nn.Parameter(torch.ones({}))
    end
    function Model:forward(x)
      local out = self.dropout(x * self.w)
      return out, poptorch.identity_loss(out, "sum")
    end
    local out = poptorch.trainingModel(Model(), poptorch.Options():randomSeed(7))(torch.ones(shape))
    local kept = out:masked_select(out:ne(0))
    assert.near(1 / (1 - p), kept:mean():item(), 1e-5)
    return out:eq(0)
  end

  it("test_dropout_training", function()
    local zeros = dropped(nn.Dropout, 0.8, { 100, 40, 3 })
    assert.near(0.8, zeros:float():mean():item(), 0.02)
  end)

  it("test_dropout2d_training", function()
    local zeros = dropped(nn.Dropout2d, 0.8, { 60, 60, 2, 2 }):flatten(2)
    assert.is_true(torch.equal(zeros:all(2), zeros:any(2)))
    assert.near(0.8, zeros:all(2):float():mean():item(), 0.03)
  end)

  it("test_dropout3d_training", function()
    local zeros = dropped(nn.Dropout3d, 0.6, { 60, 60, 2, 2, 1 }):flatten(2)
    assert.is_true(torch.equal(zeros:all(2), zeros:any(2)))
    assert.near(0.6, zeros:all(2):float():mean():item(), 0.03)
  end)

  local IDS = torch.tensor({ { 1, 2, 4, 5 }, { 4, 3, 2, 9 } })

  it("test_embedding", function()
    infer(nn.Embedding(10, 3), { IDS })
  end)

  it("test_embedding_padding_idx", function()
    local Model = nn.Module:extend("TestEmbedding")
    function Model:init()
      self.embedding = nn.Embedding(10, 4, { padding_idx = 0 })
    end
    function Model:forward(x)
      local y = self.embedding(x)
      return y, poptorch.identity_loss(y:sum(), "none")
    end
    local model = Model()
    local twin = model:deepcopy()
    local x = torch.arange(0, 10)
    local y, loss = twin(x)
    loss:backward()
    local options = poptorch.Options()
    options:anchorTensor("grad_embedding", "Gradient___embedding.weight")
    local executor = poptorch.trainingModel(model, options)
    local got, got_loss = executor(x)
    device.close(got, y)
    device.close(got_loss, loss)
    device.close(executor:getAnchoredTensor("grad_embedding"), twin.embedding.weight.grad)
  end)

  it("test_embedding_bag", function()
    for _, mode in ipairs({ "max", "mean", "sum" }) do
      infer(nn.EmbeddingBag(10, 3, { mode = mode }), { IDS })
    end
  end)

  it("test_embedding_bag_per_sample_weights", function()
    local bag = nn.EmbeddingBag(10, 3, { mode = "sum" })
    infer(function(x, p)
      return bag(x, { per_sample_weights = p })
    end, { IDS, randn(2, 4) })
  end)

  it("test_embedding_bag_include_last_offset", function()
    local weight = randn(10, 3)
    for _, mode in ipairs({ "max", "mean", "sum" }) do
      infer(function(x)
        local offsets = torch.arange(0, x:numel(), x:size(1))
        offsets = torch.cat({ offsets, torch.tensor({ x:numel() }) })
        return F.embedding_bag(x:reshape(-1):to(torch.int64), weight, { offsets = offsets,
          include_last_offset = true, mode = mode })
      end, { IDS })
    end
  end)

  it("test_pixel_shuffle", function()
    layer(function()
      return nn.PixelShuffle(3)
    end, { 2, 18, 4, 4 }, LOOSE)
  end)

  local WINDOWS = { { 2, 2, 1, 1, 1, 1 }, { 3, 2, 1, 1, 1, 1 }, { 2, 4, 1, 1, 1, 1 },
    { 2, 2, 2, 1, 1, 1 }, { 2, 2, 1, 3, 1, 1 }, { 2, 2, 1, 1, 3, 1 }, { 2, 2, 1, 1, 1, 3 } }

  local function window(p, padding)
    return { kernel_size = { p[2], p[1] }, dilation = { p[4], p[3] }, stride = { p[6], p[5] },
      padding = padding or 0 }
  end

  it("test_unfold", function()
    for _, p in ipairs(WINDOWS) do
      layer(function()
        return nn.Unfold(window(p, 2))
      end, { 1, 1, 9, 11 }, LOOSE)
    end
  end)

  it("test_fold", function()
    for _, p in ipairs(WINDOWS) do
      local of = window(p)
      local x = nn.Unfold(of)(torch.rand({ 1, 2, 8, 9 }))
      of.output_size = { 8, 9 }
      both(nn.Fold(of), { x }, LOOSE)
    end
  end)

  it("test_fold_with_padding", function()
    for _, sx in ipairs({ 1, 3 }) do
      for _, sy in ipairs({ 1, 3 }) do
        local of = { kernel_size = { 2, 2 }, dilation = { 1, 1 }, padding = { 2, 2 },
          stride = { sy, sx } }
        local x = nn.Unfold(of)(torch.rand({ 1, 1, 8, 9 })) + 1
        of.output_size = { 8, 9 }
        both(nn.Fold(of), { x }, LOOSE)
      end
    end
  end)

  it("test_weight_norm", function()
    for _, dim in ipairs({ 0, 1, torch.none }) do
      local Model = nn.Module:extend("Model")
      function Model:init()
        self.lin = nn.utils.weight_norm(nn.Linear(10, 5), "weight", dim)
      end
      function Model:forward(x)
        x = self.lin(x)
        return x, poptorch.identity_loss(x * x, { reduction = "sum" })
      end
      local model, x = Model(), randn(10)
      local want = model(x)
      local executor = poptorch.trainingModel(model)
      device.close((executor(x)), want)
      local names = {}
      for _, name in ipairs(executor:getTensorNames()) do
        names[name] = true
      end
      for _, part in ipairs({ "weight_v", "weight_g" }) do
        assert.is_true(names["lin." .. part])
        assert.is_true(names["UpdatedVar___lin." .. part])
      end
      assert.is_nil(names["lin.weight"])
      assert.is_nil(names["UpdatedVar___lin.weight"])
      for _ = 1, 3 do
        local v, g = model.lin.weight_v:clone(), model.lin.weight_g:clone()
        executor(x)
        assert.is_false(torch.allclose(v, model.lin.weight_v))
        assert.is_false(torch.allclose(g, model.lin.weight_g))
      end
    end
  end)
end)

describe("functional_test", function()
  it("test_one_hot", function()
    infer(function(x)
      return F.one_hot(x, { num_classes = 10 })
    end, { torch.randint(10, { 10, 5, 4 }) })
  end)

  it("test_one_hot_casted", function()
    infer(function(x)
      return F.one_hot(x, { num_classes = 10 }):half()
    end, { torch.randint(10, { 10, 5, 4 }) })
  end)

  it("test_linear", function()
    for _, size in ipairs({ { 8, 7 }, { 7, 6 }, { 6, 5 } }) do
      local n_in, n_out = size[1], size[2]
      infer(function(x)
        return F.linear(x, torch.ones({ n_out, n_in }), torch.ones(n_out))
      end, { torch.arange(n_out * n_in):float():reshape({ n_out, n_in }) })
    end
  end)
end)

describe("distance_ops_test", function()
  it("test_pairwise_distance", function()
    for norm = 1, 4 do
      both(nn.PairwiseDistance(norm), { randn(10, 5), randn(10, 5) })
    end
  end)

  it("test_cosine_similarity", function()
    for dim = 0, 1 do
      both(nn.CosineSimilarity(dim), { randn(10, 5), randn(10, 5) })
    end
  end)

  it("test_cdist", function()
    for _, shapes in ipairs({ { { 3, 2 }, { 2, 2 } }, { { 3, 2, 3 }, { 3, 10, 3 } },
      { { 3, 5, 2, 4 }, { 5, 6, 4 } }, { { 3, 5, 1, 2, 3 }, { 3, 1, 4, 5, 3 } } }) do
      for _, p in ipairs({ 2, 3 }) do
        both(function(x, y)
          return torch.cdist(x, y, p)
        end, { torch.rand(shapes[1]), torch.rand(shapes[2]) },
          { weights = { rtol = 1e-3, atol = 1e-4 } })
      end
    end
  end)
end)
