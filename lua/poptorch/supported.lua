--- Options that would change results and that this version does not carry out:
--- compiling with them is refused.
local errors = require("lupine.base.errors")
local session_options = require("popart.session_options")

local M = {}

-- {option as the user writes it, whether it is in force}
local REFUSED = {
  { "Distributed with more than one process in training", function(o, training)
    return training and o.Distributed.numProcesses > 1
  end },
}

--- error: NotImplementedError naming the option
---@param options poptorch.Options
---@param training boolean
function M.check(options, training)
  for _, row in ipairs(REFUSED) do
    errors.check(not row[2](options, training), "NotImplementedError",
      "Options.%s changes results and is not supported", row[1])
  end
  for name in pairs(options._Popart._options) do
    errors.check(session_options.fate(name) ~= "refused", "NotImplementedError",
      "Options._Popart.set('%s') is not supported: it would change results; use the setter of "
      .. "Options if there is one", name)
  end
end

return M
