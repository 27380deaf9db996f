--- The cost model as the tool cost_probe shows it.
local M = {}

--- The folder of the tools that specs run.
M.tools = require("spec.support.program").build .. "/tools/"

--- The numbers by name that `cost_probe …` prints.
function M.ask(...)
  local pipe = assert(io.popen(M.tools .. "cost_probe " .. table.concat({ ... }, " ")))
  local r = {}
  for line in pipe:lines() do
    local name, value = line:match("^([%w_]+)=(-?%d+)$")
    r[name] = math.tointeger(value)
  end
  assert(pipe:close(), "cost_probe " .. table.concat({ ... }, " "))
  return r
end

return M
