--- What can be changed about a complete step that the simulated system runs, and what that
--- gives: for the planner, for the error of a program that does not fit and for what a
--- report says would make it faster. Nothing is traced again and no value changes.
---
--- A change is a function of the options of core.plan (a copy, which it changes) and the
--- figures without it. It gives its details, which front ends spell as their option, or nil
--- where there is nothing to change.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

--- Kinds of tensors that have a location, in the order of what moving them costs.
M.LOCATIONS = { "optimizer", "accumulator", "weight", "activation" }

--- Tensors of a kind are in streaming memory, or on the chip.
---@param system table options of core.plan
---@param kind string
---@param on_chip boolean
---@return table location of theirs
function M.place(system, kind, on_chip)
  system[kind] = class.copy(system[kind] or {})
  system[kind].on_chip = on_chip
  return system[kind]
end

--- A change to another proportion of memory: of all IPUs alike where options do not tell
--- them apart, so that it holds for more of them, too. nil if that changes nothing.
---@param system table
---@param figures table
---@param pick fun(given: number): number
---@return {proportion: number|table<integer, number>}? detail
function M.proportion(system, figures, pick)
  local given, changed, picked = system.proportion, false
  local default = core.chip(system.chip or "ipu2").proportion
  if type(given) == "table" then
    picked = {}
    for ipu = 0, figures.ipus - 1 do
      picked[ipu] = pick(given[ipu] or default)
      changed = changed or picked[ipu] ~= (given[ipu] or default)
    end
  else
    picked = pick(given or default)
    changed = picked ~= (given or default)
  end
  system.proportion = picked
  return changed and { proportion = picked } or nil
end

--- Whether cuts of the modules can take the place of the program's.
---@param system table
---@return boolean
function M.is_pipelined(system)
  return (system.strategy or "pipelined") == "pipelined"
end

--- Options of core.plan with which cuts of the modules take the place of the program's.
---@param system table which it changes
function M.pipeline(system)
  system.strategy, system.liveness, system.separate_backward = "pipelined", 0, false
  system.batch_serialization = nil
end

--- How a front end spells the options of changes, in order.
---@param list {hint: string, detail: table?}[]
---@param words? table<string, string|fun(detail: table): string> by hint; in a text {name} is
---  an integer of the detail
---@return string[]
function M.spelled(list, words)
  local out = {}
  for _, change in ipairs(list) do
    local word = words and words[change.hint]
    out[#out + 1] = type(word) == "function" and word(change.detail)
      or word and word:gsub("{(%a+)}", function(name)
        return ("%d"):format(change.detail[name])
      end)
  end
  return out
end

-- More cuts than these are not for reading.
local MOST_CUTS = 7

--- What variants of one step give, each simulated once.
---@class lupine.plan.Trial
---@field step lupine.Step complete
---@field system table options of core.plan; tiles may overflow
---@field base table figures without a change
---@field tried integer
local Trial = class.new("Trial")

---@param step lupine.Step
---@param system? table
---@param placement? table
function Trial:init(step, system, placement)
  self.step, self.system, self.tried = step, class.copy(system or {}), 0
  self.system.allow_out_of_memory = true
  self._placement = placement
  self.base = core.plan(step, self.system, placement):report()
end

--- The options of core.plan with these changes and what they are in detail; nil if there is
--- nothing to change.
---@param changes (fun(system: table, figures: table): table?)[]
---@return table? system
---@return table[]? details
function Trial:options(changes)
  local system, details = class.copy(self.system), {}
  for i, change in ipairs(changes) do
    details[i] = change(system, self.base)
    if not details[i] then
      return nil
    end
  end
  return system, details
end

--- The figures with these changes and what they are in detail; nil if there is nothing to
--- change or the strategy refuses it.
---@param changes (fun(system: table, figures: table): table?)[]
---@return table? figures
---@return table[]? details
function Trial:figures(changes)
  local system, details = self:options(changes)
  if not system then
    return nil
  end
  self.tried = self.tried + 1
  local ok, plan = errors.try(core.plan, self.step, system, self._placement)
  return ok and plan:report() or nil, details
end

--- The best cuts of the step's modules into so many stages: figures, details. nil where the
--- program is no pipeline or its modules have too few places.
---@param stages integer
---@param tries integer
---@param options? table of core.plan, in place of the step's
---@return table? figures
---@return {cuts: string[], legible: boolean, ipus: integer, accumulation: integer?,
---  iterations: integer?}? detail
function Trial:cut(stages, tries, options)
  if not M.is_pipelined(self.system) then
    return nil
  end
  local cuts = require("lupine.plan.cuts")
  local system = options or self.system
  local trains, have = self.base.training, self.base.micro_batches
  local least = trains and 2 * stages - 1 or stages
  local short = have < least
  -- of inference the iterations are multiplied
  local changes = { accumulation = short and (trains and least or -(-least // have))
    or system.accumulation, key = "" }
  local ok, figures, names = errors.try(function()
    local c = cuts.Cuts(self.step, system)
    local found = c:search(stages, changes, tries)
    self.tried = self.tried + c.tried
    return found, c.names
  end)
  if not ok then
    return nil
  end
  local detail = { cuts = {}, legible = #figures.cuts <= MOST_CUTS, ipus = stages,
    accumulation = trains and changes.accumulation or nil,
    iterations = not trains and short and changes.accumulation * have or nil }
  for i, at in ipairs(figures.cuts) do
    detail.cuts[i] = names[at]
  end
  return figures, detail
end

M.Trial = Trial

return M
