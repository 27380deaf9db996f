--- The base of the learning rate schedulers: a step counts and sets the rates
--- of the groups. A rate that is a tensor is filled in place.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Optimizer = require("torch.optim.optimizer")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")
local warn = require("lupine.base.warn")

local M = {}

---@class torch.optim.LRScheduler
---@field last_epoch integer
---@field base_lrs (number|torch.Tensor)[]
local LRScheduler = class.new("LRScheduler")
M.LRScheduler = LRScheduler

-- ---- the groups' values ------------------------------------------------------

local function copy(value)
  return core.is_tensor(value) and value:detach():clone() or value
end

--- Sets a group's value; a tensor keeps its place. The option may be new.
---@param group table of param_groups
---@param name string
---@param value number|torch.Tensor
function M.set(group, name, value)
  local now = rawget(group, name)
  if core.is_tensor(now) then
    now:fill_(Optimizer.number(value))
  else
    rawset(group, name, value)
  end
end

--- The groups' values of a name, copied.
---@param optimizer torch.optim.Optimizer
---@param name string
---@return any[]
function M.values(optimizer, name)
  local out = {}
  for i, group in ipairs(optimizer.param_groups) do
    out[i] = copy(group[name])
  end
  return out
end

--- A value for each group, from one or from a list.
--- error: ValueError for a list of another length
---@param value any one, or a list of one for each group
---@param optimizer torch.optim.Optimizer
---@param name string for messages
---@return any[]
function M.per_group(value, optimizer, name)
  local n = #optimizer.param_groups
  local list = type(value) == "table" and not core.is_tensor(value)
  errors.check(not list or #value == n, "ValueError", "%s must have the same length as "
    .. "optimizer.param_groups. %s has %d values, param_groups has %d.", name, name,
    list and #value or 0, n)
  local out = {}
  for i = 1, n do
    out[i] = copy(list and value[i] or not list and value)
  end
  return out
end

-- ---- the class ---------------------------------------------------------------

--- For sub-classes with get_lr of their own: LRScheduler.init(self, optimizer).
function LRScheduler:init(optimizer, last_epoch)
  errors.check(type(optimizer) == "table" and optimizer.param_groups, "TypeError",
    "%s: the first argument must be an Optimizer, got %s", getmetatable(self).__name,
    check.describe(optimizer))
  self.optimizer = optimizer
  self.last_epoch = last_epoch or -1
  for i, group in ipairs(optimizer.param_groups) do
    if self.last_epoch == -1 and not group.initial_lr then
      group.initial_lr = copy(group.lr)
    end
    errors.check(group.initial_lr, "KeyError", "param 'initial_lr' is not specified in "
      .. "param_groups[%d] when resuming a scheduler", i - 1)
  end
  self.base_lrs = M.values(optimizer, "initial_lr")
  self:_initial_step()
end

-- The step of a construction; a SequentialLR makes it again.
function LRScheduler:_initial_step()
  self._step_count, self._is_initial = 0, true
  self:step()
  self._is_initial = false
end

--- The rates of the groups after this step, a list.
function LRScheduler:get_lr()
  errors.check(self.next_lr, "NotImplementedError", "%s has no get_lr()",
    getmetatable(self).__name)
  local out = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    out[i] = self:next_lr(group.lr, self.base_lrs[i], self.last_epoch, i)
  end
  return out
end

-- The rates from the epoch alone.
function LRScheduler:_get_closed_form_lr()
  local out = {}
  for i, base in ipairs(self.base_lrs) do
    out[i] = self:closed(base, self.last_epoch)
  end
  return out
end

function LRScheduler:_set_lrs(rates)
  for i, group in ipairs(self.optimizer.param_groups) do
    M.set(group, "lr", rates[i])
  end
  self._last_lr = M.values(self.optimizer, "lr")
end

-- A step of one's own, or on a device, is not seen.
local function warn_of_order(self)
  local optimizer = self.optimizer
  local seen = optimizer.step == Optimizer.step
  if seen and not optimizer._stepped and not optimizer._link then
    warn("%s:step() is called before the optimizer's first step: the first value of the "
      .. "learning rate is skipped", getmetatable(self).__name)
  end
end

--- One more step; with `epoch` the rates of that step.
function LRScheduler:step(epoch)
  check.method(self, LRScheduler, "step")
  epoch = check.number(epoch, getmetatable(self).__name .. ": step: epoch", { nullable = true })
  if self._step_count == 1 and not epoch then
    warn_of_order(self)
  end
  self._step_count = self._step_count + 1
  self:_update_lr(epoch)
end

function LRScheduler:_update_lr(epoch)
  self.last_epoch = epoch or self.last_epoch + 1
  self:_set_lrs(epoch and self.closed and self:_get_closed_form_lr() or self:get_lr())
end

---@return (number|torch.Tensor)[]
function LRScheduler:get_last_lr()
  check.method(self, LRScheduler, "get_last_lr")
  return core.list({ table.unpack(self._last_lr) })
end

-- ---- state -------------------------------------------------------------------

-- A callable object's own fields, for functions that are none.
local function fields(fn)
  local out = type(fn) == "table" and {} or core.none
  for name, value in pairs(type(fn) == "table" and fn or {}) do
    out[name] = value
  end
  return out
end

local NOT_STATE = { optimizer = true, _schedulers = true }

--- Everything but the optimizer and functions; in lr_lambdas each that is one
--- is torch.none, a callable object is a table of its fields.
function LRScheduler:state_dict()
  check.method(self, LRScheduler, "state_dict")
  local out = {}
  for name, value in pairs(self) do
    if not NOT_STATE[name] and type(value) ~= "function" and name ~= "lr_lambdas" then
      out[name] = class.copy(value)
    end
  end
  for i, fn in ipairs(self.lr_lambdas or {}) do
    out.lr_lambdas = out.lr_lambdas or {}
    out.lr_lambdas[i] = fields(fn)
  end
  for i, s in ipairs(self._schedulers or {}) do
    out._schedulers = out._schedulers or {}
    out._schedulers[i] = s:state_dict()
  end
  return out
end

function LRScheduler:load_state_dict(dict)
  check.method(self, LRScheduler, "load_state_dict")
  errors.check(type(dict) == "table", "TypeError",
    "%s:load_state_dict: expected what state_dict() gave, got %s", getmetatable(self).__name,
    check.describe(dict))
  for name, value in pairs(dict) do
    if name == "_schedulers" then
      check.table(value, "load_state_dict: _schedulers")
      for i, s in ipairs(self._schedulers or {}) do
        s:load_state_dict(value[i])
      end
    elseif name == "lr_lambdas" then
      for i, saved in ipairs(check.table(value, "load_state_dict: lr_lambdas")) do
        local fn = self.lr_lambdas and self.lr_lambdas[i]
        errors.check(check.is_none(saved) or type(saved) == "table" and type(fn) == "table",
          "TypeError", "%s:load_state_dict: lr_lambdas, element %d: the fields of a callable "
          .. "object, got %s for %s", getmetatable(self).__name, i, check.describe(saved),
          check.describe(fn))
        for field, v in pairs(check.is_none(saved) and {} or saved) do
          fn[field] = class.copy(v)
        end
      end
    else
      self[name] = class.copy(value)
    end
  end
end

-- ---- from a signature ----------------------------------------------------------

-- Arguments that are one number, and those that may be one for each group.
local NUMBERS = {}
for name in ([[step_size gamma T_max factor total_iters start_factor end_factor power step_size_up
    div_factor final_div_factor patience threshold cooldown eps]]):gmatch("%S+") do
  NUMBERS[name] = true
end
local FOR_GROUPS = { base_lr = true, max_lr = true, base_momentum = true, max_momentum = true }

local function is_number(value)
  return type(value) == "number" or core.is_tensor(value)
end

--- A list of numbers of steps.
---@param where string
---@param what string
---@param list any
function M.check_steps(where, what, list)
  for i, at in ipairs(check.list(where, what, list)) do
    check.number(at, ("%s, element %d"):format(where, i))
  end
end

--- error: TypeError for an argument that is to be a number and is none
---@param sig table what torch.nn.signature gave
---@param values table<string, any>
function M.check_numbers(sig, values)
  for _, name in ipairs(sig.names) do
    local value = values[name]
    local list = FOR_GROUPS[name] and type(value) == "table" and value or { value }
    for i = 1, (NUMBERS[name] or FOR_GROUPS[name]) and math.max(1, #list) or 0 do
      errors.check(is_number(list[i]), "TypeError", "%s: %s must be a number%s, got %s", sig.name,
        name, FOR_GROUPS[name] and " or one for each group" or "",
        list[i] == nil and "None" or check.describe(list[i]))
    end
  end
end

--- A scheduler from its signature: the arguments after the optimizer become
--- fields, last_epoch goes to the base. prepare(self, first) runs before the
--- initial step, with first = whether it is a new schedule; complete(self)
--- after it.
---@param sig string a Python signature
---@param methods table
---@return table class
function M.define(sig, methods)
  local parsed = signature(sig)
  local cls = LRScheduler:extend(parsed.name)
  function cls:init(...)
    local a = parsed(...)
    M.check_numbers(parsed, a)
    for i = 2, #parsed.names do
      local name = parsed.names[i]
      if name ~= "last_epoch" then
        self[name] = a[name]
      end
    end
    errors.check(type(a.optimizer) == "table" and a.optimizer.param_groups, "TypeError",
      "%s: the first argument must be an Optimizer, got %s", parsed.name,
      check.describe(a.optimizer))
    self.optimizer = a.optimizer
    if self.prepare then
      self:prepare((a.last_epoch or -1) == -1, a.last_epoch or -1)
    end
    LRScheduler.init(self, a.optimizer, a.last_epoch)
    if self.complete then
      self:complete()
    end
  end
  for name, fn in pairs(methods) do
    cls[name] = fn
  end
  signatures.note(cls, sig)
  return cls
end

return M
