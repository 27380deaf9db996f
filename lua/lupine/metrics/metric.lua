--- The base of metrics: sums that batches are added to. A sub-class has `zero`, the sums
--- at the start, and update(output, target) and compute().
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

---@class lupine.metrics.Metric
local Metric = class.new("Metric")

--- Checks options by name; for sub-classes.
--- error: TypeError for an unknown one
---@param options table?
---@param allowed string[]
---@return table
function Metric:read(options, allowed)
  local where, known = getmetatable(self).__name, tables.set(allowed)
  options = check.plain_table(options or {}, where .. ": options")
  for name in pairs(options) do
    errors.check(known[name], "TypeError", "%s: unknown option '%s'%s; allowed are %s", where,
      tostring(name), check.nearest(name, allowed), #allowed > 0 and table.concat(allowed, ", ")
      or "none")
  end
  return options
end

--- Forgets all batches.
function Metric:reset()
  for name, value in pairs(self.zero) do
    self[name] = value
  end
end

--- The sums, as plain data and tensors.
---@return table
function Metric:state_dict()
  local out = {}
  for name in pairs(self.zero) do
    out[name] = self[name]
  end
  return out
end

--- Takes such sums over.
--- error: KeyError for those of another metric
---@param state table
function Metric:load_state_dict(state)
  check.table(state, "load_state_dict: state")
  for name in pairs(self.zero) do
    errors.check(state[name] ~= nil, "KeyError", "load_state_dict: %s: '%s' is missing",
      getmetatable(self).__name, name)
    self[name] = state[name]
  end
end

return Metric
