--- How many IPUs for a model, and how: variants of one compiled step, each tried by the
--- simulated system, in the order of what they give.
---
---     print(lupine.plan(executor))                       -- a table of up to 16 IPUs
---     local best = lupine.plan(executor, { ipus = { 4, 8 } }).plans[1]
---
--- Varied are the number of stages and their cuts (lupine.plan.cuts), replicas,
--- recomputation, the type of partials and the proportion of memory that products have, where
--- a program does not fit what is off the chip, and the rows of a micro-batch. The samples of
--- a weight update stay what they are, by another gradient accumulation, as far as the
--- pipeline can be filled; or accumulations are given. Nothing is computed, and traced again
--- only where rows differ. Of all of it half partials alone change a program's values.
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
---@field batch number samples of a weight update, 1: as many as in the script
---@field iterations integer? device iterations of a call, where more than the script's are needed
---@field cuts string[] modules that begin the stages from IPU 1 on
---@field equal boolean? whether an equal split by layers is no worse than these cuts
---@field recompute string "auto", "none", "all"
---@field off_chip string[] kinds of tensors in streaming memory
---@field partials string? "half" where they are and the script's are not
---@field proportion number? of memory for products, where it is not the script's
---@field rows number of a micro-batch, 1: as many as in the script
---@field options string[] what to set in the script, as its front end spells it
---@field fits boolean
---@field fullest number of the fullest tile, 1: all its memory
---@field overflow number 0 if it fits, else what it needs of the scarcest memory, 1: all
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

-- What products may have else than in the script, one after another.
local PRODUCTS = { { partials = "half" }, { proportion = 1 }, { proportion = 0.4 },
  { proportion = 0.2 }, { proportion = 0.1 }, { proportion = 0.05 } }

-- Parts of a script's micro-batch that are one, and the share of tries that their cuts are
-- looked for with.
local FACTORS, SHARE = { 1 / 8, 1 / 4, 1 / 2, 2, 4 }, 4

-- What is moved off the chip, one kind after another, until everything fits.
local OFF_CHIP = {}
for n = 0, 3 do
  OFF_CHIP[n + 1] = table.move(variants.LOCATIONS, 1, n, 1, {})
end

-- ---- variants -----------------------------------------------------------------------

-- More slices than one that a call returns are so many of each micro-batch of an update.
local function slices_of(s, accumulation)
  local slices = s.system.output_slices or 0
  return slices > 1 and slices // s.adds * accumulation or slices
end

local function changes_of(s, accumulation, replicas, recompute, off_chip, products)
  local system = s.system
  local out = { accumulation = accumulation, replicas = replicas, recompute = recompute,
    -- as many share rows as in the script, if that divides them
    input_groups = replicas % s.sharing == 0 and replicas // s.sharing or replicas,
    partials = products.partials, proportion = products.proportion,
    output_slices = slices_of(s, accumulation),
    key = ("%d %d %s %s %s %s"):format(accumulation, replicas, recompute,
      table.concat(off_chip, " "), products.partials or "", products.proportion or "") }
  for _, kind in ipairs(off_chip) do
    out[kind] = system[kind]
    variants.place(out, kind, false)
  end
  return out
end

-- Where the search stands: all that does not change.
local function State(step, system, opts, factor)
  local iterations, accumulation, replicas = step:loops()
  local groups = system.input_groups or 0
  return { cuts = cuts.Cuts(step, system), system = system, trains = step:trains(),
    sharing = groups > 0 and replicas // groups or 1,
    micro_batches = accumulation * replicas, accumulations = opts.accumulation,
    factor = factor, tries = factor == 1 and (opts.tries or 200)
      or math.max((opts.tries or 200) // SHARE, 1), found = {},
    spelling = opts.spelling,
    -- the script's
    replicas = replicas, accumulation = accumulation, iterations = iterations,
    -- the step's, and how the front end makes another
    adds = accumulation, smaller = opts.smaller }
end

-- The same of a step that is completed for more than one micro-batch of an update, if these
-- are, or for one: only then gradients are added up and the mean divides them.
local function of_accumulation(s, accumulation)
  if not s.trains or not s.smaller or (accumulation > 1) == (s.adds > 1) then
    return s
  elseif s.other == nil then
    local adds = accumulation > 1 and 2 or 1
    local ok, step, system = errors.try(s.smaller, s.factor, adds)
    s.other = ok and tables.with(s, { cuts = cuts.Cuts(step, system), system = system,
      adds = adds, found = {} })
  end
  return s.other or s
end

-- Micro-batches between two weight updates that a variant is tried with; of inference,
-- times the script's iterations, so that the pipeline is filled.
local function accumulations(s, stages, replicas)
  if not s.trains then
    return { -(-stages // s.iterations) }
  end
  local least = 2 * stages - 1
  local kept = math.max(least, -(-s.micro_batches // replicas))
  local out = {}
  for _, n in ipairs(s.accumulations or { kept }) do
    out[#out + 1] = n >= least and n or nil
  end
  return out
end

-- The best of settings with some cuts: its figures and what they are with.
---@class lupine.plan.Best
---@field try fun(recompute: string, off_chip: string[], products: table): table? figures
local function Best(s, at, accumulation, replicas)
  local best = {}
  function best.try(recompute, off_chip, products)
    local changes = changes_of(s, accumulation, replicas, recompute, off_chip, products)
    local figures, e = s.cuts:figures(at, changes)
    best.reason = e or best.reason
    if figures and cuts.better(figures, best.figures) then
      best.figures, best.settings = figures, { changes = changes, recompute = recompute,
        off_chip = off_chip, products = products }
    end
    return figures
  end
  return best
end

-- Recomputation, and of what may leave the chip the least with which all fits.
local function settle_memory(s, best, products)
  for _, recompute in ipairs(s.trains and RECOMPUTE or { "auto" }) do
    for _, off_chip in ipairs(OFF_CHIP) do
      local figures = best.try(recompute, off_chip, products)
      if figures and figures.overflow == 0 then
        break
      end
    end
  end
end

-- The best of all settings with these cuts: figures, settings.
local function settle(s, at, accumulation, replicas)
  local best = Best(s, at, accumulation, replicas)
  settle_memory(s, best, {})
  for _, product in ipairs(best.figures and PRODUCTS or {}) do
    local now = best.settings
    best.try(now.recompute, now.off_chip, tables.with(now.products, product))
  end
  if best.figures and next(best.settings.products) and #best.settings.off_chip > 0 then
    settle_memory(s, best, best.settings.products)
  end
  return best.figures, best.settings, best.reason
end

-- The cuts into so many stages: searched once, and again with what else the best program with
-- these has changed.
local function search(s, stages, accumulation, replicas)
  local key = stages .. " " .. accumulation
  if not s.found[key] then
    local plain = changes_of(s, accumulation, replicas, "auto", {}, {})
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

-- What is to be set in the script, by front ends' hints (lua/lupine/plan/variants.lua).
local function options_of(s, v)
  local list = {}
  local function add(when, hint, detail)
    list[#list + 1] = when and { hint = hint, detail = detail } or nil
  end
  add(v.stages > 1, "cuts", { cuts = v.cuts, legible = true, ipus = v.stages,
    iterations = v.iterations })
  add(v.replicas ~= s.replicas, "replicas", { replicas = v.replicas })
  local script = s.accumulation // s.factor
  add(s.trains and v.accumulation ~= script, v.rows == 1 and "accumulation" or "micro_batch",
    { accumulation = v.accumulation })
  add(v.recompute ~= (s.system.recompute or "auto"), "recompute_" .. v.recompute)
  for _, kind in ipairs(v.off_chip) do
    add(true, kind, { location = variants.place(class.copy(s.system), kind, false) })
  end
  add(v.partials, "partials")
  local proportions = {}
  for ipu = 0, v.proportion and v.stages - 1 or -1 do
    proportions[ipu] = v.proportion
  end
  add(v.proportion, "proportion", { proportion = proportions })
  return variants.spelled(list, s.spelling)
end

local function variant(s, stages, replicas, accumulation)
  s = of_accumulation(s, accumulation)
  local at = search(s, stages, accumulation, replicas)
  local figures, settings, reason = settle(s, at, accumulation, replicas)
  if not figures then
    error(reason, 0)
  end
  local equal = stages > 1 and s.cuts:figures(s.cuts:equal(stages), settings.changes) or nil
  local same = equal and not cuts.better(figures, equal)
  figures = same and equal or figures
  local products = settings.products
  local v = { ipus = stages * replicas, stages = stages, replicas = replicas,
    rows = 1 / s.factor, partials = products.partials, proportion = products.proportion,
    accumulation = s.trains and accumulation or 1,
    batch = s.trains and accumulation * replicas / s.micro_batches or 1,
    iterations = not s.trains and accumulation > 1 and accumulation * s.iterations or nil,
    cuts = names_of(s, figures.cuts),
    equal = same or nil, recompute = settings.recompute, off_chip = settings.off_chip,
    overflow = figures.overflow, fits = figures.overflow == 0, fullest = memory.fullest(figures),
    samples_per_second = figures.samples_per_second, cycles = figures.cycles,
    efficiency = figures.pipeline_efficiency }
  v.options = options_of(s, v)
  return v
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

-- Stages and replicas of each number of IPUs, and the numbers that no device has.
local function pairs_of(ipus, system)
  local out, none, most = {}, {}, 0
  local function exists(n)
    return is_power_of_two(n) or system.round_ipus or not system.power_of_two
  end
  for _, n in ipairs(ipus) do
    most = math.max(most, n)
    if not exists(n) then
      none[#none + 1] = { ipus = n, reason = ("%d is no power of two"):format(n) }
    end
  end
  for stages = 1, most do
    for replicas = 1, most // stages do
      local n = stages * replicas
      if has(ipus, n) and exists(n) then
        out[#out + 1] = { stages, replicas }
      end
    end
  end
  return out, none
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

-- The same batch in micro-batches of other rows.
local function others(s, opts)
  local out = {}
  for _, factor in ipairs(s.trains and opts.smaller and not opts.accumulation and FACTORS or {}) do
    local ok, step, system = errors.try(opts.smaller, factor)
    out[#out + 1] = ok and State(step, system, opts, factor) or nil
  end
  return out
end

-- Whether an update has the script's samples.
local function keeps(s, replicas, accumulation)
  return accumulation * replicas == s.micro_batches
end

-- A better variant of the same batch in other micro-batches, else v; v is nil where it is
-- refused.
local function of_other_rows(v, s, states, stages, replicas)
  local kept = v and keeps(s, replicas, v.accumulation)
  for _, other in ipairs(states) do
    local accumulation = other.micro_batches // replicas
    if keeps(other, replicas, accumulation) and accumulation >= 2 * stages - 1 then
      local ok, got = errors.try(variant, other, stages, replicas, accumulation)
      if ok and (not v or not kept and got.fits or before(got, v)) then
        v, kept = got, true
      end
    end
  end
  return v
end

function Plan:refuse(stages, replicas, reason)
  self.refused[#self.refused + 1] = { ipus = stages * replicas, stages = stages,
    replicas = replicas, reason = reason }
end

---@param step lupine.Step
---@param opts table
function Plan:init(step, opts)
  local started, s = core.host.clock(), State(step, opts.system or {}, opts, 1)
  local states = others(s, opts)
  local possible
  possible, self.refused = pairs_of(opts.ipus, s.system)
  self.plans = {}
  for _, pair in ipairs(possible) do
    local stages, replicas = pair[1], pair[2]
    local tried = accumulations(s, stages, replicas)
    if #tried == 0 then
      self:refuse(stages, replicas, ("an accumulation of at least %d is needed"):format(
        2 * stages - 1))
    end
    for _, accumulation in ipairs(tried) do
      local ok, got = errors.try(variant, s, stages, replicas, accumulation)
      local best = of_other_rows(ok and got or nil, s, states, stages, replicas)
      if best then
        self.plans[#self.plans + 1] = best
      else
        self:refuse(stages, replicas, reason_of(got))
      end
    end
  end
  table.sort(self.plans, before)
  self.tried, self.seconds = 0, core.host.clock() - started
  for _, state in ipairs({ s, table.unpack(states) }) do
    self.tried = self.tried + state.cuts.tried + (state.other and state.other.cuts.tried or 0)
  end
end

-- ---- as text ----------------------------------------------------------------------------

local HEAD = { "IPUs", "stages x replicas", "accumulation", "batch", "samples/s", "fullest tile",
  "recompute", "off chip", "products", "stages begin at" }

local function products_of(v)
  local out = { v.partials and v.partials .. " partials" }
  out[#out + 1] = v.proportion and ("%g of memory"):format(v.proportion) or nil
  return table.concat(out, ", ")
end

local function cells(v)
  local begin = #v.cuts > 0 and table.concat(v.cuts, ", ") or "-"
  return { tostring(v.ipus), ("%d x %d"):format(v.stages, v.replicas), tostring(v.accumulation),
    v.batch ~= 1 and ("x %g"):format(v.batch) or "", ("%.0f"):format(v.samples_per_second),
    ("%.0f %%"):format(100 * v.fullest), v.recompute,
    #v.off_chip > 0 and table.concat(v.off_chip, ", ") or "-", products_of(v),
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
  for _, v in ipairs(self.plans) do
    if v.batch ~= 1 then
      lines[#lines + 1] = "batch: times the samples that a weight update has in the script"
      break
    end
  end
  local first = self.plans[1]
  if first and #first.options > 0 then
    lines[#lines + 1] = "The first is the script with:"
    for _, option in ipairs(first.options) do
      lines[#lines + 1] = "  " .. option
    end
  end
  local told = {}
  for _, r in ipairs(self.refused) do
    local what = r.stages and check.count(r.stages, "stage") or check.count(r.ipus, "IPU")
    lines[#lines + 1] = not told[what] and what .. ": " .. r.reason or nil
    told[what] = true
  end
  lines[#lines + 1] = ("%d variants simulated in %.1f s"):format(self.tried, self.seconds)
  return table.concat(lines, "\n")
end

-- ---- what is planned ----------------------------------------------------------------------

-- Those of scripts, and those of lupine's own callers.
local OPTIONS = { "ipus", "accumulation", "tries", "inputs" }
local IS_OPTION = tables.set({ "system", "smaller", "spelling", table.unpack(OPTIONS) })

local NULLABLE = { nullable = true }

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
  for name, value in pairs(check.table(opts, "plan: opts", NULLABLE) or {}) do
    errors.check(IS_OPTION[name], "ValueError", "plan: there is no option '%s'; allowed are %s%s",
      tostring(name), table.concat(OPTIONS, ", "), check.nearest(tostring(name), OPTIONS))
    out[name] = value
  end
  out.ipus = counts(out.ipus, "ipus")
  out.accumulation = out.accumulation and counts(out.accumulation, "accumulation")
  out.tries = out.tries and check.int(out.tries, "plan: tries", { min = 1 })
  errors.check(out.inputs == nil or type(out.inputs) == "table", "TypeError",
    "plan: inputs: expected a list of forward's arguments, got %s", check.describe(out.inputs))
  check.table(out.system, "plan: system", NULLABLE)
  check.table(out.spelling, "plan: spelling", NULLABLE)
  errors.check(out.smaller == nil or type(out.smaller) == "function", "TypeError",
    "plan: smaller: expected a function, got %s", check.describe(out.smaller))
  return out
end

--- The variants of a program. opts: ipus, the numbers of IPUs (1, 2, 4, 8, 16); accumulation,
--- the gradient accumulations to try instead of the one that keeps the samples of a weight
--- update; tries, simulations for each number of stages (200); of an executor also inputs, the
--- arguments of its forward, where it is not compiled; of a step also system, options of
--- lupine.report.simulate, smaller and spelling, as a session's spec has them (lupine.session).
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
