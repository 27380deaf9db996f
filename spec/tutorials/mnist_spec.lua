--- The MNIST programs of PopTorch's examples and tutorials, ported line by line:
--- the simple application, the example of the package, the pipelining tutorial,
--- the user guide's three strategies. The data are seeded pictures, and fewer
--- of them.
local Pictures = require("spec.support.pictures")
local poptorch = require("poptorch")
local torch = require("torch")
local transforms = require("lupine.transforms")
local nn = torch.nn

local transform_mnist = transforms.Compose({ transforms.Normalize({ 0.1307 }, { 0.3081 }) })

local function accuracy(predictions, labels)
  local _, ind = torch.max(predictions, 1)
  -- labels of the samples that predictions came back for
  labels = labels[{ torch.slice(-predictions:size()[1], nil) }]
  return torch.sum(torch.eq(ind, labels)):item() / labels:size()[1] * 100.0
end

-- conv, pool, relu: the originals' Block and ConvLayer.
local ConvLayer = nn.Module:extend("ConvLayer")

function ConvLayer:init(in_channels, num_filters, kernel_size, pool_size)
  self.conv = nn.Conv2d(in_channels, num_filters, { kernel_size = kernel_size })
  self.pool = nn.MaxPool2d({ kernel_size = pool_size })
  self.relu = nn.ReLU()
end

function ConvLayer:forward(x)
  x = self.conv(x)
  x = self.pool(x)
  x = self.relu(x)
  return x
end

-- What the networks of two of the programs have in common.
local Layers = nn.Module:extend("Layers")

function Layers:init()
  self.layer1 = ConvLayer(1, 10, 5, 2)
  self.layer2 = ConvLayer(10, 20, 5, 2)
  self.layer3 = nn.Linear(320, 256)
  self.layer3_act = nn.ReLU()
  self.layer4 = nn.Linear(256, 10)
end

local TrainingModelWithLoss = nn.Module:extend("TrainingModelWithLoss")

function TrainingModelWithLoss:init(model, block)
  self.model = model
  self.block = block
  self.loss = torch.nn.CrossEntropyLoss()
end

function TrainingModelWithLoss:forward(args, labels)
  local output = self.model(args)
  if labels == nil then
    return output
  end
  local loss
  if self.block then
    local _ <close> = poptorch.Block(self.block)
    loss = self.loss(output, labels)
  else
    loss = self.loss(output, labels)
  end
  return output, loss
end

-- An epoch; the mean loss of each call and the accuracy of the last.
local function train(training_model, training_data)
  local means, acc = {}, nil
  for data, labels in training_data do
    local preds, losses = training_model(data, labels)
    means[#means + 1] = torch.mean(losses):item()
    acc = accuracy(preds, labels)
  end
  return means, acc
end

local function test(inference_model, test_data)
  local sum_acc = 0.0
  for data, labels in test_data do
    local output = inference_model(data)
    sum_acc = sum_acc + accuracy(output, labels)
  end
  return sum_acc / #test_data
end

describe("accuracy", function()
  it("test_accuracy_calculation", function()
    local pred = torch.tensor({ { 0.9, 0.05, 0.05 }, { 0.1, 0.5, 0.4 }, { 0.6, 0.01, 0.49 },
      { 0.09, 0.11, 0.8 } })
    assert.equal(75, accuracy(pred, torch.tensor({ 0, 1, 2, 2 })))
  end)
end)

describe("the simple application", function()
  local Network = nn.Module:extend("Network")

  function Network:init()
    self.layer1 = ConvLayer(1, 32, 3, 2)
    self.layer2 = ConvLayer(32, 64, 3, 2)
    self.layer3 = nn.Linear(1600, 128)
    self.layer3_act = nn.ReLU()
    self.layer3_dropout = torch.nn.Dropout(0.5)
    self.layer4 = nn.Linear(128, 10)
    self.softmax = nn.Softmax(1)
  end

  function Network:forward(x)
    x = self.layer1(x)
    x = self.layer2(x)
    x = x:view(-1, 1600)
    x = self.layer3_act(self.layer3(x))
    x = self.layer4(self.layer3_dropout(x))
    x = self.softmax(x)
    return x
  end

  it("trains with all outputs, tests after it has detached", function()
    torch.manual_seed(3)
    local device_iterations, batch_size = 10, 8
    local training_opts = poptorch.Options()
    training_opts = training_opts:deviceIterations(device_iterations)
    local training_data = poptorch.DataLoader({ options = training_opts,
      dataset = Pictures(800, { transform = transform_mnist }), batch_size = batch_size,
      shuffle = true, drop_last = true })
    local test_data = poptorch.DataLoader({ options = poptorch.Options(),
      dataset = Pictures(170, { transform = transform_mnist, seed = 1 }), batch_size = 80,
      shuffle = true, drop_last = true })
    assert.equal(10, #training_data)
    assert.equal(2, #test_data)

    local model = Network()
    local model_with_loss = TrainingModelWithLoss(model)
    training_opts = poptorch.Options():deviceIterations(device_iterations)
    training_opts = training_opts:outputMode(poptorch.OutputMode.All)
    assert.matches("(layer3_dropout): Dropout(p=0.5, inplace=False)", tostring(model_with_loss), 1,
      true)
    local training_model = poptorch.trainingModel(model_with_loss, training_opts,
      { optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }) })
    local data, labels = training_data:iter()()
    local preds, losses = training_model(data, labels)
    assert.equal("torch.Size([80, 10])", tostring(preds.shape))
    assert.equal("torch.Size([10])", tostring(losses.shape))
    local means = {}
    for epoch = 1, 2 do
      local list = train(training_model, training_data)
      means[epoch] = list[#list]
    end
    assert.is_true(means[2] < means[1])
    training_model:detachFromDevice()

    model:eval()
    local inference_model = poptorch.inferenceModel(model)
    local got = test(inference_model, test_data)
    assert.is_true(got > 50, got)
  end)
end)

describe("the package's example", function()
  local Network = Layers:extend("Network")

  function Network:init()
    Layers.init(self)
    self.softmax = nn.LogSoftmax(1)
    self.loss = nn.NLLLoss({ reduction = "mean" })
  end

  function Network:forward(x, target)
    x = self.layer1(x)
    x = self.layer2(x)
    x = x:view(-1, 320)
    x = self.layer3_act(self.layer3(x))
    x = self.layer4(x)
    x = self.softmax(x)
    if target ~= nil then
      local loss = self.loss(x, target)
      return x, loss
    end
    return x
  end

  it("has four replicas and counts what is right by unique", function()
    local opts = poptorch.Options()
    opts:deviceIterations(4)
    opts:replicationFactor(4)
    opts:randomSeed(42)
    local training_data = poptorch.DataLoader(opts, Pictures(640, { transform = transform_mnist }),
      { batch_size = 20, shuffle = true })
    local val_options = poptorch.Options()
    local validation_data = poptorch.DataLoader(val_options,
      Pictures(200, { transform = transform_mnist }),
      { batch_size = 100, shuffle = true, drop_last = true })

    torch.manual_seed(11)
    local model = Network()
    local training_model = poptorch.trainingModel(model, training_data.options)
    local inference_model = poptorch.inferenceModel(model, validation_data.options)

    local function right(output, labels)
      local _, ind = torch.max(output, 1)
      labels = labels[{ torch.slice(-ind.shape[1], nil) }]
      local eq = torch.eq(ind, labels)
      local elms, counts = torch.unique(eq, { sorted = false, return_counts = true })
      if #elms == 2 or elms[0]:item() then
        return counts[elms[0]:item() and 0 or 1]:item()
      end
      return 0
    end

    local first, last
    for _ = 1, 3 do
      for data, labels in training_data do
        assert.equal(320, #data)
        local output, losses = training_model(data, labels)
        assert.equal("torch.Size([80, 10])", tostring(output.shape))
        assert.equal("torch.Size([4])", tostring(losses.shape))
        assert.equal(poptorch.OutputMode.Final, training_model.options.output_mode)
        last = losses:mean():item()
        first = first or last
        assert.is_true(right(output, labels) <= 80)
      end
    end
    assert.is_true(last < first)

    local correct, total = 0, 0
    do
      local _ <close> = torch.no_grad()
      for data, labels in validation_data do
        correct = correct + right(inference_model(data), labels)
        total = total + 100
      end
    end
    assert.equal(200, total)
    assert.is_true(correct > 0 and correct <= total, correct)
  end)
end)

describe("the pipelining tutorial", function()
  local Network = Layers:extend("Network")

  function Network:forward(x)
    do
      local _ <close> = poptorch.Block("B1")
      x = self.layer1(x)
    end
    do
      local _ <close> = poptorch.Block("B2")
      x = self.layer2(x)
    end
    do
      local _ <close> = poptorch.Block("B3")
      x = x:view(-1, 320)
      x = self.layer3_act(self.layer3(x))
    end
    do
      local _ <close> = poptorch.Block("B4")
      x = self.layer4(x)
    end
    return x
  end

  local function stages(Strategy)
    return Strategy(
      poptorch.Stage("B1"):ipu(0),
      poptorch.Stage("B2"):ipu(1),
      poptorch.Stage("B3"):ipu(2),
      poptorch.Stage("B4"):ipu(3))
  end

  -- mnist_pipeline.py with its options --strategy and --offload-optimiser, and
  -- the walkthrough's outputMode(All); the losses, the accuracy, the report.
  local function run(strategy, offload_optimiser)
    torch.manual_seed(0)
    local opts = { batch_size = 4, device_iterations = 4, gradient_accumulation = 10,
      test_batch_size = 4 }
    local options = poptorch.Options()
    if strategy == "pipelined" then
      options.Training:gradientAccumulation(opts.gradient_accumulation)
    end
    options:deviceIterations(opts.device_iterations)
    local training_data = poptorch.DataLoader(options,
      Pictures(640, { transform = transform_mnist }),
      { batch_size = opts.batch_size, shuffle = true, mode = poptorch.DataLoaderMode.Async,
        num_workers = 2 })
    local test_data = poptorch.DataLoader(
      poptorch.Options():deviceIterations(opts.gradient_accumulation * opts.device_iterations),
      Pictures(340, { transform = transform_mnist, seed = 1 }),
      { batch_size = opts.test_batch_size, shuffle = true, drop_last = true,
        mode = poptorch.DataLoaderMode.Async, num_workers = 2 })

    local model = Network()
    local model_with_loss = TrainingModelWithLoss(model, "B4")
    options = poptorch.Options()
    options._Popart:set("defaultPrefetchBufferingDepth", 3)
    local model_opts = options:deviceIterations(opts.device_iterations)
    model_opts:outputMode(poptorch.OutputMode.All)
    if strategy == "pipelined" then
      model_opts:setExecutionStrategy(stages(poptorch.PipelinedExecution))
      model_opts.Training:gradientAccumulation(opts.gradient_accumulation)
    else
      model_opts:setExecutionStrategy(stages(poptorch.ShardedExecution))
    end
    if offload_optimiser then
      local on, off = poptorch.TensorLocationSettings():useOnChipStorage(true),
        poptorch.TensorLocationSettings():useOnChipStorage(false)
      model_opts.TensorLocations:setActivationLocation(on)
      model_opts.TensorLocations:setWeightLocation(on)
      model_opts.TensorLocations:setAccumulatorLocation(on)
      model_opts.TensorLocations:setOptimizerLocation(off)
    end
    local training_model = poptorch.trainingModel(model_with_loss, model_opts,
      { optimizer = poptorch.optim.AdamW(model:parameters(), { lr = 0.005 }) })
    local losses, acc = {}, nil
    for _ = 1, 2 do
      local list
      list, acc = train(training_model, training_data)
      table.move(list, 1, #list, #losses + 1, losses)
    end
    local report = training_model:report()

    model_opts = model_opts:clone()
    model_opts.Training:gradientAccumulation(1)
    model_opts:deviceIterations(opts.device_iterations * opts.gradient_accumulation)
    local inference_model = poptorch.inferenceModel(model, model_opts)
    training_model:detachFromDevice()
    local accuracy_on_test_set = test(inference_model, test_data)
    inference_model:detachFromDevice()
    training_data:terminate()
    test_data:terminate()
    return losses, acc, accuracy_on_test_set, report
  end

  for _, strategy in ipairs({ "pipelined", "sharded" }) do
    it(strategy .. ", the optimizer's state on or off the chip", function()
      local losses, acc, tested, report = run(strategy, false)
      assert.equal(4, report.ipus)
      assert.is_true(losses[#losses] < losses[1])
      assert.is_true(acc >= 0 and acc <= 100)
      assert.is_true(tested > 60, tested)
      local off, _, off_tested = run(strategy, true)
      assert.same(losses, off) -- where states are changes no value
      assert.equal(tested, off_tested)
    end)
  end
end)

describe("the user guide's MNIST", function()
  local Network = nn.Module:extend("Network")

  function Network:init()
    self.layer1 = nn.Linear(784, 784)
    self.layer2 = nn.Linear(784, 784)
    self.layer3 = nn.Linear(784, 128)
    self.layer4 = nn.Linear(128, 10)
    self.softmax = nn.Softmax(1)
  end

  function Network:forward(x)
    x = x:view(-1, 784)
    do
      local _ <close> = poptorch.Block("B1")
      x = self.layer1(x)
    end
    do
      local _ <close> = poptorch.Block("B2")
      x = self.layer2(x)
    end
    do
      local _ <close> = poptorch.Block("B3")
      x = self.layer3(x)
    end
    do
      local _ <close> = poptorch.Block("B4")
      x = self.layer4(x)
      x = self.softmax(x)
    end
    return x
  end

  -- mnist.py with its options --strategy and --offload-opt.
  local function run(name, offload_opt)
    torch.manual_seed(5)
    local opts = { batch_size = 4, batches_per_step = 8, test_batch_size = 2 }
    local options = poptorch.Options()
    local training_data = poptorch.DataLoader(options,
      Pictures(256, { transform = transform_mnist }),
      { batch_size = opts.batch_size * opts.batches_per_step, shuffle = true, drop_last = true })
    local test_data = poptorch.DataLoader(options,
      Pictures(32, { transform = transform_mnist, seed = 1 }),
      { batch_size = opts.test_batch_size, shuffle = true, drop_last = true })

    local model = Network()
    local model_with_loss = TrainingModelWithLoss(model, "B4")
    local model_opts = poptorch.Options():deviceIterations(1)
    local strategy
    if name == "phased" then
      strategy = poptorch.SerialPhasedExecution("B1", "B2", "B3", "B4")
      strategy:stage("B1"):ipu(0)
      strategy:stage("B2"):ipu(0)
      strategy:stage("B3"):ipu(0)
      strategy:stage("B4"):ipu(0)
      model_opts:setExecutionStrategy(strategy)
    elseif name == "pipelined" then
      strategy = poptorch.PipelinedExecution("B1", "B2", "B3", "B4")
      strategy:stage("B1"):ipu(0)
      strategy:stage("B2"):ipu(1)
      strategy:stage("B3"):ipu(2)
      strategy:stage("B4"):ipu(3)
      model_opts:setExecutionStrategy(strategy)
      model_opts.Training:gradientAccumulation(opts.batches_per_step)
    else
      strategy = poptorch.ShardedExecution("B1", "B2", "B3", "B4")
      strategy:stage("B1"):ipu(0)
      strategy:stage("B2"):ipu(0)
      strategy:stage("B3"):ipu(0)
      strategy:stage("B4"):ipu(0)
      model_opts:setExecutionStrategy(strategy)
    end
    if offload_opt then
      model_opts.TensorLocations:setOptimizerLocation(
        poptorch.TensorLocationSettings():useOnChipStorage(false))
    end
    local training_model = poptorch.trainingModel(model_with_loss, model_opts,
      { optimizer = torch.optim.AdamW(model:parameters(), { lr = 1e-4 }) })
    local losses = train(training_model, training_data)
    training_model:copyWeightsToHost()

    local inf_opts = poptorch.Options():deviceIterations(opts.test_batch_size)
    strategy = poptorch.ShardedExecution("B1", "B2", "B3", "B4")
    strategy:stage("B1"):ipu(0)
    strategy:stage("B2"):ipu(0)
    strategy:stage("B3"):ipu(0)
    strategy:stage("B4"):ipu(0)
    inf_opts:setExecutionStrategy(strategy)
    local inference_model = poptorch.inferenceModel(model, inf_opts)
    return losses, test(inference_model, test_data), training_model:report().ipus
  end

  for name, ipus in pairs({ plain = 1, pipelined = 4, phased = 1 }) do
    it(name, function()
      local losses, tested, used = run(name, name == "phased")
      assert.equal(ipus, used)
      assert.equal(8, #losses)
      assert.is_true(losses[8] < losses[1])
      assert.is_true(tested >= 0 and tested <= 100)
    end)
  end
end)
