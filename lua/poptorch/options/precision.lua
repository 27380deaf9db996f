--- Options.Precision: partials, rounding, floating-point exceptions.
--- Sources: PopTorch API reference, poptorch.options._PrecisionOptions; user
--- guide 2.6, "Automatic casting".
local autocasting = require("poptorch.autocasting")
local check = require("lupine.base.check")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local logging = require("poptorch.logging")

local H = enums.HalfFloatCastingBehavior

-- torch.float32 -> "float", torch.float16 -> "half". A dtype is recognised by
-- how it prints, so that options need no tensor library.
local PARTIALS = {
  ["torch.float32"] = "float", ["torch.float"] = "float",
  ["torch.float16"] = "half", ["torch.half"] = "half",
}

local function set_partials(self, values, _, row)
  local dtype = values[1]
  local name = type(dtype) ~= "string" and dtype ~= nil and PARTIALS[tostring(dtype)]
  errors.check(name, "ValueError",
    "setPartialsType(dtype): allowed are torch.float and torch.half, got %s",
    type(dtype) == "userdata" and tostring(dtype) or check.describe(dtype))
  self:_store(row, name)
  self._owner._Popart:_merge("convolutionOptions", { partialsType = name })
end

-- The `idle` of an option that acts on float16 alone.
local function half_only(value, program, row)
  return value ~= row.default and not program.has_half() and "nothing is of float16" or nil
end

local NOT_ASKED = "no module is marked by autocast() and no poptorch.autocast scope opens"

local function deprecated(name, store)
  return function(self, values, _, row)
    store(self, values[1], row)
    logging.warn("Options.Precision.%s is deprecated and will be removed", name)
  end
end

return Group.define("_PrecisionOptions", {
  {
    name = "enableFloatingPointExceptions", key = "floating_point_exceptions",
    params = { "enabled" }, kind = "bool", default = false, popart = "enableFloatingPointChecks",
    doc = "A run raises poptorch.Error on inf - inf, x/0, 0*inf, results that are not real, "
      .. "comparison with NaN.",
    effect = "Checks after every operator on the host; the IPU traps at no cost.",
  },
  {
    name = "enableStochasticRounding", key = "stochastic_rounding", params = { "enabled" },
    kind = "bool", default = false, popart = "enableStochasticRounding",
    doc = "Rounds to float16 up or down at random, so that the expected value is exact.",
    effect = "Values change, by the seed; cycles do not. Sums of outputs over a call, which "
      .. "the host makes, round to nearest.",
    idle = half_only,
  },
  {
    name = "setPartialsType", key = "partials_type", params = { "dtype" }, default = "float",
    popart = "partialsTypeMatMuls", set = set_partials,
    doc = "Type of partial results of matrix multiplications, convolutions, sums and means of "
      .. "float16.",
    effect = "half: running sums round to float16 after each 16 products, in the order of their "
      .. "index; partials take half the memory and exchange, and the arithmetic unit works at its "
      .. "rate for them.",
    idle = half_only,
  },
  {
    name = "halfFloatCasting", key = "half_float_casting", kind = H, default = H.Default,
    error = "ValueError",
    set = deprecated("halfFloatCasting", function(self, value, row)
      self:_store(row, Group._argument(row, "half_float_casting", value))
    end),
    doc = "Deprecated: mixed types promote as in PyTorch whatever is chosen.",
    no_effect = "mixed types promote as in PyTorch",
  },
  {
    name = "runningStatisticsAlwaysFloat", key = "running_statistics_always_float",
    params = { "value" }, kind = "bool", default = true, error = "ValueError",
    set = deprecated("runningStatisticsAlwaysFloat", function(self, value, row)
      self:_store(row, Group._argument(row, "value", value))
    end),
    doc = "Deprecated: the type of running statistics is that of the buffers.",
    no_effect = "running statistics have their buffers' type",
  },
  {
    name = "autocastEnabled", key = "autocast_enabled", kind = "bool", default = true,
    error = "ValueError",
    doc = "Master switch of automatic casting (2.6): marked modules and poptorch.autocast.",
    effect = "Types of operators, and of the weights of marked modules.",
    idle = function(enabled, program)
      return not enabled and not program.casting and NOT_ASKED or nil
    end,
    source = "PopTorch 2.6 user guide, \"Automatic casting\"",
  },
  {
    name = "autocastPolicy", key = "autocast_policy", kind = autocasting.Policy,
    default = autocasting.default, error = "ValueError",
    doc = "Which operators automatic casting runs in which type (2.6).",
    effect = "As autocastEnabled.",
    idle = function(policy, program)
      if policy:same(autocasting.default) then
        return nil
      end
      return not program.casting and NOT_ASKED
        or not program.options.Precision.autocast_enabled and "autocastEnabled is false" or nil
    end,
    source = "PopTorch 2.6 user guide, \"Automatic casting\"",
  },
})
