--- The metrics of a Trainer: two of each, for the running epoch and for validation.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local metrics = require("lupine.metrics")
local tables = require("lupine.base.tables")

---@class lupine.trainer.Measures
local Measures = class.new("Measures")

-- A function of output and target as a mean over samples.
local function of_function(fn)
  local mean = metrics.Mean()
  return { update = function(_, output, target)
    mean:update(fn(output, target), core.is_tensor(output) and output:dim() > 0 and output:size(0)
      or 1)
  end, compute = function()
    return mean:compute()
  end, reset = function()
    mean:reset()
  end, state_dict = function()
    return mean:state_dict()
  end, load_state_dict = function(_, state)
    mean:load_state_dict(state)
  end }
end

local function made(name, value)
  if type(value) == "string" then
    return metrics.named(value)
  elseif type(value) == "function" then
    return of_function(value)
  end
  errors.check(type(value) == "table" and value.update and value.compute and value.reset,
    "TypeError", "Trainer: metrics: %s: expected a metric's name, a function(output, target) or a "
    .. "metric of lupine.metrics, got %s", tostring(name), check.describe(value))
  return class.copy(value)
end

--- given: names, and metrics by name
---@param given table?
function Measures:init(given)
  check.plain_table(given or {}, "Trainer: metrics")
  self.of = {}
  for key, value in pairs(given or {}) do
    local name = key
    if type(key) == "number" then
      errors.check(type(value) == "string", "TypeError", "Trainer: metrics[%s]: expected a name; "
        .. "a function or a metric has its own: metrics = {name = …}", tostring(key))
      name = value
    end
    self.of[name] = made(name, value)
  end
  self.names, self.updates = tables.keys(self.of), 0
end

--- Begins anew.
function Measures:reset()
  self.updates = 0
  for _, name in ipairs(self.names) do
    self.of[name]:reset()
  end
end

--- A batch.
--- error: the metric's own, which it names; ValueError without output or target
---@param output any
---@param target any
function Measures:update(output, target)
  self.updates = self.updates + 1
  for _, name in ipairs(self.names) do
    errors.check(output ~= nil and target ~= nil, "ValueError", "Trainer: metrics: %s: there is no "
      .. "%s to look at: forward returns the output first, or in a field `logits`, and the target "
      .. "is the batch's last value", name, output == nil and "output" or "target")
    errors.within(("metric '%s'"):format(name), self.of[name].update, self.of[name], output, target)
  end
end

--- Results so far: numbers into `numbers`, others into `others`, both by prefix and name;
--- nothing before the first batch.
---@param numbers table<string, number>
---@param prefix string
---@param others table<string, any>?
function Measures:compute(numbers, prefix, others)
  for _, name in ipairs(self.updates > 0 and self.names or {}) do
    local value = self.of[name]:compute()
    if core.is_tensor(value) and value:numel() == 1 then
      value = value:item()
    end
    if type(value) == "number" then
      numbers[prefix .. name] = value
    elseif others then
      others[prefix .. name] = value
    end
  end
end

--- For checkpoints.
---@return table
function Measures:state_dict()
  local of = {}
  for _, name in ipairs(self.names) do
    local metric = self.of[name]
    of[name] = metric.state_dict and metric:state_dict() or nil
  end
  return { updates = self.updates, of = of }
end

--- Takes such a state over; metrics that it has not begin anew.
---@param state table
function Measures:load_state_dict(state)
  self:reset()
  self.updates = state.updates
  for _, name in ipairs(self.names) do
    if state.of[name] ~= nil and self.of[name].load_state_dict then
      self.of[name]:load_state_dict(state.of[name])
    end
  end
end

return Measures
