--- PopTorch's tests of batching.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local Mode = poptorch.OutputMode

local Classifier = nn.Module:extend("Classifier")

function Classifier:init()
  self.linear, self.loss = nn.Linear(10, 10), nn.CrossEntropyLoss()
end

function Classifier:forward(data, target)
  local out = self.linear(data)
  return out, self.loss(out, target)
end

local MODES = { Mode.Final, Mode.EveryN, Mode.All, Mode.Sum, Mode.Default }

-- The weight after ten steps.
local function accumulated(input, target, ga, reduction, lr)
  torch.manual_seed(42)
  local Model = nn.Module:extend("Model")
  function Model:init()
    self.linear, self.loss = nn.Linear(10, 10), nn.L1Loss({ reduction = "mean" })
  end
  function Model:forward(data, wanted)
    local out = self.linear(data)
    return out, self.loss(out, wanted)
  end
  local model, opts = Model(), poptorch.Options():outputMode(Mode.All)
  opts.Training:gradientAccumulation(ga)
  if reduction then
    opts.Training:accumulationAndReplicationReductionType(reduction)
  end
  local trainer = poptorch.trainingModel(model, opts, torch.optim.SGD(model:parameters(),
    { lr = lr }))
  for _ = 1, 10 do
    trainer(input, target)
  end
  return trainer.linear.weight.data
end

-- Four layers in blocks on four IPUs, by scopes or by Block.start.
local Four = nn.Module:extend("Four")

function Four:init(scopes, loss)
  self.scopes, self.loss = scopes, loss
  for i = 1, 4 do
    self["lin" .. i] = nn.Linear(1, 1)
  end
end

function Four:forward(x)
  for i = 1, 4 do
    if self.scopes then
      local _ <close> = poptorch.Block("B" .. i, { ipu_id = i - 1 })
      x = self["lin" .. i](x)
      if i == 4 and self.loss then
        return x, poptorch.identity_loss(x, "mean")
      end
    else
      poptorch.Block.start("B" .. i, { ipu_id = i - 1 })
      x = self["lin" .. i](x)
    end
  end
  return x
end

local function strategy(pipelined, opts)
  if pipelined then
    assert.is_true(poptorch.PipelinedExecution:is(opts.execution_strategy))
    return opts
  end
  return opts:setExecutionStrategy(poptorch.ShardedExecution())
end

describe("batching_test", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  it("test_inferenceBatching", function()
    local model, input = nn.Linear(6, 20), torch.randn(10, 1, 5, 6)
    local out = poptorch.inferenceModel(model, poptorch.Options():deviceIterations(10))(input)
    assert.same({ 10, 1, 5, 20 }, { table.unpack(out.shape) })
    near(out, model(input):detach())
  end)

  it("test_trainingBatching", function()
    local model, input = Classifier(), torch.randn(10, 10)
    local out = model.linear(input)
    local label = torch.full({ 10 }, out:mean(0):argmin():item(), { dtype = torch.int64 })
    local trainer = poptorch.trainingModel(model, { options = poptorch.Options()
      :deviceIterations(10) })
    assert.is_false(torch.equal(out:argmax(1), label))
    for _ = 1, 300 do
      local _, loss = trainer(input, label)
      assert.equal(0, loss:dim())
    end
    assert.is_true(torch.equal(model.linear(input):argmax(1), label))
  end)

  it("test_inferenceOutputModes", function()
    local model, input = nn.Linear(6, 20), torch.randn(10, 1, 5, 6)
    local want = model(input):detach()
    local rows = { [Mode.All] = want, [Mode.Default] = want, [Mode.Final] = want["9:"],
      [Mode.EveryN] = want["4::5"], [Mode.Sum] = want:sum(0, { keepdim = true }) }
    for _, mode in ipairs(MODES) do
      local opts = poptorch.Options():deviceIterations(10):outputMode(mode, 5)
      near(poptorch.inferenceModel(model, opts)(input), rows[mode])
    end
  end)

  it("test_trainingOutputModes", function()
    local input = torch.randn(1000, 10)
    local label = torch.full({ 1000 }, 3, { dtype = torch.int64 })
    local count = { [Mode.All] = 1000, [Mode.EveryN] = 50 }
    for _, mode in ipairs(MODES) do
      local trainer = poptorch.trainingModel(Classifier(), { options = poptorch.Options()
        :deviceIterations(1000):outputMode(mode, 20) })
      local out, loss = trainer(input, label)
      assert.same({ count[mode] or 1, 10 }, { table.unpack(out.shape) })
      assert.same({ count[mode] }, { table.unpack(loss.shape) })
      if mode == Mode.All then
        local means = loss:reshape(10, 100):mean(1):tolist()
        for i = 2, 10 do
          assert.is_true(means[i] < means[i - 1])
        end
      elseif mode == Mode.Sum then
        assert.is_true(loss:item() > 100)
      elseif mode ~= Mode.EveryN then
        assert.is_true(loss:item() < 0.5)
      end
    end
  end)

  it("test_gradient_accumulation_training", function()
    local input, target = torch.randn(4, 10), torch.randn(4, 10)
    local Mean, Sum = poptorch.ReductionType.Mean, poptorch.ReductionType.Sum
    local one = accumulated(input, target, 1, Mean, 0.01)
    near(accumulated(input, target, 2, Mean, 0.01), one)
    near(accumulated(input, target, 2, nil, 0.01), one)
    near(accumulated(input, target, 2, Sum, 0.01), accumulated(input, target, 1, Sum, 0.02))
  end)

  it("test_gradient_accumulation_pipelined_training", function()
    for _, ga in ipairs({ 4, 5, 7 }) do
      for _, di in ipairs({ 1, 2 }) do
        local opts = poptorch.Options():deviceIterations(di)
        opts.Training:gradientAccumulation(ga)
        local trainer = poptorch.trainingModel(Four(true, true), opts)
        local function call()
          return trainer(torch.zeros(ga * di, 1))
        end
        if ga < 7 then
          raises("Error", "gradient.*7", call)
        else
          assert.equal(2, select("#", call()))
        end
      end
    end
  end)

  it("test_gradient_accumulation_inference", function()
    for _, pipelined in ipairs({ true, false }) do
      for _, scopes in ipairs({ true, false }) do
        local opts = strategy(pipelined, poptorch.Options())
        opts.Training:gradientAccumulation(2)
        local e = raises("Error", "gradientAccumulation", function()
          poptorch.inferenceModel(Four(scopes), opts)
        end)
        assert.equal(pipelined, e.message:find("deviceIterations") ~= nil)
      end
    end
  end)

  it("test_device_iterations_inference", function()
    for _, pipelined in ipairs({ true, false }) do
      for _, scopes in ipairs({ true, false }) do
        for _, di in ipairs({ 2, 4 }) do
          local model = Four(scopes)
          local device = poptorch.inferenceModel(model, strategy(pipelined, poptorch.Options()
            :deviceIterations(di)))
          local x = torch.randn(di, 1)
          if pipelined and di == 2 then
            raises("Error", "deviceIterations", function()
              device(x)
            end)
          else
            near(device(x), model(x):detach())
          end
        end
      end
    end
  end)
end)
