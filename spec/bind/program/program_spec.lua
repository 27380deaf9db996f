--- Traces, steps and executors refuse what they cannot hold.
local compiled = require("spec.support.compiled")
local compile = require("lupine.compile")
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local function model()
  local Net = nn.Module:extend("Net")
  function Net:init()
    self.fc = nn.Linear(3, 2)
    self.loss = nn.MSELoss()
  end
  function Net:forward(x)
    local y = self.fc(x)
    return self.loss(y, y.detach(y))
  end
  return Net()
end

describe("a trace", function()
  it("becomes a step once", function()
    local trace = core.trace()
    trace:declare("input", "x", nil, { 2 }, torch.float32)
    trace:step({})
    helper.raises("RuntimeError", "already", function()
      trace:step({})
    end)
  end)

  it("may run in a coroutine that is gone later", function()
    local trace = core.trace()
    local x = trace:declare("input", "x", nil, { 2 }, torch.float32)
    local y = coroutine.wrap(function()
      return trace:run(false, function() return x * 2 end)
    end)()
    collectgarbage()
    assert.equal("step", tostring((trace:step({ y }))):match("%.(%a+)"))
  end)

  it("ends however its function ends", function()
    local trace = core.trace()
    local x = trace:declare("input", "x", nil, { 2 }, torch.float32)
    helper.raises("RuntimeError", "may not yield while it is traced", coroutine.wrap(function()
      trace:run(false, function() coroutine.yield(x * 2) end)
    end))
    local thrown = {}
    local ok, e = pcall(core.trace().run, core.trace(), false, error, thrown)
    assert.is_false(ok)
    assert.equal(thrown, e)
    assert.is_false(core.is_tracing())
    local inner = core.trace():run(false, function()
      return coroutine.wrap(function()
        coroutine.yield(7)
      end)()
    end)
    assert.equal(7, inner)
  end)
end)

describe("a step", function()
  local function step_of()
    return compiled.step(function(x)
      return x * 2
    end, { torch.ones(2) })
  end

  it("refuses loops whose product or bytes cannot be counted", function()
    for _, loops in ipairs({ { device_iterations = 0 }, { replicas = -1 },
      { device_iterations = 0x6DB6DB6DB6DB6DB7, gradient_accumulation = 7 } }) do
      helper.raises("ValueError", "at least 1", function()
        step_of():complete(loops)
      end)
    end
    helper.raises("OverflowError", "too many bytes", function()
      step_of():complete({ device_iterations = 1 << 61 })
    end)
  end)

  it("calls an accumulator by its parameter's whole name", function()
    local name = ("w"):rep(3000)
    local trace = core.trace()
    local w = trace:declare("parameter", name, torch.ones(2))
    local loss = trace:run(false, function()
      return core.forms.internal.identity_loss((w * w):sum(), "none")
    end)
    local step, losses = trace:step({ loss })
    step:complete({ loss = losses[1], rules = { { op = "sub", param = 1, inputs = { 1, "grad" },
      outputs = { 1 }, attrs = { alpha = 0.1 } } } })
    local found
    for _, v in ipairs(step:vars()) do
      found = found or v.name == "Gradient___" .. name
    end
    assert.is_true(found)
  end)

  it("refuses a loss and variables that it does not have", function()
    helper.raises("IndexError", "loss: no value 999", function()
      step_of():complete({ loss = 999, rules = {} })
    end)
    helper.raises("IndexError", "max_norm", function()
      step_of():complete({ loss = 1, rules = { { op = "sgd_step", param = 1, inputs = {},
        outputs = {}, max_norm = 99 } } })
    end)
  end)
end)

describe("an executor", function()
  it("reads and writes what outlives a step alone", function()
    for _, size in ipairs({ 0, 3 }) do
      local w, seen = torch.ones(size), torch.zeros(size)
      local declared = { { "parameter", "w", w }, { "buffer", "seen", seen } }
      local step, losses = compiled.step(function(x)
        seen:add_(1)
        return nn.functional.mse_loss((x * w):sum(), torch.zeros({}))
      end, { torch.ones(size) }, declared)
      step:complete({ loss = losses[1],
        rules = compiled.descent(compiled.vars(step), declared) })
      local at, exec = compiled.vars(step), step:compile({})
      for name, value in pairs({ ["input x1"] = torch.ones(size),
        ["output output_1"] = torch.ones({}) }) do
        local role, rest = name:match("(%a+) (.*)")
        local message = ("the %s '%s' has no values outside of a step"):format(role, rest)
        helper.refuses("RuntimeError", message, exec.read, exec, at[name])
        helper.refuses("RuntimeError", message, exec.write, exec, at[name], value)
        helper.refuses("RuntimeError", message, exec.read_into, exec, at[name], value)
      end
      exec:write(at["parameter w"], torch.ones(size) * 2)
      helper.near(exec:read(at["parameter w"]), (torch.ones(size) * 2):tolist(), helper.exact)
      helper.near(exec:read(at["buffer seen"]), torch.zeros(size):tolist(), helper.exact)
    end
  end)
end)

describe("a model whose module was converted after it was compiled", function()
  it("says so instead of running, and loses nothing", function()
    local net = model()
    local trainer = poptorch.trainingModel(net)
    trainer(torch.ones(1, 3))
    local before = net.fc.weight:detach():clone()
    net:half()
    helper.raises("Error", "is float16 .* compiled for float32", function()
      trainer(torch.ones(1, 3))
    end)
    helper.near(net.fc.weight:detach(), before:half(), helper.exact)
  end)
end)

describe("wrapping", function()
  it("what is no module is refused at once", function()
    for _, wrap in ipairs({ poptorch.trainingModel, poptorch.inferenceModel }) do
      for _, value in ipairs({ 5, "x", print }) do
        helper.raises("Error", "expected a torch.nn.Module", function()
          wrap(value)
        end)
      end
    end
    helper.raises("AttributeError", "trainingModel", function()
      return poptorch.trainingModle
    end)
  end)
end)

describe("lupine.compile", function()
  it("writes inputs back that the function changes in place", function()
    local x = torch.tensor({ 1.0, 2.0 })
    local f = compile(function(t)
      t:add_(1)
      return t * 2
    end, { x })
    helper.near(f(x), { 4.0, 6.0 }, helper.exact)
    helper.near(x, { 2.0, 3.0 }, helper.exact)
  end)
end)

describe("a function traced once", function()
  it("reads each of many captured tensors, met again or for the first time", function()
    local many = {}
    for i = 1, 300 do
      many[i] = torch.full({ 2 }, i)
    end
    local f = compile(function(x)
      for i = 1, 300 do
        x = x + many[i] * many[301 - i]
      end
      return x
    end, { torch.zeros(2) })
    local want = 300 * 301 * 302 / 6 -- the tetrahedral number: sum of i (n + 1 - i)
    helper.near(f(torch.zeros(2)), { want, want }, helper.exact)
  end)

  it("draws other masks at every pass of a line and at every line", function()
    local F = require("torch.nn.functional")
    local x, masks = torch.ones(64), {}
    local f = compile(function(t)
      local out = {}
      for i = 1, 40 do
        out[2 * i - 1] = F.dropout(t)
        out[2 * i] = F.dropout(t)
      end
      return out
    end, { x })
    for i, y in ipairs(f(x)) do
      local mask = table.concat(y:tolist(), " ")
      assert.is_nil(masks[mask], ("mask %d is mask %s"):format(i, tostring(masks[mask])))
      masks[mask] = i
    end
  end)

  it("refuses to give a tensor other data", function()
    local w = torch.ones(2)
    helper.raises("RuntimeError", "inside a traced function", function()
      compile(function(x)
        w.data = torch.zeros(2)
        return x * w
      end, { torch.ones(2) })
    end)
    w.data = torch.zeros(2)
    helper.near(w, { 0, 0 }, helper.exact)
  end)
end)

describe("masks", function()
  it("combine by Lua's bitwise operators", function()
    local a, b = torch.tensor({ true, true, false }), torch.tensor({ true, false, false })
    assert.same({ true, false, false }, (a & b):tolist())
    assert.same({ true, true, false }, (a | b):tolist())
    assert.same({ false, true, false }, (a ~ b):tolist())
    assert.same({ false, false, true }, (~a):tolist())
    assert.same({ 4, 8 }, (torch.tensor({ 1, 2 }) << 2):tolist())
  end)
end)

describe("an option that is not carried out", function()
  local function run(set)
    local opts = poptorch.Options()
    set(opts)
    local trainer = poptorch.trainingModel(model(), opts)
    trainer(torch.ones(1, 3))
    return trainer
  end

  it("is noted in the report, whatever session option or pattern it is", function()
    local values = { explicitRecomputation = true, virtualGraphMode = 1,
      enableNonStableSoftmax = true, ["executionPhaseSettings.phases"] = 4,
      tensorLocationSettingsOverride = { x = 1 }, ensureFp32LossScaleTensor = true,
      timeLimitScheduler = 1.0, reportOptions = { a = "b" },
      convolutionOptions = { partialsType = "half", x = 1 },
      matmulOptions = { partialsType = "half" }, engineOptions = { ["a.b"] = "1" } }
    local trainer = run(function(opts)
      for name, value in pairs(values) do
        opts._Popart:set(name, value)
      end
      opts._Popart:setPatterns({ NoSuchPattern = true }, 0)
      opts.Precision:autocastPolicy(poptorch.autocasting.Policy({}, {}, {}, {}))
    end)
    local text = table.concat(trainer:report().no_effect, "\n")
    values.engineOptions = nil
    for name in pairs(values) do
      assert.truthy(text:find(("'%s'"):format(name), 1, true), name)
    end
    for _, name in ipairs({ "engine option 'a.b'", "NoSuchPattern", "autocastPolicy",
      "matmulOptions') partialsType", "convolutionOptions') x" }) do
      assert.truthy(text:find(name, 1, true), name)
    end
  end)

  it("is no note when nothing was set, or when it is read", function()
    local plain = run(function() end):report().no_effect
    assert.equal(1, #plain) -- one IPU: pipelining overlaps nothing
    assert.same(plain, run(function(opts)
      opts._Popart:set("syntheticDataMode", 0):set("enableStableNorm", 0)
      opts._Popart:set("numIOTiles", 32):set("autoRecomputation", "NoRecompute")
    end):report().no_effect)
  end)

  it("is refused where it would change results", function()
    for _, name in ipairs({ "accumulationFactor", "replicatedGraphCount",
      "meanAccumulationAndReplicationReductionStrategy", "globalReplicaOffset" }) do
      helper.raises("NotImplementedError", name, function()
        run(function(opts)
          opts._Popart:set(name, 2)
        end)
      end)
    end
  end)

  it("stands in the report where it cannot matter", function()
    local trainer = run(function(opts)
      opts:syncPattern(poptorch.SyncPattern.SinglePipeline):enableStableNorm(true)
    end)
    local text = table.concat(trainer:report().no_effect, "\n")
    for _, name in ipairs({ "syncPattern", "enableStableNorm" }) do
      assert.truthy(text:find(name, 1, true), name)
    end
  end)
end)
