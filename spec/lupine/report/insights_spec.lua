-- What reports say in words: each finding where it is true, with figures that follow from
-- the report's own, and not where it is not.
local helper = require("spec.passes.ipu.helper")
local insights = require("lupine.report.insights")
local memory = require("lupine.report.memory")
local report = require("lupine.report")
local torch = require("torch")

local function found(r, title)
  for _, i in ipairs(insights.of(r)) do
    if i.title:find(title) then
      return i
    end
  end
  return nil
end

local function pipelined(n, o, options)
  o.train, o.accumulation = true, o.accumulation or 2 * n
  return helper.simulate(helper.chain(n, o), options)
end

-- Cycles of a call in a field of the rows.
local function of_call(r, field)
  local sum = 0
  for k, row in ipairs(r.schedule) do
    for _, loop in ipairs(r.sequence) do
      local within = k >= loop.first_row and k < loop.first_row + loop.rows
      sum = sum + (within and row[field] * loop.count or 0)
    end
  end
  return sum
end

describe("insights", function()
  it("say that a program fits, and how full the fullest tile is", function()
    local r = pipelined(2, {})
    local i = found(r, "^The program fits$")
    local m = r.memory[0].max_tile_including_gaps > r.memory[1].max_tile_including_gaps
      and r.memory[0] or r.memory[1]
    assert.equal("good", i.kind)
    local share = 100 * m.max_tile_including_gaps / m.tile_bytes
    assert.matches(("%.1f %%%% full"):format(share), i.text)
    assert.is_nil(found(r, "out of memory"))
  end)

  it("say by how many bytes a tile is too full, and what takes them", function()
    local r = helper.simulate(helper.chain(1, { width = 12288, batch = 16, train = true,
      accumulation = 2, dtype = torch.float32 }), { allow_out_of_memory = true })
    local m = r.memory[0]
    local i = found(r, "^IPU 0 is out of memory")
    assert.equal("bad", i.kind)
    assert.same(i, insights.of(r)[1])
    local helps = found(r, "^What would help it fit")
    assert.matches("^%u[%a ]+: %d+ bytes less on the fullest tile", helps.text)
    assert.matches(r:remedies()[1].text:sub(2), helps.text, 1, true)
    assert.same({}, pipelined(2, {}):remedies())
    local over = m.max_tile_including_gaps - m.tile_bytes
    assert.equal(over, tonumber(i.title:match("by (%d+) bytes")))
    assert.matches(m.biggest[1].name, i.text, 1, true)
    assert.is_nil(found(r, "The program fits"))
  end)

  it("say what else there is too little of: for code, of I/O tiles, in machines", function()
    local function short(step, options, title, figure)
      options.allow_out_of_memory = true
      local r = helper.simulate(step, options)
      assert.is_true(memory.most(r) > 1)
      local i = found(r, title)
      assert.equal("bad", i.kind)
      assert.matches(("%d bytes"):format(figure(r)), i.text, 1, true)
      assert.is_nil(found(r, "The program fits"))
    end
    short(helper.step(function(inputs, place)
      place(0)
      local y
      for k = 1, 10 do
        local sum = inputs[1]:narrow(0, 0, 1024 + k):sum(0)
        y = y and y + sum or sum
      end
      return y
    end, { declare = function(declare)
      return { declare("input", "x", nil, { 1100, 4096 }) }
    end }), { chip = "ipu1" }, "^IPU 0 has no room for its code$", function(r)
      return r.memory[0].code
    end)
    local off = { on_chip = false, io_load = true, io_store = true }
    short(helper.chain(2, { ipus = { 0, 0 }, phases = true, width = 4096, batch = 4 }),
      { strategy = "serial_phased", io_tiles = 32, weight = off }, "^IPU 0 has too few I/O tiles$",
      function(r)
        return r.memory[0].io_tile
      end)
    torch.set_default_device("meta")
    local large = helper.step(function(inputs, place)
      place(0)
      return torch.matmul(inputs[1], inputs[2]:narrow(0, 0, 64)):sum()
    end, { declare = function(declare)
      return { declare("input", "x", nil, { 8, 64 }),
        declare("parameter", "w", torch.empty(4000000, 20000)) }
    end })
    torch.set_default_device("cpu")
    short(large, { strategy = "sharded", weight = { on_chip = false } },
      "^There is too little streaming memory$", function(r)
        return r.streaming
      end)
  end)

  it("name the IPU that holds the others up, and what equal stages would save", function()
    local function products(second, others)
      return pipelined(3, { accumulation = 64, width = 512, layer = function(h, w, i)
        for _ = 1, i == 2 and second or others do
          h = torch.relu(torch.matmul(h, w))
        end
        return h
      end }, { recompute = "none" })
    end
    local r = products(6, 1)
    local i = found(r, "^IPU 1 holds the others up")
    assert.equal("warn", i.kind)
    local busy, sum = {}, 0
    for k, s in ipairs(r.stages) do
      busy[k] = s.forward_cycles + s.backward_cycles
      sum = sum + busy[k]
    end
    assert.matches(("save %.1f %%%%"):format(100 * (busy[2] - sum / 3) * 64 / r.cycles), i.saves)
    assert.is_nil(found(helper.simulate(helper.chain(1, {})), "holds the others up"))
    assert.is_nil(found(products(12, 12), "holds the others up"))
  end)

  it("say what filling and emptying a pipeline takes; less with more micro-batches", function()
    local r = pipelined(4, { accumulation = 8 })
    local i = found(r, "fills and empties")
    local edge = 0
    for _, row in ipairs(r.schedule) do
      edge = edge + ((row.kind == "fill" or row.kind == "flush") and row.cycles or 0)
    end
    assert.matches(("%.1f %%%%"):format(100 * edge / r.cycles), i.text)
    local twice = pipelined(4, { accumulation = 16 })
    local saved = 100 * (1 - r.samples_per_second / twice.samples_per_second)
    assert.is_near(saved, tonumber(i.saves:match("(%d+%.%d) %%")), 0.06)
    local told = found(report.Report(r.plan), "fills and empties").saves -- by its own figures
    assert.is_near(saved, tonumber(told:match("^Twice the .- take (%d+%.%d) %%")), 0.1)
    assert.is_nil(found(pipelined(4, { accumulation = 1000 }), "fills and empties"))
  end)

  it("say what is waited for", function()
    local r = pipelined(2, { width = 2048, batch = 16 }, { weight = { on_chip = false,
      min_off_chip = 0 } })
    local i = found(r, "^Streaming memory is waited for")
    local share = of_call(r, "streaming") / r.cycles
    assert.matches(("^%.1f %%%% of a call"):format(100 * share), i.text)
    assert.is_nil(found(pipelined(2, {}), "^Streaming memory"))
  end)

  it("say it of all that takes a tenth of a call, and of nothing that takes less", function()
    local titles = { host = "^The host link is waited for", copy = "^Copies between IPUs take time",
      streaming = "^Streaming memory is", collective = "^Replicas wait for one another",
      sync = "^Tiles wait for one another", exchange = "^Exchange between tiles takes time" }
    local seen = {}
    local function check(r)
      for field, title in pairs(titles) do
        local share = of_call(r, field) / r.cycles
        local i = found(r, title)
        assert.equal(share >= 0.1, i ~= nil, ("%s: %g"):format(field, share))
        if i then
          seen[field] = (seen[field] or 0) + 1
          assert.equal(share > 0.3 and "warn" or "note", i.kind)
          assert.matches(("^%.1f %%%% of a call: "):format(100 * share), i.text)
        end
      end
    end
    check(pipelined(2, {}))
    check(pipelined(2, { width = 512, batch = 64 }))
    check(pipelined(2, { width = 128, batch = 4096 }))
    check(pipelined(2, { width = 1024, batch = 16, replicas = 4 }))
    check(pipelined(2, { width = 512, batch = 512 }, { weight = { on_chip = false,
      min_off_chip = 0 } }))
    for field in pairs(titles) do
      assert.is_number(seen[field], field)
    end
  end)

  it("say what is computed again, and how full a tile is that is nearly full", function()
    local o = { width = 512, batch = 64, accumulation = 8 }
    local r = pipelined(4, o)
    local again, all = 0, 0
    for _, s in ipairs(r.stages) do
      again, all = again + s.recompute_cycles, all + s.forward_cycles + s.backward_cycles
    end
    assert.matches(("^%.1f %%%% of the stages' cycles"):format(100 * again / all),
      found(r, "^Activations are computed again$").text)
    assert.is_nil(found(pipelined(4, o, { recompute = "none" }), "^Activations are"))
    local full = helper.simulate(helper.chain(1, { width = 11776, batch = 16,
      dtype = torch.float32 }))
    local m = full.memory[0]
    local share = m.max_tile_including_gaps / m.tile_bytes
    assert.is_true(share > 0.9 and share < 1, share)
    assert.equal("warn", found(full, ("^IPU 0 is %.1f %%%% full$"):format(100 * share)).kind)
    assert.is_nil(found(r, "^IPU 0 is"))
  end)

  it("say what each change gains, as the program so changed does", function()
    local o = { width = 512, batch = 64, accumulation = 8 }
    local r = pipelined(4, o)
    local function rate(hint)
      for _, gain in ipairs(r:gains()) do
        if gain.hint == hint then
          return gain.samples_per_second, gain
        end
      end
      return nil
    end
    assert.equal(pipelined(4, o, { recompute = "none" }).samples_per_second, rate("recompute_none"))
    local silent = pipelined(4, o, { synthetic_data = true })
    assert.equal(silent.samples_per_second, rate("host"))
    local _, gain = rate("host")
    assert.near(1 - r.samples_per_second / silent.samples_per_second, gain.saves, 1e-12)
    assert.is_true(gain.fits)
    assert.is_nil(rate("on_chip"))
    local off = { weight = { on_chip = false, min_off_chip = 0 } }
    local back = pipelined(2, { width = 2048, batch = 16 })
    r = pipelined(2, { width = 2048, batch = 16 }, off)
    assert.equal(back.samples_per_second, rate("on_chip"))
    for i = 2, #r:gains() do
      assert.is_true(r:gains()[i - 1].saves >= r:gains()[i].saves)
    end
  end)

  it("say where the time goes: parts of a call, and what IPUs wait for", function()
    local r = pipelined(4, { width = 512, batch = 64, accumulation = 8 })
    local text = found(r, "^Where the time goes$").text
    local sum = 0
    for share in text:match("Of a call: (.-)%. The"):gmatch("(%d+%.%d) %%") do
      sum = sum + tonumber(share)
    end
    assert.near(100, sum, 0.5)
    local busy, all, edge = 0, 0, 0
    for k, row in ipairs(r.schedule) do
      local count = 0
      for _, loop in ipairs(r.sequence) do
        count = count + (k >= loop.first_row and k < loop.first_row + loop.rows and loop.count or 0)
      end
      local here = 0
      for _, e in ipairs(row.entries) do
        here = here + ((e.kind == "compute" or e.kind == "update") and e.cycles or 0)
      end
      local room = 4 * (row.compute + row.exchange + row.sync)
      busy, all = busy + here * count, all + room * count
      edge = edge + ((row.kind == "fill" or row.kind == "flush") and (room - here) * count or 0)
    end
    local bubbles, slower = text:match("nothing to do for ([%d.]+) %% .- for ([%d.]+) %%")
    assert.near(100 * edge / (4 * r.cycles), tonumber(bubbles), 0.051)
    assert.near(100 * (all - busy - edge) / (4 * r.cycles), tonumber(slower), 0.051)
  end)

  it("name the operator that takes most", function()
    local r = helper.simulate(helper.chain(1, { width = 2048, batch = 512 }))
    assert.equal("mm", r.operators[1].name)
    local first, all = r.operators[1], 0
    for _, o in ipairs(r.operators) do
      all = all + o.cycles
    end
    local i = found(r, ("^mm takes %.1f %%%% of the operators' cycles$"):format(
      100 * first.cycles / all))
    assert.equal(("1 executions, %.0f operations a cycle."):format(first.flops / first.cycles),
      i.text)
  end)
end)
