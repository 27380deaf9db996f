--- Types of the options of optimizers.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- What PyTorch indexes, and so finds too short.
local INDEXED = { betas = true, etas = true }
local WORDS = { "one", "two", "three" }

local function is_number(value)
  return type(value) == "number" or core.is_tensor(value)
end

--- A number, or a tensor of one element; lr's size is checked with its value.
--- error: TypeError, ValueError
---@param name string the optimizer's
---@param option string
---@param value any
function M.number(name, option, value)
  errors.check(is_number(value), "TypeError", "%s: %s must be a number, got %s", name, option,
    check.is_none(value) and "None" or check.describe(value))
  errors.check(type(value) == "number" or option == "lr" or value:numel() == 1, "ValueError",
    "%s: %s must be a number or a tensor of one element, got %s", name, option,
    check.describe(value))
end

--- As many numbers as the default has.
--- error: TypeError, ValueError; IndexError for too few betas
---@param name string the optimizer's
---@param option string
---@param default number[]
---@param value any
function M.list(name, option, default, value)
  errors.check(type(value) == "table" and not class.of(value), "TypeError",
    "%s: %s must be a list of %s numbers, {%s}, got %s", name, option, WORDS[#default],
    table.concat(default, ", "), check.describe(value))
  local short = #value < #default and INDEXED[option]
  errors.check(#value == #default, short and "IndexError" or "ValueError",
    "%s: %s must be a list of %s numbers, {%s}, got %d", name, option, WORDS[#default],
    table.concat(default, ", "), #value)
  for i, v in ipairs(option ~= "betas" and value or {}) do -- M.tensors has betas
    errors.check(is_number(v), "TypeError", "%s: %s[%d] must be a number, got %s", name, option,
      i - 1, check.describe(v))
  end
end

--- Rates and betas as tensors of one element. `strict`: those of Adam and AdamW
--- only a loop over single parameters or a capturable one can read.
--- error: TypeError, ValueError
---@param name string the optimizer's
---@param group table
---@param strict boolean?
function M.tensors(name, group, strict)
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

return M
