-- Random models under random placements, strategies and locations: the
-- schedule's order gives the bits of micro-batch order, and figures add up.
local compiled = require("spec.support.compiled")
local helper = require("spec.passes.ipu.helper")
local report = require("lupine.report")
local tables = require("lupine.base.tables")
local torch = require("torch")

local FIRST, MODELS, PLACEMENTS = 380, 39, 10
local FOUND = { 90105 } -- more models, with which faults were found
local ITERATIONS, ROWS, WIDTH = 2, 2, 4
local STRATEGIES = { "pipelined", "sharded", "serial_phased", "parallel_phased" }
local KINDS = { "activation", "weight", "optimizer", "accumulator" }
local OFF = { on_chip = false, min_off_chip = 2 }
local BY_IO_TILES = { on_chip = false, min_off_chip = 2, io_load = true }
local SHARED = { on_chip = true, sharded = true, min_sharded = 2, io_load = true }
local OFF_SHARED = { on_chip = false, min_off_chip = 2, sharded = true, min_sharded = 2,
  io_load = true }

-- A small generator of its own, so that a failing case can be had again.
local state
local function pick(from, to)
  if not to then
    from, to = 1, from
  end
  state = (state * 1103515245 + 12345) % 2147483648
  return from + (state >> 8) % (to - from + 1)
end

local function values(i)
  return torch.sin(torch.arange(WIDTH * WIDTH) * 0.37 + i):reshape(WIDTH, WIDTH) * 0.4
end

local LAYERS = {
  function(a, _, weight)
    return torch.nn.functional.dropout(torch.matmul(a, weight), 0.25, true)
  end,
  function(_, b, weight)
    return torch.tanh(torch.matmul(b, weight))
  end,
  function(a, b)
    return a * b
  end,
  function(a, b, weight)
    return torch.matmul(a + b, weight:transpose(0, 1))
  end,
  function(_, b, weight, bias)
    return torch.relu(torch.matmul(b, weight)) + bias
  end,
}

-- Layers read values of any layer before and share three weights; traced in one
-- place, with the layer's number in the scope.
local function model(layers, accumulation, replicas)
  return helper.step(function(inputs, place)
    local made = { inputs[1], inputs[2] }
    for i = 1, layers do
      place(0, 0, "layer" .. i)
      made[i + 2] = LAYERS[pick(#LAYERS)](made[pick(#made)], made[pick(#made - 1, #made)],
        inputs[pick(3, 5)], inputs[6])
    end
    return helper.loss(made[#made] + made[pick(#made)])
  end, { train = true, accumulation = accumulation, replicas = replicas,
    device_iterations = ITERATIONS, declare = function(declare)
      return { declare("input", "x", nil, { ROWS, WIDTH }),
        declare("input", "y", nil, { ROWS, WIDTH }), declare("parameter", "a", values(1)),
        declare("parameter", "b", values(2)), declare("parameter", "c", values(3)),
        declare("parameter", "bias", torch.ones(WIDTH)) }
    end })
end

-- A pipeline has as many stages as the micro-batches fill.
local function placement(step, layers, strategy, accumulation)
  local of, phase, stage, few = {}, 0, 0, pick(2) == 1
  for i = 1, layers do
    phase = phase + (pick(3) == 1 and 1 or 0)
    stage = math.min(stage + (pick(2) == 1 and 1 or 0), (accumulation + 1) // 2 - 1)
    of[i] = strategy == "pipelined" and { ipu = few and stage % 2 or stage, stage = stage }
      or { ipu = 2 * pick(0, 2) + phase % 2, stage = pick(0, 2), phase = phase }
  end
  local list = {}
  for i, place in ipairs(step:places()) do
    list[i] = of[tonumber(place.scope:match("%d+"))]
  end
  return { places = list }
end

local LIVENESS = { serial_phased = 3, parallel_phased = 1 }

-- A number that divides another.
local function divisor(n)
  local d = pick(n)
  return n % d == 0 and d or 1
end

local function options(strategy, accumulation)
  local most = LIVENESS[strategy]
  local o = { strategy = strategy, recompute = ({ "auto", "none", "all" })[pick(3)],
    liveness = most and pick(0, most), separate_backward = most and pick(2) == 1,
    batch_serialization = most and divisor(accumulation), io_tiles = 32 * pick(0, 1) }
  for _, kind in ipairs(KINDS) do
    local at = ({ OFF, BY_IO_TILES, SHARED, OFF_SHARED, false })[pick(5)]
    o[kind] = at and tables.with(at, { on_demand = pick(3) == 1 }) or nil
  end
  o.near, o.update_order = pick(2) == 1, ({ "interleaving", "batch" })[pick(2)]
  o.part_order = ({ "in_turn", "overlap_io", "overlap_compute" })[pick(3)]
  return o
end

local function adds_up(r)
  for _, row in ipairs(r.schedule) do
    assert.equal(row.cycles, row.compute + row.exchange + row.sync + row.copy + row.host
      + row.streaming + row.collective)
  end
  for _, m in pairs(r.memory) do
    local sum = 0
    for name, bytes in pairs(m.categories) do
      sum = sum + (name ~= "activations" and name ~= "temporary" and bytes or 0)
    end
    assert.equal(m.always_live, sum)
  end
end

describe("random models under random placements", function()
  it("give the bits of micro-batch order", function()
    for case = 1, MODELS + #FOUND do
      state = FOUND[case - MODELS] or FIRST + case
      local layers, accumulation, replicas = pick(3, 9), pick(3, 9), pick(2)
      local step, inputs = model(layers, accumulation, replicas), {}
      local rows = ROWS * accumulation * ITERATIONS * replicas
      for name, at in pairs(compiled.vars(step)) do
        if name:find("^input") then
          inputs[at] = torch.cos(torch.arange(rows * WIDTH) * 0.91 + at):reshape(rows, WIDTH)
        end
      end
      local want = helper.replayed_bits(step, {}, inputs, { seed = 3, order = "micro_batches" })
      for try = 1, PLACEMENTS do
        local strategy = STRATEGIES[pick(4)]
        local o = options(strategy, accumulation)
        local at = placement(step, layers, strategy, accumulation)
        if helper.replayed_bits(step, o, inputs, { seed = 3, placement = at }) ~= want then
          error(("model %d, placement %d: %s differs"):format(case, try, strategy))
        end
        adds_up(report.simulate(step, o, at))
      end
    end
  end)
end)
