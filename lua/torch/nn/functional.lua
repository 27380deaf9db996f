--- torch.nn.functional: the operators whose forms are public there. Functions
--- written in Lua are added by the files that define them.
local core = require("lupine.core")

local M = {}
for name, fn in pairs(core.forms.nn) do
  M[name] = fn
end

return M
