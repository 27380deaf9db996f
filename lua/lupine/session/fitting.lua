--- Which change would make a program fit that is too large for its tiles.
---
--- The error of a tile that overflows says what takes most. That is a guess at what
--- helps; here each remedy that front ends have an option for is tried on the planned
--- step, from the one that costs least time on the device to the one that costs most,
--- and the error names the first with which everything fits.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local memory = require("lupine.report.memory")

local M = {}

local function off_chip(system, name)
  local location = class.copy(system[name] or {})
  location.on_chip = false
  system[name] = location
end

-- The hint of each is a front end's advice (advice.lua), the text what it is in words.
local REMEDIES = {
  { hint = "temporary", text = "half partials", change = function(system)
    system.partials = "half"
  end },
  { hint = "optimizer_state", text = "optimizer state off chip", change = function(system)
    off_chip(system, "optimizer")
  end },
  { hint = "accumulators", text = "accumulators off chip", change = function(system)
    off_chip(system, "accumulator")
  end },
  { hint = "weights", text = "weights off chip", change = function(system)
    off_chip(system, "weight")
  end },
}

-- The figures of the step with these remedies; nil if it does not fit.
local function planned(step, system, remedies)
  local changed = class.copy(system)
  for _, remedy in ipairs(remedies) do
    remedy.change(changed)
  end
  local ok, plan = errors.try(core.plan, step, changed)
  return ok and plan:report() or nil
end

local function without(list, i)
  local out = table.move(list, 1, #list, 1, {})
  table.remove(out, i)
  return out
end

-- The first remedy that suffices alone, else those of all together that none of the
-- others makes up for: a list, and the figures with them.
local function search(step, system)
  for _, remedy in ipairs(REMEDIES) do
    local figures = planned(step, system, { remedy })
    if figures then
      return { remedy }, figures
    end
  end
  local used, figures = REMEDIES, planned(step, system, REMEDIES)
  local i = 1
  while figures and i <= #used do
    local fewer = planned(step, system, without(used, i))
    if fewer then
      used, figures = without(used, i), fewer
    else
      i = i + 1
    end
  end
  return figures and used, figures
end

local function texts_of(remedies)
  local out = {}
  for i, remedy in ipairs(remedies) do
    out[i] = remedy.text
  end
  return table.concat(out, ", ")
end

--- Adds to the error of a tile that overflows what would make the completed step fit.
---@param e any
---@param step lupine.Step
---@param system? table core.plan's options
---@return any e
function M.explain(e, step, system)
  if not errors.Exception:is(e) or e.type ~= "poplar_graph_memory_allocation_error" then
    return e
  end
  local remedies, figures = search(step, system or {})
  if remedies then
    e.message = ("%s. It fits with %s, the fullest tile at %.0f %% then"):format(
      e.message:gsub("%. This may help: .*$", ""), texts_of(remedies),
      100 * memory.fullest(figures))
    e.hint = remedies[#remedies].hint
  else
    e.message = e.message .. ". On these IPUs it does not fit with all of optimizer state, "
      .. "accumulators and weights off chip and half partials"
  end
  return e
end

return M
