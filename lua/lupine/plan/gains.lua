--- What would make a program faster: changes of its options and cuts, each simulated on the
--- complete step. Nothing is traced again; where more rows make an update the samples of one
--- change and nothing else does.
local columns = require("lupine.base.columns")
local core = require("lupine.core")
local memory = require("lupine.report.memory")
local tables = require("lupine.base.tables")
local variants = require("lupine.plan.variants")

local M = {}

-- Simulations of other cuts.
local TRIES = 24

-- Shares of a sample's time below which a change is not worth telling.
local LEAST = 0.005

local function on_chip(system)
  local kinds, locations = {}, {}
  for _, kind in ipairs(variants.LOCATIONS) do
    if system[kind] and system[kind].on_chip == false then
      kinds[#kinds + 1], locations[kind] = kind, variants.place(system, kind, true)
    end
  end
  return #kinds > 0 and { kinds = kinds, locations = locations } or nil
end

local function io_tiles(system)
  local none = (system.io_tiles or 0) == 0
  system.io_tiles = 64
  return none and { tiles = 64 } or nil
end

-- A change each; `cuts` is searched.
local CHANGES = {
  { hint = "accumulation", text = "twice the micro-batches an update", function(system, figures)
    system.accumulation = 2 * figures.micro_batches
    return figures.training and { accumulation = system.accumulation } or nil
  end },
  { hint = "recompute_none", text = "no activations computed again", function(system, figures)
    local other = figures.training and system.recompute ~= "none"
    system.recompute = "none"
    return other and {} or nil
  end },
  { hint = "proportion", text = "all memory for the scratch of products", function(system, figures)
    return variants.proportion(system, figures, function()
      return 1
    end)
  end },
  { hint = "partials", text = "half partials", function(system)
    local other = system.partials ~= "half"
    system.partials = "half"
    return other and {} or nil
  end },
  { hint = "io_tiles", text = "64 tiles of each IPU for transfers", io_tiles },
  { hint = "on_chip", text = "nothing in streaming memory", on_chip },
  { hint = "host", text = "no data from and to the host", function(system)
    local other = not system.synthetic_data
    system.synthetic_data = true
    return other and {} or nil
  end },
}

---@class lupine.Gain
---@field hint string which change
---@field text string in words
---@field option string? what to set for it, as the program's front end spells it
---@field saves number share of a sample's time
---@field samples_per_second number
---@field share number of the fullest tile, 1: all its memory
---@field fits boolean
---@field cuts string[]? modules that begin the stages from IPU 1 on

-- A step of one micro-batch an update does not add gradients up; one of `n` does, each time:
-- the figures with that, one parameter after another, on the tiles that compute. (IPUs take
-- turns where an update has one micro-batch, but for those of parallel phases.)
local function with_sums(trial, figures, n)
  local step, cycles = trial.step, 0
  local iterations, accumulation = step:loops()
  if accumulation > 1 then
    return figures
  end
  for _, v in ipairs(step:vars()) do
    if v.role == "accumulator" then
      local x = { dtype = tostring(v.dtype):match("%w+$"), shape = v.shape }
      cycles = cycles + core.op_cost("add", { x, x }, { alpha = 1 },
        figures.chip, figures.tiles - figures.io_tiles).cyc
    end
  end
  local all = figures.cycles + iterations * n * cycles
  return tables.with(figures, { cycles = all,
    samples_per_second = figures.samples_per_second * figures.cycles / all })
end

local function result(trial, row, figures, detail, spelling)
  local saves = 1 - trial.base.samples_per_second / figures.samples_per_second
  local option = variants.spelled({ { hint = row.hint, detail = detail } }, spelling)[1]
  return saves >= LEAST and { hint = row.hint, text = row.text, option = option, saves = saves,
    cuts = detail.cuts,
    samples_per_second = figures.samples_per_second, share = memory.fullest(figures),
    fits = memory.fits(figures) } or nil
end

-- Of a list of gains.
local Table = {}

function Table.__tostring(list)
  local rows = {}
  for i, g in ipairs(list) do
    rows[i] = { g.text, ("%.1f %%"):format(100 * g.saves), ("%.4g"):format(g.samples_per_second),
      ("%.1f %%"):format(100 * g.share) .. (g.fits and "" or ", does not fit"), g.option or "" }
  end
  return #rows == 0 and "None of the changes that are simulated saves time"
    or columns.text({ "change", "less time", "samples/s", "fullest tile", "option" }, rows)
end

--- The list, which prints as a table from now on.
---@param list lupine.Gain[]
---@return lupine.Gain[]
function M.shown(list)
  return setmetatable(list, Table)
end

--- The changes that save time, most first.
---@param step lupine.Step complete
---@param how {system: table?, placement: table?, spelling: table?} core.plan's options and
---  placement, and how a front end spells them
---@return lupine.Gain[]
function M.of(step, how)
  local trial, out = variants.Trial(step, how.system, how.placement), {}
  for _, row in ipairs(CHANGES) do
    local figures, details = trial:figures({ row[1] })
    if figures and details[1].accumulation then
      figures = with_sums(trial, figures, details[1].accumulation)
    end
    out[#out + 1] = figures and result(trial, row, figures, details[1], how.spelling) or nil
  end
  local figures, detail
  if trial.base.ipus > 1 then
    figures, detail = trial:cut(trial.base.ipus, TRIES)
  end
  out[#out + 1] = figures and result(trial, { hint = "cuts", text = "other cuts" }, figures, detail,
    how.spelling) or nil
  table.sort(out, function(a, b)
    return a.saves > b.saves or a.saves == b.saves and a.hint < b.hint
  end)
  return out
end

return M
