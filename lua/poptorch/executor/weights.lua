--- Methods of an executor for weights, buffers and the optimizer, which host and
--- device each have a copy of.
local check = require("lupine.base.check")
local compiled_optimizer = require("poptorch.compiled_optimizer")
local errors = require("lupine.base.errors")
local own = require("poptorch.executor.own")
local state = require("poptorch.state")
local tables = require("lupine.base.tables")

local M = {}

--- Copies the device's parameters and modified buffers to the host module.
function M.copyWeightsToHost(self)
  local s = own.attached(self, "copyWeightsToHost")
  own.follow(s)
  s.session:download()
end

--- The same, only if the device's are newer.
---@return boolean copied
function M.copyWeightsToHostIfNeeded(self)
  own.idle(self, "copyWeightsToHostIfNeeded")
  local s = own.compiled(self, "copyWeightsToHostIfNeeded")
  own.follow(s)
  return s.session:download_newer()
end

--- Copies the host module's parameters and buffers to the device; what was
--- trained there since the last copy to the host is lost.
function M.copyWeightsToDevice(self)
  local s = own.attached(self, "copyWeightsToDevice")
  own.follow(s)
  s.session:overwrite()
end

--- Copies the buffers that Options.updatableNamedBuffers lists to the device.
--- error: poptorch.Error if that option was not given
function M.copyNamedBuffersToDevice(self)
  local s = own.attached(self, "copyNamedBuffersToDevice")
  errors.check(s.options.updatable_named_buffers, "Error",
    "copyNamedBuffersToDevice: no buffer was named by Options.updatableNamedBuffers")
  own.follow(s)
  s.session:upload_named("buffer", tables.set(s.options.updatable_named_buffers))
end

--- Number of times that weights came from the device to the host.
---@return integer
function M.weightPulls(self)
  return own.compiled(self, "weightPulls").session.exec:pulls()
end

-- ---- the optimizer ------------------------------------------------------------------

--- New values of the optimizer's attributes take effect; with another optimizer
--- of the same kind its values and, if it has any, its state.
--- source: 001 PoplarExecutor.setOptimizer
---@param ... any optimizer (torch.optim.Optimizer)
function M.setOptimizer(self, ...)
  local s, optimizer = own.idle(self, "setOptimizer"), check.one("setOptimizer", "optimizer", ...)
  errors.check(s.training, "Error", "setOptimizer: this is no training model")
  compiled_optimizer.check_kind(optimizer, "setOptimizer")
  compiled_optimizer.choose_reduction(s, optimizer, "setOptimizer")
  if not s.session then
    s.optimizer = optimizer
    return
  end
  compiled_optimizer.check_optimizer(s, optimizer, "setOptimizer")
  if optimizer ~= s.optimizer then
    state.adopt(s, optimizer)
    s.session:upload_hypers()
    state.link(s)
  else
    state.upload_edited(s)
    s.session:upload_hypers()
  end
end

--- Loads a state dict into the module and onto the device.
---@param state_dict table
---@param ... any strict (true)
---@return table missing_keys, unexpected_keys: lists of names
function M.load_state_dict(self, state_dict, ...)
  local s = own.idle(self, "load_state_dict")
  local result = s.model:load_state_dict(state_dict, ...)
  if s.session and s.session.attached then
    M.copyWeightsToDevice(self)
  end
  return result
end

--- The module's state dictionary, with what the device trained.
---@return table<string, torch.Tensor>
function M.state_dict(self)
  return own.state(self).model:state_dict()
end

return M
