--- Modules in a mode for a while: training, or evaluation.
local M = {}

--- To be closed: all modules of some are in the mode until then, and then each is in the
--- one that it had.
---@param roots torch.nn.Module[]
---@param training boolean
---@return table
function M.set(roots, training)
  local were = {}
  for _, root in ipairs(roots) do
    for _, module in ipairs(root:modules()) do
      if were[module] == nil then
        were[module] = module.training
      end
    end
    root:train(training)
  end
  return setmetatable({}, { __close = function()
    for module, mode in pairs(were) do
      module.training = mode
    end
  end })
end

return M
