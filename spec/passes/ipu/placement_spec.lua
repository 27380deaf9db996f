-- One traced model cut in several ways, against the same model traced with
-- these blocks.
local compiled = require("spec.support.compiled")
local helper = require("spec.passes.ipu.helper")
local raises = require("spec.helper").raises
local report = require("lupine.report")
local torch = require("torch")

local N = 4
local CUTS = {
  halves = { 0, 0, 1, 1 },
  each = { 0, 1, 2, 3 },
  ends = { 0, 1, 1, 2 },
  alone = { 0, 0, 0, 0 },
}
local STRATEGIES = { "pipelined", "sharded", "serial_phased", "parallel_phased" }

local function weight(i)
  return torch.sin(torch.arange(64) * 0.37 + i):reshape(8, 8) * 0.3
end

-- Layer i in stage, IPU and phase cut[i], all of them in the names' scope.
local function model(cut)
  return helper.step(function(inputs, place)
    local h = inputs[1]
    for i = 1, N do
      place(cut[i], cut[i], "layer" .. i, cut[i])
      h = torch.nn.functional.dropout(torch.tanh(torch.matmul(h, inputs[i + 1])), 0.25, true)
    end
    return helper.loss(h)
  end, { train = true, accumulation = 7, declare = function(declare)
    local inputs = { declare("input", "x", nil, { 2, 8 }) }
    for i = 1, N do
      inputs[i + 1] = declare("parameter", "w" .. i, weight(i))
    end
    return inputs
  end })
end

local function by_place(step, cut)
  local list = {}
  for i, place in ipairs(step:places()) do
    local at = cut[tonumber(place.scope:match("%d+"))]
    list[i] = { ipu = at, stage = at, phase = at }
  end
  return { places = list }
end

-- Blocks keep their traced names.
local function stages(r)
  for _, s in ipairs(r.stages) do
    s.block = nil
  end
  return r.stages
end

local function replayed(step, strategy, placement)
  local x = torch.cos(torch.arange(112) * 0.91):reshape(14, 8)
  local at = compiled.vars(step)
  local out, vars = report.replay(step, { strategy = strategy }, { [at["input x"]] = x },
    { seed = 7, placement = placement })
  return { out[at["output output_1"]]:tolist(), vars[at["parameter w1"]]:tolist(),
    vars[at["parameter w4"]]:tolist() }
end

describe("a placement beside the step", function()
  local traced = model(CUTS.alone)

  for name, cut in pairs(CUTS) do
    for _, strategy in ipairs(STRATEGIES) do
      it(("is what blocks would have been: %s, %s"):format(name, strategy), function()
        local blocks, placement = model(cut), by_place(traced, cut)
        local want = helper.simulate(blocks, { strategy = strategy })
        local got = helper.simulate(traced, { strategy = strategy }, placement)
        assert.same(stages(want), stages(got))
        assert.equal(want.cycles, got.cycles)
        assert.same(want.schedule, got.schedule)
        assert.same(want.streams, got.streams)
        for ipu, m in pairs(want.memory) do
          assert.equal(m.max_tile, got.memory[ipu].max_tile)
        end
        assert.same(replayed(blocks, strategy), replayed(traced, strategy, placement))
      end)
    end
  end

  it("changes no value and nothing of the step", function()
    local before, want = traced:text("step"), replayed(traced, "sharded")
    for _, cut in pairs(CUTS) do
      assert.same(want, replayed(traced, "sharded", by_place(traced, cut)))
    end
    assert.equal(before, traced:text("step"))
    assert.equal(1, #helper.simulate(traced).stages)
  end)

  it("is a list by operator as well, and what it leaves out stays", function()
    local _, nodes = traced:text("step"):gsub("\n *%%[^\n]* = ", "")
    local list = {}
    local ok, e = pcall(helper.simulate, traced, {}, { nodes = list })
    assert.is_false(ok)
    local n = tonumber(e.message:match("has (%d+) nodes, got 0 entries"))
    assert.is_true(n > 4 * N and n <= nodes)
    for i = 1, n do
      list[i] = { ipu = 3 }
    end
    local r = helper.simulate(traced, {}, { nodes = list })
    assert.same({ 3, 0 }, { r.stages[1].ipu, r.stages[1].id })
  end)

  it("is refused when it is no list of the step's", function()
    raises("ValueError", "expected {nodes = list} or {places = list}", function()
      helper.simulate(traced, {}, {})
    end)
    raises("ValueError", "the step has %d+ places, got 1 entries", function()
      helper.simulate(traced, {}, { places = { {} } })
    end)
    local wrong = by_place(traced, CUTS.each)
    wrong.places[2] = 7
    raises("ValueError", "entry 2 is no table", function()
      helper.simulate(traced, {}, wrong)
    end)
    wrong.places[2] = { ipu = 1024 }
    raises("Error", "is on IPU 1024: a replica has IPUs 0..1023", function()
      helper.simulate(traced, {}, wrong)
    end)
  end)
end)
