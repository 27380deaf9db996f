local helper = require("spec.passes.ipu.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local function report(o, options)
  o = o or {}
  o.train, o.accumulation = true, o.accumulation or 6
  return helper.simulate(helper.chain(2, o), options)
end

describe("a report", function()
  it("prints in one line what matters", function()
    local text = tostring(report())
    assert.matches("^Report%(Mk2 %(GC200%), pipelined, 2 IPUs x 1: %d+ cycles", text)
    assert.matches("simulated%)$", text)
  end)

  it("has the sections of Poplar's profile summary, and says that it is simulated", function()
    local r = report()
    local text, at = r:summary(), 1
    for _, section in ipairs({ "Target:", "simulated", "Number of IPUs:", "Tiles per IPU:",
      "Total Tiles:", "Memory Per-Tile:", "Total Memory:", "Clock Speed (approx):",
      "Number of Replicas:", "IPUs per Replica:", "Tiles per Replica:", "Memory per Replica:",
      "Graph:", "Number of vertices:", "Number of edges:", "Number of variables:",
      "Number of compute sets:", "Memory Usage:", "Including Gaps:", "Excluding Gaps:",
      "By Memory Region:", "Non-interleaved:", "Interleaved:", "Overflowed:", "By Data Type:",
      "Variables:", "Constants:", "Stack:", "Vertex Instances:", "Vertex Field Data:",
      "Control Code:", "Vertex Code:", "Internal Exchange Code:", "Vertex Data", "By Category:",
      "By Type:", "By Tile (Excluding Gaps):", "Maximum (Including Gaps):",
      "0 tile(s) out of memory", "IPU 0:", "IPU 1:", "Execution:", "Programs executed:",
      "Total cycles: ", "(including idle threads): ", "(excluding idle threads): ",
      "IPU exchange cycles: ", "global exchange cycles: ", "host exchange cycles: ",
      "sync cycles: ", "Cycles by vertex type:", "Cycles by stage:", "Schedule:",
      "Cycles by operator type:" }) do
      at = assert(text:find(section, at, true), section)
    end
    local grouped = tostring(r.cycles):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", "")
    assert.is_truthy(text:find(grouped, 1, true))
  end)

  it("has each byte of memory in one data type, and each vertex's state by type", function()
    local r = helper.simulate(helper.chain(3, { train = true, accumulation = 6, width = 512,
      batch = 64 }))
    local types, categories, state = 0, 0, 0
    for _, row in ipairs(require("lupine.report.summary").data_types(r)) do
      assert.is_true(row[2] >= 0, row[1])
      types = types + row[2]
    end
    local all, tiles = 0, 0
    for _, m in pairs(r.memory) do
      all = all + m.always_live + m.not_always_live
      state = state + m.categories.vertex_state
      for _, bytes in pairs(m.categories) do
        categories = categories + bytes
      end
    end
    assert.equal(categories, types)
    assert.equal(all, types)
    for _, v in ipairs(r.vertex_types) do
      state = state - v.bytes
      assert.is_true(v.bytes > v.edge_bytes and v.cycles >= v.idle and v.vertices > 0)
    end
    assert.equal(0, state)
    local bars = r:summary():match("Count %(tiles%)\n(.-)\n    Maximum")
    for count in bars:gmatch("([%d,]+)%f[\n\0]") do
      tiles = tiles + tonumber((count:gsub(",", "")))
    end
    assert.equal(3 * r.tiles, tiles)
  end)

  it("has constants apart from variables, and what overflows", function()
    local table_of = torch.arange(4096):float():reshape(64, 64)
    local r = helper.simulate(helper.step(function(inputs, place)
      place(0)
      return inputs[1]:matmul(table_of)
    end, { declare = function(declare)
      return { declare("input", "x", nil, { 8, 64 }) }
    end }))
    local types, all = {}, 0
    for _, row in ipairs(require("lupine.report.summary").data_types(r)) do
      types[row[1]], all = row[2], all + row[2]
    end
    assert.equal(64 * 64 * 4, types.Constants)
    assert.equal(r.memory[0].always_live + r.memory[0].not_always_live, all)
    r = helper.simulate(helper.chain(1, { width = 12288, batch = 16, train = true,
      dtype = torch.float32, accumulation = 2 }), { allow_out_of_memory = true })
    local m, bytes, tiles = r.memory[0], 0, 0
    for _, used in ipairs(m.tiles) do -- 64 classes of 23 tiles
      bytes = bytes + 23 * math.max(0, used - m.tile_bytes)
      tiles = tiles + (used > m.tile_bytes and 23 or 0)
    end
    assert.is_true(tiles > 0)
    local text = r:summary():gsub("(%d),(%d)", "%1%2"):gsub("(%d),(%d)", "%1%2")
    assert.matches(("Overflowed: +%d B"):format(bytes), text)
    assert.matches(("\n +%d tile%%(s%%) out of memory"):format(tiles), text)
  end)

  it("has cycles of vertices: those of the nodes that run, shared over the tiles", function()
    local r, sums = report({ device_iterations = 3, accumulation = 6 }), {}
    local times, all = {}, 0
    for row, count in require("lupine.report.runs").rows(r) do
      for _, entry in ipairs(row.entries) do
        times[entry] = count
      end
    end
    local operators = require("lupine.report.runs").operators(r)
    for entry, count in pairs(times) do
      for _, node in ipairs(operators(entry)) do
        for name, cycles in pairs(node.vertex_cycles) do
          sums[name] = (sums[name] or 0) + cycles * count
        end
      end
    end
    local idle = 0
    for _, v in ipairs(r.vertex_types) do
      assert.equal(sums[v.name], v.cycles, v.name)
      all, idle = all + v.cycles, idle + v.idle
    end
    assert.equal(all // (2 * r.tiles), r.tile_compute)
    assert.equal((all - idle) // (2 * r.tiles), r.tile_busy)
    assert.matches(("(excluding idle threads): %d"):format(r.tile_busy),
      (r:summary():gsub(",", "")), 1, true)
    assert.is_true(r.tile_busy < r.tile_compute) -- of 64 columns some threads have none
  end)

  it("has the steps of its schedule and what lives when, as Poplar's options ask", function()
    local r = report()
    local steps = r:steps()
    for _, row in ipairs(r.schedule) do
      assert.matches("  " .. row.kind .. " (", steps, 1, true)
    end
    local mm, busy = r:nodes()[1], 0
    for _, cycles in pairs(mm.vertex_cycles) do
      busy = busy + cycles
    end
    assert.matches(("OnTileExecute layer0/mm: %s cycles, %s active tiles, tile balance %.1f%%")
      :format(tostring(mm.compute):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""),
      mm.tiles, 100 * busy / mm.compute / r.tiles), steps, 1, true)
    local _, spans = r:storage():gsub("bytes, steps", "")
    assert.equal(#r:liveness().ipus[0].spans + #r:liveness().ipus[1].spans, spans)
  end)

  it("counts operators: executions of one call, recomputed ones again", function()
    local r = report({ device_iterations = 3, accumulation = 6 })
    local by_name = {}
    for _, op in ipairs(r.operators) do
      by_name[op.name] = op
    end
    -- 2 forward, 1 of them recomputed, 3 gradients (x has none)
    assert.equal(6, by_name.mm.nodes)
    assert.equal(6 * 6 * 3, by_name.mm.instances)
    assert.equal(2 * 3, by_name.sub.instances)
    for i = 2, #r.operators do
      assert.is_true(r.operators[i - 1].cycles >= r.operators[i].cycles)
    end
  end)

  it("has memory step by step: spans add up to it, and its most is the peak", function()
    for _, strategy in ipairs({ "pipelined", "sharded" }) do
      local r = report({ accumulation = 6 }, { strategy = strategy })
      for ipu, m in pairs(r.memory) do
        local live, most = r:liveness().ipus[ipu], 0
        for i = 1, #live.bytes do
          most = math.max(most, live.bytes[i] + live.temporary[i])
          local sum = 0
          for _, span in ipairs(live.spans) do
            sum = sum + (span.from < i and span.to >= i - 1 and span.bytes or 0)
          end
          assert.is_true(live.stage[i] < 0 or sum == live.bytes[i])
        end
        assert.equal(m.not_always_live, most)
        assert.equal(#live.bytes, #live.node)
        for i, node in ipairs(live.node) do
          local at = live.stage[i] >= 0 and node >= 0 and r:nodes()[node + 1]
          assert.is_true(not at or at.ipu == ipu and not at.update)
        end
      end
    end
  end)

  it("has the flops of the products it runs", function()
    local r = helper.simulate(helper.chain(1, { device_iterations = 5, batch = 32, width = 64 }))
    local mm
    for _, op in ipairs(r.operators) do
      mm = op.name == "mm" and op or mm
    end
    assert.equal(5 * 2 * 32 * 64 * 64, mm.flops)
  end)

  it("gives cycles of the operators that make up the stages", function()
    local r = report()
    local by_stage, by_op = 0, 0
    for _, s in ipairs(r.stages) do
      by_stage = by_stage + 6 * (s.forward_cycles + s.backward_cycles)
    end
    for _, op in ipairs(r.operators) do
      by_op = by_op + (op.name == "sub" and 0 or op.cycles)
    end
    assert.equal(by_stage, by_op)
    assert.equal(r.stages[2], r:stage(1))
  end)

  it("names what is no argument of its functions", function()
    local step, reports = helper.chain(1, {}), require("lupine.report")
    local function raises(message, f, ...)
      local ok, e = pcall(f, ...)
      assert.is_false(ok)
      assert.matches(message, e.message, 1, true)
    end
    raises("simulate: options: expected table, got int 3", reports.simulate, step, 3)
    raises("simulate: placement: expected table, got int 3", reports.simulate, step, {}, 3)
    raises("replay: inputs: expected table, got nil", reports.replay, step, {})
    raises("replay: how: expected table, got int 3", reports.replay, step, {}, {}, 3)
    raises("order: expected schedule or micro_batches, got 'x'", reports.replay, step, {}, {},
      { order = "x" })
    local r = report()
    raises('stage: stage: expected int, got string "x"', r.stage, r, "x")
    assert.is_nil(r:stage(9))
  end)

  it("knows the chips", function()
    local mk2, bow = report({}, { chip = "ipu2" }), report({}, { chip = "ipu21" })
    assert.equal(1.33e9, mk2.clock_hz)
    assert.equal(1.85e9, bow.clock_hz)
    assert.equal(mk2.stages[1].forward_cycles, bow.stages[1].forward_cycles)
    assert.is_true(bow.samples_per_second > mk2.samples_per_second)
    assert.has_error(function()
      report({}, { chip = "ipu3" })
    end)
  end)
end)

describe("the report of an executor", function()
  local Net = nn.Module:extend("Net")

  function Net:init()
    self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
    self.loss = nn.CrossEntropyLoss()
  end

  function Net:forward(x, labels)
    poptorch.Block.start("A", { ipu_id = 0 })
    x = torch.relu(self.first(x))
    poptorch.Block.start("B", { ipu_id = 1 })
    x = self.second(x)
    if labels then
      return x, self.loss(x, labels)
    end
    return x
  end

  it("counts the rows of the batch whatever the arguments' order", function()
    local Scaled = nn.Module:extend("Scaled")
    function Scaled:init(order)
      self.f, self.order = nn.Linear(8, 3), order
    end
    function Scaled:forward(...)
      local x, scale = select(self.order[1], ...), (select(self.order[2], ...))
      return self.f((x)) * scale:sum()
    end
    local x, scale = torch.ones(64, 8), torch.ones(2)
    local options = poptorch.Options():deviceIterations(2)
    for order, inputs in pairs({ [{ 1, 2 }] = { x, scale }, [{ 2, 1 }] = { scale, x } }) do
      local model = poptorch.inferenceModel(Scaled(order), options)
      model(table.unpack(inputs))
      assert.equal(64, model:report().samples)
    end
  end)

  it("says whether the peak is in the weight update", function()
    -- of one row the activations are small beside the weights, whose norms LAMB needs
    for batch, is in pairs({ [1] = true, [512] = false }) do
      local Square = nn.Module:extend("Square")
      function Square:init()
        self.f, self.loss = nn.Linear(512, 512), nn.MSELoss()
      end
      function Square:forward(x)
        local y = self.f(x)
        return y, self.loss(y, x)
      end
      torch.set_default_device("meta")
      local net, x = Square(), torch.zeros(batch, 512)
      torch.set_default_device("cpu")
      local model = poptorch.trainingModel(net, poptorch.Options(),
        poptorch.optim.LAMB(net:parameters(), { lr = 0.1 }))
      model:compile(x)
      assert.equal(is, model:report().memory[0].peak_in_update)
    end
  end)

  it("counts rows that replicas share once", function()
    for size, samples in pairs({ [1] = 8, [2] = 8, [4] = 8 }) do
      local options = poptorch.Options():replicationFactor(4)
        :inputReplicaGrouping(size, poptorch.CommGroupType.Consecutive)
      local model = poptorch.inferenceModel(nn.Linear(8, 3), options)
      model(torch.ones(8, 8))
      assert.equal(samples, model:report().samples)
    end
  end)

  it("follows its options", function()
    local options = poptorch.Options():deviceIterations(3)
    options.Training:gradientAccumulation(4)
    local model = poptorch.trainingModel(Net(), options)
    model(torch.ones(24, 8), torch.zeros(24, { dtype = torch.int64 }))
    local r = model:report()
    assert.equal("pipelined", r.strategy)
    assert.same({ 2, 3, 4, 24 }, { r.ipus, r.loops, r.micro_batches, r.samples })
    assert.equal("A", r.stages[1].block)
    assert.equal(1, #helper.rows(r, "output")) -- OutputMode.Final: once a call
    model:destroy()
  end)

  it("names options that change nothing", function()
    local options = poptorch.Options():enableStableNorm(true)
    options:setExecutionStrategy(poptorch.ShardedExecution())
    local model = poptorch.inferenceModel(nn.Linear(8, 4), options)
    model(torch.ones(2, 8))
    local text = model:report():summary()
    assert.matches("Options without effect", text)
    assert.matches("enableStableNorm", text)
    assert.matches("ShardedExecution: the model is on one IPU", text)
  end)
end)
