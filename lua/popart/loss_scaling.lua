--- Automatic loss scaling as PopART's settings have it, for lupine's sessions
--- (lua/lupine/session/scaling.lua), and the names of its tensors.
local enums = require("popart.enums")
local errors = require("lupine.base.errors")
local scaling = require("lupine.session.scaling")
local tables = require("lupine.base.tables")

local M = {}

local Method = enums.GradientTensorTrackingMethod
local TRACKING = { AllNonViewChangingGradientTensors = "all", ConvAndMatmulGradients = "products",
  GradientsOfUserSpecifiedTensors = "named" }

-- A member of the enumeration, its number or its name.
local function method_of(value)
  for name, tracking in pairs(TRACKING) do
    if value == Method[name] or value == Method[name].value or value == name then
      return tracking
    end
  end
  errors.raise("Error", "automaticLossScalingSettings.gradientTensorTrackingMethod: got %s. "
    .. "Allowed: 0, 1, 2, %s", tostring(value), table.concat(tables.keys(TRACKING), ", "))
end

--- How a session finds its loss scale; nil: it does not.
--- error: poptorch.Error for a tracking method that does not exist
---@param settings table the fields of popart.AutomaticLossScalingSettings; defaults are PopART's
---@return table?
function M.of(settings)
  if not settings.enabled or settings.enabled == 0 then
    return nil
  end
  local method = settings.gradientTensorTrackingMethod
  return { tracking = method_of(method == nil and Method.AllNonViewChangingGradientTensors
      or method),
    names = settings.toTrackTensors, edge = settings.binEdgeLocation or 0.125,
    threshold = settings.thresholdUpperCountProportion or 1e-7,
    period = settings.updatePeriod or 1 }
end

-- Tensors of a program with it, and their shapes.
local TENSORS = { finalLossScale = {}, Accum___autoLossScaleStats = { 2 } }

--- The shape of such a tensor that is no state; nil for other names.
---@param name string
---@return integer[]?
function M.shape(name)
  return TENSORS[name]
end

--- Whether a state is one of it.
---@param name string
---@return boolean
function M.is_state(name)
  return name == scaling.FACTOR or name == scaling.COUNTER
end

return M
