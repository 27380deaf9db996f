--- Methods of an executor for the mode that it runs its module in: the one that the
--- module had when it was wrapped (PopTorch user guide 4.2), unless it is changed
--- here.
local as_wrapped = require("poptorch.as_wrapped")
local logging = require("poptorch.logging")
local own = require("poptorch.executor.own")

local M = {}

--- Training mode for the module and for what this executor compiles from it. A
--- program that is compiled already stays as it is.
---@param mode? boolean true unless given
---@return poptorch.PoplarExecutor self
function M.train(self, mode)
  local s = own.state(self)
  local before = s.as_wrapped[s.model].training
  s.model:train(mode)
  as_wrapped.assign(s.as_wrapped, s.model, "training", s.model.training)
  if s.session and s.model.training ~= before then
    logging.warn("train, eval: the model was compiled with training = %s and stays so; destroy() "
      .. "it to compile it anew", tostring(before))
  end
  return self
end

--- The same as train(false).
---@return poptorch.PoplarExecutor self
function M.eval(self)
  return M.train(self, false)
end

return M
