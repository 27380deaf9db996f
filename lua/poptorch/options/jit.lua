--- Options.Jit. Source: PopTorch API reference, poptorch.options._JitOptions.
local Group = require("poptorch.options.group")
local logging = require("poptorch.logging")

return Group.define("_JitOptions", {
  {
    name = "traceModel", key = "trace_model", kind = "bool", default = true,
    set = function(self, values, _, row)
      self:_store(row, Group._argument(row, "trace_model", values[1]))
      logging.warn("Options.Jit.traceModel is deprecated: models are always traced by "
        .. "running forward once")
    end,
    doc = "Deprecated: accepted, warns.",
    no_effect = "models are always traced by running forward once",
  },
})
