--- What a checkpoint (lupine.checkpoint) has of a wrapped model: the module's state, and
--- of its device what neither that nor the optimizer has.
local attaching = require("poptorch.attaching")
local check = require("lupine.base.check")
local own = require("poptorch.executor.own")

local M = {}

--- The module's state_dict, with what the device trained, and the device's own state:
--- random numbers, buffers of each replica. The optimizer is an object of its own in a
--- checkpoint.
---@return {model: table, device: table?}
function M.checkpoint_state(self)
  local s = own.idle(self, "checkpoint_state")
  if s.session then
    own.follow(s)
  end
  return { model = s.model:state_dict(), device = s.session and s.session:device_state()
    or s.resumed }
end

--- Takes over what checkpoint_state gave; if the model is not compiled yet the device
--- does when it is.
--- errors: TypeError, RuntimeError for another module's state
---@param state table
function M.load_checkpoint_state(self, state)
  local s = own.idle(self, "load_checkpoint_state")
  check.table(state, "load_checkpoint_state: state")
  check.table(state.device, "load_checkpoint_state: device", { nullable = true })
  s.model:load_state_dict(state.model)
  s.resumed = state.device
  if s.session and not s.offline then
    attaching.attach(s)
    own.follow(s)
    s.session:overwrite()
    attaching.resume(s)
  end
end

return M
