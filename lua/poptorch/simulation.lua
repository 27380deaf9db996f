--- What the simulated system says of a compiled step.
local M = {}

---@return table report
function M.analyse()
  return {}
end

return M
