--- What the simulated system says of a compiled program.
---
--- Figures are of one call of the program: all device iterations, micro-batches
--- and replicas. Cycles are tile clocks of the simulated chip, bytes those of a
--- whole IPU unless a name says `tile`. Nothing here is measured: it is what
--- the cost model computes (see runtime/cost/cost.h for its sources).
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local file = require("lupine.report.file")
local memory = require("lupine.report.memory")
local summary = require("lupine.report.summary")
local tables = require("lupine.base.tables")

-- Group of fields -> names in order, and their rows by name; made once.
local groups

local function fields_of(group)
  if not groups then
    groups = {}
    for _, row in ipairs(core.report_fields()) do
      local of = groups[row.group] or { names = {}, rows = {} }
      groups[row.group] = of
      of.names[#of.names + 1] = row.name
      of.rows[row.name or ""] = row
    end
  end
  return groups[group].names, groups[group].rows
end

-- Whether a report can have it: not all have phases, and not all a plan.
local function is_field(name)
  local _, rows = fields_of("report")
  return rows[name] ~= nil or name == "plan"
end

---@class lupine.Report: lupine.report.report
---@field plan userdata what the figures are of: plan:nodes(), plan:json()
---@field no_effect string[] options that change nothing here, and why
local Report = class.new("Report")

local function by_report()
  return setmetatable({}, { __mode = "k" })
end

-- report -> what was stored of it, the options of its plan, gains and remedies
local stored_of, how_of, advice_of = by_report(), by_report(), by_report()

---@param plan userdata?
---@param stored? {figures: table, summary: string, schedule: function, plan: function,
---  text: string?} in place of the plan: what was said of it before; `schedule` gives the
---  figures' part of that name and `plan` makes the plan again, when they are asked for;
---  `text` is the JSON of all of it, `gains` and `remedies` what these methods give
---@param how? {system: table?, placement: table?, spelling: table?} options of core.plan that
---  the plan is of, and how a front end spells such (lua/lupine/plan/variants.lua)
function Report:init(plan, stored, how)
  for k, v in pairs(stored and stored.figures or plan:report()) do
    self[k] = v
  end
  self.plan, self.no_effect = plan, {}
  stored_of[self], how_of[self] = stored, how
end

function Report.__index(self, key)
  local later = (key == "plan" or key == "schedule") and stored_of[self]
  if later then
    self[key] = later[key]()
    return self[key]
  elseif key == "schedule" and rawget(self, "plan") then
    self.schedule = self.plan:schedule()
    return self.schedule
  end
  local value = Report[key]
  if value == nil and type(key) == "string" and not key:find("^_") and not is_field(key) then
    closed.unknown(self, key)
  end
  return value
end

--- The figures, all of them, and the summary: plain data.
---@return {figures: table, summary: string}
function Report:stored()
  local s = stored_of[self]
  if not s then
    local figures = self.plan:report()
    figures.schedule = self.schedule
    return { figures = figures, summary = summary.text(self) }
  end
  local figures = class.copy(s.figures)
  figures.schedule = self.schedule
  return { figures = figures, summary = s.summary }
end

--- The figures as text, laid out like Poplar's profile summary.
---@return string
function Report:summary()
  local text = stored_of[self] and stored_of[self].summary or summary.text(self)
  if #self.no_effect > 0 then
    text = text .. "\nOptions without effect on these figures:\n  "
      .. table.concat(self.no_effect, "\n  ") .. "\n"
  end
  return text
end

--- What Poplar's option showExecutionSteps adds: exchanges, syncs and compute sets of one turn
--- of each row of the schedule, in order.
---@return string
function Report:steps()
  return summary.steps(self)
end

--- What Poplar's option showVarStorage adds: what is not always live, and when.
---@return string
function Report:storage()
  return summary.storage(self)
end

--- Every operator of the program with its place and its cycles, as a list.
---@return lupine.report.node[]
function Report:nodes()
  return self.plan:nodes()
end

--- What each IPU holds beside what is always live, step by step over one period of the
--- loop and the weight update, and from where to where each tensor is there.
---@return lupine.report.liveness
function Report:liveness()
  return self.plan:liveness()
end

-- What find(step, how) gives, once; of a file, what it has by this name.
local function simulated(self, name, find)
  local known, how = advice_of[self] or {}, how_of[self]
  advice_of[self] = known
  if not known[name] then
    known[name] = (stored_of[self] or {})[name]
      or how and find(self.plan:step(), how) or {}
  end
  return known[name]
end

--- What would make the program faster, most first: other options and cuts, each simulated
--- once on its step; printed, a table. Of a file, what was found when it was written.
---@return lupine.Gain[]
function Report:gains()
  local gains = require("lupine.plan.gains")
  return gains.shown(simulated(self, "gains", gains.of))
end

--- What would make a program fit that is too large for its tiles, likewise: what fits
--- first.
---@return {text: string, saved: integer, fits: boolean, share: number,
---  samples_per_second: number}[]
function Report:remedies()
  return simulated(self, "remedies", function(step, how)
    local remedies = require("lupine.plan.remedies")
    return memory.fits(self) and {}
      or remedies.plain(remedies.remedies(step, how.system, nil, how.placement), how.spelling)
  end)
end

--- All of it as JSON: {"summary": …, "gains": …, "remedies": …, "report": …, "plan":
--- {"nodes": …}, "liveness": …}, the figures in the same names. lupine.report.read gives the
--- report of such a file again.
---@return string
function Report:json()
  local stored = stored_of[self]
  if stored and stored.text then
    return stored.text
  end
  return ('{"summary":%s,\n"gains":%s,\n"remedies":%s,\n%s'):format(
    core.json_encode(self:summary()), core.json_encode(file.as_json(self:gains())),
    core.json_encode(file.as_json(self:remedies())), self.plan:json():sub(2))
end

--- Writes what json() gives. `lupine report FILE` shows it, as a page or a trace too.
--- errors: TypeError, OSError
---@param path string
function Report:save(path)
  check.method(self, Report, "save")
  core.write_text(check.string(path, "save: path"), self:json())
end

--- Writes the schedule of one weight update as a trace of events, which Perfetto opens: a
--- track for each IPU and each link. Of long loops the first and last turns are drawn.
--- errors: TypeError, OSError
---@param path string
function Report:trace(path)
  check.method(self, Report, "trace")
  core.write_text(check.string(path, "trace: path"), require("lupine.report.trace").text(self))
end

--- Writes all of it as one page of HTML that opens without a network: summary, insights,
--- memory, operators, program and timeline, with dygraphs of Debian's libjs-dygraphs.
--- errors: TypeError, OSError
---@param path string
function Report:html(path)
  check.method(self, Report, "html")
  core.write_text(check.string(path, "html: path"), require("lupine.report.page").text(self))
end

--- The stage's row of `stages`; stages count from 0.
---@param stage integer
---@return table?
function Report:stage(stage)
  return self.stages[check.int(stage, "stage: stage") + 1]
end

function Report.__tostring(self)
  return ("Report(%s, %s, %s x %d: %d cycles, %.3g ms, %.4g samples/s, IPUs busy %.1f %%, "
    .. "fullest tile %.1f %%; simulated)"):format(self.chip_name, self.strategy,
    check.count(self.ipus, "IPU"), self.replicas, self.cycles, self.seconds * 1e3,
    self.samples_per_second, self.pipeline_efficiency * 100, memory.fullest(self) * 100)
end

local M = { Report = Report }
local NULLABLE = { nullable = true }

--- Simulates a completed step. Options, all with defaults: chip ("ipu2"), tiles,
--- strategy ("pipelined", "sharded", "serial_phased", "parallel_phased"),
--- liveness (0..3), separate_backward, near (of liveness 0), batch_serialization,
--- part_order ("in_turn", "overlap_io", "overlap_compute"), update_order ("interleaving",
--- "batch"), recompute ("auto", "none", "all"),
--- io_tiles, partials ("float", "half"), stable_norm, host_sync (cycles; -1: the chip's),
--- proportion (a number or by IPU),
--- activation, weight, optimizer, accumulator (tables: on_chip, sharded,
--- io_load, io_store, min_off_chip, min_sharded, on_demand), own (such tables by the names
--- of single variables and values; on_demand is that of the kind unless it is given),
--- own_unmet (also of what the step has not),
--- output_slices (0: one a micro-batch),
--- input_groups (of replicas that read the same rows; 0: each has its own),
--- replicas and accumulation (in place of the step's: what it would cost with them),
--- synthetic_data, allow_out_of_memory, power_of_two (of IPUs can be reserved,
--- no other number), round_ipus (then reserve more than are needed).
--- error: poptorch.Error when a tile overflows, which lists what would help, or the strategy
--- cannot run the model as it is placed
---@param step userdata
---@param options? table
---@param placement? {nodes: table[]?, places: table[]?} in place of the model's
---  blocks: a list of {ipu=, stage=, phase=}, an entry an operator of the step
---  or an entry a place of step:places(); what is nil stays as it was
---@return lupine.Report
function M.simulate(step, options, placement)
  check.table(options, "simulate: options", NULLABLE)
  check.table(placement, "simulate: placement", NULLABLE)
  local of = { step = step, system = options, placement = placement }
  local plan = require("lupine.plan.remedies").explained(of, core.plan, step, options or {},
    placement)
  return Report(plan, nil, { system = options, placement = placement })
end

--- What the fields of reports mean: of each its group ("report", "stage", …),
--- name, kind, unit, what it says and, of a list or map, the group of its
--- entries (`of`). An entry without a name is of the group itself.
---@return {group: string, name: string?, kind: string?, of: string?, unit: string?,
---  doc: string}[]
function M.fields()
  return core.report_fields()
end

local KINDS = {} -- kind of a field -> what is wrong with a value of it, or nil

local function fault_of(kind, value, of)
  local check_kind = KINDS[kind]
  if check_kind then
    return check_kind(value, of)
  end
  local has = kind == "integer" and math.type(value) or type(value)
  return has ~= kind and ("expected %s, got %s"):format(kind, check.describe(value)) or nil
end

-- What is counted with; other fields may be missing, as phases are where there are none.
local NEEDED = {
  report = tables.set({ "cycles", "clock_hz", "ipus", "replicas", "reserved_ipus", "loops",
    "micro_batches", "stages", "streams", "sequence", "memory" }),
  row = tables.set({ "kind", "first", "count", "cycles", "entries" }),
  loop = tables.set({ "first_row", "rows", "count", "step", "once" }),
  entry = tables.set({ "kind", "ipu", "cycles" }),
  stream = tables.set({ "variable", "input", "bytes", "ipu", "stage", "backward", "ahead" }),
  memory = tables.set({ "fits", "fullest_tile", "max_tile_including_gaps", "tile_bytes" }),
}

local function group_fault(group, values, names)
  local all, rows = fields_of(group)
  local needed = NEEDED[group] or {}
  for _, name in ipairs(names or all) do
    local value = values[name]
    local fault = (value ~= nil or names or needed[name])
      and fault_of(rows[name].kind, value, rows[name].of)
    if fault then
      return ("%s: %s"):format(name, fault)
    end
  end
  return nil
end

-- Of tables whose values are all of a kind or group.
local function each(kind)
  return function(values, of)
    if type(values) ~= "table" then
      return "expected a table, got " .. check.describe(values)
    end
    for key, value in pairs(values) do
      local fault = kind and fault_of(kind, value)
        or of and (type(value) ~= "table" and "expected a table" or group_fault(of, value))
      if fault then
        return ("%s: %s"):format(key, fault)
      end
    end
    return nil
  end
end

KINDS.list, KINDS.map, KINDS.named, KINDS.integers = each(), each(), each("integer"),
  each("integer")

--- What is wrong with figures that come from outside; nil if they can be a report's.
---@param figures table
---@param names? string[] fields that must be there; those that are counted with unless given
---@param group? string of the figures ("report")
---@return string?
function M.fault(figures, names, group)
  return group_fault(group or "report", figures, names)
end

--- The report in a file that Report:save wrote, or an engine's profile.json or a run's
--- report.json.
--- errors: OSError; ValueError for a file that is none
---@param path string
---@return lupine.Report
function M.read(path)
  return file.read(path)
end

--- Runs a completed step by plain kernels: how.order is "schedule" (the order
--- that `options` lead to, holding only what that plan keeps) or
--- "micro_batches"; both give the same bits. inputs: by variable number, all
--- slices one after another; how: also seed, micro_batch, threads, placement.
--- error: RuntimeError naming a value that the schedule reads too late
---@param step userdata
---@param options? table as for simulate
---@param inputs table<integer, torch.Tensor>
---@param how? table
---@return table<integer, torch.Tensor> outputs, table<integer, torch.Tensor> variables,
---  integer held most bytes of values at once
function M.replay(step, options, inputs, how)
  check.table(options, "replay: options", NULLABLE)
  check.table(inputs, "replay: inputs")
  how = check.table(how, "replay: how", NULLABLE) or {}
  return core.plan(step, options or {}, how.placement):replay(inputs, how)
end

return require("lupine.base.namespace").close(M, "lupine.report")
