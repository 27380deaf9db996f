--- How many IPUs for a model, and how: variants of one compiled step, each tried by the
--- simulated system, in the order of what they give.
---
---     print(lupine.plan(executor))                       -- a table of up to 16 IPUs
---     local best = lupine.plan(executor, { ipus = { 4, 8 } }).plans[1]
---
--- Varied are the number of stages and their cuts (lupine.plan.cuts), replicas,
--- recomputation and, where a program does not fit, what is off the chip. The samples of a
--- weight update stay what they are, by another gradient accumulation, as far as the
--- pipeline can be filled; or accumulations are given. Nothing is traced or computed again.
--- `lupine plan SCRIPT` does it for the first program that a script compiles.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local columns = require("lupine.base.columns")
local core = require("lupine.core")
local cuts = require("lupine.plan.cuts")
local errors = require("lupine.base.errors")
local memory = require("lupine.report.memory")
local tables = require("lupine.base.tables")
local variants = require("lupine.plan.variants")

---@class lupine.plan.Variant
---@field ipus integer of all replicas
---@field stages integer IPUs of a replica
---@field replicas integer
---@field accumulation integer micro-batches of a weight update
---@field cuts string[] modules that begin the stages from IPU 1 on
---@field equal boolean? whether an equal split by layers is no worse than these cuts
---@field recompute string "auto", "none", "all"
---@field off_chip string[] kinds of tensors in streaming memory
---@field fits boolean
---@field fullest number of the fullest tile, 1: all its memory
---@field overflow number 0 if it fits, else `fullest`
---@field samples_per_second number
---@field cycles integer of a call
---@field efficiency number of the pipeline

---@class lupine.Plan
---@field plans lupine.plan.Variant[] the best of each number of stages and replicas, the best
---  of all first; those that do not fit are last
---@field refused {ipus: integer, stages: integer, replicas: integer, reason: string}[]
---@field tried integer simulations
---@field seconds number that they took
local Plan = class.new("Plan")

local RECOMPUTE = { "auto", "none", "all" }

-- What is moved off the chip, one kind after another, until everything fits.
local OFF_CHIP = {}
for n = 0, 3 do
  OFF_CHIP[n + 1] = table.move(variants.LOCATIONS, 1, n, 1, {})
end

-- ---- variants -----------------------------------------------------------------------

local function changes_of(s, accumulation, replicas, recompute, off_chip)
  local system = s.system
  local out = { accumulation = accumulation, replicas = replicas, recompute = recompute,
    -- as many share rows as in the script, if that divides them
    input_groups = replicas % s.sharing == 0 and replicas // s.sharing or replicas,
    key = ("%d %d %s %s"):format(accumulation, replicas, recompute, table.concat(off_chip, " ")) }
  for _, kind in ipairs(off_chip) do
    out[kind] = system[kind]
    variants.place(out, kind, false)
  end
  return out
end

-- Where the search stands: all that does not change.
local function State(step, system, opts)
  local _, accumulation, replicas = step:loops()
  local groups = system.input_groups or 0
  return { cuts = cuts.Cuts(step, system), system = system, trains = step:trains(),
    sharing = groups > 0 and replicas // groups or 1,
    micro_batches = accumulation * replicas, accumulations = opts.accumulation,
    tries = opts.tries or 200, found = {} }
end

-- Micro-batches between two weight updates that a variant is tried with.
local function accumulations(s, stages, replicas)
  if not s.trains then
    return { 1 }
  end
  local least = 2 * stages - 1
  local kept = math.max(least, -(-s.micro_batches // replicas))
  local out = {}
  for _, n in ipairs(s.accumulations or { kept }) do
    out[#out + 1] = n >= least and n or nil
  end
  return out
end

-- The best of all settings with these cuts: figures, settings.
local function settle(s, at, accumulation, replicas)
  local best, settings, reason
  for _, recompute in ipairs(s.trains and RECOMPUTE or { "auto" }) do
    for _, off_chip in ipairs(OFF_CHIP) do
      local changes = changes_of(s, accumulation, replicas, recompute, off_chip)
      local figures, e = s.cuts:figures(at, changes)
      reason = e or reason
      if figures and cuts.better(figures, best) then
        best, settings = figures, { changes = changes, recompute = recompute,
          off_chip = off_chip }
      end
      if figures and figures.overflow == 0 then
        break
      end
    end
  end
  return best, settings, reason
end

-- The cuts into so many stages: searched once, and again with what else the best program with
-- these has changed.
local function search(s, stages, accumulation, replicas)
  local key = stages .. " " .. accumulation
  if not s.found[key] then
    local plain = changes_of(s, accumulation, replicas, "auto", {})
    local found = s.cuts:search(stages, plain, s.tries)
    local best, settings = settle(s, found.cuts, accumulation, replicas)
    if settings and settings.changes.key ~= plain.key then
      local again = s.cuts:search(stages, settings.changes, s.tries)
      found = cuts.better(again, best) and again or found
    end
    s.found[key] = found.cuts
  end
  return s.found[key]
end

local function names_of(s, at)
  local out = {}
  for i, k in ipairs(at) do
    out[i] = s.cuts.names[k]
  end
  return out
end

local function variant(s, stages, replicas, accumulation)
  local at = search(s, stages, accumulation, replicas)
  local figures, settings, reason = settle(s, at, accumulation, replicas)
  if not figures then
    error(reason, 0)
  end
  local equal = stages > 1 and s.cuts:figures(s.cuts:equal(stages), settings.changes) or nil
  local same = equal and not cuts.better(figures, equal)
  figures = same and equal or figures
  return { ipus = stages * replicas, stages = stages, replicas = replicas,
    accumulation = accumulation, cuts = names_of(s, figures.cuts),
    equal = same or nil, recompute = settings.recompute, off_chip = settings.off_chip,
    overflow = figures.overflow, fits = figures.overflow == 0, fullest = memory.fullest(figures),
    samples_per_second = figures.samples_per_second, cycles = figures.cycles,
    efficiency = figures.pipeline_efficiency }
end

-- ---- all of them ----------------------------------------------------------------------

local function has(list, value)
  for _, v in ipairs(list) do
    if v == value then
      return true
    end
  end
  return false
end

local function is_power_of_two(n)
  return n & (n - 1) == 0
end

-- Stages and replicas of each number of IPUs.
local function pairs_of(ipus, system)
  local out, most = {}, 0
  for _, n in ipairs(ipus) do
    most = math.max(most, n)
  end
  for stages = 1, most do
    for replicas = 1, most // stages do
      local n = stages * replicas
      if has(ipus, n) and (is_power_of_two(n) or system.round_ipus or not system.power_of_two) then
        out[#out + 1] = { stages, replicas }
      end
    end
  end
  return out
end

-- The error's message on one line; what is no error of the library is raised on.
local function reason_of(e)
  if not errors.Exception:is(e) then
    error(e, 0)
  end
  return (e.message:gsub("\n.*", ""))
end

local function before(a, b)
  if a.overflow ~= b.overflow then
    return a.overflow < b.overflow
  elseif a.samples_per_second ~= b.samples_per_second then
    return a.samples_per_second > b.samples_per_second
  end
  return a.ipus < b.ipus
end

---@param step lupine.Step
---@param opts table
function Plan:init(step, opts)
  local started, s = core.host.clock(), State(step, opts.system or {}, opts)
  self.plans, self.refused = {}, {}
  for _, pair in ipairs(pairs_of(opts.ipus, s.system)) do
    local stages, replicas = pair[1], pair[2]
    for _, accumulation in ipairs(accumulations(s, stages, replicas)) do
      local ok, got = errors.try(variant, s, stages, replicas, accumulation)
      if ok then
        self.plans[#self.plans + 1] = got
      else
        self.refused[#self.refused + 1] = { ipus = stages * replicas, stages = stages,
          replicas = replicas, reason = reason_of(got) }
      end
    end
  end
  table.sort(self.plans, before)
  self.tried, self.seconds = s.cuts.tried, core.host.clock() - started
end

-- ---- as text ----------------------------------------------------------------------------

local HEAD = { "IPUs", "stages x replicas", "accumulation", "samples/s", "fullest tile",
  "recompute", "off chip", "stages begin at" }

local function cells(v)
  local begin = #v.cuts > 0 and table.concat(v.cuts, ", ") or "-"
  return { tostring(v.ipus), ("%d x %d"):format(v.stages, v.replicas), tostring(v.accumulation),
    ("%.0f"):format(v.samples_per_second), ("%.0f %%"):format(100 * v.fullest), v.recompute,
    #v.off_chip > 0 and table.concat(v.off_chip, ", ") or "-",
    begin .. (v.equal and " (an equal split)" or "") }
end

function Plan.__tostring(self)
  local rows, lines, split = {}, {}, nil
  for i, v in ipairs(self.plans) do
    rows[i] = cells(v)
    split = split or not v.fits and i or nil
  end
  for line in columns.text(HEAD, rows):gmatch("[^\n]+") do
    if split and #lines == split then
      lines[#lines + 1] = "Too large for the tiles:"
    end
    lines[#lines + 1] = line
  end
  local told = {}
  for _, r in ipairs(self.refused) do
    lines[#lines + 1] = not told[r.stages] and ("%s: %s"):format(check.count(r.stages, "stage"),
      r.reason) or nil
    told[r.stages] = true
  end
  lines[#lines + 1] = ("%d variants simulated in %.1f s"):format(self.tried, self.seconds)
  return table.concat(lines, "\n")
end

-- ---- what is planned ----------------------------------------------------------------------

local OPTIONS = { "ipus", "accumulation", "tries", "system", "inputs" }
local IS_OPTION = tables.set(OPTIONS)

local function counts(list, name)
  errors.check(type(list) == "table" and #list > 0, "TypeError",
    "plan: %s: expected a list of numbers, got %s", name, check.describe(list))
  local out = {}
  for i, n in ipairs(list) do
    out[i] = check.int(n, ("plan: %s[%d]"):format(name, i), { min = 1 })
  end
  return out
end

local function checked(opts)
  local out = { ipus = { 1, 2, 4, 8, 16 } }
  for name, value in pairs(opts or {}) do
    errors.check(IS_OPTION[name], "ValueError", "plan: there is no option '%s'%s", tostring(name),
      check.nearest(tostring(name), OPTIONS))
    out[name] = value
  end
  out.ipus = counts(out.ipus, "ipus")
  out.accumulation = out.accumulation and counts(out.accumulation, "accumulation")
  out.tries = out.tries and check.int(out.tries, "plan: tries", { min = 1 })
  return out
end

--- The variants of a program. opts: ipus, the numbers of IPUs (1, 2, 4, 8, 16); accumulation,
--- the gradient accumulations to try instead of the one that keeps the samples of a weight
--- update; tries, simulations for each number of stages (200); of an executor also inputs, the
--- arguments of its forward, where it is not compiled; of a step also system, options of
--- lupine.report.simulate.
--- error: TypeError, ValueError for options; what tracing the model raises
---@param program any a poptorch executor, or a complete lupine.Step
---@param opts? {ipus: integer[]?, accumulation: integer[]?, tries: integer?, system: table?,
---  inputs: any[]?}
---@return lupine.Plan
return function(program, opts)
  opts = checked(opts)
  if type(program) == "userdata" then
    errors.check(opts.inputs == nil, "ValueError", "plan: inputs: a step has been traced already")
    return Plan(program, opts)
  end
  errors.check(type(program) == "table" and type(program.plan) == "function", "TypeError",
    "plan: expected an executor of poptorch, got %s", check.describe(program))
  return program:plan(opts)
end
