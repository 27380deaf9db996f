--- PopTorch's tutorial of efficient data loading, the user guide's programs of
--- batching and of summed results, and the distributed training example, ported
--- line by line: pictures are smaller and fewer, times are not looked at but
--- for being there.
local files = require("spec.support.files")
local ClassificationModel = require("spec.support.classifier")
local Pictures = require("spec.support.pictures")
local lupine = require("lupine")
local popdist = require("popdist")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local F = torch.nn.functional

describe("efficient data loading", function()
  local device_iterations, batch_size, num_workers = 5, 16, 2
  local dataset, folder

  setup(function()
    torch.manual_seed(0)
    local features = torch.randn({ 1000, 1, 20, 20 })
    local labels = torch.empty({ 1000 }, { dtype = torch.long }):random_(10)
    dataset = torch.utils.data.TensorDataset(features, labels)
    folder = files.unused()
  end)

  teardown(function()
    files.remove(folder)
  end)

  local function loader(opts, more)
    return poptorch.DataLoader(opts, { dataset = dataset, batch_size = batch_size, shuffle = true,
      drop_last = true, num_workers = num_workers, mode = poptorch.DataLoaderMode.Async,
      async_options = more })
  end

  it("the loader alone", function()
    local opts = poptorch.Options()
    opts:deviceIterations(device_iterations)
    local training_data = loader(opts)
    local steps = #training_data
    assert.equal(1000 // (device_iterations * batch_size), steps)
    local count = 0
    for data, labels in training_data do
      assert.equal(device_iterations * batch_size, #data)
      assert.equal(torch.int64, labels.dtype)
      count = count + 1
    end
    assert.equal(steps, count)
    training_data:terminate()
  end)

  -- The walkthrough's last function, with the options of the script.
  local function validate_model_performance(replicas, synthetic_data)
    local opts = poptorch.Options()
    opts:deviceIterations(device_iterations)
    opts:replicationFactor(replicas)
    opts:enableExecutableCaching(folder)
    if synthetic_data then
      opts:enableSyntheticData(true)
    end
    torch.manual_seed(1)
    local model = ClassificationModel(300, 0)
    model:train()
    local training_model = poptorch.trainingModel(model, opts, poptorch.optim.SGD(
      model:parameters(), { lr = 0.001, momentum = 0.9, use_combined_accum = false }))
    local training_data = loader(opts, { early_preload = true })
    local steps = #training_data
    local data_batch, labels_batch = training_data:iter()()
    training_model:compile(data_batch, labels_batch)
    assert.is_true(training_model:isCompiled())
    local before = lupine.clock()
    local calls = 0
    if synthetic_data then
      for _ = 1, steps do
        training_model(data_batch, labels_batch)
        calls = calls + 1
      end
    else
      for data, labels in training_data do
        local _, loss = training_model(data, labels)
        assert.equal(replicas, loss:numel())
        calls = calls + 1
      end
    end
    assert.equal(steps, calls)
    assert.is_true(lupine.clock() > before)
    local report = training_model:report()
    training_model:detachFromDevice()
    training_data:terminate()
    return report
  end

  for _, replicas in ipairs({ 1, 2 }) do
    it(("%d replicas, with data and synthetic"):format(replicas), function()
      local real = validate_model_performance(replicas, false)
      local synthetic = validate_model_performance(replicas, true)
      assert.equal(replicas, real.replicas)
      -- the throughput without input and output is no less
      assert.is_true(synthetic.cycles <= real.cycles)
    end)
  end
end)

-- functools.reduce(operator.mul, shape)
local function product(shape)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  return n
end

describe("the user guide's batching", function()
  local ExampleModelWithLoss = nn.Module:extend("ExampleModelWithLoss")

  function ExampleModelWithLoss:init(data_shape, num_classes)
    self.fc = torch.nn.Linear(product(data_shape), num_classes)
    self.loss = torch.nn.CrossEntropyLoss()
  end

  function ExampleModelWithLoss:forward(x, target)
    local reshaped = x:reshape({ x.shape[1], -1 })
    local fc = self.fc(reshaped)
    if target ~= nil then
      return fc, self.loss(fc, target)
    end
    return fc
  end

  local ExampleDataset = torch.utils.data.Dataset:extend("ExampleDataset")

  function ExampleDataset:init(shape, length)
    self._shape = shape
    self._length = length
    self._all_data = {}
    self._all_labels = {}
    torch.manual_seed(0)
    for i = 1, length do
      local label = torch.rand({}):item() > 0.5 and 1 or 0
      local data = torch.rand(self._shape) + label
      data[0] = -data[0]
      self._all_data[i] = data
      self._all_labels[i] = label
    end
  end

  function ExampleDataset:__len__()
    return self._length
  end

  function ExampleDataset:__getitem__(index)
    return self._all_data[index + 1], self._all_labels[index + 1]
  end

  local model_batch_size = 2
  local dataset, model

  setup(function()
    dataset = ExampleDataset({ 3, 2 }, 2000)
    model = ExampleModelWithLoss({ 3, 2 }, 2)
  end)

  local function loaded(opts)
    return poptorch.DataLoader(opts, { dataset = dataset, batch_size = model_batch_size,
      shuffle = true, drop_last = true })
  end

  -- All calls; the losses.
  local function train(poptorch_model, training_data, size, results)
    local losses = {}
    for data, labels in training_data do
      assert.equal(size, #data)
      assert.equal(size, #labels)
      local output, loss = poptorch_model(data, labels)
      assert.same({ results * model_batch_size, 2 }, { table.unpack(output.shape) })
      assert.equal(results, loss:numel())
      losses[#losses + 1] = loss:mean():item()
    end
    poptorch_model:destroy()
    return losses
  end

  it("device_iterations_example", function()
    local opts = poptorch.Options()
    opts:deviceIterations(100)
    local training_data = loaded(opts)
    local net = ExampleModelWithLoss({ 3, 2 }, 2)
    local losses = train(poptorch.trainingModel(net, { options = opts }), training_data, 200, 1)
    assert.equal(10, #losses)
    assert.is_true(losses[10] < losses[1])
  end)

  it("replication_factor_example", function()
    local opts = poptorch.Options()
    opts:deviceIterations(20)
    opts:replicationFactor(4)
    local training_data = loaded(opts)
    local net = ExampleModelWithLoss({ 3, 2 }, 2)
    local losses = train(poptorch.trainingModel(net, { options = opts }), training_data, 160, 4)
    assert.equal(12, #losses)
  end)

  it("gradient_accumulation_example", function()
    local opts = poptorch.Options()
    opts:deviceIterations(10)
    opts.Training:gradientAccumulation(8)
    local losses = train(poptorch.trainingModel(model, { options = opts }), loaded(opts), 160, 1)
    assert.equal(12, #losses)
  end)

  it("data_accessor_example", function()
    local opts = poptorch.Options()
    opts:deviceIterations(1)
    opts:replicationFactor(1)
    local loader = poptorch.DataLoader(opts, torch.utils.data.Subset(dataset, { 0, 1, 2, 3, 4 }),
      { batch_size = 1, num_workers = 0, mode = poptorch.DataLoaderMode.Async })
    local poptorch_model = poptorch.inferenceModel(model, opts)
    local it = 0
    for data in loader do
      local out = poptorch_model(data)
      torch.testing.assert_close(out, model(dataset[it][1]:unsqueeze(0)))
      it = it + 1
    end
    assert.equal(5, it)
    poptorch_model:destroy()
  end)

  it("process", function()
    local opts = poptorch.Options()
    opts:deviceIterations(10)
    opts:replicationFactor(2)
    opts.Distributed:configureProcessId(0, 1)
    opts.Training:gradientAccumulation(8)
    opts:randomSeed(42)
    local losses = train(poptorch.trainingModel(model, { options = opts }), loaded(opts), 320, 2)
    assert.equal(6, #losses)
  end)
end)

describe("the user guide's summed results", function()
  -- R is orthogonal: the eigenvectors of a random symmetric matrix.
  local ExampleClassDataset = torch.utils.data.Dataset:extend("ExampleClassDataset")
  local RAND_SEED = 8549

  function ExampleClassDataset:init(num_classes, vec_length, num_examples)
    assert(vec_length >= num_classes)
    torch.manual_seed(RAND_SEED)
    self.targets = torch.randint(0, num_classes, { num_examples }):tolist()
    local R = torch.rand({ vec_length, vec_length })
    R = R + R:transpose(0, 1)
    local _, eigenvectors = torch.linalg.eigh(R)
    self._R = eigenvectors:to(torch.float)
    self._dist = torch.distributions.normal.Normal(0, 0.2)
    self._dist = self._dist:expand({ vec_length })
    self._vec_length = vec_length
  end

  function ExampleClassDataset:__getitem__(idx)
    torch.manual_seed(idx + RAND_SEED)
    local v = self._dist:sample()
    local item_cls = self.targets[idx + 1]
    v[item_cls] = v[item_cls] + 1.0
    v = torch.matmul(self._R, v)
    return v, item_cls
  end

  function ExampleClassDataset:__len__()
    return #self.targets
  end

  local MulticlassPerceptron = nn.Module:extend("MulticlassPerceptron")

  function MulticlassPerceptron:init(vec_length, num_classes)
    self.fc = torch.nn.Linear(vec_length, num_classes)
    self.loss = torch.nn.CrossEntropyLoss()
  end

  function MulticlassPerceptron:forward(x, target)
    local fc = self.fc(x)
    local classification = torch.argmax(fc, { dim = -1 })
    local accuracy = torch.sum(classification:eq(target):to(torch.float)) / classification:numel()
    if self.training then
      return self.loss(fc, target), accuracy
    end
    return classification, accuracy
  end

  it("the accuracy over all device iterations and accumulations", function()
    local NUM_CLASSES = 10
    local VEC_LENGTH = NUM_CLASSES * 2
    local opts = poptorch.Options()
    opts:deviceIterations(5)
    opts.Training:gradientAccumulation(10)
    opts:outputMode(poptorch.OutputMode.Sum)
    local training_data = poptorch.DataLoader(opts, {
      dataset = ExampleClassDataset(NUM_CLASSES, VEC_LENGTH, 2000), batch_size = 5,
      shuffle = true, drop_last = true })
    local model = MulticlassPerceptron(VEC_LENGTH, NUM_CLASSES)
    model:train()
    local poptorch_model = poptorch.trainingModel(model, { options = opts,
      optimizer = torch.optim.Adam(model:parameters(), { lr = 0.03 }) })
    local accuracies = {}
    for _ = 1, 3 do
      for data, labels in training_data do
        local _, accuracy = poptorch_model(data, labels)
        accuracy:div_(opts.device_iterations * opts.Training.gradient_accumulation)
        local value = accuracy:item()
        assert.is_true(value >= 0 and value <= 1)
        -- 250 samples: the sum of whole answers
        assert.near(0, value * 250 % 1 * (1 - value * 250 % 1), 1e-3)
        accuracies[#accuracies + 1] = value
      end
    end
    assert.equal(24, #accuracies)
    assert.is_true(accuracies[24] > accuracies[1])
  end)
end)

describe("the distributed training example", function()
  -- In the place of torchvision's resnet18: one residual block.
  local Residual = nn.Module:extend("Residual")

  function Residual:init()
    self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, { stride = 2, padding = 1, bias = false }),
      nn.BatchNorm2d(8), nn.ReLU())
    self.body = nn.Sequential(nn.Conv2d(8, 8, 3, { padding = 1, bias = false }),
      nn.BatchNorm2d(8))
    self.head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10))
  end

  function Residual:forward(x)
    x = self.stem(x)
    return self.head(F.relu(x + self.body(x)))
  end

  local ModelWithLoss = nn.Module:extend("ModelWithLoss")

  function ModelWithLoss:init()
    self.model = Residual()
    self.loss = torch.nn.NLLLoss({ reduction = "mean" })
  end

  function ModelWithLoss:forward(x, y)
    local logits = self.model(x)
    if y == nil then
      return logits
    end
    local log_preds = F.log_softmax(logits, { dim = 1 })
    local loss = self.loss(log_preds, y)
    return logits, poptorch.identity_loss(loss, { reduction = "none" })
  end

  local args = { epochs = 2, batch_size = 8, learning_rate = 0.05, momentum = 0.9,
    num_replicas = 2, dataloader_workers = 2, seed = 0 }

  local function create_options()
    local opts
    if popdist.isPopdistEnvSet() then
      opts = popdist.poptorch.Options()
      opts:randomSeed(args.seed)
    else
      opts = poptorch.Options()
      opts:replicationFactor(args.num_replicas)
      opts:broadcastBuffers(false) -- for the batch normalisation's running statistics
    end
    return opts
  end

  local function load_data(opts, train)
    local normalize = require("lupine.transforms").Normalize({ 0.5, 0.5, 0.5 }, { 0.5, 0.5, 0.5 })
    local dataset = Pictures(train and 160 or 80, { channels = 3, size = 16,
      seed = train and 0 or 1, transform = normalize })
    return poptorch.DataLoader(opts, dataset, { batch_size = args.batch_size,
      num_workers = args.dataloader_workers, shuffle = train,
      auto_distributed_partitioning = true })
  end

  it("without popdist's environment: two replicas, a checkpoint, validation", function()
    torch.manual_seed(2)
    local instance = 0
    if popdist.isPopdistEnvSet() then
      instance = popdist.getInstanceIndex()
    end
    assert.equal(0, instance)
    local opts = create_options()
    local data_train = load_data(opts, true)
    local model = ModelWithLoss()
    model:train()
    local optimizer = poptorch.optim.SGD(model:parameters(), { lr = args.learning_rate,
      momentum = args.momentum, use_combined_accum = true })
    local poptorch_model = poptorch.trainingModel(model, opts, { optimizer = optimizer })
    local means = {}
    for epoch = 1, args.epochs do
      means[epoch] = 0
      for x, y in data_train do
        local _, loss = poptorch_model(x, y)
        loss = torch.mean(loss)
        means[epoch] = means[epoch] + loss:item()
      end
    end
    assert.is_true(means[args.epochs] < means[1])
    poptorch_model:destroy()
    local path = os.tmpname()
    torch.save(model:state_dict(), path)
    assert.equal("<All keys matched successfully>", tostring(ModelWithLoss():load_state_dict(
      torch.load(path))))
    os.remove(path)

    local data_validation = load_data(opts, false)
    model:eval()
    poptorch_model = poptorch.inferenceModel(model, opts)
    local num_correct_predictions = 0
    for x, y in data_validation do
      local y_pred = poptorch_model(x)
      y_pred = select(2, torch.max(y_pred, 1))
      num_correct_predictions = num_correct_predictions + torch.eq(y_pred, y):long():sum():item()
    end
    local accuracy = num_correct_predictions / #data_validation.dataset
    assert.is_true(accuracy > 0.2 and accuracy <= 1, accuracy)
  end)
end)
