--- poptorch.AutoBlocks: blocks that the simulated system finds. Values are what they are on
--- one IPU.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local helper = require("spec.poptorch.helper")
local torch = require("torch")

local function raises(class_name, pattern, f)
  assert.matches(pattern, tostring(helper.raises(class_name, f)))
end

local Net = nn.Module:extend("AutoBlocksNet")

function Net:init()
  self.a, self.b, self.c = nn.Linear(16, 512), nn.Linear(512, 512), nn.Linear(512, 16)
  self.d, self.loss = nn.Linear(16, 4), nn.CrossEntropyLoss()
end

function Net:forward(x, y)
  local out = self.d(self.c(self.b(self.a(x):relu()):relu()):relu())
  if y == nil then
    return out
  end
  return out, self.loss(out, y)
end

local function options(strategy, accumulation)
  local o = poptorch.Options():autoRoundNumIPUs(true)
  o.Training:gradientAccumulation(accumulation or 8)
  return strategy and o:setExecutionStrategy(strategy) or o
end

local function trained(strategy)
  torch.manual_seed(1)
  local model = Net()
  local executor = poptorch.trainingModel(model, options(strategy),
    poptorch.optim.Adam(model:parameters(), { lr = 0.01 }))
  local losses = {}
  for i = 1, 3 do
    local _, loss = executor(torch.randn(32, 16), torch.randint(0, 4, { 32 }))
    losses[i] = loss
  end
  return executor, model, losses
end

local function starts(model)
  local out = {}
  for name in tostring(model):gmatch("BeginBlock%(user_id=([%w_.]+)") do
    out[#out + 1] = name
  end
  return out
end

describe("AutoBlocks", function()
  it("trains as one IPU does, on as many as it is told, and faster", function()
    local alone, want, want_losses = trained(nil)
    for ipus = 1, 4 do
      local executor, model, losses = trained(poptorch.AutoBlocks(ipus))
      local report = executor:report()
      assert.equal(ipus, report.ipus)
      assert.equal(ipus - 1, #starts(executor), tostring(executor))
      assert.is_true(ipus == 1 or report.samples_per_second > alone:report().samples_per_second)
      for i, loss in ipairs(losses) do
        assert.is_true(torch.equal(want_losses[i], loss))
      end
      local weights = model:state_dict()
      for name, value in pairs(want:state_dict()) do
        assert.is_true(torch.equal(value, weights[name]), name)
      end
    end
  end)

  it("is no slower than any pair of blocks", function()
    local found = trained(poptorch.AutoBlocks(2)):report()
    for _, name in ipairs({ "b", "c", "d" }) do
      torch.manual_seed(1)
      local model = Net()
      poptorch.BeginBlock(model[name], { ipu_id = 1 })
      local executor = poptorch.trainingModel(model,
        options(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)),
        poptorch.optim.Adam(model:parameters(), { lr = 0.01 }))
      executor:compile(torch.randn(32, 16), torch.randint(0, 4, { 32 }))
      assert.is_true(executor:report().cycles >= found.cycles, name)
    end
  end)

  it("looks for blocks again where other recomputation is best, and for both alike", function()
    local widths = { 256, 1024, 1024, 2048, 2048, 256 }
    local function executor(strategy, begin)
      local net, o = nn.Sequential(), options(strategy, 16)
      for i = 1, #widths - 1 do
        net:append(nn.Linear(widths[i], widths[i + 1])):append(nn.ReLU())
      end
      local Model = nn.Module:extend("AutoBlocksWide")
      function Model:init()
        self.net, self.loss = net, nn.MSELoss()
      end
      function Model:forward(x, y)
        local out = self.net(x)
        return out, self.loss(out, y)
      end
      if begin then
        poptorch.BeginBlock(net[begin], { ipu_id = 1 })
        o._Popart:set("autoRecomputation", "NoRecompute")
      end
      local model = Model()
      return poptorch.trainingModel(model, o,
        poptorch.optim.Adam(model:parameters(), { lr = 0.01 }))
    end
    torch.set_default_device("meta")
    local x = torch.zeros(16 * 256, 256)
    local found, best = executor(poptorch.AutoBlocks(2)), 0
    for i = 2, 10 do
      local other = executor(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement), i)
      other:compile(x, x)
      best = math.max(best, other:report().samples_per_second)
    end
    for _ = 1, 2 do
      found:compile(x, x)
      assert.equal(best, found:report().samples_per_second)
      found:destroy()
    end
    torch.set_default_device("cpu")
  end)

  it("recomputes what is best, unless the options say", function()
    local function compiled(recomputation)
      local o, model = options(poptorch.AutoBlocks(2)), Net()
      if recomputation then
        o._Popart:set("autoRecomputation", recomputation)
      end
      local executor = poptorch.trainingModel(model, o,
        poptorch.optim.Adam(model:parameters(), { lr = 0.01 }))
      executor:compile(torch.randn(32, 16), torch.randint(0, 4, { 32 }))
      return executor:report()
    end
    local function again(report)
      local sum = 0
      for _, stage in ipairs(report.stages) do
        sum = sum + stage.recompute_cycles
      end
      return sum
    end
    local most = 0
    for _, name in ipairs({ "Pipeline", "NoRecompute", "RecomputeAll" }) do
      local report = compiled(name)
      most = math.max(most, report.samples_per_second)
      assert.equal(name == "NoRecompute", again(report) == 0, name)
    end
    local report = compiled(nil)
    assert.equal(most, report.samples_per_second)
    assert.equal(0, again(report)) -- the activations fit
  end)

  it("infers, and finds other blocks when it is compiled again", function()
    local model = Net()
    local x = torch.randn(32, 16)
    for _, ipus in ipairs({ 3, 2, 4 }) do
      local o = poptorch.Options():deviceIterations(8):autoRoundNumIPUs(true)
        :setExecutionStrategy(poptorch.AutoBlocks(ipus))
      local executor = poptorch.inferenceModel(model, o)
      assert.is_true(torch.allclose(model(x), executor(x), 1e-5, 1e-6))
      assert.equal(ipus, executor:report().ipus)
      assert.equal(ipus - 1, #starts(executor))
      executor:destroy()
    end
    local executor = poptorch.inferenceModel(model, poptorch.Options())
    executor(x)
    assert.equal(1, executor:report().ipus)
    assert.same({}, starts(executor))
  end)

  it("leaves models alone that have blocks", function()
    local model = Net()
    poptorch.BeginBlock(model.b, { ipu_id = 1 })
    local x, y = torch.randn(32, 16), torch.randint(0, 4, { 32 })
    raises("Error", "AutoBlocks: the module 'b' starts a block", function()
      poptorch.trainingModel(model, options(poptorch.AutoBlocks(2))):compile(x, y)
    end)
    local Scoped = Net:extend("AutoBlocksScoped")
    function Scoped.forward(self, a, b)
      local _ <close> = poptorch.Block("own", { ipu_id = 0 })
      return Net.forward(self, a, b)
    end
    raises("Error", "AutoBlocks: forward starts the block 'own' itself, at .*auto_blocks_spec",
      function()
        poptorch.trainingModel(Scoped(), options(poptorch.AutoBlocks(2))):compile(x, y)
      end)
  end)

  it("says what it cannot do", function()
    local x, y = torch.randn(32, 16), torch.randint(0, 4, { 32 })
    raises("Error", "the model cannot be cut into 9 stages: it has %d places", function()
      poptorch.trainingModel(Net(), options(poptorch.AutoBlocks(9), 32)):compile(x, y)
    end)
    raises("Error", "gradient_accumulation must be at least 7, got 4", function()
      poptorch.trainingModel(Net(), options(poptorch.AutoBlocks(4), 4)):compile(x, y)
    end)
    raises("AssertionError", "AutoBlocks%(ipus%): expected", function()
      poptorch.AutoBlocks(0)
    end)
    assert.equal("AutoBlocks(4)", tostring(poptorch.AutoBlocks(4)))
  end)
end)
