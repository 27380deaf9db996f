--- Cycle count, performance counters and latencies of an executor. What is
--- expected follows from the definition of each counter and from the report's
--- schedule, added up here by hand.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises

local function near(got, want)
  if type(got) == "number" then
    got, want = { got }, { want }
  end
  assert.equal(#want, #got)
  for i, v in ipairs(want) do
    assert.near(v, got[i], 1e-9 * math.max(math.abs(v), 1e-3))
  end
end

local Net = nn.Module:extend("Net")

function Net:init(placed)
  self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
  self.loss = nn.CrossEntropyLoss()
  self.placed = placed
end

function Net:forward(x, target)
  local h, y
  poptorch.Block("A", 0, function()
    h = self.a(x):relu()
  end)
  return poptorch.Block("B", self.placed and 1 or 0, function()
    y = self.b(h)
    if target then
      return y, self.loss(y, target)
    end
    return y
  end)
end

local function data(n)
  return torch.randn({ n, 8 }), torch.zeros({ n }, { dtype = torch.int64 })
end

local function options(di, ga, rf)
  local o = poptorch.Options():deviceIterations(di or 1)
  o.Training:gradientAccumulation(ga or 1)
  return o:replicationFactor(rf or 1)
end

local function trainer(opts, placed)
  return poptorch.trainingModel(Net(placed), opts)
end

local function counts(events)
  local out = {}
  for i, list in ipairs(events) do
    out[i] = #list
  end
  return out
end

local KINDS = { "input", "input_complete", "output", "output_complete" }

-- Every event lies in the call, and a transfer ends after it began.
local function check_order(model)
  local c, all = model:getPerfCounters(), model:report().seconds
  for _, pair in ipairs({ { c.input, c.input_complete }, { c.output, c.output_complete } }) do
    for i, list in ipairs(pair[1]) do
      for n, time in ipairs(list) do
        assert.is_true(time >= 0 and time < pair[2][i][n])
        assert.is_true(pair[2][i][n] <= all * (1 + 1e-12))
        assert.is_true(n == 1 or time >= list[n - 1])
      end
    end
  end
end

describe("the cycle count", function()
  it("is that of the report, once there was a call", function()
    local model = trainer(options(2):logCycleCount(true))
    local function refused(text)
      raises("Error", text, function()
        model:cycleCount()
      end)
    end
    refused("not compiled")
    model:compile(data(4))
    refused("has not been run")
    model(data(4))
    assert.equal(model:report().cycles, model:cycleCount())
    assert.is_true(math.type(model:cycleCount()) == "integer" and model:cycleCount() > 0)
    model:destroy()
    refused("not compiled")
    model:compile(data(4))
    refused("has not been run")
  end)

  it("is not counted unless asked for", function()
    local model = trainer(options())
    model(data(4))
    raises("Error", "logCycleCount", function()
      model:cycleCount()
    end)
  end)
end)

describe("performance counters", function()
  it("have an event a micro-batch and replica of every input", function()
    for _, placed in ipairs({ false, true }) do
      local model = trainer(options(2, 4, 2), placed)
      model(data(16))
      local c = model:getPerfCounters()
      assert.same({ 16, 16 }, counts(c.input))
      assert.same({ 16, 16 }, counts(c.input_complete))
      assert.same({ 2, 2 }, counts(c.output)) -- Final: the last of each replica
      check_order(model)
      assert.equal(c.input[1][1], c.input[1][2]) -- replicas run side by side
    end
  end)

  it("have an event of an output for each slice that a call returns", function()
    local O = poptorch.OutputMode
    for mode, slices in pairs({ [O.All] = 8, [O.Final] = 1, [O.Sum] = 1 }) do
      local model = trainer(options(2, 4):outputMode(mode), true)
      local y, loss = model(data(16))
      assert.equal(slices, loss:numel())
      assert.same({ slices, slices }, counts(model:getPerfCounters().output))
      assert.equal(y:size(0) // 2, #model:getPerfCounters().output[1])
      check_order(model)
    end
    local model = trainer(options(4, 2):outputMode(O.EveryN, 2))
    local _, loss = model(data(8))
    assert.same({ loss:numel(), loss:numel() }, counts(model:getPerfCounters().output))
    check_order(model)
  end)

  it("follow the slots of the pipeline", function()
    local model = poptorch.inferenceModel(Net(true), options(5))
    model((data(10)))
    local c, r = model:getPerfCounters(), model:report()
    assert.same({ { 5 }, { 5 } }, { counts(c.input), counts(c.output) })
    local starts, now = {}, 0 -- of slots
    for _, row in ipairs(r.schedule) do
      for _ = 1, row.count do
        starts[#starts + 1] = now / r.clock_hz
        now = now + row.cycles
      end
    end
    assert.equal(6, #starts) -- 5 micro-batches through 2 stages
    for n = 1, 5 do
      near(c.input[1][n], starts[n])
      assert.is_true(c.output[1][n] > starts[n + 1])
      near(c.output_complete[1][n], starts[n + 2] or r.seconds)
    end
  end)

  it("follow the micro-batches where nothing overlaps", function()
    local model = poptorch.inferenceModel(Net(true),
      options(3):setExecutionStrategy(poptorch.ShardedExecution()))
    model((data(6)))
    local c, r = model:getPerfCounters(), model:report()
    for n = 1, 3 do
      near(c.input[1][n], (n - 1) * r.seconds / 3)
      near(c.output_complete[1][n], n * r.seconds / 3)
    end
    local least, most, mean = model:getLatency()
    near({ least, most, mean }, { r.seconds / 3, r.seconds / 3, r.seconds / 3 })
  end)

  it("follow the phases", function()
    local model = poptorch.inferenceModel(Net(false),
      options(2):setExecutionStrategy(poptorch.SerialPhasedExecution("A", "B")))
    model((data(4)))
    local c, r = model:getPerfCounters(), model:report()
    near(c.input[1], { 0, r.seconds / 2 })
    near(c.output_complete[1], { r.seconds / 2, r.seconds })
  end)

  it("have no events before a call, nor with synthetic data", function()
    local model = trainer(options())
    local function none(want)
      local c = model:getPerfCounters()
      for _, kind in ipairs(KINDS) do
        assert.same(want, c[kind])
      end
      for _, name in ipairs({ "getLatency", "getHostIpuLatency", "getComputeLatency",
        "getIpuHostLatency" }) do
        assert.same({ 0, 0, 0 }, { model[name](model) })
      end
    end
    none({})
    model:compile(data(4))
    none({ {}, {} })
    model = trainer(options():enableSyntheticData(true))
    model(data(4))
    none({ {}, {} })
  end)
end)

describe("latencies", function()
  it("are taken from the counters, an output tick at a time", function()
    local model = poptorch.inferenceModel(Net(true), options(5))
    model((data(10)))
    local c = model:getPerfCounters()
    local function expect(from, to, least, most, mean)
      local sum, low, high = 0, math.huge, 0
      for n = 1, 5 do
        local d = c[to][1][n] - c[from][1][n]
        sum, low, high = sum + d, math.min(low, d), math.max(high, d)
      end
      near({ least, most, mean }, { low, high, sum / 5 })
    end
    expect("input", "input_complete", model:getHostIpuLatency())
    expect("input_complete", "output", model:getComputeLatency())
    expect("output", "output_complete", model:getIpuHostLatency())
    expect("input", "output_complete", model:getLatency())
  end)

  it("of computing are between the transfers that the report's rows have", function()
    for ipus = 1, 2 do
      local model = poptorch.inferenceModel(Net(ipus == 2), options(5))
      model((data(10)))
      local r, rows, now = model:report(), {}, 0
      for _, row in ipairs(r.schedule) do
        for _ = 1, row.count do
          local at = {}
          for _, e in ipairs(row.entries) do
            -- inputs begin a row, outputs end it
            at[e.kind] = e.kind == "host_in" and now + e.cycles or now + row.cycles - e.cycles
          end
          rows[#rows + 1] = at
          now = now + row.cycles
        end
      end
      assert.equal(5 + ipus - 1, #rows)
      local least, most, sum = math.huge, 0, 0
      for n = 1, 5 do -- what enters in row n leaves in the row of the last stage
        local d = (rows[n + ipus - 1].host_out - rows[n].host_in) / r.clock_hz
        least, most, sum = math.min(least, d), math.max(most, d), sum + d
      end
      assert.is_true(least > 0)
      near({ model:getComputeLatency() }, { least, most, sum / 5 })
    end
  end)

  it("of one result a call span the call from its first input", function()
    local model = trainer(options(2, 4), true)
    model(data(16))
    local least, most, mean = model:getLatency()
    local all = model:report().seconds
    near({ least, most, mean }, { all, all, all })
    local _, _, in_ = model:getHostIpuLatency()
    local _, _, compute = model:getComputeLatency()
    assert.is_true(in_ > 0 and compute > in_ and compute < all)
  end)
end)
