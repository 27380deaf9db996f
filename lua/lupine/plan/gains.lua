--- What would make a program faster: changes of its options and cuts, each simulated on the
--- complete step. Nothing is traced again; where more rows make an update the samples of one
--- change and nothing else does.
local memory = require("lupine.report.memory")
local variants = require("lupine.plan.variants")

local M = {}

-- Simulations of other cuts.
local TRIES = 24

-- Shares of a sample's time below which a change is not worth telling.
local LEAST = 0.005

local function on_chip(system)
  local changed
  for _, kind in ipairs(variants.LOCATIONS) do
    if system[kind] and system[kind].on_chip == false then
      variants.place(system, kind, true)
      changed = {}
    end
  end
  return changed
end

local function io_tiles(system)
  local none = (system.io_tiles or 0) == 0
  system.io_tiles = 64
  return none and {} or nil
end

-- A change each; `cuts` is searched.
local CHANGES = {
  { hint = "accumulation", text = "twice the micro-batches an update", function(system, figures)
    system.accumulation = 2 * figures.micro_batches
    return figures.training and {} or nil
  end },
  { hint = "recompute", text = "no activations computed again", function(system, figures)
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
---@field saves number share of a sample's time
---@field samples_per_second number
---@field share number of the fullest tile, 1: all its memory
---@field fits boolean
---@field cuts string[]? modules that begin the stages from IPU 1 on

local function result(trial, row, figures)
  local saves = 1 - trial.base.samples_per_second / figures.samples_per_second
  return saves >= LEAST and { hint = row.hint, text = row.text, saves = saves,
    samples_per_second = figures.samples_per_second, share = memory.fullest(figures),
    fits = memory.fits(figures) } or nil
end

--- The changes that save time, most first.
---@param step lupine.Step complete
---@param system? table core.plan's options
---@param placement? table core.plan's
---@return lupine.Gain[]
function M.of(step, system, placement)
  local trial, out = variants.Trial(step, system, placement), {}
  for _, row in ipairs(CHANGES) do
    local figures = trial:figures({ row[1] })
    out[#out + 1] = figures and result(trial, row, figures) or nil
  end
  local figures, detail
  if trial.base.ipus > 1 then
    figures, detail = trial:cut(trial.base.ipus, TRIES)
  end
  local cut = figures and result(trial, { hint = "cuts", text = "other cuts" }, figures)
  if cut then
    cut.cuts = detail.cuts
    out[#out + 1] = cut
  end
  table.sort(out, function(a, b)
    return a.saves > b.saves or a.saves == b.saves and a.hint < b.hint
  end)
  return out
end

return M
