--- Optimizers from a signature: the arguments after `params` are the defaults
--- of every group.
local Optimizer = require("torch.optim.optimizer")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local differentiable = require("torch.optim.differentiable")
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")

-- name -> lowest value, which is allowed itself, and what messages call it
local RANGES = {
  lr = { 0, "learning rate" }, momentum = { 0, "momentum value" },
  weight_decay = { 0, "weight_decay value" }, eps = { 0, "epsilon value" },
  alpha = { 0, "alpha value" }, rho = { 0, "rho value" },
  lambd = { 0, "lambd value" }, lr_decay = { 0, "lr_decay value" },
  momentum_decay = { 0, "momentum_decay value" },
  initial_accumulator_value = { 0, "initial_accumulator_value value" },
}

local function is_number(value)
  return type(value) == "number" or core.is_tensor(value)
end

-- What PyTorch indexes, and so finds too short.
local INDEXED = { betas = true, etas = true }
local WORDS = { "one", "two", "three" }

-- An option whose default is a list has as many numbers.
local function check_list(name, option, default, value)
  errors.check(type(value) == "table" and not class.of(value), "TypeError",
    "%s: %s must be a list of %s numbers, {%s}, got %s", name, option, WORDS[#default],
    table.concat(default, ", "), check.describe(value))
  local short = #value < #default and INDEXED[option]
  errors.check(#value == #default, short and "IndexError" or "ValueError",
    "%s: %s must be a list of %s numbers, {%s}, got %d", name, option, WORDS[#default],
    table.concat(default, ", "), #value)
  for i, v in ipairs(option ~= "betas" and value or {}) do -- check_tensors has betas
    errors.check(is_number(v), "TypeError", "%s: %s[%d] must be a number, got %s", name, option,
      i - 1, check.describe(v))
  end
end

-- Options have the type of their defaults; numbers may be tensors of one
-- element, flags 0 and 1.
local function check_types(parsed, group)
  for option, default in pairs(parsed.defaults) do
    local value = group[option]
    if type(default) == "number" then
      errors.check(is_number(value), "TypeError", "%s: %s must be a number, got %s", parsed.name,
        option, value == nil and "None" or check.describe(value))
      errors.check(type(value) == "number" or option == "lr" or value:numel() == 1, "ValueError",
        "%s: %s must be a number or a tensor of one element, got %s", parsed.name, option,
        check.describe(value))
    elseif type(default) == "table" then
      check_list(parsed.name, option, default, value)
    elseif type(value) == "number" then
      group[option] = value ~= 0
    end
  end
end

-- Rates and betas as tensors of one element. `strict`: those of Adam and AdamW
-- only a loop over single parameters or a capturable one can read.
local function check_tensors(name, group, strict)
  local lr, betas = group.lr, group.betas or {}
  errors.check(not core.is_tensor(lr) or lr:numel() == 1, "ValueError",
    "%s: Tensor lr must be 1-element", name)
  local given = 0
  for i, beta in ipairs(betas) do
    given = given + (type(beta) == "number" and 0 or 1)
    local tensor = core.is_tensor(beta)
    errors.check(type(beta) == "number" or tensor and beta:numel() == 1,
      tensor and "ValueError" or "TypeError",
      "%s: betas[%d] must be a number or a tensor of one element, got %s", name, i - 1,
      check.describe(beta))
  end
  errors.check(given == 0 or given == #betas, "ValueError",
    "%s: betas must be either both floats or both Tensors", name)
  errors.check(not strict or not group.foreach or group.capturable
    or given == 0 and type(lr) == "number", "ValueError",
    "%s: lr or betas as Tensors are not supported for capturable=False and foreach=True", name)
end

-- Of the constructor's arguments, not of a group's.
local function check_flags(name, a)
  errors.check(not (a.fused and a.differentiable), "RuntimeError",
    "%s: `fused` does not support `differentiable`", name)
  errors.check(not (a.fused and a.foreach), "RuntimeError",
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
---@param body {rule: function?, update: function?, differentiable: function?, check: function?,
---  base: table?, complete: function?, strict: boolean?} check(numbers, group): the group with
---  tensors as numbers, and itself; complete(arguments) adds what the signature
---  does not say; strict: foreach refuses tensors; differentiable: the
---  update that a gradient goes through, else made of `update`
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
    check_tensors(parsed.name, group, body.strict)
    check_group(parsed.name, group)
    if body.check then
      body.check(in_numbers(group), group)
    end
  end

  cls.update_rule = body.rule and function(_, group, param)
    return body.rule(group, param)
  end or cls.update_rule
  cls.update = body.update and function(self, group, param, grad)
    return body.update(self, in_numbers(group), param, grad)
  end or cls.update
  cls._differentiable = body.differentiable
    or body.update and differentiable.of(body.update, parsed.name)
  signatures.note(cls, sig)
  return cls
end
