--- PopTorch's feature examples, tutorials and pages about operators and
--- tensors, ported line by line: octave convolutions and multi-convolutions, a
--- custom operator in a CNN, the available memory, observing tensors, debugging.
local files = require("spec.support.files")
local Pictures = require("spec.support.pictures")
local custom_ops = require("spec.support.custom_ops")
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")
local transforms = require("lupine.transforms")
local nn = torch.nn

local close = torch.testing.assert_close

describe("octave convolutions", function()
  -- What the package octconv has: features of two resolutions, whose
  -- convolutions exchange what they find.
  local OctConv2d = nn.Module:extend("OctConv2d")

  function OctConv2d:init(in_channels, out_channels, options)
    local alpha = options.alpha
    local alpha_in, alpha_out = alpha, alpha
    if type(alpha) == "table" then
      alpha_in, alpha_out = table.unpack(alpha)
    end
    self.alpha_in, self.alpha_out = alpha_in, alpha_out
    local function parts(channels, share)
      local low = math.floor(channels * share)
      return { high = channels - low, low = low }
    end
    self.in_channels, self.out_channels = parts(in_channels, alpha_in), parts(out_channels,
      alpha_out)
    self.convs = nn.ModuleDict()
    for _, from in ipairs({ "high", "low" }) do
      for _, to in ipairs({ "high", "low" }) do
        if self.in_channels[from] > 0 and self.out_channels[to] > 0 then
          self.convs[from .. "_" .. to] = nn.Conv2d(self.in_channels[from], self.out_channels[to],
            { kernel_size = options.kernel_size, padding = options.padding })
        end
      end
    end
  end

  -- nil + x is x.
  local function added(a, b)
    return a and b and a + b or a or b
  end

  function OctConv2d:forward(input)
    local x = type(input) == "table" and { high = input[1], low = input[2] } or { high = input }
    local function part(from, to, change)
      local name = from .. "_" .. to
      return self.convs:contains(name) and change(self.convs[name]) or nil
    end
    local high = added(
      part("high", "high", function(conv) return conv(x.high) end),
      part("low", "high", function(conv)
        return nn.functional.interpolate(conv(x.low), { scale_factor = 2, mode = "nearest" })
      end))
    local low = added(
      part("low", "low", function(conv) return conv(x.low) end),
      part("high", "low", function(conv)
        return conv(nn.functional.avg_pool2d(x.high, 2, 2))
      end))
    if low then
      return { high, low }
    end
    return high
  end

  local function applyMultiConv(module)
    local forward_impl = module.forward
    function module.forward(...)
      local _ <close> = poptorch.MultiConv()
      local out = forward_impl(...)
      return out
    end
  end

  local OctConvBlock = nn.Module:extend("OctConvBlock")

  function OctConvBlock:init(in_channels, out_channels, alpha, use_multi)
    self.octconv = OctConv2d(in_channels, out_channels,
      { kernel_size = 3, padding = 1, alpha = alpha })
    if use_multi == nil or use_multi then
      applyMultiConv(self.octconv)
    end
    local norm_high = nn.BatchNorm2d(self.octconv.out_channels["high"])
    local relu = nn.ReLU()
    local pool = nn.MaxPool2d(2)
    self.high_seq = nn.Sequential(norm_high, relu, pool)
    self.has_low = self.octconv.alpha_out > 0.0
    if self.has_low then
      local norm_low = nn.BatchNorm2d(self.octconv.out_channels["low"])
      self.low_seq = nn.Sequential(norm_low, relu, pool)
    end
  end

  function OctConvBlock:forward(input)
    local out = self.octconv(input)
    if self.has_low then
      local y_high, y_low = table.unpack(out)
      return { self.high_seq(y_high), self.low_seq(y_low) }
    else
      return self.high_seq(out)
    end
  end

  local function createConvBlock(in_channels, out_channels)
    local conv = nn.Conv2d(in_channels, out_channels, { kernel_size = 3, padding = 1,
      bias = false })
    local norm = nn.BatchNorm2d(out_channels)
    local relu = nn.ReLU()
    local pool = nn.MaxPool2d(2)
    return nn.Sequential(conv, norm, relu, pool)
  end

  local ClassificationModel = nn.Module:extend("ClassificationModel")

  function ClassificationModel:init(conv_mode, alpha, expansion)
    conv_mode, alpha, expansion = conv_mode or "vanilla", alpha or 0.5, expansion or 1
    self.num_channels = 16 * expansion
    if conv_mode == "vanilla" then
      self:_makeVanilla()
    elseif conv_mode == "octave" then
      self:_makeOctave(alpha, false)
    elseif conv_mode == "multi-octave" then
      self:_makeOctave(alpha, true)
    else
      error(("Invalid conv_mode=%q. Must be vanilla, octave, or multi-octave"):format(conv_mode))
    end
    self.fc = nn.Linear(self.num_channels * 4 * 4, 10)
    self.log_softmax = nn.LogSoftmax({ dim = 1 })
    self.loss = nn.NLLLoss()
  end

  function ClassificationModel:_makeVanilla()
    self.convlayers = nn.Sequential(
      createConvBlock(3, self.num_channels),
      createConvBlock(self.num_channels, self.num_channels * 2),
      createConvBlock(self.num_channels * 2, self.num_channels))
  end

  function ClassificationModel:_makeOctave(alpha, use_multi)
    self.convlayers = nn.Sequential(
      OctConvBlock(3, self.num_channels, { 0.0, alpha }, use_multi),
      OctConvBlock(self.num_channels, self.num_channels * 2, alpha, use_multi),
      OctConvBlock(self.num_channels * 2, self.num_channels, { alpha, 0.0 }, use_multi))
  end

  function ClassificationModel:forward(x, labels)
    local out = self.convlayers(x)
    out = torch.flatten(out, { start_dim = 1 })
    out = self.fc(out)
    out = self.log_softmax(out)
    if labels == nil then
      return out
    else
      local loss = self.loss(out, labels)
      return out, loss
    end
  end

  before_each(function()
    torch.manual_seed(0)
  end)

  it("test_octconv_block", function()
    for _, use_multi in ipairs({ true, false }) do
      local block = OctConvBlock(3, 6, { 0.0, 0.5 }, use_multi)
      block:eval()
      local x = torch.randn(5, 3, 10, 10)
      local out = block(x)
      local pop_block = poptorch.inferenceModel(block)
      local pop_out = pop_block(x)
      assert.equal(2, #pop_out)
      for i, cpu in ipairs(out) do
        close(cpu, pop_out[i])
      end
    end
  end)

  for _, conv_mode in ipairs({ "vanilla", "octave", "multi-octave" }) do
    it("test_inference_model, test_training_model: " .. conv_mode, function()
      local model = ClassificationModel(conv_mode)
      model:eval()
      local x = torch.randn(5, 3, 32, 32)
      local out = model(x)
      local pop_model = poptorch.inferenceModel(model)
      close(out, pop_model(x), { rtol = 1e-4, atol = 1e-5 })
      pop_model:destroy()

      model:train()
      local labels = torch.randint({ low = 1, high = 10, size = { 5 } })
      local loss
      out, loss = model(x, labels)
      local trainer = poptorch.trainingModel(model, poptorch.Options(),
        poptorch.optim.SGD(model:parameters(), { lr = 0.01 }))
      local pop_out, pop_loss = trainer(x, labels)
      close(out, pop_out, { rtol = 1e-4, atol = 1e-5 })
      close(loss, pop_loss, { rtol = 1e-4, atol = 1e-5 })
    end)
  end

  it("one run with synthetic data is profiled", function()
    local model = ClassificationModel("multi-octave")
    local folder = files.unused()
    local opts = poptorch.Options():deviceIterations(3)
    opts:enableProfiling(folder)
    opts:enableSyntheticData(true)
    local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.05 })
    model:train()
    local training_model = poptorch.trainingModel(model, opts, optimizer)
    local data = torch.randn(2 * 3, 3, 32, 32)
    local labels = torch.randint(0, 10, { 2 * 3 })
    training_model(data, labels)
    local f = assert(io.open(folder .. "/training/profile.json"))
    assert.is_true(#f:read("a") > 1000)
    f:close()
    files.remove(folder)
  end)

  it("is trained through an asynchronous accessor and tested", function()
    local normal = transforms.Normalize({ 0.4914, 0.4822, 0.4465 }, { 0.2470, 0.2435, 0.2616 })
    local model = ClassificationModel("multi-octave")
    local opts = poptorch.Options():deviceIterations(5)
    model:train()
    local training_model = poptorch.trainingModel(model, opts,
      torch.optim.SGD(model:parameters(), { lr = 0.05 }))
    local loader = poptorch.DataLoader(opts,
      Pictures(240, { channels = 3, size = 32, transform = normal }),
      { batch_size = 8, shuffle = true, drop_last = true, num_workers = 2,
        mode = poptorch.DataLoaderMode.Async })
    for data, labels in loader do
      local _, losses = training_model(data, labels)
      assert.is_true(torch.mean(losses):isfinite():item())
    end
    loader:terminate()
    training_model:copyWeightsToHost()

    model:eval()
    local inference_model = poptorch.inferenceModel(model, opts)
    loader = poptorch.DataLoader(opts,
      Pictures(80, { channels = 3, size = 32, transform = normal, seed = 1 }),
      { batch_size = 8, shuffle = true, drop_last = true })
    loader = poptorch.AsynchronousDataAccessor(loader)
    local num_batches, sum_acc = #loader, 0.0
    do
      local _ <close> = torch.no_grad()
      for data, labels in loader do
        local output = inference_model(data)
        local ind = torch.argmax(output, 1)
        labels = labels[{ torch.slice(-output:size()[1], nil) }]
        sum_acc = sum_acc + torch.sum(torch.eq(ind, labels)):item() / labels:size()[1] * 100.0
      end
    end
    loader:terminate()
    assert.equal(2, num_batches)
    assert.is_true(sum_acc / num_batches > 15.0, sum_acc)
  end)
end)

describe("the custom operator in a CNN", function()
  local function leakyrelu(inp, alpha)
    return poptorch.custom_op(
      { inp },
      "LeakyRelu",
      "custom.ops",
      1,
      { example_outputs = { inp }, attributes = { alpha = alpha or 0.01 } })[1]
  end

  local CNNwithLeakyReLU = nn.Module:extend("CNNwithLeakyReLU")

  function CNNwithLeakyReLU:init()
    self.conv_1 = nn.Conv2d(1, 32, { kernel_size = { 3, 3 } })
    self.conv_2 = nn.Conv2d(32, 64, { kernel_size = { 3, 3 } })
    self.linear_1 = nn.Linear(64 * 5 * 5, 256)
    self.linear_2 = nn.Linear(256, 10)
    self.pool = nn.MaxPool2d({ 2, 2 })
    self.softmax = nn.LogSoftmax({ dim = 0 })
    self.loss = nn.CrossEntropyLoss()
  end

  function CNNwithLeakyReLU:forward(x, y)
    local l1 = leakyrelu(self.pool(self.conv_1(x)))
    local l2 = leakyrelu(self.pool(self.conv_2(l1)))
    local flt = torch.flatten(l2, { start_dim = 1 })
    local l3 = leakyrelu(self.linear_1(flt), 0.005)
    local pred = self.softmax(self.linear_2(l3))
    local loss = self.loss(pred, y)
    return pred, loss
  end

  it("learns, and its loss is the host's with torch's leaky_relu", function()
    custom_ops.load("leaky_relu")
    torch.manual_seed(4)
    local model = CNNwithLeakyReLU()
    model:train()
    local opts = poptorch.Options()
    local batch_size = 16
    local train_data = Pictures(320, { transform = transforms.Normalize({ 0.5 }, { 0.5 }) })
    local train_dataloader = poptorch.DataLoader(opts, train_data,
      { batch_size = batch_size, shuffle = true })
    local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 2e-2 })
    local x, y = train_dataloader:iter()()
    local function native()
      local F = nn.functional
      local l2 = F.leaky_relu(model.pool(model.conv_2(F.leaky_relu(model.pool(model.conv_1(x)),
        0.01))), 0.01)
      local l3 = F.leaky_relu(model.linear_1(torch.flatten(l2, { start_dim = 1 })), 0.005)
      return model.loss(model.softmax(model.linear_2(l3)), y):item()
    end
    local wanted = native()
    local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })
    local _, first = poptorch_model(x, y)
    assert.near(wanted, first:item(), 1e-4)
    local mean_loss = {}
    for epoch = 1, 2 do
      local total_loss, total_acc, n_batches = 0.0, 0.0, 0
      for data, labels in train_dataloader do
        local preds, loss = poptorch_model(data, labels)
        total_loss = total_loss + loss
        total_acc = total_acc + 100 * torch.sum(torch.eq(select(2, torch.max(preds, 1)), labels))
          / batch_size
        n_batches = n_batches + 1
      end
      mean_loss[epoch] = (total_loss / n_batches):item()
      local mean_acc = (total_acc / n_batches):item()
      assert.is_true(mean_acc >= 0 and mean_acc <= 100)
    end
    assert.is_true(mean_loss[2] < mean_loss[1], mean_loss[1] .. " " .. mean_loss[2])
  end)
end)

describe("the available memory", function()
  local GeneratedDataset = torch.utils.data.Dataset:extend("GeneratedDataset")

  function GeneratedDataset:init(shape, size, half_precision)
    self.size = size or 60000
    self.half_precision = half_precision or false
    self.data_shape = shape
  end

  function GeneratedDataset:__len__()
    return self.size
  end

  function GeneratedDataset:__getitem__(_)
    local synthetic_data = torch.rand(self.data_shape)
    if self.half_precision then
      synthetic_data = synthetic_data:half()
    end
    return synthetic_data, 0
  end

  -- In the place of torchvision's resnext50: one block of grouped convolutions.
  local ResNextModel = nn.Module:extend("ResNextModel")

  function ResNextModel:init()
    self.resnext = nn.Sequential(nn.Conv2d(3, 64, 7, { stride = 2, padding = 3 }),
      nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, { stride = 2, padding = 1 }),
      nn.Conv2d(64, 128, 1), nn.Conv2d(128, 128, 3, { padding = 1, groups = 32 }),
      nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
  end

  function ResNextModel:forward(x)
    x = self.resnext(x)
    return x
  end

  local function run_model(batch_size, availableMemoryProportion)
    torch.manual_seed(0)
    local model = ResNextModel()
    model:eval()
    local opts = poptorch.Options():deviceIterations(1)
    opts:setAvailableMemoryProportion({ IPU0 = availableMemoryProportion })
    local test_dataloader = poptorch.DataLoader(opts, GeneratedDataset({ 3, 64, 64 }, 12),
      { batch_size = batch_size, shuffle = true })
    local poptorch_model = poptorch.inferenceModel(model, { options = opts })
    local tput_acc, values = 0, nil
    for data in test_dataloader do
      local start = lupine.clock()
      values = poptorch_model(data)
      local seconds = lupine.clock() - start
      tput_acc = tput_acc + data:size()[1] / seconds
    end
    return tput_acc / #test_dataloader, values, poptorch_model:report()
  end

  it("leaves the values as they are; a smaller proportion takes no less time", function()
    local tput, values, report = run_model(4, 0.6)
    assert.is_true(tput > 0)
    local _, other, slow = run_model(4, 0.05)
    assert.is_true(torch.equal(values, other))
    assert.is_true(slow.cycles >= report.cycles)
  end)
end)

describe("observing tensors", function()
  local BasicLinearModel = nn.Module:extend("BasicLinearModel")

  function BasicLinearModel:init()
    self.fc1 = nn.Linear(784, 320)
    self.fc2 = nn.Linear(320, 100)
    self.fc3 = nn.Linear(100, 10)
    self.log_softmax = nn.LogSoftmax({ dim = 0 })
    self.loss = nn.NLLLoss()
    self.relu = nn.ReLU()
  end

  function BasicLinearModel:forward(x, labels)
    x = torch.flatten(x, { start_dim = 1 })
    x = self.relu(self.fc1(x))
    x = self.relu(self.fc2(x))
    x = self.log_softmax(self.fc3(x))
    if self.training then
      return x, self.loss(x, labels)
    end
    return x
  end

  local TENSORS = {
    "Gradient___fc1.weight",
    "Gradient___fc3.weight",
    "Gradient___fc2.bias",
    "Gradient___fc1.bias",
    "Gradient___fc3.bias",
    "Gradient___fc2.weight",
  }

  it("gives the last batch's gradients for a histogram", function()
    torch.manual_seed(6)
    local batch_size_train = 50
    local opts = poptorch.Options()
    for _, t in ipairs(TENSORS) do
      opts:anchorTensor(t, t)
    end
    local train_data = Pictures(200, { transform = transforms.Normalize({ 0.5 }, { 0.5 }) })
    local train_loader = poptorch.DataLoader(opts, train_data,
      { batch_size = batch_size_train, shuffle = true })
    local model = BasicLinearModel()
    model:train()
    local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.01 })
    local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })
    poptorch_model:compile(torch.zeros(batch_size_train, 1, 28, 28),
      torch.zeros(batch_size_train):long())
    local names = {}
    for _, name in ipairs(poptorch_model:getTensorNames()) do
      names[name] = true
    end
    for _, t in ipairs(TENSORS) do
      assert.is_true(names[t], t)
    end

    local total_loss = 0.0
    local predictions, last, before = {}, nil, nil
    for data, labels in train_loader do
      before = model:deepcopy()
      local output, loss = poptorch_model(data, labels)
      total_loss = total_loss + loss
      predictions[#predictions + 1] = output
      last = { data, labels }
    end
    assert.is_true(total_loss:item() > 0)
    assert.equal(4, #predictions)

    -- the same gradients on the host, from the weights before the last batch
    local _, loss = before(table.unpack(last))
    loss:backward()
    local gradient = {}
    for _, t in ipairs(TENSORS) do
      local got, p = poptorch_model:getAnchoredTensor(t), before
      for part in t:gsub("^Gradient___", ""):gmatch("[^.]+") do
        p = p[part]
      end
      close(got:reshape(p.grad.shape), p.grad, { rtol = 1e-4, atol = 1e-6 })
      gradient[#gradient + 1] = got:flatten()
    end
    gradient = torch.cat(gradient):abs()
    local idx = gradient:ne(0)
    gradient[idx] = torch.log2(gradient[idx])
    gradient[~idx] = torch.min(gradient) - 2
    local counts = torch.histc(gradient, 50)
    assert.equal(784 * 320 + 320 + 320 * 100 + 100 + 100 * 10 + 10, counts:sum():item())
  end)
end)

describe("the user guide's debugging", function()
  local Model = nn.Module:extend("Model")

  function Model:init()
    self.fc1 = torch.nn.Linear(10, 10)
    self.relu = torch.nn.ReLU()
    self.fc2 = torch.nn.Linear(10, 10)
    self.loss = torch.nn.MSELoss({ reduction = "mean" })
  end

  function Model:forward(x, labels)
    local out = self.fc2(self.relu(self.fc1(x)))
    if self.training then
      return self.loss(out, labels)
    end
    return out
  end

  it("names tensors, anchors them, has the optimizer's state", function()
    local input = torch.rand(10, 10)
    local label = torch.rand(10, 10)
    local model = Model()
    local poptorch_model = poptorch.trainingModel(model)
    poptorch_model(input, label)
    local tensor_names = poptorch_model:getTensorNames()
    local text = " " .. table.concat(tensor_names, " ") .. " "
    assert.matches(" Gradient___fc2.bias ", text, 1, true)
    assert.matches(" UpdatedVar___fc2.weight ", text, 1, true)

    local opts = poptorch.Options()
    opts:anchorTensor("grad_bias", "Gradient___fc2.bias")
    opts:anchorTensor("update_weight", "UpdatedVar___fc2.weight")
    poptorch_model:destroy()

    poptorch_model = poptorch.trainingModel(model, opts)
    poptorch_model(input, label)
    local grad = poptorch_model:getAnchoredTensor("grad_bias")
    local update = poptorch_model:getAnchoredTensor("update_weight")
    assert.equal(10, grad:numel())
    close(update:reshape(10, 10), model.fc2.weight)
    poptorch_model:destroy()

    local optim = poptorch.optim.SGD(model:parameters(), { lr = 0.01 })
    poptorch_model = poptorch.trainingModel(model, opts, optim)
    poptorch_model(input, label)
    local state = optim:state_dict()
    assert.equal(0.01, state.param_groups[1].lr)
  end)
end)
