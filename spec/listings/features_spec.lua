--- The user guide's listings of chapter 4, ported line by line: what must come
--- out is what the guide says. Those that are examples run in
--- spec/examples/examples_spec.lua; examples/README.md has the whole list.
local helper = require("spec.helper")
local files = require("spec.support.files")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local close = torch.testing.assert_close

-- The path of a file that is gone with f.
local function with_path(f)
  local path = os.tmpname()
  local ok, e = pcall(f, path)
  os.remove(path)
  assert(ok, e)
end

local CONF = [[
deviceIterations(1)
setExecutionStrategy(poptorch.ShardedExecution())
replicationFactor(1)
enableSyntheticData(True)
]]

describe("listing", function()
  it("4.1 and 4.2: options from a file", function()
    with_path(function(path)
      files.write(path, CONF)
      local opts = poptorch.Options()
      opts:loadFromFile(path)
      assert.equal(1, opts.device_iterations)
      assert.equal(1, opts.replication_factor)
      assert.is_true(opts.enable_synthetic_data)
      assert.is_true(poptorch.ShardedExecution:is(opts.execution_strategy))
    end)
  end)

  it("4.4: an inference model has the host's best classes", function()
    torch.manual_seed(1)
    local net = nn.Sequential(nn.Conv2d(3, 8, 3, { stride = 2, padding = 1, bias = false }),
      nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, { padding = 1, groups = 8 }),
      nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 20))
    net:eval()
    local picture = torch.randn({ 1, 3, 64, 64 })
    local inference_model = poptorch.inferenceModel(net)
    local out = inference_model(picture)
    local _, top_five = torch.topk(torch.softmax(out, 1), 5)
    local native = net(picture)
    local _, native_top_five = torch.topk(torch.softmax(native, 1), 5)
    close(out, native)
    assert.is_true(top_five[0]:to(torch.int64):eq(native_top_five[0]):any():item())
  end)

  it("4.5: only training on the host needs a copy", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.fc, self.loss = nn.Linear(10, 10), nn.MSELoss()
    end
    function Model:forward(x, target)
      local fc = self.fc(x)
      if self.training then
        return fc, self.loss(fc, target)
      end
      return fc
    end
    local input, target, ones = torch.randn(10), torch.randn(10), torch.ones(10)
    local model = Model()
    model:eval()
    local poptorch_inf = poptorch.inferenceModel(model)
    model:train()
    local poptorch_train = poptorch.trainingModel(model)
    -- train on IPU
    poptorch_train(input, target)
    with_path(function(path)
      torch.save(model:state_dict(), path)
      assert.is_true(torch.equal(torch.load(path)["fc.weight"], model.fc.weight))
    end)
    local trained = poptorch_inf(ones):clone()
    model:eval()
    close(model(ones), trained)
    -- train on CPU
    model:train()
    local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 })
    local _, loss = model(input, target)
    loss:backward()
    optimizer:step()
    close(poptorch_inf(ones), trained) -- the device's are those before
    poptorch_inf:copyWeightsToDevice()
    model:eval()
    close(poptorch_inf(ones), model(ones))
    assert.is_false(torch.equal(poptorch_inf(ones), trained))
  end)

  it("isRunningOnIpu chooses the device's path", function()
    local Network = nn.Module:extend("Network")
    function Network:forward(x, y) -- luacheck: ignore 212
      if poptorch.isRunningOnIpu() then
        return x * y
      else
        return x - y
      end
    end
    local net = Network()
    local x, y = torch.tensor({ 6.0 }), torch.tensor({ 2.0 })
    assert.equal(12, poptorch.inferenceModel(net)(x, y):item())
    assert.equal(4, net(x, y):item())
    assert.is_false(poptorch.isRunningOnIpu())
  end)

  it("4.7: blocks that begin with layers of a model that is there", function()
    local Wrapped = nn.Module:extend("WrappedModel")
    function Wrapped:init()
      self.embed = nn.Embedding(50, 16)
      local layers = {}
      for i = 1, 6 do
        layers[i] = nn.TransformerEncoderLayer(16, 2, { dim_feedforward = 32, dropout = 0,
          batch_first = true })
      end
      self.layer = nn.ModuleList(layers)
      self.answer = nn.Linear(16, 2)
    end
    function Wrapped:forward(ids)
      local x = self.embed(ids)
      for _, layer in ipairs(self.layer) do
        x = layer(x)
      end
      return self.answer(x)
    end
    torch.manual_seed(2)
    local net = Wrapped():eval()
    net.layer[1] = poptorch.BeginBlock(net.layer[1], { ipu_id = 1 })
    net.layer[3] = poptorch.BeginBlock(net.layer[3], { ipu_id = 2 })
    net.layer[5] = poptorch.BeginBlock(net.layer[5], { ipu_id = 3 })
    local opts = poptorch.Options()
    opts:deviceIterations(4)
    local model = poptorch.inferenceModel(net, opts)
    local ids = torch.randint(50, { 4, 7 })
    close(model(ids), net(ids), { rtol = 1e-4, atol = 1e-5 })
    local ipus = {}
    for i, stage in ipairs(model:report().stages) do
      ipus[i] = stage.ipu
    end
    assert.same({ 0, 1, 2, 3 }, ipus)
  end)

  it("4.10: blocks in one stage or in two", function()
    local Model = nn.Module:extend("Model")
    function Model:forward(x, y) -- luacheck: ignore 212
      local c, d, e
      poptorch.Block("A", function()
        c = x + x
      end)
      poptorch.Block("B", function()
        d = y + y
      end)
      poptorch.Block("C", function()
        e = x * 3
      end)
      return c, d, e
    end
    local first = poptorch.Phase(poptorch.Stage("A"):ipu(0))
    local x, y = torch.tensor({ 1.0, 2.0 }), torch.tensor({ 5.0, 7.0 })
    local seconds = {
      [1] = poptorch.Phase(poptorch.Stage("B", "C"):ipu(1)),
      [3] = poptorch.Phase(poptorch.Stage("B"):ipu(1), poptorch.Stage("C"):ipu(3)),
    }
    for last, second in pairs(seconds) do
      local opts = poptorch.Options():autoRoundNumIPUs(true)
      opts:setExecutionStrategy(poptorch.ParallelPhasedExecution(first, second))
      local model = poptorch.inferenceModel(Model(), opts)
      local c, d, e = model(x, y)
      assert.same({ { 2, 4 }, { 10, 14 }, { 3, 6 } }, { c:tolist(), d:tolist(), e:tolist() })
      local stages = model:report().stages
      assert.equal(last, stages[#stages].ipu)
    end
  end)

  -- Six blocks, each x * 2 + 1.
  local function blocks(names)
    local Model = nn.Module:extend("Model")
    function Model:forward(x) -- luacheck: ignore 212
      if not names then
        poptorch.Block.useAutoId()
      end
      for i = 1, 6 do
        local _ <close> = poptorch.Block(names and names[i])
        x = x * 2 + 1
      end
      return x
    end
    return Model()
  end

  local function placed(model)
    local found = {}
    for _, stage in ipairs(model:report().stages) do
      found[#found + 1] = ("%d:%d"):format(stage.phase, stage.ipu)
    end
    table.sort(found)
    return table.concat(found, " ")
  end

  it("4.12: serial phases on one group of IPUs", function()
    local strategy = poptorch.SerialPhasedExecution(
      poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("A2")),
      poptorch.Phase(poptorch.Stage("B"), poptorch.Stage("B2")),
      poptorch.Phase(poptorch.Stage("C"), poptorch.Stage("C2")))
    strategy:phase(0):ipus(0, 1)
    strategy:phase(1):ipus(0, 1)
    strategy:phase(2):ipus(0, 1)
    local opts = poptorch.Options():setExecutionStrategy(strategy)
    local model = poptorch.inferenceModel(blocks({ "A", "A2", "B", "B2", "C", "C2" }), opts)
    assert.equal(127, model(torch.tensor({ 1.0 })):item())
    assert.equal("0:0 0:1 1:0 1:1 2:0 2:1", placed(model))
  end)

  it("4.13: parallel phases on two groups of IPUs by turns", function()
    local strategy = poptorch.ParallelPhasedExecution(
      poptorch.Phase(poptorch.Stage("0"), poptorch.Stage("1")),
      poptorch.Phase(poptorch.Stage("2"), poptorch.Stage("3")),
      poptorch.Phase(poptorch.Stage("4"), poptorch.Stage("5")))
    strategy:phase(0):ipus(0, 2)
    strategy:phase(1):ipus(1, 3)
    strategy:phase(2):ipus(0, 2)
    local opts = poptorch.Options():setExecutionStrategy(strategy)
    local model = poptorch.inferenceModel(blocks(), opts)
    assert.equal(127, model(torch.tensor({ 1.0 })):item())
    assert.equal("0:0 0:2 1:1 1:3 2:0 2:2", placed(model))
  end)
end)

-- y = w x with the loss |y - target|^2.
local Line = nn.Module:extend("Line")

function Line:init()
  self.w = nn.Parameter(torch.ones({ 1 }))
end

function Line:forward(x, target)
  local y = self.w * x
  return y, nn.functional.mse_loss(y, target)
end

describe("listing", function()
  local input, target = torch.tensor({ 1.0 }), torch.tensor({ 2.0 })

  it("4.15: an attribute of the optimizer holds from setOptimizer on", function()
    local net = Line()
    local opt = poptorch.optim.SGD(net:parameters(), { lr = 0.01, loss_scaling = 2.0,
      use_combined_accum = false })
    local model = poptorch.trainingModel(net, poptorch.Options(), opt)
    model(input, target)
    opt.loss_scaling = 1.0
    opt.param_groups[1].loss_scaling = 1.0
    assert.equal(2, opt:state_dict().ipu_param.lossScaling_FLOAT:item())
    local log = helper.logged(function()
      model:setOptimizer(opt)
    end)
    assert.matches("unexpected group attribute 'loss_scaling'", log)
    model(input, target)
    assert.equal(1, opt:state_dict().ipu_param.lossScaling_FLOAT:item())
    -- w <- w + 0.02 (2 - w), whatever the loss was scaled by
    assert.near(1 + 0.02 + 0.02 * (1 - 0.02), net.w:item(), 1e-6)
  end)

  it("4.16: which attributes of PopTorch's optimizers are constant", function()
    local net = Line()
    local function sgd(more)
      more.lr, more.use_combined_accum = 0.01, false
      return poptorch.optim.SGD(net:parameters(), more)
    end
    local function constness(opt)
      local of = {}
      for i, name in ipairs({ "lr", "momentum", "loss_scaling" }) do
        of[i] = opt.variable_attrs:isConstant(name)
      end
      return of
    end
    local opt = sgd({ momentum = 0.0 })
    assert.same({ false, false, true }, constness(opt))
    opt = sgd({})
    assert.same({ false, true, true }, constness(opt))
    opt = sgd({ momentum = 0.0, loss_scaling = 2.0 })
    opt.variable_attrs:markAsConstant("loss_scaling")
    assert.same({ false, false, true }, constness(opt))
    opt = sgd({ loss_scaling = 2.0 })
    opt.variable_attrs:markAsVariable("momentum")
    assert.same({ false, false, false }, constness(opt))
  end)

  it("4.17: which attributes of PyTorch's optimizers are constant", function()
    -- momentum, new value, whether that takes effect
    for _, case in ipairs({ { nil, 0.5, false }, { 0.0, 0.5, false }, { 1.0, 0.5, true } }) do
      local net = Line()
      local opt = torch.optim.SGD(net:parameters(), { lr = 0.01, momentum = case[1] })
      local model = poptorch.trainingModel(net, poptorch.Options(), opt)
      model(input, target)
      opt.param_groups[1].lr = 0.02 -- always variable
      model:setOptimizer(opt)
      opt.param_groups[1].momentum = case[2]
      local ok, e = pcall(model.setOptimizer, model, opt)
      assert.equal(case[3], ok)
      assert.is_true(ok or poptorch.Error:is(e) and e.message:find("momentum is constant") ~= nil)
    end
  end)

  it("4.18: the optimizer's state survives the model", function()
    local function steps(restart)
      local net = Line()
      local optimizer = poptorch.optim.Adam(net:parameters())
      local model = poptorch.trainingModel(net, { optimizer = optimizer })
      for _ = 1, 3 do
        model(input, target)
      end
      if restart then
        with_path(function(path)
          torch.save({ optimizer_state_dict = optimizer:state_dict() }, path)
          model:destroy()
          local new_optimizer = poptorch.optim.Adam(net:parameters())
          local checkpoint = torch.load(path)
          new_optimizer:load_state_dict(checkpoint.optimizer_state_dict)
          model = poptorch.trainingModel(net, { optimizer = new_optimizer })
        end)
      end
      for _ = 1, 3 do
        model(input, target)
      end
      return net.w:item()
    end
    assert.equal(steps(false), steps(true))
  end)

  it("4.19: a loss of one's own", function()
    local Model = nn.Module:extend("ExampleModelWithCustomLoss")
    function Model:init()
      self.bias = nn.Parameter(torch.zeros({}))
    end
    function Model:forward(x, goal)
      local out = x + 1 + self.bias
      local loss = out - goal
      return out, poptorch.identity_loss(loss * loss * 5, { reduction = "mean" })
    end
    local net = Model()
    local model = poptorch.trainingModel(net)
    for _ = 1, 100 do
      model(torch.tensor({ 1.0, 2.0, 3.0 }), torch.tensor({ 3.0, 4.0, 5.0 }))
    end
    -- each step goes a tenth of the way from 0 to 1
    assert.near(1 - 0.9 ^ 100, net.bias:item(), 1e-5)
  end)

  it("4.20: a model of half weights answers in half", function()
    local model = nn.Linear(1, 10)
    model:half()
    local t1 = torch.tensor({ 1.0 }):half()
    local out = poptorch.inferenceModel(model, poptorch.Options())(t1)
    assert.equal(torch.half, out.dtype)
  end)

  it("prints a tensor that the device has", function()
    local out
    local code = [[
local poptorch, torch = require("poptorch"), require("torch")
local M = torch.nn.Module:extend("M")
function M:forward(x)
  return poptorch.ipu_print_tensor(x + 1, "summation")
end
print(poptorch.inferenceModel(M())(torch.tensor({ 1.0, 2.0, 3.0 })))
]]
    with_path(function(path)
      files.write(path, code)
      local build = os.getenv("LUPINE_BUILD") or "build"
      local pipe = io.popen(("%s/lupine %s 2>&1"):format(build, path))
      out = pipe:read("a")
      pipe:close()
    end)
    assert.matches("summation: (2.000, 3.000, 4.000)", out, 1, true)
    assert.matches("tensor([2., 3., 4.])", out, 1, true)
  end)

  local function counter(register)
    local Counter = nn.Module:extend("CounterModel")
    function Counter:init()
      local start = torch.tensor({ 0.0 }, { dtype = torch.float })
      if register then
        self:register_buffer("i", start)
      else
        self.i = start
      end
    end
    function Counter:forward()
      self.i:add_(1)
      return self.i
    end
    return Counter()
  end

  it("4.21: a plain tensor is frozen", function()
    local model = poptorch.inferenceModel(counter(false))
    assert.same({ 1 }, model():tolist())
    assert.same({ 1 }, model():tolist())
  end)

  it("4.22: a buffer counts", function()
    local net = counter(true)
    local model = poptorch.inferenceModel(net)
    assert.same({ 1 }, model():tolist())
    assert.same({ 2 }, model():tolist())
    model:copyWeightsToHost()
    assert.same({ 2 }, net.i:tolist())
  end)
end)
