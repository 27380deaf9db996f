--- Warnings of what is allowed and probably not meant: each text is logged once.
local core = require("lupine.core")

local M = {}
local told = {}

--- All texts are logged again.
function M.reset()
  told = {}
end

--- Called as warn(format, …).
return setmetatable(M, {
  __call = function(_, fmt, ...)
    local line = fmt:format(...)
    if not told[line] then
      told[line] = true
      core.host.log("warn", line)
    end
  end,
})
