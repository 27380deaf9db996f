--- A report with the fields of libpva, Graphcore's library that reads Poplar's profiles: for
--- scripts that walk the compilation and the execution of a program.
---
---     local report = require("pva").openReport("profile.json")
---     for _, step in ipairs(report.execution.steps) do
---       print(step.program.type, step.program.name, step.ipus[1].cycles)
---     end
---
--- Lists count from 1. Figures are those of lupine.report; those that the simulated system
--- has not (instrumentation) are not there, and reading one raises. A compute set's vertices
--- are those of its operator, which has `count` sets. A tile's figures are those of the fullest
--- of its class of neighbouring tiles. Steps are those of one turn of each row of the
--- schedule, and `count` says how many turns there are.
---
--- Source: PopVision analysis library (libpva), API reference.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local memory = require("lupine.report.memory")
local namespace = require("lupine.base.namespace")
local reading = require("lupine.report")
local runs = require("lupine.report.runs")
local signatures = require("lupine.base.signatures")

local M = {}

-- An object whose other fields raise.
local function record(title, fields)
  return namespace.close(fields, title)
end

-- ---- programs -----------------------------------------------------------------------

--- Program.Type of libpva.
M.ProgramType = record("ProgramType", { Sequence = "Sequence", Repeat = "Repeat",
  OnTileExecute = "OnTileExecute", DoExchange = "DoExchange", GlobalExchange = "GlobalExchange",
  StreamCopy = "StreamCopy", RemoteCopy = "RemoteCopy", Sync = "Sync" })

---@class pva.Program
---@field id integer from 0, in the order of the tree
---@field type string of pva.ProgramType
---@field name string
---@field children pva.Program[]
---@field count integer? turns of a Repeat
---@field bytes integer? that an exchange or copy moves
---@field computeset pva.ComputeSet? of an OnTileExecute
local Program = class.new("pva.Program")

--- Calls visitor:visit<Type>(program), where there is one, for this program and all below it,
--- in order.
---@param visitor table
function Program:accept(visitor)
  local visit = visitor["visit" .. self.type]
  if visit then
    visit(visitor, self)
  end
  for _, child in ipairs(self.children) do
    child:accept(visitor)
  end
end

--- What accept calls, with nothing to do: extend it, and define visitOnTileExecute or another.
---@class pva.ProgramVisitor
local ProgramVisitor = class.new("ProgramVisitor")
M.ProgramVisitor = ProgramVisitor

signatures.note(ProgramVisitor, "ProgramVisitor()", 1)

function Program:__tostring()
  return ("%s(%s)"):format(self.type, self.name)
end

local Builder = class.new("pva.Builder")

function Builder:init(report)
  self.report, self.programs, self.steps, self.sets = report, {}, {}, {}
  self.operators = runs.operators(report)
end

function Builder:program(parent, kind, name, fields)
  local p = Program()
  p.id, p.type, p.name, p.children = #self.programs, kind, name, {}
  for key, value in pairs(fields or {}) do
    p[key] = value
  end
  self.programs[#self.programs + 1] = p
  if parent then
    parent.children[#parent.children + 1] = p
  end
  return p
end

-- Of all tiles, which are in step.
local function of_tiles(cycles)
  return { min = cycles, max = cycles }
end

-- One execution of a program on an IPU.
function Builder:step(program, ipu, from, cycles, count)
  local ipus = {}
  for i = 0, self.report.ipus - 1 do
    local here = i == ipu
    ipus[i + 1] = { cycles = here and cycles or 0, cyclesFrom = here and from or nil,
      cyclesTo = here and from + cycles or nil, active = here,
      activeCycles = here and { cyclesFrom = of_tiles(from), cyclesTo = of_tiles(from + cycles) }
        or nil }
  end
  self.steps[#self.steps + 1] = record("step", { program = program, ipu = ipu, ipus = ipus,
    cycles = cycles, count = count })
end

local function title(node)
  return runs.title(node.scope, node.operator)
end

-- Vertices of an operator's compute sets, most cycles first.
local function vertices_of(node)
  local out = {}
  for name, count in pairs(node.vertices) do
    out[#out + 1] = record("vertex", { type = record("vertexType", { name = name }),
      count = count, cycles = node.vertex_cycles[name] })
  end
  table.sort(out, function(a, b)
    return a.cycles > b.cycles or a.cycles == b.cycles and a.type.name < b.type.name
  end)
  return out
end

-- What an operator does: exchange, then tiles execute, with a step each.
function Builder:operator(parent, node, ipu, at, count)
  local name = title(node)
  local debug = { file = node.file, line = node.line, operator = node.operator }
  if node.exchange > 0 then
    local p = self:program(parent, "DoExchange", name, { debug = debug })
    self:step(p, ipu, at, node.exchange, count)
  end
  if node.sync > 0 then
    self:step(self:program(parent, "Sync", name, { debug = debug }), ipu, at + node.exchange,
      node.sync, count)
  end
  if node.compute > 0 then
    local set = self.sets[node]
    if not set then
      set = record("computeSet", { name = name, ipu = ipu, flops = node.flops,
        cycles = node.compute, count = node.compute_sets, debug = debug,
        vertices = vertices_of(node) })
      self.sets[node], self.sets[#self.sets + 1] = set, set
    end
    local p = self:program(parent, "OnTileExecute", name, { debug = debug, computeset = set })
    self:step(p, ipu, at + node.exchange + node.sync, node.compute, count)
  end
  return at + node.cycles
end

function Builder:entry(parent, entry, row_at, count)
  local at = row_at + entry.start
  local kind, what = runs.move(entry)
  if kind then
    local p = self:program(parent, kind, what, { bytes = entry.bytes })
    return self:step(p, entry.ipu, at, entry.cycles, count)
  end
  local run = self:program(parent, "Sequence", runs.name(entry))
  for _, node in ipairs(self.operators(entry)) do
    at = self:operator(run, node, entry.ipu, at, count)
  end
end

-- The tree, and the steps in order.
function Builder:build()
  local report, at, update = self.report, 0, nil
  local root = self:program(nil, "Sequence", "run")
  for _, loop in ipairs(report.sequence) do
    if not update and not loop.once then -- behind what is before all updates
      update = report.loops > 1 and self:program(root, "Repeat", "weight updates",
        { count = report.loops }) or root
    end
    local parent = loop.once and root or update
    if loop.count > 1 then
      parent = self:program(parent, "Repeat", "micro-batches", { count = loop.count })
    end
    local times = loop.count * (loop.once and 1 or report.loops)
    for r = loop.first_row, loop.first_row + loop.rows - 1 do
      local row = report.schedule[r]
      local sequence = self:program(parent, "Sequence", row.kind)
      for _, entry in ipairs(row.entries) do
        self:entry(sequence, entry, at, times)
      end
      at = at + row.cycles
    end
  end
  return root
end

-- ---- memory -----------------------------------------------------------------------

local function tiles_of(report)
  local out = {}
  for ipu, m in memory.each(report) do
    local classes = {}
    for k, with_gaps in ipairs(m.tiles) do
      local categories, all, always = memory.of_tile(m, k)
      classes[k] = record("memory", { total = record("total", { includingGaps = with_gaps,
        excludingGaps = all }), alwaysLiveBytes = always, notAlwaysLiveBytes = all - always,
        category = categories })
    end
    for tile = 0, report.tiles - 1 do
      out[#out + 1] = record("tile", { ipu = ipu, tile = tile,
        memory = classes[tile * #classes // report.tiles + 1] })
    end
  end
  return out
end

-- What is live at each step of a period, and the tensors.
local function liveness_of(report)
  local steps, variables = {}, {}
  local nodes = { [true] = {}, [false] = {} } -- of the update; of a micro-batch
  for _, node in ipairs(report:nodes()) do
    nodes[node.update][node.node] = node
  end
  local by_ipu = report:liveness().ipus or {}
  for ipu, m in memory.each(report) do
    local live = by_ipu[ipu] or { spans = {}, bytes = {} }
    for _, span in ipairs(live.spans) do
      variables[#variables + 1] = record("variable", { name = runs.title(span.scope, span.name),
        ipu = ipu, bytes = span.bytes, from = span.from, to = span.to })
    end
    for i, bytes in ipairs(live.bytes) do
      local node = nodes[live.stage[i] < 0][live.node[i]]
      steps[#steps + 1] = { ipu = ipu, program = record("program", { name = node and title(node)
        or "end of a run", type = "OnTileExecute" }),
        alwaysLive = { bytes = m.always_live },
        notAlwaysLive = { bytes = bytes + live.temporary[i] }, temporary = live.temporary[i] }
    end
  end
  return steps, variables
end

-- All vertices by their type.
local function vertex_types_of(report)
  local out = {}
  for i, v in ipairs(report.vertex_types) do
    out[i] = record("vertexType", { name = v.name, count = v.vertices, edges = v.edges,
      memory = v.bytes, cycles = v.cycles })
  end
  return out
end

-- ---- the report -------------------------------------------------------------------

--- What libpva's report has, of one of lupine.report.
--- error: TypeError
---@param report lupine.Report
---@return table
function M.of(report)
  errors.check(reading.Report:is(report), "TypeError", "pva.of: report: expected a report, got %s",
    check.describe(report))
  local b = Builder(report)
  local root = b:build()
  local steps, variables = liveness_of(report)
  local chip = core.chip(report.chip)
  local target = record("target", { architecture = report.chip, numIPUs = report.ipus,
    numReplicas = report.replicas, tilesPerIpu = report.tiles,
    numTiles = report.tiles * report.ipus, numWorkerContexts = chip and chip.workers,
    bytesPerTile = memory.tile_bytes(report),
    clockFrequency = report.clock_hz })
  return record("report", { report = report,
    poplarVersion = record("poplarVersion",
      { string = ("lupine %s, simulated"):format(core.version) }),
    compilation = record("compilation", { target = target, tiles = tiles_of(report),
      graph = record("graph", { numComputeSets = report.compute_sets, numVars = #variables,
        numVertices = report.vertices, numEdges = report.edges }),
      vertexTypes = vertex_types_of(report),
      computeSets = table.move(b.sets, 1, #b.sets, 1, {}), programs = b.programs, program = root,
      livenessProgramSteps = steps, loweredVariables = variables }),
    execution = record("execution", { steps = b.steps, totalCycles = report.cycles,
      seconds = report.seconds, runs = { record("run", { name = "run", steps = b.steps }) } }) })
end

--- The report of a file: what report:save wrote, the profile.json of autoReport.all or the
--- folder that has it.
--- error: TypeError; FileNotFoundError, ValueError for a file that is none
---@param profile string
---@return table
function M.openReport(profile)
  return M.of(reading.read(require("lupine.report.file").find(check.string(profile,
    "openReport: profile"))))
end

return namespace.close(M, "pva")
