--- What the error of a program that does not fit advises fits when it is done.
local chains = require("spec.passes.ipu.helper")
local helper = require("spec.poptorch.helper")
local memory = require("lupine.report.memory")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local remedies = require("lupine.plan.remedies")
local torch = require("torch")

local WIDTH, ACCUMULATION = 4096, 16

local Net = nn.Module:extend("Net")

function Net:init(layers)
  self.layers, self.loss = nn.ModuleList(), nn.MSELoss()
  for _ = 1, layers do
    self.layers:append(nn.Linear(WIDTH, WIDTH))
  end
end

function Net:forward(x)
  for _, layer in ipairs(self.layers) do
    x = torch.relu(layer(x))
  end
  return self.loss(x, x * 0.5)
end

-- On device meta: neither weights nor arithmetic.
local function executor(layers, rows, change)
  local options = poptorch.Options():autoRoundNumIPUs(true)
  options.Training:gradientAccumulation(ACCUMULATION)
  change(options)
  torch.set_default_device("meta")
  local model = Net(layers)
  local of = poptorch.trainingModel(model, options,
    poptorch.optim.Adam(model:parameters(), { lr = 0.1 }))
  local x = torch.zeros(rows, WIDTH)
  torch.set_default_device("cpu")
  return of, x
end

local function location()
  return poptorch.TensorLocationSettings():useOnChipStorage(false)
end

-- By the remedy's hint: the option that it names.
local APPLY = {
  partials = function(o) o.Precision:setPartialsType(torch.half) end,
  recompute = function(o) o._Popart:set("autoRecomputation", 1) end,
  optimizer = function(o) o.TensorLocations:setOptimizerLocation(location()) end,
  accumulator = function(o) o.TensorLocations:setAccumulatorLocation(location()) end,
  weight = function(o) o.TensorLocations:setWeightLocation(location()) end,
  activation = function(o) o.TensorLocations:setActivationLocation(location()) end,
  proportion = function(o, detail)
    local all = {}
    for ipu = 0, 63 do
      all["IPU" .. ipu] = detail.proportion
    end
    o:setAvailableMemoryProportion(all)
  end,
  micro_batch = function(o, detail) o.Training:gradientAccumulation(detail.accumulation) end,
  ipus = function(o, detail)
    o:setExecutionStrategy(poptorch.AutoBlocks(detail.ipus))
    if detail.accumulation then
      o.Training:gradientAccumulation(detail.accumulation)
    end
  end,
}

local function advised(layers, rows)
  local of, x = executor(layers, rows, function() end)
  local e = helper.method_raises("Error", of, "compile", x)
  assert.equal("poplar_graph_memory_allocation_error", e.type)
  return e
end

local function report_with(remedy, layers, rows, change)
  local of, x = executor(layers, rows, function(o)
    for _, r in ipairs(remedy.all or { remedy }) do
      APPLY[r.hint](o, r.detail or {})
    end
    change(o)
  end)
  of:compile(x)
  return of:report()
end

local function fits_with(remedy, layers, rows)
  local report = report_with(remedy, layers, rows, function() end)
  assert.is_true(memory.fits(report), remedy.text)
end

describe("remedies", function()
  it("that are said to fit do", function()
    local rows = ACCUMULATION * 16
    local e, n = advised(6, rows), 0
    for _, remedy in ipairs(e.remedies) do
      if remedy.fits then
        fits_with(remedy, 6, rows)
        n = n + 1
      end
    end
    assert.is_true(n > 0, e.message)
  end)

  it("have the first of several values with which all fits", function()
    local step = chains.chain(1, { width = 2048, batch = 3072, train = true, accumulation = 2,
      dtype = torch.float32 })
    local function proportion(value)
      return memory.most(chains.simulate(step, { proportion = value }))
    end
    assert.is_true(proportion(0.2) < proportion(0.4) and proportion(0.4) < proportion(nil))
    for _, r in ipairs(remedies.remedies(step, {})) do
      assert.is_true(r.hint ~= "proportion" or r.detail.proportion == 0.4)
    end
  end)

  it("have a pipeline in place of phases, whatever these keep", function()
    local step = chains.chain(4, { train = true, accumulation = 8, phases = true,
      ipus = { 0, 1, 0, 1 } })
    local want = chains.simulate(step, {}).samples_per_second
    for liveness = 0, 1 do
      local got
      for _, r in ipairs(remedies.remedies(step, { strategy = "parallel_phased",
        liveness = liveness, separate_backward = true, batch_serialization = 4 })) do
        got = r.hint == "pipeline" and r.samples_per_second or got
      end
      assert.equal(want, got, liveness)
    end
  end)

  it("go together where none is enough: options and as few more IPUs as it takes", function()
    local rows = ACCUMULATION * 4096
    local e = advised(20, rows)
    local last = e.remedies[#e.remedies]
    assert.is_true(last.fits, e.message)
    assert.is_true(#last.all > 1, e.message)
    assert.matches("together: .*AutoBlocks%(%d+%)", e.message)
    fits_with(last, 20, rows)
    local options = 0
    for i, r in ipairs(last.all) do
      local fewer = table.move(last.all, 1, #last.all, 1, {})
      table.remove(fewer, i)
      if r.change then -- an option, none of which can be left out
        options = options + 1
        local report = report_with({ all = fewer }, 20, rows, function(o)
          o._Popart:set("engineOptions", { ["debug.allowOutOfMemory"] = "true" })
        end)
        assert.is_false(memory.fits(report), r.text)
      end
    end
    assert.is_true(options > 1, e.message)
  end)

  it("of inference are more IPUs, with device iterations to fill their pipeline", function()
    local function inference(rows, change)
      local options = poptorch.Options():autoRoundNumIPUs(true)
      change(options)
      torch.set_default_device("meta")
      local of, x = poptorch.inferenceModel(Net(20), options), torch.zeros(rows, WIDTH)
      torch.set_default_device("cpu")
      return of, x
    end
    local of, x = inference(16, function() end)
    local e = helper.method_raises("Error", of, "compile", x)
    local first = e.remedies[1]
    assert.equal("ipus", first.hint, e.message)
    assert.is_true(first.fits and first.detail.iterations >= first.detail.ipus, e.message)
    assert.matches(("AutoBlocks(%d)), options:deviceIterations(%d)"):format(first.detail.ipus,
      first.detail.iterations), e.message, 1, true)
    of, x = inference(16 * first.detail.iterations, function(o)
      o:setExecutionStrategy(poptorch.AutoBlocks(first.detail.ipus))
        :deviceIterations(first.detail.iterations)
    end)
    of:compile(x)
    for _, m in pairs(of:report().memory) do
      assert.is_true(m.fits)
    end
  end)
end)
