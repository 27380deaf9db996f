--- PopART's clipping of gradients by their norm: the weights of one setting are
--- scaled together where what updates them is longer than the maximum.
---
--- Source: PopART C++ API, ClipNormSettings.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local enum = require("lupine.base.enum")
local errors = require("popart.errors")
local logging = require("popart.logging")

local M = {}

local Mode = enum("ClipNormSettings.Mode", { "ClipSpecifiedWeights", "ClipAllWeights" })

---@class popart.ClipNormSettings
---@field weightIds string[]
---@field maxNorm number
local ClipNormSettings = closed.close(class.new("ClipNormSettings"))
M.ClipNormSettings = ClipNormSettings

local function settings(mode, ids, max_norm, where)
  local self = setmetatable({}, ClipNormSettings)
  self.mode = mode
  self.weightIds = check.strings(ids, where .. ": weightIds")
  self.maxNorm = check.number(max_norm, where .. ": maxNorm")
  return self
end

--- As clipWeights; deprecated in its favour.
---@param ... any weightIds (string[]), maxNorm (number)
---@return popart.ClipNormSettings
function ClipNormSettings.new(_, ...)
  local a = check.arguments("ClipNormSettings", { "weightIds", "maxNorm" }, { weightIds = "list" },
    ...)
  logging.warn("popart", "Using deprecated constructor ClipNormSettings(weightIds, maxNorm): "
    .. "use 'clipWeights' and 'clipAllWeights' instead.")
  return settings(Mode.ClipSpecifiedWeights, a[1], a[2], "ClipNormSettings")
end

--- The weights of that names together.
---@param ... any weightIds (string[]), maxNorm (number)
---@return popart.ClipNormSettings
function ClipNormSettings.clipWeights(...)
  local a = check.arguments("clipWeights", { "weightIds", "maxNorm" }, { weightIds = "list" }, ...)
  return settings(Mode.ClipSpecifiedWeights, a[1], a[2], "clipWeights")
end

--- All weights together; no other setting may stand beside it.
---@param ... any maxNorm (number)
---@return popart.ClipNormSettings
function ClipNormSettings.clipAllWeights(...)
  return settings(Mode.ClipAllWeights, {}, check.one("clipAllWeights", "maxNorm", ...),
    "clipAllWeights")
end

--- error: popart_exception for a setting of all weights
---@return string[]
function ClipNormSettings:getWeightIds()
  errors.check(self.mode == Mode.ClipSpecifiedWeights, "popart_exception",
    "ClipNormSettings.getWeightIds should only be called if ClipNormSettings.getMode returns "
    .. "Mode::ClipSpecifiedWeights.")
  return self.weightIds
end

---@return number
function ClipNormSettings:getMaxNorm()
  return self.maxNorm
end

--- ClipSpecifiedWeights or ClipAllWeights.
function ClipNormSettings:getMode()
  return self.mode
end

function ClipNormSettings.__eq(a, b)
  return a.mode == b.mode and math.abs(a.maxNorm - b.maxNorm) <= 1e-6 * math.abs(a.maxNorm)
    and table.concat(a.weightIds, "\0") == table.concat(b.weightIds, "\0")
end

--- A list of settings, as constructors of optimizers take it.
---@param list any nil: none
---@param where string
---@return popart.ClipNormSettings[]
function M.read(list, where)
  local out = {}
  for i, one in ipairs(check.is_none(list) and {} or check.plain_table(list, where)) do
    out[i] = check.instance(one, ("%s[%d]"):format(where, i), ClipNormSettings)
  end
  return out
end

--- Number of the setting of each weight; the others have none.
--- error: popart_exception for settings that exclude each other, or name a weight that
--- the optimizer does not update
---@param list popart.ClipNormSettings[]
---@param ids string[] the weights
---@return table<string, integer>
function M.groups(list, ids)
  local of, known = {}, {}
  for _, id in ipairs(ids) do
    known[id] = true
  end
  for i, one in ipairs(list) do
    errors.check(#list == 1 or one.mode ~= Mode.ClipAllWeights, "popart_exception",
      "Multiple clip groups specified, but one has the mode 'ClipAllWeights'. When using "
      .. "ClipNormSettings.clipAllWeights(...), only one group should be specified.")
    for _, id in ipairs(one.mode == Mode.ClipAllWeights and ids or one.weightIds) do
      errors.check(known[id], "popart_exception", "Could not find a varupdate op for tensor %s", id)
      errors.check(not of[id] or of[id] == i, "popart_exception",
        "tensor %s is in two clip groups", id)
      of[id] = i
    end
  end
  return of
end

return M
