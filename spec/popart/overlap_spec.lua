--- Streams that travel by I/O tiles while the others compute: PopART's overlapio
--- (transformation_tests), and where what is asked for changes nothing.
local helper = require("spec.popart.helper")
local own = require("popart.session.own")
local popart = require("popart")
local report = require("lupine.report")
local torch = require("torch")

local Art, Exchange, Tiles = popart.AnchorReturnType, popart.ExchangeStrategy, popart.TileSet
local SIZE, REPLICAS, INPUTS = 64, 2, 2

-- Products of two inputs, their sum and the loss of its softmax; in a pipeline two products
-- each, on IPUs of their own.
local function model(products, tiles, strategy)
  torch.manual_seed(4)
  local b, m = popart.Builder(), { inputs = {}, weights = {} }
  local settings = popart.InputSettings(tiles, strategy)
  m.labels = b:addInputTensor(popart.TensorInfo("INT32", { 1, SIZE }), settings, "label")
  local ends = {}
  for i = 1, INPUTS do
    local x = b:addInputTensor(popart.TensorInfo("FLOAT", { 1, SIZE, SIZE }), settings, "x" .. i)
    m.inputs[i] = x
    for stage = 0, products - 1 do
      local w = b:addInitializedInputTensor(torch.randn(1, SIZE, SIZE) * 0.05)
      m.weights[#m.weights + 1] = w
      x = b.aiOnnx:matmul({ w, x })
      b:virtualGraph(x, stage)
      b:pipelineStage(x, stage)
    end
    ends[i] = x
  end
  m.sum = b.aiOnnx:sum(ends)
  local probs = b.aiOnnx:softmax({ m.sum })
  m.loss = b.aiGraphcore:nllloss({ probs, m.labels })
  for _, id in ipairs({ m.sum, probs, m.loss }) do
    b:virtualGraph(id, products - 1)
    b:pipelineStage(id, products - 1)
  end
  m.builder = b
  return m
end

-- A session of it; how: products, tiles, strategy, batches, accumulation, returns, options.
local function open(how)
  local tiles = how.tiles or Tiles.IO
  local m = model(how.products or 1, tiles, how.strategy)
  local art = Art(how.returns or "All", tiles, how.strategy)
  local options = helper.loops(how.accumulation, REPLICAS, { numIOTiles = how.io or 32,
    virtualGraphMode = popart.VirtualGraphMode.Manual, useHostCopyOps = true,
    enableExplicitMainLoops = true, enablePipelining = how.products == 2 })
  for name, value in pairs(how.options or {}) do
    options[name] = value
  end
  local anchors = { [m.loss] = art, [m.sum] = art }
  for _, id in ipairs(how.anchors and how.anchors(m) or {}) do
    anchors[id] = art
  end
  m.session = helper.training(m.builder, popart.DataFlow(how.batches or 1, anchors), m.loss,
    popart.ConstSGD(1e-3), { device = helper.device(REPLICAS * (how.products or 1)),
      options = options })
  m.rows = (how.batches or 1) * how.accumulation * REPLICAS
  return m
end

local function values(m)
  torch.manual_seed(5)
  local out = { [m.labels] = torch.randint(0, SIZE, { m.rows, 1, SIZE }):int() }
  for _, id in ipairs(m.inputs) do
    out[id] = torch.randn(m.rows, 1, SIZE, SIZE) * 0.05
  end
  return out
end

local function noted(m, id)
  for _, text in ipairs(m.session:getReport().no_effect) do
    local why = text:match(("^tile set and exchange strategy of '%s': (.*)$"):format(id))
    if why then
      return why
    end
  end
  return nil
end

describe("test_overlap_training", function()
  for _, products in ipairs({ 1, 2 }) do
    local where = products == 2 and "in a pipeline" or "on one IPU"
    it("hides I/O and changes no value, " .. where, function()
      local cycles, want = {}, nil
      for i, case in ipairs({ { Tiles.Compute, Exchange.JustInTime }, { Tiles.IO,
        Exchange.JustInTime }, { Tiles.IO, Exchange.OverlapInnerLoop }, { Tiles.IO,
          Exchange.OverlapLoops } }) do
        local m = open({ products = products, tiles = case[1], strategy = case[2], batches = 2,
          accumulation = 5, io = case[1] == Tiles.IO and 32 or 0 })
        local inputs = values(m)
        local got = helper.run(m.session, inputs)
        want = want or got
        for id, t in pairs(got) do
          assert.is_true(torch.equal(t, want[id]))
        end
        cycles[i] = m.session:getReport().cycles
        -- all but the first input and the last output of an update, or of a run, may be hidden
        assert.equal(case[2] == Exchange.JustInTime, m.session:getReport().memory[0].io == 0)
        local s = own.state(m.session).session
        local step, given = s.exec:step(), {}
        for k, v in ipairs(step:vars()) do
          given[k] = v.role == "input" and inputs[v.name]:flatten(0, 1) or nil
        end
        local _, order = report.replay(step, s.spec.system, given, { order = "schedule" })
        local _, plain = report.replay(step, s.spec.system, given, { order = "micro_batches" })
        for k, t in pairs(plain) do
          assert.is_true(torch.equal(t, order[k]))
        end
      end
      assert.is_true(cycles[1] <= cycles[2])
      assert.is_true(cycles[3] < 0.95 * cycles[2], ("%d %d"):format(cycles[2], cycles[3]))
      assert.is_true(cycles[4] < cycles[3])
    end)
  end
end)

describe("a stream's tile set and exchange strategy", function()
  it("overlap batches where a batch is one micro-batch", function()
    local late = open({ strategy = Exchange.JustInTime, batches = 4, accumulation = 1 })
    local m = open({ strategy = Exchange.OverlapInnerLoop, batches = 4, accumulation = 1 })
    assert.is_nil(noted(m, "x1"))
    assert.is_true(m.session:getReport().cycles < late.session:getReport().cycles)
  end)

  it("are named where they change nothing", function()
    local inner = Exchange.OverlapInnerLoop
    for why, how in pairs({
      ["without an exchange strategy that overlaps, tensors travel when they are wanted"] =
        { strategy = Exchange.JustInTime, accumulation = 2 },
      ["the tiles of TileSet.IO alone move tensors while others compute"] =
        { strategy = inner, tiles = Tiles.Compute, accumulation = 2 },
      ["SessionOptions.numIOTiles is 0"] = { strategy = inner, io = 0, accumulation = 2 },
      ["a run has one micro-batch"] = { strategy = inner, accumulation = 1 },
      ["with synthetic data nothing goes to or from the host"] = { strategy = inner,
        accumulation = 2, options = { syntheticDataMode = popart.SyntheticDataMode.Zeros } },
    }) do
      local m = open(how)
      for _, id in ipairs({ m.labels, "x1", "x2", m.sum, m.loss }) do
        assert.equal(why, noted(m, id))
      end
    end
    local m = open({ strategy = inner, accumulation = 2, anchors = function(m)
      return { popart.reservedGradientPrefix() .. m.weights[1] }
    end })
    assert.is_nil(noted(m, "x1"))
    assert.is_nil(noted(m, m.sum))
    assert.equal("it is no tensor of the model", noted(m, popart.reservedGradientPrefix()
      .. m.weights[1]))
    m = open({ strategy = inner, accumulation = 2, returns = "Final" })
    assert.is_nil(noted(m, "x1"))
    assert.equal("anchors that do not return every micro-batch go at the end of a run",
      noted(m, m.sum))
  end)

  it("overlap in explicit loops alone", function()
    helper.refuses("popart_exception", "require SessionOptions::useHostCopyOps", open, {
      strategy = Exchange.OverlapLoops, accumulation = 2, options = { useHostCopyOps = false,
        enableExplicitMainLoops = false } })
  end)
end)
