--- What all optimizers of PopART have: their values, those of single weights, and
--- the check of another one that is to take an optimizer's place.
---
--- A kind of optimizer is made by `define` of rows
---   { "learningRate", "learningRates", 0.1 }
--- a value's name, what gives its map, and its default. A constructor's dictionary has
--- "defaultLearningRate" and "lossScaling", insertSpecific's "learningRate".
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local clipping = require("popart.optimizers.clipping")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("popart.errors")
local tables = require("lupine.base.tables")
local values = require("popart.optimizers.values")

local M = {}

--- Whether weight decay is beside the update or in the gradient.
M.WeightDecayMode = enum("WeightDecayMode", { "Decay", "L2Regularization" })

---@class popart.Optimizer
---@field type string "SGD", "Adam" or "Adaptive"
---@field clip_norm_settings popart.ClipNormSettings[]
local Optimizer = closed.close(class.new("Optimizer"),
  tables.set("accum_type accl1_type accl2_type accl3_type scaled_optimizer_state"))
M.Optimizer = Optimizer

--- error: popart_exception: only its sub-classes can be made
function Optimizer:init()
  errors.raise("popart_exception", "%s: No constructor defined. Allowed: SGD, ConstSGD, Adam, "
    .. "Adaptive", getmetatable(self).__name)
end

--- What the loss is multiplied by.
---@return number
function Optimizer:getLossScalingVal()
  return self._loss_scaling:val()
end

--- The same, with whether it is constant.
---@return popart.OptimizerValue
function Optimizer:lossScaling()
  return self._loss_scaling
end

--- A value of a weight.
---@param name string "learningRate", …
---@param id string
---@return number
function Optimizer:_of(name, id)
  return self._maps[name]:get(id):val()
end

--- Whether a value of a weight may be other than 0 some time.
---@param name string
---@param id string
---@return boolean
function Optimizer:_used(name, id)
  local value = self._maps[name]:get(id)
  return not value:isConst() or value:val() ~= 0
end

-- ---- types of tensors ---------------------------------------------------------------------

local float16, float32 = core.dtypes.float16, core.dtypes.float32
local DATA_TYPES = { FLOAT = float32, FLOAT16 = float16 }

--- The dtype of an argument; nil: that of the weight. It may be one, or a member or name
--- of popart.DataType.
--- error: popart_exception for one that states cannot have
---@param value any
---@param where string
---@return torch.dtype?
function M.data_type(value, where)
  local name = enum.is_member(value) and value.name or value
  if check.is_none(value) or name == "UNDEFINED" then
    return nil
  end
  local dtype = DATA_TYPES[name] or value
  return errors.check((dtype == float32 or dtype == float16) and dtype, "popart_exception",
    "%s: Unsupported data type %s. Allowed: FLOAT, FLOAT16, UNDEFINED", where, tostring(value))
end

-- ---- values -------------------------------------------------------------------------------

-- What a value is called in a constructor's dictionary.
local function default_key(name)
  return name == "nesterov" and name or "default" .. name:sub(1, 1):upper() .. name:sub(2)
end

local function names_of(rows, key)
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = key and key(row[1]) or row[1]
  end
  return out
end

--- Sets values, loss scale and clipping of the constructor's arguments.
--- error: popart_exception for a value that it cannot have
---@param dict table
---@param clips any
function Optimizer:_setup(dict, clips)
  local kind, rows = self.type, self._rows
  local allowed = names_of(rows, default_key)
  table.insert(allowed, "lossScaling")
  local given = values.read(kind, dict, allowed, "Invalid " .. kind
    .. " key, %s, the allowed keys are")
  local own = {}
  self._maps = {}
  for _, row in ipairs(rows) do
    own[row[1]] = given[default_key(row[1])] or values.OptimizerValue(row[3], true)
    self._maps[row[1]] = values.OptimizerValueMap(own[row[1]])
  end
  self._loss_scaling = given.lossScaling or values.OptimizerValue(1, true)
  local scale = self._loss_scaling:val()
  errors.check(scale ~= 0 and scale == scale, "popart_exception", "Loss scaling cannot be 0")
  self:_check(own)
  self.clip_norm_settings = clipping.read(clips, kind .. ": clip_norm_settings")
end

--- Gives a weight values of its own; those that are left out are the defaults of now.
--- error: popart_exception for a name or value that it cannot have, or a weight that has some
---@param ... any id (string), values (table of {value, isConst} by name)
function Optimizer:insertSpecific(...)
  local kind, where = self.type, self.type .. ".insertSpecific"
  local a = check.arguments(where, { "id", "values" }, { values = true }, ...)
  local id, names = check.string(a[1], where .. ": id"), names_of(self._rows)
  local own = values.read(where, a[2], names, "Invalid key %s in " .. kind
    .. "::insertSpecific. Permitted keys are")
  for name, map in pairs(self._maps) do
    own[name] = own[name] or map:getDefault()
  end
  self:_check(own)
  for _, name in ipairs(names) do
    self._maps[name]:insertSpecific(id, own[name])
  end
end

--- Whether a weight, or any without `id`, has values of its own.
---@param id? string
---@return boolean
function Optimizer:hasSpecific(id)
  return self._maps.learningRate:hasSpecific(id)
end

--- The weights with values of their own, sorted.
---@return string[]
function Optimizer:_specific_ids()
  return tables.keys(self._maps.learningRate._specific)
end

-- What all kinds check of their values; `least`: names that must be 0 or more, with what
-- messages call them.
function Optimizer:_check_common(own, least)
  local kind = self.type
  local lr = own.learningRate
  errors.check(lr:val() >= 0, "popart_exception",
    "Negative learning rate (%g) in %s, bailing as this might be a user error.", lr:val(), kind)
  errors.check(lr:val() ~= 0 or not lr:isConst(), "popart_exception",
    "Constant, zero learning rate in %s, bailing as this might be a user error.", kind)
  for _, row in ipairs(least) do
    local value = own[row[1]]:val()
    errors.check(value >= 0, "popart_exception",
      "Negative %s (%g) in %s, bailing as this might be a user error", row[2], value, kind)
  end
  if own.eps then
    errors.check(own.eps:val() > 0, "popart_exception",
      "Non-positive eps (%g) in %s is not supported", own.eps:val(), kind)
  end
end

-- ---- replacement --------------------------------------------------------------------------

local REFUSED, SAYS = "optimizer_replacement_error", "New optimizer is not a valid replacement. "

--- Raises unless `ok`.
--- error: optimizer_replacement_error
---@param ok any
---@param fmt string
---@param ... any for the format
function M.check_replacement(ok, fmt, ...)
  errors.check(ok, REFUSED, SAYS .. fmt, ...)
end
local fits = M.check_replacement

local function check_clipping(mine, theirs)
  fits(#mine == #theirs, "Clip norm settings do not match.")
  for i, one in ipairs(mine) do
    fits(one == theirs[i], "Clip norm settings at index %d do not match.", i - 1)
  end
end

--- Whether another optimizer may take its place in a session that was made with it.
--- error: optimizer_replacement_error if not
---@param other popart.Optimizer
function Optimizer:validReplacement(other)
  check.instance(other, "validReplacement: other", Optimizer)
  check_clipping(self.clip_norm_settings, other.clip_norm_settings)
  fits(self.type == other.type,
    "Can not replace optimizer of type %s with new optimizer of type %s", self.type, other.type)
  self:_check_modes(other)
  values.telling(REFUSED, function() self._loss_scaling:validReplacement(other._loss_scaling) end,
    SAYS .. "Problem with loss scaling.")
  for _, row in ipairs(self._rows) do
    values.telling(REFUSED, function()
      self._maps[row[1]]:validReplacement(other._maps[row[1]])
    end, SAYS .. "Problem with %s.", row[4] or row[2])
  end
  self:_check_states(other)
end

function Optimizer._check_modes() end

function Optimizer._check_states() end

-- ---- kinds --------------------------------------------------------------------------------

--- A kind of optimizer. `order` are the constructor's arguments, of which the first is
--- the dictionary; `take(self, values)` reads the others.
---@param kind string its name
---@param rows table[] as above; a fourth entry is what replacement errors call it
---@param order string[]
---@param take fun(self: table, a: table)
---@return table class
function M.define(kind, rows, order, take)
  local cls = Optimizer:extend(kind)
  cls.type, cls._rows = kind, rows
  local takes_tables = { [order[1]] = true, clip_norm_settings = "list" }
  function cls:init(...)
    local only = select("#", ...) == 1 and (...)
    local named = type(only) == "table" and only[order[1]] ~= nil
    local a = check.arguments(kind, order, not named and takes_tables or nil, ...)
    local given = {}
    for i, name in ipairs(order) do
      given[name] = a[i]
    end
    self:_setup(given[order[1]] or {}, given.clip_norm_settings)
    take(self, given)
  end
  for _, row in ipairs(rows) do
    cls[row[2]] = function(self)
      return self._maps[row[1]]
    end
  end
  return cls
end

--- The mode that an argument names; `default` if it is left out.
---@param value any
---@param where string
---@param enumeration table
---@param default table
---@return table member
function M.mode(value, where, enumeration, default)
  return check.is_none(value) and default or check.enum(value, where, enumeration)
end

--- Raises unless two optimizers have the same in these fields.
--- error: optimizer_replacement_error
---@param a popart.Optimizer
---@param b popart.Optimizer
---@param fields table<string, string> field -> what messages call it
function M.same(a, b, fields)
  for _, field in ipairs(tables.keys(fields)) do
    fits(a[field] == b[field], "%s do not match: this has %s, other has %s", fields[field],
      tostring(a[field]), tostring(b[field]))
  end
end

return M
