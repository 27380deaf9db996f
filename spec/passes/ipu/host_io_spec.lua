--- Marks of overlapping host I/O: which transfers computing hides, by mode.
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local pva = require("pva")
local torch = require("torch")

local marks = core.forms.internal
local ACCUMULATION, ITERATIONS = "overlap_accumulation_loop", "overlap_device_iteration_loop"

-- Products whose input and output are marked by modes, in training of o.accumulation
-- or in inference of o.device_iterations.
local function simulate(input, output, o)
  o.declare = function(declare)
    return { declare("input", "x", nil, { 64, 256 }),
      declare("parameter", "w", torch.zeros(256, 256)) }
  end
  local step = helper.step(function(inputs, place)
    place(0)
    local x = input and marks.set_overlap_for_input(inputs[1], input) or inputs[1]
    local y = x
    for _ = 1, o.products or 6 do
      y = torch.matmul(y, inputs[2])
    end
    local loss = o.train and helper.loss(y)
    y = output and marks.set_overlap_for_output(y, output) or y
    if loss then
      return loss, y
    end
    return y
  end, o)
  return helper.simulate(step, { io_tiles = o.io_tiles or 32, strategy = o.strategy or "sharded",
    output_slices = o.output_slices, input_groups = o.input_groups })
end

-- {kind, turns, host cycles} of the rows, in order.
local function rows(r)
  local out = {}
  for i, row in ipairs(r.schedule) do
    out[i] = { row.kind, row.count, row.host }
  end
  return out
end

-- Cycles of one transfer of the input, which is as large as the output y.
local function transfer(r, kind)
  for _, row in ipairs(r.schedule) do
    for _, entry in ipairs(row.entries) do
      if entry.kind == kind then
        return entry.cycles
      end
    end
  end
end

describe("an input that is fetched ahead", function()
  local plain = simulate(nil, nil, { device_iterations = 4 })
  local move = plain.schedule[1].host / 2 -- in, and out

  it("is hidden but for the first of a call, along device iterations", function()
    local r = simulate(ITERATIONS, nil, { device_iterations = 4 })
    assert.same({ { "fill", 1, move }, { "phase", 4, move } }, rows(r)) -- the output is not
    assert.is_true(r.sequence[1].once)
    assert.equal("update", r.streams[1].ahead)
    assert.equal("none", r.streams[2].ahead)
  end)

  it("is fetched before the repeated weight updates in pva's tree of programs", function()
    local r = simulate(ITERATIONS, nil, { train = true, accumulation = 4, device_iterations = 2 })
    local names, last = {}, 0
    for i, program in ipairs(pva.of(r).compilation.program.children) do
      names[i] = program.name
      assert.is_true(program.id > last)
      last = program.id
    end
    assert.same({ "fill", "weight updates" }, names)
  end)

  it("is not hidden without accumulation, along that", function()
    local r = simulate(ACCUMULATION, nil, { device_iterations = 4 })
    assert.same(rows(plain), rows(r))
    assert.equal("none", r.streams[1].ahead)
  end)

  it("is not hidden without I/O tiles, or if nothing is asked", function()
    assert.same(rows(simulate(nil, nil, { device_iterations = 4, io_tiles = 0 })),
      rows(simulate(ITERATIONS, nil, { device_iterations = 4, io_tiles = 0 })))
    assert.same(rows(plain), rows(simulate("no_overlap", "no_overlap", { device_iterations = 4 })))
  end)

  it("is not hidden in a call of one micro-batch", function()
    assert.same(rows(simulate(nil, nil, {})), rows(simulate(ITERATIONS, ITERATIONS, {})))
  end)
end)

describe("training of two iterations of four micro-batches", function()
  local function train(input, output)
    return simulate(input, output, { train = true, accumulation = 4, device_iterations = 2 })
  end
  local plain = train()

  it("shows the first input and the last output of each update, along accumulation", function()
    local r = train(ACCUMULATION, ACCUMULATION)
    local kinds = {}
    for i, row in ipairs(r.schedule) do
      kinds[i] = row.kind .. " " .. row.count
    end
    assert.same({ "fill 1", "phase 1", "phase 2", "phase 1", "flush 1", "update 1" }, kinds)
    local function moved(i)
      local list = {}
      for _, entry in ipairs(r.schedule[i].entries) do
        list[#list + 1] = entry.kind:find("^host") and entry.kind .. " " .. entry.bytes or nil
      end
      table.sort(list)
      return list
    end
    local x, scalar = 64 * 256 * 4, 4 -- y is as large as x; the loss is not marked
    assert.same({ "host_in " .. x }, moved(1))
    assert.same({ "host_in " .. x, "host_out " .. scalar }, moved(2))
    assert.same({ "host_in " .. x, "host_out " .. scalar, "host_out " .. x }, moved(3))
    assert.same({ "host_out " .. scalar, "host_out " .. x }, moved(4))
    assert.same({ "host_out " .. x }, moved(5))
    assert.is_false(r.sequence[1].once)
    assert.same({ 0, 1, 3 }, { r.schedule[2].first, r.schedule[3].first, r.schedule[4].first })
  end)

  it("shows one of each in a call, along device iterations", function()
    local r = train(ITERATIONS, ITERATIONS)
    local got = rows(r)
    assert.same({ "fill", "phase", "update", "flush" }, { got[1][1], got[2][1], got[3][1],
      got[4][1] })
    assert.same({ true, false, false, true }, { r.sequence[1].once, r.sequence[2].once,
      r.sequence[3].once, r.sequence[4].once })
    local total = 0
    for i, row in ipairs(r.schedule) do
      total = total + row.cycles * row.count * (r.sequence[i].once and 1 or 2)
    end
    assert.equal(total, r.cycles)
  end)

  it("takes the less the further I/O tiles run ahead", function()
    local along, far = train(ACCUMULATION, ACCUMULATION), train(ITERATIONS, ITERATIONS)
    assert.is_true(far.cycles < along.cycles and along.cycles < plain.cycles)
  end)

  it("gives a replay the bits of micro-batch order", function()
    local step
    local core_step = helper.step(function(inputs, place)
      place(0)
      local x = marks.set_overlap_for_input(inputs[1], ACCUMULATION)
      return helper.loss(torch.matmul(x, inputs[2]))
    end, { train = true, accumulation = 3, declare = function(declare)
      return { declare("input", "x", nil, { 2, 3 }), declare("parameter", "w", torch.ones(3, 3)) }
    end })
    step = core.plan(core_step, { io_tiles = 32, strategy = "sharded" })
    local x, at = torch.randn(6, 3), nil
    for i, v in ipairs(core_step:vars()) do
      at = v.role == "input" and i or at
    end
    local a, va = step:replay({ [at] = x }, { order = "schedule" })
    local b, vb = step:replay({ [at] = x }, { order = "micro_batches" })
    for i, t in pairs(a) do
      assert.same(b[i]:tolist(), t:tolist())
    end
    for i, t in pairs(va) do
      assert.same(vb[i]:tolist(), t:tolist())
    end
  end)
end)

describe("what computing hides", function()
  it("is no more than it takes", function()
    local r = simulate(ITERATIONS, ITERATIONS, { device_iterations = 4, products = 1 })
    local fill, turn = r.schedule[1], r.schedule[2]
    local work = 0
    for _, entry in ipairs(turn.entries) do
      work = work + (entry.kind == "compute" and entry.cycles or 0)
    end
    assert.is_true(work > 0 and work < 2 * fill.host)
    assert.equal(2 * fill.host - work, turn.host)
  end)

  it("leaves outputs that a call returns at its end", function()
    local a = simulate(nil, ITERATIONS, { device_iterations = 4, output_slices = 1 })
    local b = simulate(nil, nil, { device_iterations = 4, output_slices = 1 })
    assert.same(rows(b), rows(a))
  end)

  it("goes by phases alike", function()
    local r = simulate(ITERATIONS, nil, { device_iterations = 4, strategy = "serial_phased" })
    assert.equal("fill", r.schedule[1].kind)
    assert.is_true(r.cycles
      < simulate(nil, nil, { device_iterations = 4, strategy = "serial_phased" }).cycles)
  end)
end)

describe("rows that replicas share", function()
  it("come from the host once", function()
    local function input(replicas, groups)
      local r = simulate(nil, nil, { replicas = replicas, input_groups = groups })
      return transfer(r, "host_in")
    end
    assert.equal(input(1), input(4, 1))
    assert.equal(input(2), input(4, 2))
    assert.equal(input(4), input(4, 4))
    assert.is_true(input(4, 1) < input(4))
  end)
end)

describe("a row with input and output of the host", function()
  -- One IPU, nothing overlaps: entries follow each other, and pva's steps.
  for _, o in ipairs({ { train = true, accumulation = 4 }, { device_iterations = 4 } }) do
    it(o.train and "waits once for it in training" or "waits once for it in inference", function()
      local r = simulate(nil, nil, o)
      local cycles, moved = 0, 0
      for _, row in ipairs(r.schedule) do
        local at, host = 0, 0
        for _, entry in ipairs(row.entries) do
          local moves = entry.kind == "host_in" or entry.kind == "host_out"
          host = host + (moves and entry.cycles or 0)
          if row.kind ~= "update" then
            assert.equal(at, entry.kind == "host_out" and entry.start or at)
            at = at + entry.cycles
          end
        end
        if row.kind ~= "update" then
          assert.equal(row.cycles, at)
        end
        assert.is_true(host == 0 or host > row.host)
        moved, cycles = moved + host * row.count, cycles + row.cycles * row.count
      end
      assert.equal(r.cycles, cycles)
      local steps = 0
      for _, step in ipairs(pva.of(r).execution.steps) do
        steps = steps + (step.program.type == "StreamCopy" and step.cycles * step.count or 0)
      end
      assert.equal(moved, steps)
    end)
  end
end)
