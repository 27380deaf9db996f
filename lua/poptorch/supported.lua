--- Options that would change results and that this version does not carry out:
--- compiling with them is refused.
local errors = require("lupine.base.errors")
local session_options = require("popart.session_options")

local M = {}

-- Whether values of the program are of float16: variables, or by casting.
local function has_half(o, vars, casting)
  local half = require("torch").float16
  if casting and o.Precision.autocast_enabled then
    return true
  end
  for _, v in ipairs(vars) do
    if v.dtype == half then
      return true
    end
  end
  return false
end

-- {option as the user writes it, whether it is in force}
local REFUSED = {
  { "Distributed with more than one process in training", function(o, training)
    return training and o.Distributed.numProcesses > 1
  end },
  { "Training.setAutomaticLossScaling(true)", function(o, training)
    return training and o.Training.automatic_loss_scaling
  end },
  { "Precision.enableFloatingPointExceptions(true)", function(o)
    return o.Precision.floating_point_exceptions
  end },
  { "Precision.setPartialsType(torch.half), or partialsType half of a library's options, with "
    .. "float16 values", function(o, _, vars, casting)
    return (o.Precision.partials_type == "half"
      or session_options.half_partials(o._Popart:toDict())) and has_half(o, vars, casting)
  end },
}

--- error: NotImplementedError naming the option
---@param options poptorch.Options
---@param training boolean
---@param vars table[] the program's variables
---@param casting boolean whether its trace asked for that
function M.check(options, training, vars, casting)
  for _, row in ipairs(REFUSED) do
    errors.check(not row[2](options, training, vars, casting), "NotImplementedError",
      "Options.%s changes results and is not supported", row[1])
  end
  for name in pairs(options._Popart._options) do
    errors.check(session_options.fate(name) ~= "refused", "NotImplementedError",
      "Options._Popart.set('%s') is not supported: it would change results; use the setter of "
      .. "Options if there is one", name)
  end
end

return M
