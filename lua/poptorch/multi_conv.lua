--- MultiConv: convolutions that the device runs as one operation, side by
--- side. It changes what they cost: in parallel every convolution has tiles of
--- its own (src/passes/ipu/shares.c says how many). Of its settings half
--- partials alone change values.
---
--- Source: PopTorch API reference, poptorch.MultiConv; PopLibs' options of
--- multi-convolutions for the defaults.
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")

local AE = { error = "AssertionError" }
local PLAN = { [enums.MultiConvPlanType.Parallel] = "parallel",
  [enums.MultiConvPlanType.Serial] = "serial" }
local PARTIALS = { [core.dtypes.float32] = "float", [core.dtypes.float16] = "half" }

--- A scope for convolutions that do not depend on each other; all else inside
--- stays as it is. Setters come before the convolutions.
---
---     local _ <close> = poptorch.MultiConv():planType(poptorch.MultiConvPlanType.Serial)
---     local y, z = poptorch.MultiConv(function() return self.a(x), self.b(x) end)
---     self.both = poptorch.MultiConv():cycleBackOff(0.3)   -- in init; then in forward:
---     local y, z = self.both(function() return self.a(x), self.b(x) end)
---
--- When a traced scope ends: poptorch.Error if there is no convolution inside, or a
--- list of a setter has another length than there are; if it lies in another one when it
--- starts. Convolutions that depend on each other are an error when the model is compiled.
---@class poptorch.MultiConv
local MultiConv = class.new("MultiConv")

-- Tells the trace, if the scope is open there.
local function tell(self)
  if self._tracer and self._tracer == blocks.tracer then
    blocks.tracer.set_multi_conv({ plan = PLAN[self._plan_type], reserved = self._reserved,
      back_off = self._back_off, proportions = self._proportions, partials = self._partials,
      dithering = self._dithering })
  end
  return self
end

local function open(self)
  if blocks.tracer then
    blocks.tracer.begin_multi_conv()
  end
  blocks.opened(self)
  return tell(self)
end

--- MultiConv([f]): opens the scope, if a model is traced; with a function runs
--- it inside.
---@param f? function
---@return any what f returns, else the scope, to be closed
function MultiConv.new(cls, f)
  errors.check(f == nil or type(f) == "function", "TypeError",
    "MultiConv: expected a function to run inside or nothing, got %s", check.describe(f))
  local self = setmetatable({ _plan_type = enums.MultiConvPlanType.Parallel, _reserved = 50,
    _back_off = 0.1 }, cls)
  if f then
    return self(f)
  end
  return open(self)
end

--- Opens the scope again; with a function runs it inside.
---@param f? function
---@return any what f returns, else the scope, to be closed
function MultiConv.__call(self, f)
  if blocks.closed(self) then -- what making it opened
    blocks.tracer.end_multi_conv()
  end
  if f == nil then
    return open(self)
  end
  local _ <close> = open(self)
  return f()
end

local LISTS = { { "_proportions", "availableMemoryProportions" }, { "_partials", "partialsTypes" },
  { "_dithering", "enableConvDithering" } }

function MultiConv.__close(self, e)
  if not blocks.closed(self) then
    return
  end
  local n = blocks.tracer.end_multi_conv(self)
  if e then
    return
  end
  errors.check(n > 0, "Error", "MultiConv: unexpected end: there is no convolution inside")
  for _, row in ipairs(LISTS) do
    local values = self[row[1]]
    errors.check(not values or #values == 1 or #values == n, "Error",
      "MultiConv.%s: expected one value or %d, one for each convolution inside, got %d", row[2], n,
      values and #values)
  end
end

-- `value`, or the elements of a list that is not empty, each checked.
local function each(value, where, class_name, allowed, is)
  local list = type(value) == "table" and not getmetatable(value) and value or { value }
  for i = 1, math.max(#list, 1) do
    errors.check(is(list[i]), class_name, "%s: expected %s or a list of such, got %s", where,
      allowed, list == value and check.describe(list[i]) or check.describe(value))
  end
  return { table.unpack(list) }
end

--- The share of a tile's memory that convolutions may use for temporaries.
--- error: AssertionError for anything but numbers from 0 to less than 1
---@param ... any value (number|number[]|nil one for all or one each; nil: as the IPU has)
---@return poptorch.MultiConv self
function MultiConv:availableMemoryProportions(...)
  check.method(self, MultiConv, "availableMemoryProportions")
  local value = check.one("MultiConv.availableMemoryProportions", "value", ...)
  self._proportions = value ~= nil and each(value, "MultiConv.availableMemoryProportions: value",
    "AssertionError", "a number from 0 to less than 1", function(x)
      return type(x) == "number" and x >= 0 and x < 1
    end) or nil
  return tell(self)
end

--- The type in which partial sums are kept: on the simulated device what
--- convolutions cost, not what they compute.
--- error: ValueError for anything but torch.float and torch.half
---@param ... any value (torch.dtype|torch.dtype[] one for all or one each)
---@return poptorch.MultiConv self
function MultiConv:partialsTypes(...)
  check.method(self, MultiConv, "partialsTypes")
  local value = check.one("MultiConv.partialsTypes", "value", ...)
  self._partials = each(value, "MultiConv.partialsTypes: invalid partials types", "ValueError",
    "torch.float or torch.half", function(x)
      return PARTIALS[x] ~= nil
    end)
  for i, dtype in ipairs(self._partials) do
    self._partials[i] = PARTIALS[dtype]
  end
  return tell(self)
end

--- Convolutions begin at tiles drawn from their shapes, not all at the first (docs/simulation.md).
--- error: ValueError for anything but bools
---@param ... any value (boolean|boolean[]|nil one for all or one each)
---@return poptorch.MultiConv self
function MultiConv:enableConvDithering(...)
  check.method(self, MultiConv, "enableConvDithering")
  local value = check.one("MultiConv.enableConvDithering", "value", ...)
  self._dithering = value ~= nil and each(value, "MultiConv.enableConvDithering: value",
    "ValueError", "a bool", function(x)
      return type(x) == "boolean"
    end) or nil
  return tell(self)
end

--- Side by side (Parallel, the default) or one after another (Serial).
--- error: AssertionError for anything but a MultiConvPlanType
---@param ... any value (table? a MultiConvPlanType; nil: the default)
---@return poptorch.MultiConv self
function MultiConv:planType(...)
  check.method(self, MultiConv, "planType")
  local value = check.one("MultiConv.planType", "value", ...)
  self._plan_type = value == nil and enums.MultiConvPlanType.Parallel
    or check.enum(value, "MultiConv.planType: invalid plan type", enums.MultiConvPlanType, AE)
  return tell(self)
end

--- Tiles that each convolution has at least (50).
--- error: AssertionError for anything but an integer from 0 on
---@param ... any value (integer)
---@return poptorch.MultiConv self
function MultiConv:perConvReservedTiles(...)
  check.method(self, MultiConv, "perConvReservedTiles")
  local value = check.one("MultiConv.perConvReservedTiles", "value", ...)
  self._reserved = math.tointeger(check.int(value, "MultiConv.perConvReservedTiles: value",
    { error = "AssertionError", outside = "AssertionError", min = 0, max = 1 << 20 }))
  return tell(self)
end

--- By how much the longest convolution may be slower than at its quickest, for
--- each of the others, to leave tiles to these (0.1).
--- error: AssertionError for anything but a number from 0 to 1
---@param ... any value (number)
---@return poptorch.MultiConv self
function MultiConv:cycleBackOff(...)
  check.method(self, MultiConv, "cycleBackOff")
  local value = check.one("MultiConv.cycleBackOff", "value", ...)
  local number = check.number(value, "MultiConv.cycleBackOff: value", AE)
  errors.check(number >= 0 and number <= 1, "AssertionError",
    "MultiConv.cycleBackOff: value: expected a number from 0 to 1, got %s", check.describe(value))
  self._back_off = number
  return tell(self)
end

function MultiConv.__tostring(self)
  return ("MultiConv(%s)"):format(tostring(self._plan_type))
end

return { MultiConv = MultiConv }
