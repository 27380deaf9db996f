--- The module `lupine`: what belongs to lupine alone, beside the ported
--- interfaces. Sub-modules load when first named: lupine.repl is
--- require "lupine.repl".
local core = require("lupine.core")

local M = { version = core.version }

--- Seconds on a clock that never goes back, for the time between two calls.
--- Its zero is arbitrary. os.clock() counts the work of all threads instead.
---@return number
function M.clock()
  return core.host.clock()
end

return setmetatable(M, {
  __lazy = { compile = "lupine.compile", datasets = "lupine.datasets",
    progress = "lupine.progress", report = "lupine.report", show = "lupine.show" },
  __index = function(t, name)
    if type(name) ~= "string" then
      return nil
    end
    local module = "lupine." .. name
    if not package.loaded[module] and not package.searchpath(module, package.path) then
      return nil
    end
    local value = require(module)
    rawset(t, name, value)
    return value
  end,
})
