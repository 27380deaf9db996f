--- pva: a report with libpva's fields says what the report says.
local files = require("spec.support.files")
local helper = require("spec.passes.ipu.helper")
local pva = require("pva")

local function simulated(o)
  return helper.simulate(helper.chain(3, o))
end

describe("pva", function()
  local report = simulated({ train = true, accumulation = 8, device_iterations = 2 })
  local profile = pva.of(report)

  it("has a step for each program that runs, whose cycles are the schedule's", function()
    local by_ipu, acts = {}, {}
    for _, step in ipairs(profile.execution.steps) do
      local here = step.ipus[step.ipu + 1]
      assert.equal(step.cycles, here.cycles)
      assert.equal(here.cyclesTo, here.cyclesFrom + here.cycles)
      local tiles = here.activeCycles
      assert.same({ here.cyclesFrom, here.cyclesTo }, { tiles.cyclesFrom.max, tiles.cyclesTo.min })
      by_ipu[step.ipu] = (by_ipu[step.ipu] or 0) + step.cycles * step.count
      for i, other in ipairs(step.ipus) do
        assert.is_true(i == step.ipu + 1 or other.cycles == 0)
      end
    end
    for _, loop in ipairs(report.sequence) do
      for r = loop.first_row, loop.first_row + loop.rows - 1 do
        for _, entry in ipairs(report.schedule[r].entries) do
          acts[entry.ipu] = (acts[entry.ipu] or 0) + entry.cycles * loop.count
            * (loop.once and 1 or report.loops)
        end
      end
    end
    for ipu = 0, report.ipus - 1 do
      -- what an operator waits for the one before it belongs to no operator
      assert.is_true(by_ipu[ipu] <= acts[ipu] and by_ipu[ipu] > 0.9 * acts[ipu],
        ("IPU %d: %d of %d"):format(ipu, by_ipu[ipu], acts[ipu]))
    end
    assert.equal(report.cycles, profile.execution.totalCycles)
    assert.equal(profile.execution.steps, profile.execution.runs[1].steps)
  end)

  it("has the tree of programs, which visitors walk", function()
    local counts, order = {}, {}
    local visitor = pva.ProgramVisitor:extend("Visitor")()
    for kind in pairs(pva.ProgramType) do
      visitor["visit" .. kind] = function(_, program)
        assert.equal(kind, program.type)
        counts[kind] = (counts[kind] or 0) + 1
        order[#order + 1] = program.id
      end
    end
    profile.compilation.program:accept(visitor)
    assert.equal(#profile.compilation.programs, #order)
    for i, id in ipairs(order) do
      assert.equal(i - 1, id)
    end
    assert.equal(2, counts.Repeat) -- of two weight updates, of the steady row
    assert.is_true(counts.OnTileExecute > 10 and counts.GlobalExchange > 2
      and counts.StreamCopy > 2)
  end)

  it("has memory of every tile, in all that of its IPU", function()
    local c = profile.compilation
    assert.equal(3 * 1472, #c.tiles)
    assert.equal(3 * 1472, c.target.numTiles)
    local fullest = {}
    for _, tile in ipairs(c.tiles) do
      local total = tile.memory.total
      assert.is_true(total.excludingGaps <= total.includingGaps)
      assert.equal(total.excludingGaps,
        tile.memory.alwaysLiveBytes + tile.memory.notAlwaysLiveBytes)
      fullest[tile.ipu] = math.max(fullest[tile.ipu] or 0, total.includingGaps)
    end
    for ipu, m in pairs(report.memory) do
      assert.equal(m.max_tile_including_gaps, fullest[ipu])
    end
    local most = 0
    for _, step in ipairs(c.livenessProgramSteps) do
      assert.equal(report.memory[step.ipu].always_live, step.alwaysLive.bytes)
      most = math.max(most, step.ipu == 0 and step.notAlwaysLive.bytes or 0)
    end
    assert.equal(report.memory[0].not_always_live, most)
    assert.equal(c.graph.numVars, #c.loweredVariables)
  end)

  it("has vertices of compute sets and of all, which add up", function()
    local c = profile.compilation
    local sets, cycles = 0, 0
    for _, set in ipairs(c.computeSets) do
      sets = sets + set.count
      assert.is_true(set.count > 0 and #set.vertices > 0)
      for i, vertex in ipairs(set.vertices) do
        assert.is_true(vertex.count > 0 and vertex.cycles > 0)
        assert.is_true(i == 1 or set.vertices[i - 1].cycles >= vertex.cycles)
      end
    end
    assert.is_true(c.graph.numComputeSets <= sets) -- equal work is there once
    assert.equal(report.compute_sets, c.graph.numComputeSets)
    local names, count, edges = {}, 0, 0
    for _, v in ipairs(c.vertexTypes) do
      names[v.name] = (names[v.name] or 0) + 1
      count, edges = count + v.count, edges + v.edges
    end
    assert.equal(c.graph.numVertices, count)
    assert.equal(c.graph.numEdges, edges)
    for _, n in pairs(names) do
      assert.equal(1, n)
    end
    for _, step in ipairs(profile.execution.steps) do
      if step.program.type == "OnTileExecute" then
        for _, vertex in ipairs(step.program.computeset.vertices) do
          cycles = cycles + vertex.cycles * step.count
          assert.equal(1, names[vertex.type.name])
        end
      end
    end
    local all = 0
    for _, v in ipairs(c.vertexTypes) do
      all = all + v.cycles
    end
    assert.equal(all, cycles)
  end)

  it("says that no Poplar has written it", function()
    assert.matches("^lupine .*simulated", profile.poplarVersion.string)
  end)

  it("is read from files and folders, and names fields that it has not", function()
    local above = files.folder()
    local folder = above .. "/training"
    assert(os.execute("mkdir " .. folder))
    report:save(folder .. "/profile.json")
    for _, path in ipairs({ folder, folder .. "/profile.json" }) do
      local again = pva.openReport(path)
      assert.equal(#profile.execution.steps, #again.execution.steps)
      assert.equal(tostring(profile.compilation.programs[5]),
        tostring(again.compilation.programs[5]))
    end
    -- as Poplar names it, and a folder above it
    for _, path in ipairs({ folder .. "/profile.pop", above }) do
      local missing, what = pcall(pva.openReport, path)
      assert.is_false(missing)
      assert.matches(folder .. "/profile.json'", what.message, 1, true)
    end
    files.remove(above)
    local ok, e = pcall(function()
      return profile.compilation.vertices
    end)
    assert.is_false(ok)
    assert.matches("'compilation' has no attribute 'vertices'", e.message)
    ok, e = pcall(pva.openReport, folder .. "/missing.json")
    assert.is_false(ok)
    assert.equal("FileNotFoundError", e.__name)
    ok, e = pcall(pva.of, 3)
    assert.is_false(ok)
    assert.equal("TypeError", e.__name)
  end)
end)
