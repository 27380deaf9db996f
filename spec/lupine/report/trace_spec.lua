-- The trace of a schedule: what stands where, for every strategy.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.passes.ipu.helper")
local raises = require("spec.helper").raises
local report = require("lupine.report")

local path

before_each(function()
  path = files.unused()
end)
after_each(function()
  files.remove(path)
end)

-- Slices of a trace by the name of their track, in order; the end of the last one.
local function tracks_of(r)
  r:trace(path)
  local data = core.json_decode(files.read(path), path)
  local names, tracks, last = {}, {}, 0
  for _, e in ipairs(data.traceEvents) do
    if e.name == "thread_name" then
      names[e.tid] = e.args.name
      tracks[e.args.name] = {}
    elseif e.ph == "X" then
      table.insert(tracks[names[e.tid]], e)
      last = math.max(last, e.ts + e.dur)
    end
  end
  return tracks, last
end

local STRATEGIES = {
  { "pipelined", {} },
  { "sharded", { strategy = "sharded" } },
  { "serial_phased", { strategy = "serial_phased", liveness = 2 } },
  { "serial_phased", { strategy = "serial_phased", batch_serialization = 4 }, ", in fours" },
  { "parallel_phased", { strategy = "parallel_phased", liveness = 1 } },
}

local function simulated(strategy, options, o)
  local phased = strategy:find("phased") ~= nil
  o = o or {}
  o.train, o.accumulation, o.replicas = true, o.accumulation or 8, 2
  o.phases = phased
  o.ipus = strategy == "serial_phased" and { 0, 0, 0, 0 }
    or phased and { 0, 1, 0, 1 } or nil
  return helper.simulate(helper.chain(4, o), options)
end

describe("the trace of a schedule", function()
  for _, case in ipairs(STRATEGIES) do
    local strategy, options = case[1], case[2]

    it("has no two things at once on an IPU or a link: " .. strategy .. (case[3] or ""), function()
      local tracks, last = tracks_of(simulated(strategy, options))
      for name, slices in pairs(tracks) do
        table.sort(slices, function(a, b)
          return a.ts < b.ts
        end)
        for i = 2, #slices do
          local before = slices[i - 1].ts + slices[i - 1].dur
          assert.is_true(slices[i].ts >= before - 1e-6, ("%s: %s at %g, %s until %g"):format(name,
            slices[i].name, slices[i].ts, slices[i - 1].name, before))
        end
      end
      local r = simulated(strategy, options)
      assert.is_near(r.cycles / r.clock_hz * 1e6, last, 1e-3)
    end)

    it("has each micro-batch forward and backward in each stage: " .. strategy .. (case[3] or ""),
      function()
      local tracks = tracks_of(simulated(strategy, options))
      local seen, n = {}, 0
      for name, slices in pairs(tracks) do
        for _, e in ipairs(name:find("^IPU %d$") and slices or {}) do
          local a = e.args
          if a.stage then
            local key = ("%d %s %d"):format(a.stage, a.backward, a.micro_batch)
            assert.is_nil(seen[key], key)
            seen[key], n = e, n + 1
            assert.equal(a.stage, tonumber(e.name:match("stage (%d)")))
          end
        end
      end
      assert.equal(4 * 2 * 8, n)
      for batch = 0, 7 do
        for stage = 1, 3 do
          local function at(k, backward)
            return seen[("%d %s %d"):format(k, backward, batch)]
          end
          local a, b = at(stage - 1, false), at(stage, false)
          assert.is_true(a.ts + a.dur <= b.ts + 1e-6)
          a, b = at(stage, true), at(stage - 1, true)
          assert.is_true(a.ts + a.dur <= b.ts + 1e-6)
        end
      end
    end)
  end

  it("has acts within their row, copies after what they send", function()
    for _, case in ipairs(STRATEGIES) do
      local r = simulated(case[1], case[2])
      for i, row in ipairs(r.schedule) do
        local computed = 0
        for _, e in ipairs(row.entries) do
          assert.is_true(e.start >= 0 and e.start + e.cycles <= row.cycles,
            ("%s, row %d: %s"):format(case[1], i, e.kind))
          computed = e.kind == "compute" and math.max(computed, e.start + e.cycles) or computed
        end
        for _, e in ipairs(row.entries) do
          assert.is_true(e.kind ~= "copy" or e.start >= computed)
        end
      end
    end
  end)

  it("leaves turns of long loops out and says how many; the time stays", function()
    local r = simulated("pipelined", {}, { accumulation = 100000 })
    local tracks, last = tracks_of(r)
    local left
    for _, e in ipairs(tracks.rows) do
      left = left or tonumber(e.name:match("^(%d+) more turns like these$"))
    end
    assert.is_true(left > 50000)
    assert.is_true(#files.read(path) < 5e7)
    assert.is_near(r.cycles / r.clock_hz * 1e6, last, 1e-3 * last)
  end)

  it("has tracks for links: the host, copies, replicas, streaming memory", function()
    local tracks = tracks_of(simulated("pipelined", { optimizer = { on_chip = false,
      min_off_chip = 0 }, weight = { on_chip = false, min_off_chip = 0 } }))
    for _, name in ipairs({ "host to IPU 0", "IPU 0 to IPU 1", "IPU 1 to IPU 0",
      "IPU 3 and its replicas", "streaming memory to IPU 2" }) do
      assert.is_table(tracks[name], name)
    end
  end)
end)

describe("a report in a file", function()
  it("is read again with the same figures, operators, text and trace", function()
    local r = simulated("pipelined", {})
    r:save(path)
    local again = report.read(path)
    assert.same(r:stored().figures, again:stored().figures)
    assert.same(r:nodes(), again:nodes())
    assert.same(r:gains(), again:gains())
    assert.equal(r:summary(), again:summary())
    assert.equal(r:json(), again:json())
    assert.equal(tostring(r), tostring(again))
    assert.equal(require("lupine.report.trace").text(r),
      require("lupine.report.trace").text(again))
  end)

  it("that is none is refused", function()
    for text, message in pairs({ ["{"] = "line 1", ["[1]"] = "expected an object with 'report'",
      ['{"report":{}}'] = "expected an object with 'plan'",
      ['{"report":{},"plan":{}}'] = "is no report: ",
      ['{"report":{"clock_hz":"x"},"plan":{"nodes":[]}}'] = "clock_hz: expected number" }) do
      files.write(path, text)
      raises("ValueError", message, function()
        report.read(path)
      end)
    end
    files.remove(path)
    raises("FileNotFoundError", path, function()
      report.read(path)
    end)
    raises("TypeError", "path", function()
      report.read(3)
    end)
  end)

  it("that refers to what is not there is refused", function()
    local text = simulated("pipelined", {}):json()
    local compute = function(data)
      for _, row in ipairs(data.report.schedule) do
        for _, entry in ipairs(row.entries) do
          if entry.kind == "compute" then
            return entry
          end
        end
      end
    end
    local loops = "a loop has rows that are not there"
    for _, damage in ipairs({
      { loops, function(data) data.report.sequence[1].first_row = 0 end },
      { loops, function(data) data.report.sequence[1].rows = -1 end },
      { loops, function(data) data.report.sequence[1].rows = 1 + data.report.schedule.n end },
      { loops, function(data) data.report.sequence[1].first_row = math.maxinteger end },
      { "an entry's stage is none", function(data) compute(data).stage = 99 end },
      { "an entry has no offset", function(data) compute(data).offset = nil end },
      { "an entry has no bytes", function(data) compute(data).kind = "load" end },
      { "an entry has no kind", function(data) compute(data).kind = "rest" end },
    }) do
      local data = core.json_decode(text, "report")
      damage[2](data)
      files.write(path, core.json_encode(data))
      raises("ValueError", "is no report: " .. damage[1], function()
        report.read(path)
      end)
    end
  end)

  it("is damaged by any change that makes a table of a number", function()
    local r = simulated("sharded", { strategy = "sharded" })
    local text = r:json()
    local data = core.json_decode(text, "report")
    for name, value in pairs(data.report) do
      if type(value) == "number" then
        data.report[name] = {}
        files.write(path, core.json_encode(data))
        raises("ValueError", name, function()
          report.read(path)
        end)
        data.report[name] = value
      end
    end
  end)
end)
