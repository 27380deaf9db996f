--- What is watched at every validation: whether a run gets better at all (early
--- stopping), and whether this is the best so far (checkpoints that stay).
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local check = require("lupine.base.check")
local tables = require("lupine.base.tables")

---@class lupine.trainer.Watch
local Watch = class.new("Watch")

--- rule: metric, mode, and of early stopping patience and min_delta
---@param rule table
function Watch:init(rule)
  self.metric, self.sign = rule.metric, rule.mode == "max" and -1 or 1
  self.patience, self.min_delta = rule.patience, rule.min_delta or 0
  self.best, self.waited = nil, 0
end

--- A validation's numbers: is the value better than ever? NaN never is.
--- error: KeyError for numbers without the metric
---@param metrics table<string, number>
---@param where string for messages
---@return boolean
function Watch:look(metrics, where)
  local value = metrics[self.metric]
  errors.check(value ~= nil, "KeyError", "%s: there is no metric '%s'%s; there are %s", where,
    self.metric, check.nearest(self.metric, tables.keys(metrics)),
    table.concat(tables.keys(metrics), ", "))
  local better = value == value
    and (self.best == nil or self.sign * (self.best - value) > self.min_delta)
  if better then
    self.best = value
  end
  self.waited = better and 0 or self.waited + 1
  return better
end

--- Whether it has waited long enough.
---@return boolean
function Watch:ended()
  return self.waited >= self.patience
end

--- For checkpoints.
---@return table
function Watch:state()
  return { best = self.best, waited = self.waited }
end

--- Takes such a state over.
---@param state table?
function Watch:load(state)
  if state then
    self.best, self.waited = state.best, state.waited
  end
end

return Watch
