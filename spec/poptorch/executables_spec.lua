-- Executables in files: what is saved and loaded goes on as if nothing had been.
local core = require("lupine.core")
local F = require("torch.nn.functional")
local files = require("spec.support.files")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local raises = require("spec.poptorch.helper").raises
local torch = require("torch")

local folder, path

before_each(function()
  folder = files.unused()
  core.make_folder(folder)
  path = folder .. "/a.poptorch"
end)
after_each(function()
  files.remove(folder)
end)

local traced = 0

local Net = nn.Module:extend("SavedNet")

function Net:init()
  self.fc, self.drop, self.norm = nn.Linear(4, 8), nn.Dropout(0.3), nn.BatchNorm1d(8)
  self.out = nn.Linear(8, 3)
end

function Net:forward(x, target)
  traced = traced + 1
  local y = self.out(self.drop(self.norm(self.fc(x)):relu()))
  if self.training then
    return y, F.cross_entropy(y, target)
  end
  return y
end

local x, target = torch.randn({ 8, 4 }), torch.arange(8, { dtype = torch.int64 }) % 3

local function seeded()
  torch.manual_seed(7)
  return Net()
end

local OPTIMIZERS = {
  function(p) return torch.optim.SGD(p, { lr = 0.1, momentum = 0.9, nesterov = true }) end,
  function(p) return torch.optim.AdamW(p, { lr = 0.01 }) end,
  function(p) return torch.optim.RMSprop(p, { lr = 0.01, momentum = 0.5, centered = true }) end,
  function(p) return poptorch.optim.SGD(p, { lr = 0.1, momentum = 0.9, loss_scaling = 4.0 }) end,
  function(p)
    return poptorch.optim.Adam({ { params = { p[1] }, lr = 0.02 }, { params = { p[2], p[3] } } },
      { lr = 0.01, accum_type = torch.float16 })
  end,
  function(p) return poptorch.optim.LAMB(p, { lr = 0.01, max_weight_norm = 1.0 }) end,
}

local function trainer(make, opts)
  local model = seeded()
  opts = opts or poptorch.Options():deviceIterations(2):randomSeed(5)
  return poptorch.trainingModel(model, opts, make and make(model:parameters())), model
end

local function steps(executor, n)
  local losses = {}
  for i = 1, n do
    losses[i] = select(2, executor(x, target)):item()
  end
  return losses
end

describe("a saved training model", function()
  it("goes on with the same bits, with any optimizer", function()
    for _, make in ipairs(OPTIMIZERS) do
      local straight, model = trainer(make)
      local want = steps(straight, 10)
      local first = trainer(make)
      steps(first, 5)
      first:save(path)
      first:destroy()
      local second = poptorch.load(path)
      assert.same({ table.unpack(want, 6) }, steps(second, 5))
      for name, value in pairs(model:state_dict()) do
        assert.is_true(torch.equal(value, second.model:state_dict()[name]), name)
      end
    end
  end)

  it("has what the device has, where other parameters took the place of the host's", function()
    local model = seeded()
    model.norm.weight.requires_grad = false
    local optimizer = torch.optim.SGD({ model.fc.weight, model.out.weight }, { lr = 0.1 })
    local first = poptorch.trainingModel(model, poptorch.Options():deviceIterations(2), optimizer)
    steps(first, 1)
    model.norm.weight = nn.Parameter(torch.zeros(8))
    first:save(path)
    assert.is_true(torch.equal(torch.ones(8), poptorch.load(path).model.norm.weight))
  end)

  it("is none where a trained parameter was replaced", function()
    local first = trainer(OPTIMIZERS[1])
    steps(first, 1)
    first.model.fc.weight = nn.Parameter(first.model.fc.weight:detach():clone())
    helper.raises("Error", "save: parameter 'fc.weight' was replaced", function()
      first:save(path)
    end)
  end)

  it("is not traced when it is loaded, and says what it said when it was compiled", function()
    local first = trainer(OPTIMIZERS[4])
    steps(first, 1)
    first:save(path)
    traced = 0
    local second = poptorch.load(path)
    steps(second, 1)
    assert.equal(0, traced)
    assert.is_true(second:isCompiled() and second:isAttachedToDevice())
    assert.equal(first:report():summary(), second:report():summary())
    assert.equal(tostring(first:report()), tostring(second:report()))
    assert.equal(first:report():json(), second:report():json())
    assert.same(first:getTensorNames(), second:getTensorNames())
    assert.equal(tostring(first.model), tostring(second.model))
    assert.equal(tostring(first.options), tostring(second.options))
  end)

  it("notes what the compiled one noted: scopes, attributes, options", function()
    local Noted = nn.Module:extend("NotedNet")
    function Noted:init()
      self.a, self.b = nn.Conv2d(1, 2, 1), nn.Conv2d(1, 2, 1)
    end
    function Noted:forward(v)
      v = poptorch.set_overlap_for_input(v, poptorch.OverlapMode.OverlapAccumulationLoop)
      local _ <close> = poptorch.Attribute({ zeal = { of = "1" }, ardour = { of = "2" } })
      local _ <close> = poptorch.autocast(false)
      return self.a(v) + self.b(v)
    end
    local opts = poptorch.Options():setExecutionStrategy(poptorch.ShardedExecution())
    opts.TensorLocations:numIOTiles(32)
    opts._Popart:set("engineOptions", { ["target.deterministicWorkers"] = "true" })
    local first = poptorch.inferenceModel(Noted(), opts)
    first:compileAndExport(path, torch.ones(1, 1, 4, 4))
    local notes = first:report().no_effect
    local text = table.concat(notes, "\n")
    for _, name in ipairs({ "Attribute(zeal)", "Attribute(ardour)", "set_overlap_for_input",
      "deterministicWorkers" }) do
      assert.truthy(text:find(name, 1, true), name)
    end
    local second = poptorch.load(path)
    assert.same(notes, second:report().no_effect)
    assert.equal(first:report():summary(), second:report():summary())
    assert.equal(first:report():json(), second:report():json())
  end)

  it("keeps its random numbers unless that is not asked for", function()
    local first = trainer()
    steps(first, 3)
    first:save(path)
    first:save(folder .. "/b", { save_rng_state = false })
    assert.same(first.rng_state, poptorch.load(path).rng_state)
    assert.same({ 5, 0 }, poptorch.load(folder .. "/b").rng_state)
  end)

  it("takes another learning rate, state dicts, and can be compiled again", function()
    local first, model = trainer(OPTIMIZERS[4])
    steps(first, 2)
    first:save(path)
    local second = poptorch.load(path)
    local optimizer = poptorch.optim.SGD(second.model:parameters(), { lr = 0.0, momentum = 0.9,
      loss_scaling = 4.0 })
    second:setOptimizer(optimizer)
    second:load_state_dict(model:state_dict())
    steps(second, 1)
    local before = steps(first, 1)
    second:destroy()
    local third = poptorch.trainingModel(second.model, first.options:clone())
    assert.equal(1, #steps(third, 1))
    assert.equal(1, #before)
  end)
end)

describe("a saved model", function()
  local function inference(model, ...)
    local executor = poptorch.inferenceModel(model)
    executor(...)
    executor:save(path)
    return executor, poptorch.load(path)
  end

  it("has the structure of its inputs and results", function()
    local Nested = nn.Module:extend("NestedNet")
    function Nested:forward(a, more, scale)
      return { sum = a + more.b, list = { a * scale, torch.ones(2) } }, "name", more.c[1]
    end
    local a, more = torch.ones({ 2, 2 }), { b = torch.ones({ 2, 2 }), c = { torch.zeros(2) } }
    local first, second = inference(Nested(), a, more, 3)
    local want, text, c = first(a, more, 3)
    local got, text2, c2 = second(a, more, 3)
    assert.same(want.sum:tolist(), got.sum:tolist())
    assert.same(want.list[1]:tolist(), got.list[1]:tolist())
    assert.same({ 1.0, 1.0 }, got.list[2]:tolist())
    assert.equal(text, text2)
    assert.same(c:tolist(), c2:tolist())
    raises("Error", second, a, more, 4)
    raises("Error", second, torch.ones(3), more, 3)
  end)

  it("keeps constants, buffers that are written, tied weights, hooks of blocks", function()
    local Kept = nn.Module:extend("KeptNet")
    local constant = torch.tensor({ 0.5, -1.0 })
    function Kept:init()
      self.a = nn.Linear(2, 2)
      self.b = poptorch.BeginBlock(nn.Linear(2, 2), "B", { ipu_id = 1 })
      self.b.weight = self.a.weight
      self:register_buffer("count", torch.zeros(1))
    end
    function Kept:forward(v)
      self.count:add_(1)
      return self.b(self.a(v)) + constant
    end
    local input = torch.randn({ 4, 2 })
    local model = Kept()
    local opts = poptorch.Options():deviceIterations(2)
    local first = poptorch.inferenceModel(model, opts)
    local want = first(input):tolist()
    first:save(path)
    local second = poptorch.load(path)
    assert.same(want, second(input):tolist())
    assert.equal(2, second:report().ipus)
    local loaded = second.model
    assert.is_true(rawequal(loaded.a.weight, loaded.b.weight))
    second:destroy()
    second(input)
    assert.equal(2, second:report().ipus)
  end)

  it("is not connected with others, but those that are made of it are", function()
    local training = trainer(OPTIMIZERS[1])
    training:compileAndExport(path, x, target)
    training.model:eval()
    local validation = poptorch.inferenceModel(training.model)
    validation:compileAndExport(folder .. "/v", x)
    local loaded, alone = poptorch.load(path), poptorch.load(folder .. "/v")
    local connected = poptorch.inferenceModel(loaded)
    connected:loadExecutable(folder .. "/v")
    local before = alone(x):tolist()
    assert.same(before, connected(x):tolist())
    steps(loaded, 3)
    assert.same(before, alone(x):tolist())
    local after = connected(x):tolist()
    assert.not_same(before, after)
    loaded:copyWeightsToHost()
    alone:load_state_dict(loaded.model:state_dict())
    assert.same(after, alone(x):tolist())
  end)

  it("has anchors and loops of the program", function()
    local model = nn.Linear(2, 2)
    local opts = poptorch.Options():deviceIterations(3):outputMode(poptorch.OutputMode.Sum)
    opts:anchorTensor("w", "weight", poptorch.OutputMode.Final)
    local first = poptorch.inferenceModel(model, opts)
    local input = torch.randn({ 6, 2 })
    local want = first(input):tolist()
    first:save(path)
    local second = poptorch.load(path)
    assert.same(want, second(input):tolist())
    assert.same(model.weight:tolist(), second:getAnchoredTensor("w"):tolist())
    assert.same(first:getPerfCounters().output, second:getPerfCounters().output)
  end)
end)

describe("a module in a file", function()
  local Odd = nn.Module:extend("OddNet")
  function Odd:init(scale, f)
    self.act, self.named, self.scale = f or function(v) return v * scale end, F.relu, scale
  end
  function Odd:forward(v)
    return self.named(self.act(v))
  end

  local function compiled(model)
    local executor = poptorch.inferenceModel(model)
    executor(torch.ones(2))
    return executor
  end

  it("is made by its init where a field cannot be written", function()
    compiled(Odd(3)):save(path)
    local model = poptorch.load(path).model
    assert.same({ 6.0, 0.0 }, model(torch.tensor({ 2.0, -2.0 })):tolist())
    assert.equal(F.relu, model.named)
  end)

  it("that cannot be made is refused by its name, and left out if that is asked for", function()
    local executor = compiled(Odd(3, function(v) return v end))
    local e = raises("TypeError", executor.save, executor, path)
    assert.truthy(e.message:find("OddNet.*'act' is a function.*export_model = false"))
    assert.is_nil(io.open(path))
    executor:save(path, { export_model = false })
    e = raises("AssertionError", poptorch.load, path)
    assert.truthy(e.message:find("export_model = false.*inferenceModel.*loadExecutable"))
    local other = poptorch.inferenceModel(Odd(3))
    other:loadExecutable(path)
    assert.same({ 1.0, 0.0 }, other(torch.tensor({ 1.0, -1.0 })):tolist())
  end)

  it("with a hook is refused, since a file has no functions", function()
    local model = nn.Linear(2, 2)
    model:register_forward_hook(function() end)
    local executor = compiled(model)
    local e = raises("TypeError", executor.save, executor, path)
    assert.truthy(e.message:find("hook"))
  end)

  it("is of a class that the script makes, else the class is named", function()
    compiled(Odd(3)):save(path)
    local script = program.temporary(([[
      local poptorch = require("poptorch")
      local ok, e = pcall(poptorch.load, %q)
      print(ok, e.message)]]):format(path))
    local out = program.run({ script })
    os.remove(script)
    assert.truthy(out:find("^false.*there is no class 'OddNet'"))
  end)

  it("is told from a later class of its name", function()
    local function make(name)
      local cls = nn.Module:extend(name)
      return cls
    end
    local A = make("Twice")
    local executor
    function A:forward(v) return v * self.k end
    local a = A()
    a.k = 2
    executor = compiled(a)
    make("Twice") -- made at the same place: the same class made again
    executor:save(path)
    nn.Module:extend("Twice")
    local e = raises("TypeError", executor.save, executor, path)
    assert.truthy(e.message:find("another class was called 'Twice'"))
  end)
end)

describe("options of a loaded model", function()
  local function exported(opts)
    trainer(OPTIMIZERS[4], opts):compileAndExport(path, x, target)
  end

  it("lose what was for compiling offline", function()
    exported(poptorch.Options():useOfflineIpuTarget(1))
    local model = poptorch.load(path)
    assert.equal(poptorch.ConnectionType.Always, model.options.connection_type)
    assert.is_nil(model.options.ipu_version)
    assert.equal("ipu1", model:report().chip)
    assert.equal(1, #steps(model, 1))
  end)

  it("are edited before, and run-time options act", function()
    exported(poptorch.Options():randomSeed(3))
    local seen
    local model = poptorch.load(path, function(opts)
      seen = opts.device_iterations
      opts:connectionType(poptorch.ConnectionType.OnDemand):maxRepeatLogs(9):useIpuId(62)
    end)
    assert.equal(1, seen)
    assert.equal(9, model.options.max_repeat_logs)
    assert.equal(poptorch.ConnectionType.OnDemand, model.options.connection_type)
    assert.is_true(model.options:isFrozen())
  end)

  it("are those that were saved, where that is none, too", function()
    exported(poptorch.Options():maxRepeatLogs(nil))
    assert.equal(4, poptorch.Options().max_repeat_logs)
    assert.is_nil(poptorch.load(path).options.max_repeat_logs)
  end)

  it("of a cache act without being compiled in", function()
    exported()
    local model = trainer(OPTIMIZERS[4], poptorch.Options():deviceIterations(2):randomSeed(5)
      :enableExecutableCaching(folder .. "/cache"))
    local lines = helper.logged(function()
      model:loadExecutable(path)
    end)
    assert.not_matches("ignored", lines)
    assert.equal(1, #steps(model, 1))
    model:destroy()
    steps(model, 1)
    assert.equal(1, #select(2, core.list_folder(folder .. "/cache")))
  end)

  it("that were compiled in stay, and that is said", function()
    exported(poptorch.Options():deviceIterations(2):randomSeed(3))
    local model
    local lines = helper.logged(function()
      model = poptorch.load(path, function(opts)
        opts.Training:gradientAccumulation(4)
        opts._Popart:set("autoRecomputation", 3)
        opts.Precision:enableStochasticRounding(true)
      end)
    end)
    for _, part in ipairs({ "Training.gradient_accumulation = 4 %(compiled with 1%)",
      "autoRecomputation = 3" }) do
      assert.truthy(lines:find(part), part)
    end
    assert.equal(2, model.options.device_iterations)
    assert.same(steps(trainer(OPTIMIZERS[4], poptorch.Options():deviceIterations(2)
      :randomSeed(3)), 2), steps(model, 2))
  end)

  it("may have other device iterations: it runs, and costs, as if compiled with them", function()
    local O = poptorch.OutputMode
    for _, case in ipairs({ { O.All }, { O.Final }, { O.Sum }, { O.EveryN, 2 } }) do
      local function opts(n)
        return poptorch.Options():deviceIterations(n):outputMode(case[1], case[2]):randomSeed(3)
      end
      trainer(OPTIMIZERS[4], opts(2)):compileAndExport(path, x["0:4"], target["0:4"])
      local direct, model = trainer(OPTIMIZERS[4], opts(4))
      local loaded = poptorch.load(path, function(o) o:deviceIterations(4) end)
      assert.same(4, loaded.options.device_iterations)
      for _ = 1, 2 do
        local y, loss = direct(x, target)
        local got, got_loss = loaded(x, target)
        assert.is_true(torch.equal(y, got) and torch.equal(loss, got_loss))
      end
      for name, value in pairs(model:state_dict()) do
        assert.is_true(torch.equal(value, loaded.model:state_dict()[name]), name)
      end
      assert.equal(direct:report():summary(), loaded:report():summary())
      loaded:save(path)
      assert.equal(4, poptorch.load(path).options.device_iterations)
    end
    exported(poptorch.Options():deviceIterations(4):outputMode(O.EveryN, 2))
    for n, words in pairs({ [3] = "must divide deviceIterations", [0] = "greater than 0" }) do
      local e = raises("Error", poptorch.load, path, function(o) o:deviceIterations(n) end)
      assert.truthy(e.message:find(words, 1, true), e.message)
    end
  end)

  it("of strategies, locations and policies come back", function()
    local s1, s2 = poptorch.Stage("a"):ipu(0), poptorch.Stage("b"):ipu(1)
    local opts = poptorch.Options():setExecutionStrategy(poptorch.PipelinedExecution(s1, s2))
      :setAvailableMemoryProportion({ IPU0 = 0.5 }):deviceIterations(4)
    opts.TensorLocations:setWeightLocation(poptorch.TensorLocationSettings()
      :useOnChipStorage(false))
    opts.Precision:setPartialsType(torch.half)
    local Two = nn.Module:extend("TwoBlocks")
    function Two:init() self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2) end
    function Two:forward(v)
      local y = poptorch.Block("a", function() return self.a(v) end)
      return poptorch.Block("b", function() return self.b(y) end)
    end
    local first = poptorch.inferenceModel(Two(), opts)
    local input = torch.ones({ 4, 2 })
    local want = first(input):tolist()
    first:save(path)
    local second = poptorch.load(path)
    assert.equal(tostring(first.options), tostring(second.options))
    assert.equal(1, second.options.execution_strategy:stage("b")._ipu)
    assert.same(first.options:toDict(), second.options:toDict())
    second:destroy()
    assert.same(want, second(input):tolist())
  end)
end)

describe("save", function()
  it("needs a compiled model", function()
    local model = trainer()
    raises("Error", model.save, model, path)
    steps(model, 1)
    model:destroy()
    raises("Error", model.save, model, path)
  end)

  it("makes folders, and a file in one that is there", function()
    local model = trainer()
    steps(model, 1)
    model:save(folder .. "/x/y/z.poptorch")
    poptorch.load(folder .. "/x/y/z.poptorch"):destroy()
    local lines = helper.logged(function()
      model:save(folder)
    end)
    assert.truthy(lines:find("is a directory"))
    poptorch.load(folder .. "/model.poptorch"):destroy()
    files.write(folder .. "/file", "")
    raises("AssertionError", model.save, model, folder .. "/file/m")
    raises("TypeError", model.save, model, 3)
    raises("TypeError", model.save, model, path, "yes")
  end)
end)

describe("a file", function()
  local function exported()
    trainer(OPTIMIZERS[2]):compileAndExport(path, x, target)
  end

  local function change(from, to)
    local bytes = files.read(path)
    local at, last = bytes:find(from, 1, true)
    files.write(path, bytes:sub(1, at - 1) .. to .. bytes:sub(last + 1))
  end

  it("of another version is refused", function()
    exported()
    change('"version":"' .. core.version, '"version":"0.0.9')
    local e = raises("AssertionError", poptorch.load, path)
    assert.truthy(e.message:find(path, 1, true) and e.message:find("0.0.9", 1, true))
    local model = trainer(OPTIMIZERS[2])
    e = raises("Error", model.loadExecutable, model, path)
    assert.truthy(e.message:find("0.0.9", 1, true))
  end)

  it("that is damaged, missing or another one is refused by name", function()
    exported()
    local bytes = files.read(path)
    for _, damaged in ipairs({ "", bytes:sub(1, -10), bytes:sub(1, -2) .. "?", "os.exit(1)" }) do
      files.write(path, damaged)
      local e = raises("ValueError", poptorch.load, path)
      assert.truthy(e.message:find(path, 1, true))
    end
    torch.save({ w = torch.ones(2) }, path)
    raises("ValueError", poptorch.load, path)
    raises("FileNotFoundError", poptorch.load, folder .. "/nothing")
    raises("TypeError", poptorch.load, path, 3)
  end)

  it("is for the model that it was compiled of", function()
    exported()
    local function refused(executor, pattern)
      local e
      helper.logged(function()
        e = raises("Error", executor.loadExecutable, executor, path)
      end)
      assert.truthy(e.message:find(pattern), e.message)
      assert.is_false(executor:isCompiled())
    end
    refused(poptorch.inferenceModel(Net()), "compiled for training, this is an inference")
    refused(trainer(OPTIMIZERS[1]), "compiled for torch.optim's AdamW, the optimizer is .*SGD")
    refused(trainer(function(p) return poptorch.optim.AdamW(p) end), "torch.optim.*poptorch.optim")
    refused(trainer(function(p) return torch.optim.AdamW(p, { lr = 0.1, weight_decay = 0.5 }) end),
      "weight_decay is constant")
    local small = nn.Linear(2, 2)
    refused(poptorch.trainingModel(small, nil, torch.optim.AdamW(small:parameters())), "parameter")
  end)

  it("is for the update that it was compiled with", function()
    local function lamb(bias_correction)
      return trainer(function(p)
        return poptorch.optim.LAMB(p, { lr = 0.01, bias_correction = bias_correction })
      end)
    end
    local first = lamb(true)
    first:compileAndExport(path, x, target)
    first:destroy()
    local second = lamb(false)
    local e = raises("Error", second.loadExecutable, second, path)
    assert.matches("has another update of .*bias_correction=true.*=false", e.message)
  end)

  it("that is refused leaves the executor's options, which it compiles with", function()
    exported()
    local model = trainer(OPTIMIZERS[1], poptorch.Options():deviceIterations(4):randomSeed(5))
    local before = model.options
    helper.logged(function()
      raises("Error", model.loadExecutable, model, path)
    end)
    assert.is_true(rawequal(before, model.options))
    assert.equal(4, model.options.device_iterations)
    assert.equal(8 // 4, model(x, target):size(0)) -- of the last device iteration
  end)

  it("loaded onto a compiled executor replaces its program", function()
    local first = trainer(OPTIMIZERS[4])
    local want = steps(first, 4)
    first:save(path)
    local second, model = trainer(OPTIMIZERS[4])
    assert.same({ want[1], want[2] }, steps(second, 2))
    local straight, other = trainer(OPTIMIZERS[4])
    steps(straight, 2)
    second:loadExecutable(path)
    assert.is_true(torch.equal(other.fc.weight, model.fc.weight)) -- what was trained
    assert.equal(1, #steps(second, 1))
  end)
end)
