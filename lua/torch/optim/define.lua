--- Optimizers from a signature: the arguments after `params` are the defaults
--- of every group.
local Optimizer = require("torch.optim.optimizer")
local check = require("lupine.base.check")
local core = require("lupine.core")
local differentiable = require("torch.optim.differentiable")
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")
local types = require("torch.optim.types")

-- name -> lowest value, which is allowed itself, and what messages call it
local RANGES = {
  lr = { 0, "learning rate" }, momentum = { 0, "momentum value" },
  weight_decay = { 0, "weight_decay value" }, eps = { 0, "epsilon value" },
  alpha = { 0, "alpha value" }, rho = { 0, "rho value" },
  lambd = { 0, "lambd value" }, lr_decay = { 0, "lr_decay value" },
  momentum_decay = { 0, "momentum_decay value" },
  initial_accumulator_value = { 0, "initial_accumulator_value value" },
}

-- Options have the type of their defaults; numbers may be tensors of one
-- element, flags 0 and 1.
local function check_types(parsed, group)
  for option, default in pairs(parsed.defaults) do
    local value = group[option]
    if type(default) == "number" then
      types.number(parsed.name, option, value)
    elseif type(default) == "table" then
      types.list(parsed.name, option, default, value)
    elseif type(value) == "number" then
      group[option] = value ~= 0
    end
  end
end

local function on(flag)
  return flag and flag ~= 0
end

-- Of the constructor's arguments, not of a group's.
local function check_flags(name, a)
  local fused = on(a.fused)
  errors.check(not (fused and on(a.differentiable)), "RuntimeError",
    "%s: `fused` does not support `differentiable`", name)
  errors.check(not (fused and on(a.foreach)), "RuntimeError",
    "%s: `fused` and `foreach` cannot be `True` together.", name)
end

-- The options with tensors of one element as numbers.
local function in_numbers(group)
  local betas = group.betas or {}
  local any = core.is_tensor(betas[1])
  for _, value in pairs(group) do
    any = any or core.is_tensor(value)
  end
  if not any then
    return group
  end
  local out = {}
  for name, value in pairs(group) do
    out[name] = Optimizer.number(value)
  end
  out.betas = group.betas and { Optimizer.number(betas[1]), Optimizer.number(betas[2]) }
  return out
end

local function check_group(name, group)
  for option, range in pairs(RANGES) do
    local value = Optimizer.number(group[option])
    errors.check(type(value) ~= "number" or value >= range[1], "ValueError",
      "%s: Invalid %s: %s = %s, allowed is 0 or more", name, range[2], option, tostring(value))
  end
  for i, beta in ipairs(group.betas or {}) do
    beta = Optimizer.number(beta)
    errors.check(type(beta) ~= "number" or beta >= 0 and beta < 1, "ValueError",
      "%s: Invalid beta parameter at index %d: %s, allowed is 0 to 1, without 1", name, i - 1,
      tostring(beta))
  end
end

--- The class.
---@param sig string
---@param body {rule: function?, update: function?, differentiable: function?,
---  halves: function?, check: function?, base: table?, complete: function?,
---  strict: boolean?} check(numbers, group): the group with tensors as numbers, and itself;
---  complete(arguments) adds what the signature does not say; strict: foreach refuses
---  tensors; beside a rule differentiable: the update that a gradient goes through, and
---  halves: that of half parameters, unless it is fused
---@return table
return function(sig, body)
  local parsed = signature(sig)
  local cls = (body.base or Optimizer):extend(parsed.name)

  function cls:init(...)
    local a = parsed(...)
    for i = 2, #parsed.names do
      self._names[parsed.names[i]] = true
    end
    local params = a.params
    a.params = nil
    check_flags(parsed.name, a)
    if body.complete then
      body.complete(a)
    end
    Optimizer.init(self, params, a)
  end

  function cls.check_group(_, group)
    for option, value in pairs(group) do -- None is no option where it is the default
      if check.is_none(value) and parsed.defaults[option] == nil then
        group[option] = nil
      end
    end
    check_types(parsed, group)
    types.tensors(parsed.name, group, body.strict)
    check_group(parsed.name, group)
    if body.check then
      body.check(in_numbers(group), group)
    end
  end

  if body.rule then
    function cls.update_rule(_, group, param)
      return body.rule(group, param)
    end
    cls._beside = { rule = cls.update_rule, differentiable = body.differentiable,
      halves = function(self, group, param, grad)
        return body.halves(self, in_numbers(group), param, grad)
      end }
  elseif body.update then
    local through = differentiable.of(body.update, parsed.name)
    function cls.update(self, group, param, grad)
      if group.differentiable then
        return through(self, group, param, grad)
      end
      return body.update(self, in_numbers(group), param, grad)
    end
  end
  signatures.note(cls, sig)
  return cls
end
