--- Warnings of what is allowed and probably not meant: each text is logged once.
local core = require("lupine.core")

local told = {}

--- error: never
---@param fmt string
---@param ... any
return function(fmt, ...)
  local line = fmt:format(...)
  if not told[line] then
    told[line] = true
    core.host.log("warn", line)
  end
end
