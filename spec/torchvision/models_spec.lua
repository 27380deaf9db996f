-- torchvision.models: names and shapes of every model and results of some, as
-- torchvision 0.29 has them (spec/sweep/vision_models.py records and compares).
local core = require("lupine.core")
local files = require("spec.support.files")
local formula = require("spec.support.formula")
local helper = require("spec.helper")
local lupine = require("lupine")
local models = require("torchvision").models
local ops = require("torchvision").ops
local poptorch = require("poptorch")
local safetensors = require("lupine.safetensors")
local torch = require("torch")

local nn = torch.nn
local facts = core.json_decode(files.read("spec/torchvision/facts.json"))

local function image(size)
  return formula.hashed(3 * size * size, 1000):float():reshape({ 1, 3, size, size })
end

local function built(name, options)
  local model = formula.unfilled(function()
    return models.get_model(name, options)
  end)
  formula.fill(model)
  return model:eval()
end

describe("torchvision.models", function()
  -- 1e9 multiply-adds of a picture of the size that the weights were made for, as the table
  -- of torchvision's page of models has them (its column GFLOPS): strides, dilations and
  -- groups, which no shape of a weight tells.
  local WORK = { [224] = [[convnext_base 15.36 convnext_large 34.36 convnext_small 8.68
    convnext_tiny 4.46 efficientnet_b0 0.39 mobilenet_v2 0.30 mobilenet_v3_large 0.22
    mobilenet_v3_small 0.06 resnet18 1.81 resnet34 3.66 resnet50 4.09 resnet101 7.80
    resnet152 11.51 resnext50_32x4d 4.23 resnext101_32x8d 16.41 resnext101_64x4d 15.46
    wide_resnet50_2 11.40 wide_resnet101_2 22.75 vgg11 7.61 vgg11_bn 7.61 vgg13 11.31
    vgg13_bn 11.31 vgg16 15.47 vgg16_bn 15.47 vgg19 19.63 vgg19_bn 19.63 vit_b_16 17.56
    vit_b_32 4.41 vit_l_16 61.55 vit_l_32 15.38 vit_h_14 167.30]], [240] = "efficientnet_b1 0.69",
    [288] = "efficientnet_b2 1.09", [300] = "efficientnet_b3 1.83", [380] = "efficientnet_b4 4.39",
    [456] = "efficientnet_b5 10.27", [528] = "efficientnet_b6 19.07",
    [600] = "efficientnet_b7 37.75", [384] = "efficientnet_v2_s 8.37",
    [480] = "efficientnet_v2_m 24.58 efficientnet_v2_l 56.08" }

  local function work(model, size)
    return lupine.summary(model, { torch.empty({ 1, 3, size, size }) }).total_mult_adds / 1e9
  end

  it("has the entries, shapes, sizes and work of the originals", function()
    local count, size_of, works = 0, {}, {}
    for size, list in pairs(WORK) do
      for name, number in list:gmatch("(%S+) (%S+)") do
        size_of[name], works[name] = size, tonumber(number)
      end
    end
    for name, want in pairs(facts) do
      local model = formula.unfilled(models.get_model_builder(name))
      local lines, size = {}, 0
      for key, value in pairs(model:state_dict()) do
        lines[#lines + 1] = key .. " " .. table.concat(value:size(), "x") .. "\n"
      end
      for _, p in ipairs(model:parameters()) do
        size = size + p:numel()
      end
      assert.same({ name, want.entries, want.parameters, want.hash },
        { name, #lines, size, formula.fnv(table.concat(lines)) })
      assert.near(works[name], work(model:eval(), size_of[name]), 0.0056)
      count = count + 1
    end
    assert.equal(41, count)
    assert.equal(41, #models.list_models())
  end)

  -- name, size of the image, options, torchvision's result
  local RESULTS = {
    { "resnet18", 64, { num_classes = 4 }, { -7.676911, 2.328883, 16.842663, -4.910220 } },
    { "resnext50_32x4d", 32, { num_classes = 4 },
      { -33.711388, 4.860814, -15.613595, 6.071794 } },
    { "mobilenet_v2", 64, { num_classes = 4, width_mult = 0.5 },
      { 1.334604, -0.141983, 0.516283, 0.732566 } },
    { "mobilenet_v3_small", 64, { num_classes = 4 },
      { -0.088747, 0.143227, -0.004548, -0.076991 } },
    { "mobilenet_v3_large", 64, { num_classes = 4, dilated = true, reduced_tail = true },
      { 0.043020, -0.159822, -0.074917, -0.109917 } },
    { "efficientnet_b0", 64, { num_classes = 4 }, { 0.084781, 0.082343, -0.000219, 0.012119 } },
    { "efficientnet_v2_s", 48, { num_classes = 4 },
      { -18.641293, -31.081701, 13.084351, -5.586821 } },
    { "convnext_tiny", 32, { num_classes = 4 }, { -0.584423, 1.348945, -0.236050, -0.027749 } },
  }
  for _, row in ipairs(RESULTS) do
    local name, size, options, want = table.unpack(row)
    it("computes what torchvision's " .. name .. " does", function()
      local y = torch.no_grad(function()
        return built(name, options)(image(size))
      end)
      local wanted = torch.tensor({ want })
      local worst = (y - wanted):abs():max():item()
      assert.is_true(worst < 1e-4 * wanted:abs():max():item(), tostring(worst))
    end)
  end

  it("computes what the features of vgg11_bn and a small vision transformer do", function()
    local features = formula.unfilled(models.vgg11_bn).features
    formula.fill(features:eval())
    local y = torch.no_grad(function()
      return features(image(32))
    end)
    assert.is_true(math.abs(y:sum():item() - 266.5676) < 0.01)
    helper.near(y["0, :4, 0, 0"], { 0.9261, 0.7900, 0.0227, 0.8110 }, { 1e-4, 0 })
    local vit = models.VisionTransformer({ image_size = 32, patch_size = 8, num_layers = 2,
      num_heads = 2, hidden_dim = 16, mlp_dim = 32, num_classes = 4 })
    formula.fill(vit)
    helper.near(vit:eval()(image(32)), { { 0.0350, 0.8232, -0.7323, 2.5741 } }, { 1e-4, 0 })
  end)
end)

describe("a model", function()
  it("starts with the distributions that torchvision starts it with", function()
    torch.manual_seed(0)
    local net = models.resnet18({ num_classes = 4, zero_init_residual = true })
    local conv = net.layer2[2].conv1.weight -- 128 of 3x3: sqrt(2 / 1152)
    assert.is_true(math.abs(conv:std():item() / math.sqrt(2 / 1152) - 1) < 0.02)
    assert.equal(0, net.layer3[1].bn2.weight:abs():max():item())
    assert.equal(1, net.layer3[1].bn1.weight:min():item())
    local small = models.mobilenet_v3_small()
    assert.is_true(math.abs(small.classifier[1].weight:std():item() / 0.01 - 1) < 0.02)
    assert.equal(0, small.classifier[4].bias:abs():max():item())
    assert.same({ 0.001, 0.01 }, { small.features[1][2].eps, small.features[1][2].momentum })
    local b0 = models.efficientnet_b0().classifier[2].weight:abs():max():item()
    assert.is_true(b0 <= 1 / math.sqrt(1000) and b0 > 0.99 / math.sqrt(1000))
    local vit = models.vit_b_32({ image_size = 32, num_classes = 3 })
    assert.equal(0, vit.heads.head.weight:abs():max():item())
    local block = models.convnext.CNBlock(4, 1e-6, 0.1)
    local biases = vit.encoder.layers[1].mlp[1].bias
    assert.is_true(math.abs(biases:std():item() / 1e-6 - 1) < 0.1)
    helper.near(block.layer_scale, torch.full({ 4, 1, 1 }, 1e-6), { 1e-12, 1e-6 })
  end)

  it("takes weights from a file and nowhere else", function()
    local path = os.tmpname()
    finally(function()
      os.remove(path)
    end)
    local one = models.mobilenet_v3_small({ num_classes = 3 })
    safetensors.save_file(one:state_dict(), path)
    local two = models.mobilenet_v3_small({ weights = path, num_classes = 3 })
    assert.is_true(torch.equal(one.features[4].block[1][1].weight,
      two.features[4].block[1][1].weight))
    for _, name in ipairs({ "IMAGENET1K_V1", "DEFAULT", "ResNet18_Weights.DEFAULT" }) do
      helper.raises("ValueError", "resnet18: weights: .*name a safetensors file", function()
        models.resnet18({ weights = name })
      end)
    end
    helper.raises("RuntimeError", "size mismatch for classifier.3", function()
      models.mobilenet_v3_small({ weights = path })
    end)
    helper.raises("OSError", "none.safetensors", function()
      models.resnet18({ weights = "none.safetensors" })
    end)
  end)

  it("loads older files, with other keys or without counts of batches", function()
    local mlp = models.vision_transformer.MLPBlock(2, 3, 0.0)
    local state = { ["linear_1.weight"] = torch.ones(3, 2), ["linear_1.bias"] = torch.zeros(3),
      ["linear_2.weight"] = torch.ones(2, 3), ["linear_2.bias"] = torch.zeros(2) }
    assert.same({}, mlp:load_state_dict(state).missing_keys)
    assert.equal(1, mlp[4].weight:min():item())
    local norm = nn.BatchNorm2d(2)
    local old = norm:state_dict()
    old.num_batches_tracked = nil
    assert.same({}, norm:load_state_dict(old).missing_keys)
    old.running_mean = nil
    helper.raises("RuntimeError", "Missing key.*running_mean.*num_batches_tracked", function()
      norm:load_state_dict(old)
    end)
  end)

  it("refuses what it is not made for", function()
    helper.refuses("ValueError", "Unknown model resnet19 .*resnet18", models.get_model, "resnet19")
    helper.raises("AttributeError", "no attribute 'densenet121'", function()
      return models.densenet121
    end)
    helper.refuses("ValueError", "groups must be 1", models.resnet18, { groups = 2 })
    helper.refuses("ValueError", "list of 3 booleans", models.resnet50,
      { replace_stride_with_dilation = { true } })
    helper.refuses("AssertionError", "no multiple of patch_size", models.vit_b_16,
      { image_size = 100 })
    helper.refuses("TypeError", "no parameter 'num_class'", models.vgg11, { num_class = 3 })
    helper.refuses("TypeError", "num_classes", models.resnet18, { num_classes = "3" })
    helper.refuses("AssertionError", "images of 32 x 32, got 16 x 32",
      models.vit_b_32({ image_size = 32 }), torch.zeros(1, 3, 16, 32))
  end)

  it("takes other normalisations, by class, function or name", function()
    local net = models.resnet18({ norm_layer = function(n)
      return nn.GroupNorm(2, n)
    end })
    assert.is_true(nn.GroupNorm:is(net.layer1[1].bn1))
    assert.is_nil(net:state_dict()["bn1.running_mean"])
    assert.is_true(nn.InstanceNorm2d:is(models.resnet18({ norm_layer = "InstanceNorm2d" }).bn1))
    local conv = ops.Conv2dNormActivation(3, 4, { norm_layer = torch.none })
    assert.equal(2, #conv)
    assert.is_truthy(conv[1].bias)
  end)
end)

describe("stochastic_depth", function()
  it("drops rows or the batch, and scales what stays", function()
    torch.manual_seed(3)
    local x = torch.ones(4000, 2)
    local y = ops.stochastic_depth(x, 0.25, "row")
    assert.same({}, { y:unique():sub(torch.tensor({ 0, 4 / 3 })):abs():gt(1e-6):any():item()
      or nil })
    assert.is_true(math.abs(y:mean():item() - 1) < 0.05)
    assert.is_true(torch.equal(y:select(1, 0), y:select(1, 1)))
    assert.equal(1, ops.stochastic_depth(x, 0.5, "batch"):unique():numel())
    assert.is_true(torch.equal(x, ops.StochasticDepth(0.5, "row"):eval()(x)))
    helper.refuses("ValueError", "0..1", ops.stochastic_depth, x, 2, "row")
    helper.refuses("ValueError", "'batch' or 'row'", ops.stochastic_depth, x, 0.5, "col")
  end)
end)

describe("compiled models", function()
  it("compute what they do eagerly", function()
    local net = built("mobilenet_v3_small", { num_classes = 4 })
    local x = image(32)
    local want = net(x):detach()
    helper.near(lupine.compile(net, { x })(x), want, { 1e-6, 1e-5 })
    helper.near(poptorch.inferenceModel(net)(x), want, { 1e-6, 1e-5 })
  end)

  it("train on the device as on the host", function()
    local function step(on_device)
      local net = models.resnet18({ num_classes = 4 })
      formula.fill(net)
      net:train()
      local Loss = nn.Module:extend("Loss")
      function Loss:init()
        self.net, self.loss = net, nn.CrossEntropyLoss()
      end
      function Loss:forward(x, t)
        return self.loss(self.net(x), t)
      end
      local x, t = torch.cat({ image(64), image(64):flip({ 3 }) }), torch.tensor({ 1, 3 })
      local model = Loss()
      local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.01 })
      local trainer = on_device and poptorch.trainingModel(model, nil, optimizer)
      local loss = (trainer or model)(x, t)
      if trainer then
        trainer:destroy()
      else
        loss:backward()
        optimizer:step()
      end
      return loss:item(), net.fc.weight:detach():clone(), net.conv1.weight:detach():clone()
    end
    local loss, fc, conv = step(false)
    local loss2, fc2, conv2 = step(true)
    assert.is_true(math.abs(loss - loss2) < 1e-4 * math.abs(loss), loss .. " " .. loss2)
    helper.near(fc2, fc, { 1e-4, 1e-4 })
    helper.near(conv2, conv, { 1e-4, 1e-4 })
  end)
end)
