--- popart.Patterns: PopART's rewriting of small parts of a graph, on and off by name.
---
---     local patterns = popart.Patterns(popart.PatternsLevel.Default)
---     patterns.InPlace = false
---     patterns:enablePattern("SplitGather", true)
---
--- Here they change nothing, neither a value nor how a model is compiled: what the patterns
--- do is done by the compiler's own passes, which are fixed, or by the operators' records
--- (gradients). Names and rules are the original's; a report notes what was chosen.
---
--- Source: PopART Python API, Patterns; its list of patterns.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local enums = require("popart.enums")
local errors = require("popart.errors")
local logging = require("popart.logging")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

local Level = enums.PatternsLevel

-- Without these a graph cannot be lowered: gradients and what is written in other
-- operators.
local MANDATORY = tables.set [[AbsGradOp AllReduceToIdentity Atan2Arg0GradOp Atan2Arg1GradOp
  ConvDataGrad ConvFlipWeightsGradOp ConvTranspose CosGradOp CoshOp DivArg0GradOp DivArg1GradOp
  ExpGradOp Expm1GradOp FmodArg0GradOp Log1pGradOp LogGradOp LoopScanOut MatMulLhsGradOp MatMulOp
  MatMulRhsGradOp MulArgGradOp PowArg0GradOp PowArg1GradOp RandomNormalLikeOpPattern
  RandomUniformLikeOpPattern ReciprocalGradOp ScanToLoop SinGradOp SqrtGradOp SubtractArg1GradOp
  ZerosLikeOpPattern]]
local DEFAULT = tables.set [[ConvFlipWeightsDoubleFlip DecomposeBinaryConstScalar ExpandCast
  InitAccumulate LambSerialisedWeight NegativeOneScale NlllWithSoftmaxGradDirect OpToIdentity
  PackedDataBlock PadSum PostNRepl PreUniRepl RemoveUnnecessaryLossGradCast SoftmaxGradDirect
  SplitGradOpToConcat SplitOp SumToAdd TransposeToIdentityOrReshapePattern UpsampleToResize]]
local OFF = tables.set [[LSTMOp Slice2SliceSubsample SplitGather TiedGather TiedGatherAccumulate]]
-- Not among those that levels and lists of names sort, but part of Default and All.
local INPLACE = tables.set "InPlace UpdateInplacePrioritiesForIpu"

-- Attributes of Python whose pattern has another name.
local SPELLED = { SoftMaxGradDirect = "SoftmaxGradDirect",
  NlllWithSoftMaxGradDirect = "NlllWithSoftmaxGradDirect" }

local known = {}
for _, set in ipairs({ MANDATORY, DEFAULT, OFF, INPLACE }) do
  for name in pairs(set) do
    known[name] = true
  end
end
local NAMES = tables.keys(known)

--- The names of all patterns, sorted.
---@return string[]
function M.names()
  return { table.unpack(NAMES) }
end

local function check_name(name)
  check.string(name, "Patterns: a name")
  name = SPELLED[name] or name
  local hint = name == "Inplace" and ", did you mean InPlace?" or check.nearest(name, NAMES)
  return errors.check(known[name] and name, "popart_exception", "Unknown pattern %s%s", name, hint)
end

local LEVELS = {
  [Level.NoPatterns] = {}, [Level.Minimal] = { MANDATORY },
  [Level.Default] = { MANDATORY, DEFAULT, INPLACE },
  [Level.All] = { MANDATORY, DEFAULT, OFF, INPLACE },
}

--- Patterns of a level, Default unless given, or those of a list. All change nothing here.
--- error: popart_exception for a name that no pattern has
--- source: PopART Python API, Patterns
---@class popart.Patterns
---@overload fun(level: any): popart.Patterns
---@overload fun(patterns: string[]): popart.Patterns
local Patterns = class.new("Patterns")
M.Patterns = Patterns
signatures.note(Patterns, "Patterns(level)", 1)

-- Each pattern is a field, by its name.
function Patterns.__index(self, key)
  local value, on = Patterns[key], rawget(self, "_on")
  if value ~= nil or not on then
    return value
  end
  local name = SPELLED[key] or key
  errors.check(known[name], "AttributeError", "Patterns has no attribute '%s'%s", tostring(key),
    check.nearest(key, NAMES))
  return on[name] or false
end

function Patterns.__newindex(self, key, value)
  errors.check(known[SPELLED[key] or key], "AttributeError", "Patterns has no attribute '%s'%s",
    tostring(key), check.nearest(key, NAMES))
  self:enablePattern(key, value)
end

-- {name = true} of what Patterns is called with.
local function chosen(given)
  local on = {}
  if given == nil or Level:is(given) then
    for _, set in ipairs(LEVELS[given or Level.Default]) do
      for name in pairs(set) do
        on[name] = true
      end
    end
    return on
  end
  errors.check(type(given) == "table" and not getmetatable(given), "TypeError",
    "Patterns: level: expected a PatternsLevel or a list of names, got %s", check.describe(given))
  for _, name in ipairs(check.strings(given, "Patterns: patterns")) do
    on[check_name(name)] = true
  end
  return on
end

function Patterns:init(...)
  local v = check.arguments("Patterns", { "level", "patterns" },
    { level = "list", patterns = "list" }, ...)
  rawset(self, "_on", chosen(v[1] == nil and v[2] or v[1]))
  rawset(self, "_asserts", true)
end

--- Whether a pattern is on.
--- error: popart_exception for a name that no pattern has
---@param name string
---@return boolean
function Patterns:isPatternEnabled(name)
  return self._on[check_name(name)] or false
end

--- Switches a pattern on or off.
--- error: popart_exception for a name that no pattern has, or a mandatory one that is to be
--- off
---@param name string
---@param on boolean
---@return popart.Patterns self
function Patterns:enablePattern(name, on)
  name = check_name(name)
  check.bool(on, "Patterns: " .. name)
  logging.info("pattern", "Pattern %s %s", name, on)
  errors.check(on or not MANDATORY[name], "popart_exception",
    "Pattern '%s' is mandatory and cannot be disabled", name)
  self._on[name] = on
  return self
end

--- Whether a session refuses patterns without a mandatory one: true unless set.
--- error: TypeError
---@param on boolean
---@return popart.Patterns self
function Patterns:enableRuntimeAsserts(on)
  rawset(self, "_asserts", check.bool(on, "enableRuntimeAsserts: b"))
  return self
end

--- The patterns that are on, sorted.
---@return string[]
function Patterns:enabled()
  return tables.keys(self._on, function(_, on)
    return on
  end)
end

function Patterns.__eq(a, b)
  return table.concat(a:enabled(), " ") == table.concat(b:enabled(), " ")
end

function Patterns.__tostring(self)
  return table.concat(self:enabled(), " ")
end

--- What must hold when a session is made: mandatory patterns are on.
--- error: popart_exception naming the first one that is not
---@param patterns popart.Patterns
function M.check(patterns)
  for _, name in ipairs(patterns._asserts and tables.keys(MANDATORY) or {}) do
    errors.check(patterns._on[name], "popart_exception", "Pattern '%s' must be enabled", name)
  end
end

--- Calls note(name, why) where patterns were chosen, as reports have it.
---@param patterns popart.Patterns
---@param note fun(name: string, why: string)
function M.note(patterns, note)
  if patterns ~= Patterns() then
    note("Patterns", "the passes over the graph are fixed")
  end
end

return M
