--- What would make a program fit that is too large for its tiles: each remedy is simulated
--- on the complete step, and the error says of each how much less the fullest tile needs,
--- whether the program fits then and how fast it is, and how a front end's option is spelled
--- (lua/lupine/base/advice.lua). Where none is enough alone, several together are tried, from
--- those that cost least time on the device to those that cost most.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local memory = require("lupine.report.memory")
local variants = require("lupine.plan.variants")

local M = {}

-- Cuts that are looked at on a number of IPUs, to see whether any fits, and for the best: of
-- an error is expected that it comes soon.
local FIRST, TRIES, MOST_IPUS = 3, 24, 64

-- What needs so little less of the memory that is too small is no remedy.
local LEAST = 1 / 200

local function moved(kind)
  return function(system)
    local there = system[kind]
    if there and there.on_chip == false then
      return nil
    end
    return { location = variants.place(system, kind, false) }
  end
end

local function proportion(value)
  return function(system, figures)
    return variants.proportion(system, figures, function(given)
      return math.min(given, value)
    end)
  end
end

-- Changes of options, the cheapest first; of several values of one the first that fits, or
-- that gives most. `hint` is the name by which front ends spell it.
local REMEDIES = {
  { hint = "partials", text = "half partials", function(system)
    local other = system.partials ~= "half"
    system.partials = "half"
    return other and {} or nil
  end },
  { hint = "proportion", text = "a smaller proportion of memory", proportion(0.4),
    proportion(0.2), proportion(0.1), proportion(0.05) },
  { hint = "recompute", text = "activations computed again", function(system, figures)
    local other = figures.training and system.recompute ~= "all"
    system.recompute = "all"
    return other and {} or nil
  end },
  { hint = "pipeline", text = "a pipeline, which computes activations again",
    function(system, figures)
      local other = not variants.is_pipelined(system) and figures.ipus > 1
      variants.pipeline(system)
      return other and {} or nil
    end },
  { hint = "optimizer", text = "optimizer state off chip", moved("optimizer") },
  { hint = "accumulator", text = "accumulators off chip", moved("accumulator") },
  { hint = "weight", text = "weights off chip", moved("weight") },
  { hint = "activation", text = "activations off chip", moved("activation") },
}

-- Bytes of the fullest tile, with gaps.
local function fullest(figures)
  local most = 0
  for _, m in memory.each(figures) do
    most = math.max(most, m.max_tile_including_gaps)
  end
  return most
end

---@class lupine.Remedy
---@field hint string name in front ends' lists
---@field text string in words
---@field detail table what its option is set to
---@field saved integer bytes of the fullest tile
---@field most number what is needed of the memory that is smallest for it, 1: all
---@field fits boolean
---@field share number of the fullest tile, 1: all its memory
---@field samples_per_second number
---@field figures table with it
---@field change function? of options, if it is one
---@field all lupine.Remedy[]? it is these together

local function result(trial, row, figures, detail, change)
  return { hint = row.hint, text = row.text, detail = detail, change = change, figures = figures,
    saved = fullest(trial.base) - fullest(figures), most = memory.most(figures),
    fits = memory.fits(figures), share = memory.fullest(figures),
    samples_per_second = figures.samples_per_second }
end

local function of_options(trial, row)
  local best
  for _, change in ipairs(row) do
    local figures, details = trial:figures({ change })
    local got = figures and result(trial, row, figures, details[1], change)
    if got and (not best or got.most < best.most) then
      best = got
    end
    if best and best.fits then
      break
    end
  end
  return best
end

-- Micro-batches of fewer rows and as many more of them: other shapes, which the front end
-- traces. Halved until the program fits or the rows cannot be halved; with each a trial of
-- its step.
local SHARES = { [2] = "half", [4] = "a quarter", [8] = "an eighth" }

local function of_smaller(trial, smaller)
  local out = {}
  for _, factor in ipairs({ 2, 4, 8 }) do
    local ok, step, system, accumulation = errors.try(smaller, factor)
    local planned, other = errors.try(variants.Trial, ok and step or trial.step, system)
    if not ok or not planned then
      break
    end
    local remedy = result(trial, { hint = "micro_batch", text = ("%s of the rows in a micro-batch")
      :format(SHARES[factor]) }, other.base, { accumulation = accumulation })
    remedy.trial = other
    out[#out + 1] = remedy
    if remedy.fits then
      break
    end
  end
  return out
end

-- Other cuts into as many stages.
local function of_cuts(trial)
  local figures, detail
  if trial.base.ipus > 1 then
    figures, detail = trial:cut(trial.base.ipus, TRIES)
  end
  return figures and result(trial, { hint = "cuts", text = "other cuts" }, figures, detail) or nil
end

-- The best of `tries` cuts for so many IPUs as a remedy; nil where the modules have too few
-- places. `from` has the figures without any remedy.
local function on_ipus(trial, from, ipus, tries, options)
  local figures, detail = trial:cut(ipus, tries, options)
  return figures and result(from, { hint = "ipus", text = check.count(ipus, "IPU") }, figures,
    detail)
end

-- The fewest more IPUs, a power of two, on which any of the first cuts fits, else the most that
-- the modules can be cut for.
local function fewest_ipus(trial, from, options)
  local ipus, best = 2, nil
  while ipus <= MOST_IPUS and not (best and best.fits) do
    local found = ipus > trial.base.ipus and on_ipus(trial, from, ipus, FIRST, options)
    if found == nil then
      break
    end
    best = found or best
    ipus = ipus * 2
  end
  return best
end

-- The best cuts for these.
local function of_ipus(trial)
  local best = fewest_ipus(trial, trial)
  return best and best.fits and on_ipus(trial, trial, best.detail.ipus, TRIES) or best
end

-- The list without its i-th element.
local function without(list, i)
  local out = table.move(list, 1, #list, 1, {})
  table.remove(out, i)
  return out
end

-- The fewest of a list with which try(list) gives something, and what; nil: not with all.
local function fewest(list, try)
  local got = try(list)
  local i = 1
  while got and i <= #list do
    local fewer = without(list, i)
    local less = try(fewer)
    if less then
      list, got = fewer, less
    else
      i = i + 1
    end
  end
  return got and list, got
end

local function changes_of(remedies)
  local changes = {}
  for i, r in ipairs(remedies) do
    changes[i] = r.change
  end
  return changes
end

-- A remedy of several.
local function all_of(from, figures, ...)
  local out = result(from, { text = "together" }, figures)
  out.all = {}
  for _, list in ipairs({ ... }) do
    table.move(list, 1, #list, #out.all + 1, out.all)
  end
  return out
end

-- Options that fit together, on fewer rows if need be; none of them can be left out.
local function on_these_ipus(trial, bases, options)
  for _, base in ipairs(bases) do
    local used, figures = fewest(options, function(list)
      local got = base.trial:figures(changes_of(list))
      return got and memory.fits(got) and got
    end)
    if used then
      return all_of(trial, figures, base.rows, used)
    end
  end
  return nil
end

-- The same with as few more IPUs as it takes with all of the options and the fewest rows.
local function on_more_ipus(trial, bases, options)
  local base = bases[#bases]
  local system = base.trial:options(changes_of(options))
  local most = system and fewest_ipus(base.trial, trial, system)
  if not most or not most.fits then
    return nil
  end
  local function cut(of, list, tries)
    local changed = of.trial:options(changes_of(list))
    local got = changed and on_ipus(of.trial, trial, most.detail.ipus, tries, changed)
    return got and got.fits and got
  end
  for i = #bases - 1, 1, -1 do
    base = cut(bases[i], options, FIRST) and bases[i] or base
  end
  local used = fewest(options, function(list)
    return cut(base, list, FIRST)
  end)
  local best = cut(base, used, TRIES)
  return all_of(trial, best.figures, base.rows, used, { best })
end

-- What fits where none of the remedies does alone: a remedy with `all`.
local function together(trial, options, smaller)
  local bases = { { trial = trial, rows = {} } }
  for i, r in ipairs(smaller) do
    bases[i + 1] = { trial = r.trial, rows = { r } }
  end
  return on_these_ipus(trial, bases, options) or on_more_ipus(trial, bases, options)
end

--- What helps, in order: what fits, the fastest first; the rest by what is missing then.
---@param step lupine.Step complete
---@param system? table core.plan's options
---@param smaller? fun(factor: integer): lupine.Step, table, integer the step of micro-batches
---  with a factor fewer rows, its options and how many there are of an update
---@param placement? table core.plan's
---@return lupine.Remedy[]
function M.remedies(step, system, smaller, placement)
  local trial, found = variants.Trial(step, system, placement), {}
  for _, row in ipairs(REMEDIES) do
    found[#found + 1] = of_options(trial, row)
  end
  local options = table.move(found, 1, #found, 1, {})
  local fewer = smaller and of_smaller(trial, smaller) or {}
  found[#found + 1] = fewer[#fewer]
  found[#found + 1] = of_cuts(trial)
  found[#found + 1] = of_ipus(trial)
  local useful, fits, most = {}, false, memory.most(trial.base)
  for _, r in ipairs(found) do
    useful[#useful + 1] = (r.fits or r.most < most - LEAST * most) and r or nil
    fits = fits or r.fits
  end
  table.sort(useful, function(a, b)
    if a.fits ~= b.fits then
      return a.fits
    elseif a.fits and a.samples_per_second ~= b.samples_per_second then
      return a.samples_per_second > b.samples_per_second
    end
    return a.most < b.most or a.most == b.most and a.hint < b.hint
  end)
  useful[#useful + 1] = not fits and together(trial, options, fewer) or nil
  return useful
end

-- ---- as text --------------------------------------------------------------------------

local function name_of(remedy)
  if not remedy.all then
    return remedy.text
  end
  local out = {}
  for i, r in ipairs(remedy.all) do
    out[i] = r.text
  end
  return "together: " .. table.concat(out, ", ")
end

local function line(r, words)
  local options = table.concat(variants.spelled(r.all or { r }, words), ", ")
  return ("%s: %d bytes less on the fullest tile, %s (%.0f %% of it, %.4g samples/s)%s"):format(
    name_of(r), r.saved, r.fits and "fits" or "not enough", 100 * r.share, r.samples_per_second,
    options ~= "" and "; " .. options or "")
end

--- The remedies as plain data, for reports.
---@param remedies lupine.Remedy[]
---@param words? table as for text
---@return {text: string, saved: integer, fits: boolean, share: number,
---  samples_per_second: number}[]
function M.plain(remedies, words)
  local out = {}
  for i, r in ipairs(remedies) do
    out[i] = { text = line(r, words), saved = r.saved, fits = r.fits, share = r.share,
      samples_per_second = r.samples_per_second }
  end
  return out
end

--- The remedies, a line each.
---@param remedies lupine.Remedy[]
---@param words? table<string, string|fun(detail: table): string> how a front end spells them
---@return string
function M.text(remedies, words)
  if #remedies == 0 then
    return "None of the remedies that can be simulated helps"
  end
  local out, fits = { "Simulated remedies:" }, false
  for _, r in ipairs(remedies) do
    fits = fits or r.fits
    out[#out + 1] = "  " .. line(r, words)
  end
  out[#out + 1] = not fits and "  not even all of them together fit on these IPUs" or nil
  return table.concat(out, "\n")
end

-- Errors of a program that does not fit, data or code.
local TOO_LARGE = { poplar_graph_memory_allocation_error = true, poplar_link_error = true }

-- Adds to them what would make the complete step fit.
local function explain(e, of)
  if not errors.Exception:is(e) or not TOO_LARGE[e.type] then
    return e
  end
  e.remedies = M.remedies(of.step, of.system, of.smaller, of.placement)
  e.message = ("%s.\n%s"):format(e.message, M.text(e.remedies, of.spelling))
  return e
end

--- fn(...), which plans a step; its error of a tile that overflows lists what would make the
--- step fit.
---@param of {step: lupine.Step, system: table?, smaller: function?, placement: table?,
---  spelling: table?} what `remedies` takes, and `text`
---@param fn function
---@param ... any
---@return any ... what fn returns
function M.explained(of, fn, ...)
  local got = table.pack(pcall(fn, ...))
  if not got[1] then
    error(explain(got[2], of), 0)
  end
  return table.unpack(got, 2, got.n)
end

return M
