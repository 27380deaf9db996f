--- lupine.plan: variants of a step and their order.
local helper = require("spec.passes.ipu.helper")
local lupine = require("lupine")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local report = require("lupine.report")
local torch = require("torch")

-- PopART's names of what a plan recomputes.
local RECOMPUTATION = { auto = "Pipeline", none = "NoRecompute", all = "RecomputeAll" }

-- Layers of n, or of the widths in a list.
local function model_of(n, layers)
  local net = nn.Sequential()
  local function width(i)
    return type(n) == "table" and n[i + 1] or n
  end
  for i = 1, layers do
    net:add_module("layer" .. i, nn.Linear(width(i - 1), width(i)))
    net:add_module("relu" .. i, nn.ReLU())
  end
  local Model = nn.Module:extend("PlanModel")
  function Model:init()
    self.net, self.loss = net, nn.MSELoss()
  end
  function Model:forward(x, y)
    local out = self.net(x)
    return out, self.loss(out, y)
  end
  return Model()
end

local function options_of(accumulation)
  local options = poptorch.Options():autoRoundNumIPUs(true)
  options.Training:gradientAccumulation(accumulation)
  return options
end

local function training(model, options)
  return poptorch.trainingModel(model, options,
    poptorch.optim.Adam(model:parameters(), { lr = 0.1 }))
end

local function wide(n, layers, accumulation)
  local x = torch.randn(accumulation, n)
  return training(model_of(n, layers), options_of(accumulation)), { x, x }
end

local function raises(class_name, pattern, f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  assert.equal(class_name, e.__name)
  assert.matches(pattern, e.message)
end

describe("a plan", function()
  it("has the best of each number of stages and replicas, in order", function()
    local executor, inputs = wide(64, 4, 16)
    local plan = lupine.plan(executor, { inputs = inputs, ipus = { 1, 2, 3, 4 } })
    local seen = {}
    for i, v in ipairs(plan.plans) do
      assert.equal(v.ipus, v.stages * v.replicas)
      assert.equal(v.stages - 1, #v.cuts)
      assert.equal(math.max(16 // v.replicas + (16 % v.replicas > 0 and 1 or 0),
        2 * v.stages - 1), v.accumulation * v.rows)
      assert.is_true(v.fits and v.fullest < 1 and v.overflow == 0)
      assert.equal(v.accumulation * v.rows * v.replicas / 16, v.batch)
      seen[v.stages .. " x " .. v.replicas] = true
      local next_one = plan.plans[i + 1]
      assert.is_true(not next_one or next_one.samples_per_second <= v.samples_per_second)
    end
    local names = {}
    for name in pairs(seen) do
      names[#names + 1] = name
    end
    table.sort(names)
    assert.same({ "1 x 1", "1 x 2", "1 x 3", "1 x 4", "2 x 1", "2 x 2", "3 x 1", "4 x 1" }, names)
    assert.same({}, plan.refused)
  end)

  local function proportions(value)
    local out = {}
    for ipu = 0, 3 do
      out["IPU" .. ipu] = value
    end
    return out
  end

  -- accumulation: the script's; change: options of all programs
  local function has_figures_of_programs(n, layers, rows, accumulation, change)
    local first, last = n, n
    if type(n) == "table" then
      first, last = n[1], n[#n]
    end
    local function inputs(batch)
      return { torch.randn(batch * rows, first), torch.randn(batch * rows, last) }
    end
    local own = options_of(accumulation or 16)
    if change then
      change(own)
    end
    local calls = own.device_iterations
    local plan = lupine.plan(training(model_of(n, layers), own),
      { inputs = inputs(calls * (accumulation or 16)), ipus = { 1, 2, 4 } })
    for _, v in ipairs(plan.plans) do
      local model = model_of(n, layers)
      for ipu, name in ipairs(v.cuts) do
        poptorch.BeginBlock(model:get_submodule((name:gsub("/", "."))), { user_id = name,
          ipu_id = ipu })
      end
      local options = options_of(v.accumulation):replicationFactor(v.replicas)
        :setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
      options._Popart:set("autoRecomputation", RECOMPUTATION[v.recompute])
      options.Precision:setPartialsType(v.partials == "half" and torch.half or torch.float)
      if v.proportion then
        options:setAvailableMemoryProportion(proportions(v.proportion))
      end
      if change then
        change(options)
      end
      local compiled = training(model, options)
      compiled:compile(table.unpack(
        inputs(math.tointeger(calls * v.accumulation * v.replicas * v.rows))))
      local what = ("%d x %d, %d, %s: %s"):format(v.stages, v.replicas, v.accumulation,
        v.recompute, table.concat(v.cuts, " "))
      assert.equal(compiled:report().cycles, v.cycles, what)
      local recomputed -- as the options have it that the variant names
      for _, option in ipairs(v.options) do
        recomputed = option:match('autoRecomputation", "(%a+)"') or recomputed
      end
      assert.equal(v.recompute ~= "auto" and RECOMPUTATION[v.recompute] or nil, recomputed, what)
      assert.equal(compiled:report().samples_per_second, v.samples_per_second, what)
    end
  end

  it("has the figures of programs that are compiled so", function()
    has_figures_of_programs(64, 4, 1)
  end)

  it("has them where an equal split turns out best without recomputation", function()
    has_figures_of_programs({ 64, 128, 1024, 64, 512, 1024, 256 }, 6, 16)
  end)

  it("has them where gradients are added up that are not in the script, or the reverse", function()
    has_figures_of_programs(64, 3, 1, 1)
    has_figures_of_programs(64, 3, 4, 2, function(options)
      options:deviceIterations(4):outputMode(poptorch.OutputMode.EveryN, 2)
    end)
  end)

  it("has them of inference, with as many iterations as fill the pipeline", function()
    local function inference(iterations, cuts, replicas)
      local model = model_of(64, 4)
      for ipu, name in ipairs(cuts) do
        poptorch.BeginBlock(model:get_submodule((name:gsub("/", "."))), { ipu_id = ipu })
      end
      local rows = torch.randn(iterations * replicas, 64)
      return poptorch.inferenceModel(model, poptorch.Options():deviceIterations(iterations)
        :replicationFactor(replicas):autoRoundNumIPUs(true)), { rows, rows }
    end
    local executor, inputs = inference(2, {}, 1)
    local seen = {}
    for _, v in ipairs(executor:plan({ inputs = inputs, ipus = { 1, 2, 4 } }).plans) do
      local compiled, rows = inference(v.iterations or 2, v.cuts, v.replicas)
      compiled:compile(table.unpack(rows))
      assert.equal(compiled:report().cycles, v.cycles)
      assert.equal(compiled:report().samples_per_second, v.samples_per_second)
      seen[v.stages] = v.iterations or "as in the script"
      assert.equal(v.stages == 4, (table.concat(v.options):find("deviceIterations(4)", 1, true))
        ~= nil)
    end
    assert.same({ "as in the script", "as in the script", nil, 4 }, seen)
  end)

  -- Layers on device meta.
  local function layers(width, n, rows, dtype, change)
    local options = options_of(4)
    change(options)
    torch.set_default_device("meta")
    local model = model_of(width, n):to(dtype)
    local executor = training(model, options)
    local x = torch.zeros(rows, width, { dtype = dtype })
    torch.set_default_device("cpu")
    return executor, { x, x }
  end

  -- What kinds of options plans of such layers name, with each of which they have its figures.
  local function named(...)
    local kinds = {}
    local program, program_inputs = layers(...)
    for _, v in ipairs(program:plan({ ipus = { 1, 2 }, inputs = program_inputs,
      tries = 20 }).plans) do
      local description = { ... }
      description[5] = function(o)
        for _, option in ipairs(v.options) do
          local call = option:gsub(" for the same batch", "")
          assert(load("local options, poptorch, torch = ...; " .. call))(o, poptorch, torch)
          kinds[call:match(":(%a+)%(")] = true
        end
      end
      if v.stages == 1 then
        local executor, inputs = layers(table.unpack(description))
        executor:compile(table.unpack(inputs))
        assert.equal(v.samples_per_second, executor:report().samples_per_second,
          table.concat(v.options, "\n"))
      end
    end
    return kinds
  end

  it("names the options of a variant, with which the script has its figures", function()
    local function nothing() end
    local of_halves = named(2048, 2, 64, torch.float16, nothing)
    assert.is_true(of_halves.setPartialsType and of_halves.gradientAccumulation)
    local large = named(4096, 4, 4 * 4096, torch.float32, nothing)
    assert.is_true(large.setAvailableMemoryProportion and large.setOptimizerLocation)
    assert.is_nil(large.setPartialsType)
  end)

  it("has cuts that no other beats with what else it changes", function()
    local widths = { 256, 1024, 1024, 2048, 2048, 256 }
    torch.set_default_device("meta")
    local x, y = torch.zeros(16 * 256, widths[1]), torch.zeros(16 * 256, widths[#widths])
    local plans = training(model_of(widths, 5), options_of(16)):plan({ inputs = { x, y },
      ipus = { 2 }, accumulation = { 16 } }).plans
    local v = plans[1].stages == 2 and plans[1] or plans[2]
    assert.same({ 2, "none" }, { v.stages, v.recompute })
    for i = 1, 5 do
      for _, name in ipairs({ "relu", i > 1 and "layer" or nil }) do
        local model = model_of(widths, 5)
        poptorch.BeginBlock(model:get_submodule("net." .. name .. i), { user_id = "b", ipu_id = 1 })
        local options = options_of(16)
        options._Popart:set("autoRecomputation", RECOMPUTATION[v.recompute])
        options.Precision:setPartialsType(v.partials == "half" and torch.half or torch.float)
        if v.proportion then
          options:setAvailableMemoryProportion(proportions(v.proportion))
        end
        local compiled = training(model, options)
        compiled:compile(x, y)
        assert.is_true(compiled:report().samples_per_second <= v.samples_per_second, name .. i)
      end
    end
    torch.set_default_device("cpu")
  end)

  it("takes accumulations that are given", function()
    local executor, inputs = wide(32, 4, 8)
    executor:compile(table.unpack(inputs))
    local plan = executor:plan({ ipus = { 1, 4 }, accumulation = { 2, 8, 32 } })
    local got = {}
    for _, v in ipairs(plan.plans) do
      got[#got + 1] = ("%d/%d x %d"):format(v.accumulation, v.stages, v.replicas)
      assert.equal(v.accumulation * v.replicas / 8, v.batch)
    end
    assert.matches("\n   4  4 x 1 +32  x 4  ", tostring(plan))
    assert.matches("\nbatch: times the samples that a weight update has in the script\n",
      tostring(plan))
    table.sort(got)
    assert.same({ "2/1 x 1", "2/1 x 4", "32/1 x 1", "32/1 x 4", "32/2 x 2", "32/4 x 1", "8/1 x 1",
      "8/1 x 4", "8/2 x 2", "8/4 x 1" }, got)
  end)

  it("moves off the chip what does not fit on it, and says what does not fit at all", function()
    local executor, inputs = wide(5500, 2, 4)
    local plan = executor:plan({ inputs = inputs, ipus = { 1, 2 }, tries = 20 })
    local by = {}
    for _, v in ipairs(plan.plans) do
      by[v.stages .. " x " .. v.replicas] = v
    end
    assert.is_true(by["1 x 1"].fits)
    assert.same({ "optimizer" }, by["1 x 1"].off_chip)
    assert.is_true(by["2 x 1"].fullest < 1 and by["1 x 1"].fullest < 1)
    executor, inputs = layers(4800, 2, 8192, torch.float32, function() end)
    local best = executor:plan({ inputs = inputs, ipus = { 1 } }).plans[1]
    assert.is_number(best.proportion) -- with which accumulators may stay
    assert.same({ "optimizer" }, best.off_chip)
    executor, inputs = wide(12000, 1, 1)
    plan = executor:plan({ inputs = inputs, ipus = { 1 } })
    assert.is_false(plan.plans[1].fits)
    assert.matches("Too large for the tiles:\n +1 ", tostring(plan))
  end)

  it("names what is refused, and where an equal split is best", function()
    local executor, inputs = wide(64, 4, 8)
    local plan = executor:plan({ inputs = inputs, ipus = { 2, 4, 16 } })
    assert.equal(1, #plan.refused)
    assert.equal(16, plan.refused[1].stages)
    local text = tostring(plan)
    assert.matches("16 stages: the model cannot be cut into 16 stages: it has 8 places", text)
    assert.matches("%d+ variants simulated in", text)
  end)

  it("says why nothing is tried of a number of IPUs", function()
    local step = helper.chain(2, { train = true, accumulation = 4 })
    local plan = lupine.plan(step, { ipus = { 3 }, system = { power_of_two = true } })
    assert.same({ { ipus = 3, reason = "3 is no power of two" } }, plan.refused)
    assert.matches("3 IPUs: 3 is no power of two\n", tostring(plan))
    plan = lupine.plan(step, { ipus = { 2 }, accumulation = { 1 } })
    assert.matches("2 stages: an accumulation of at least 3 is needed\n", tostring(plan))
  end)

  it("of a step takes the options of the simulated system", function()
    local step = helper.chain(2, { train = true, accumulation = 4 })
    local plan = lupine.plan(step, { ipus = { 1 }, system = { chip = "ipu1" } })
    assert.equal(1, #plan.plans)
    assert.is_true(plan.plans[1].samples_per_second ~= lupine.plan(step,
      { ipus = { 1 } }).plans[1].samples_per_second)
  end)

  it("lets as many replicas share rows as the script does, where that is possible", function()
    local step = helper.chain(1, { train = true, accumulation = 4, replicas = 2 })
    local groups = { [1] = 1, [2] = 1, [3] = 3, [4] = 2 } -- of replicas that share
    local plan = lupine.plan(step, { ipus = { 1, 2, 3, 4 }, system = { input_groups = 1 } })
    for _, v in ipairs(plan.plans) do
      assert.equal(report.simulate(step, { replicas = v.replicas, accumulation = v.accumulation,
        input_groups = groups[v.replicas], recompute = v.recompute, partials = v.partials,
        proportion = v.proportion }).samples_per_second, v.samples_per_second)
    end
    assert.equal(4, #plan.plans)
  end)

  it("refuses what is no program or option", function()
    local step = helper.chain(1, {})
    raises("TypeError", "expected an executor of poptorch, got", lupine.plan, 3)
    raises("ValueError", "there is no option 'ipu'; allowed are ipus, accumulation, tries, inputs "
      .. "%(nearest: 'ipus'%)", lupine.plan, step,
      { ipu = 1 })
    raises("TypeError", "ipus: expected a list of numbers", lupine.plan, step, { ipus = 4 })
    raises("TypeError", "plan: opts: expected table, got int 3", lupine.plan, step, 3)
    for name, kind in pairs({ system = "table", spelling = "table", smaller = "a function" }) do
      raises("TypeError", ("plan: %s: expected %s, got int 3"):format(name, kind), lupine.plan,
        step, { [name] = 3 })
    end
    raises("TypeError", "inputs: expected a list of forward's arguments, got int 3", lupine.plan,
      (wide(4, 1, 1)), { inputs = 3 })
    raises("ValueError", "ipus%[1%]", lupine.plan, step, { ipus = { 0 } })
    raises("Error", "the model is not compiled: give the arguments of forward",
      lupine.plan, (wide(4, 1, 1)))
    raises("ValueError", "plan: inputs: a step has been traced already", lupine.plan, step,
      { inputs = {} })
    raises("ValueError", "plan: system: an executor's is what", lupine.plan, (wide(4, 1, 1)),
      { system = {} })
  end)
end)

describe("a plan of the core", function()
  it("has other replicas and accumulations than the step", function()
    local four = helper.chain(2, { train = true, accumulation = 4 })
    local eight = helper.chain(2, { train = true, accumulation = 8, replicas = 2 })
    local want = report.simulate(eight, {})
    local got = report.simulate(four, { accumulation = 8, replicas = 2 })
    for _, name in ipairs({ "cycles", "samples_per_second", "replicas", "reserved_ipus",
      "micro_batches" }) do
      assert.equal(want[name], got[name], name)
    end
    assert.has_error(function()
      got.plan:replay({}, {})
    end)
    raises("ValueError", "replicas, accumulation: expected 0 or more, got %-1", report.simulate,
      four, { replicas = -1 })
  end)
end)
