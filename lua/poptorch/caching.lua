--- The cache of compiled steps that the options ask for (lupine/session/cache.lua).
--- Source: PopTorch user guide 4.10.1.
local logging = require("poptorch.logging")

local M = {}

local function log(level, fmt, ...)
  logging[level](fmt, ...)
end

--- nil: nothing is cached.
---@param options poptorch.Options an executor's own
---@param target {kind: string} rules.target's
---@return lupine.session.Cache?
function M.of(options, target)
  local path = options.executable_cache_path
  if not path or not options._Popart._options.enableEngineCaching then
    if options.Distributed.numProcesses > 1 then
      logging.warn("executables are not cached: each of %d processes compiles; "
        .. "options:enableExecutableCaching(path) lets one do it", options.Distributed.numProcesses)
    end
    return nil
  elseif target.kind == "model" then
    logging.warn("enableExecutableCaching has no effect on the IPU Model")
    return nil
  end
  return { path = path, log = log }
end

return M
