--- What a checkpoint (lupine.checkpoint) has of a session, so that another one of the same
--- model goes on with the same bits: weights and the optimizer's states as the device has
--- them, its optimizer's numbers, its random numbers.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("popart.errors")
local loading = require("popart.session.loading")
local settings = require("popart.session_settings")
local tables = require("lupine.base.tables")

local M = { methods = {} }
local methods = M.methods

-- The host's tensors of all that training changes, by name.
local function tensors_of(s)
  local out = {}
  for name, t in pairs(s.model.variables) do
    out[name] = t
  end
  for _, state in ipairs(s.session.states) do
    out[s.session.vars[state.index].name] = state.tensor
  end
  return out
end

--- error: popart_runtime_error before prepareDevice
---@return {values: table<string, torch.Tensor>, device: table}
function methods:checkpoint_state()
  local s = loading.prepared(self, "checkpoint_state")
  return errors.guard("popart_runtime_error", function()
    s.session:settle()
    return { values = tensors_of(s), device = s.session:device_state() }
  end)
end

local function check_value(name, t, value)
  errors.check(core.is_tensor(value) and value.dtype == t.dtype and value:numel() == t:numel(),
    "popart_runtime_error", "load_checkpoint_state: '%s': expected a %s tensor of shape %s, got %s",
    name, tostring(t.dtype), tostring(t.shape), check.describe(value))
end

--- The session goes on from such a state; weightsFromHost need not be called.
--- error: popart_runtime_error before prepareDevice, or for a state of another model
---@param state table
function methods:load_checkpoint_state(state)
  local s = loading.prepared(self, "load_checkpoint_state")
  check.table(state, "load_checkpoint_state: state")
  local values = check.table(state.values, "load_checkpoint_state: values")
  errors.guard("popart_runtime_error", function()
    loading.load(s)
    s.session:settle() -- so that nothing newer comes from the device later
    local tensors = tensors_of(s)
    for _, name in ipairs(tables.keys(tensors)) do
      check_value(name, tensors[name], values[name])
    end
    for name, t in pairs(tensors) do
      settings.set_host(t, values[name])
    end
    if s.training then
      s.session:upload_states()
    end
    s.session:overwrite()
    s.session:load_device_state(check.table(state.device, "load_checkpoint_state: device"))
  end)
  s.has_weights = true
end

return M
