--- What of an executor's device has a counterpart on the host: weights and
--- buffers, the optimizer's hyper-parameters and states. Moves them.
---
--- `s` is the executor's state: exec, uploaded, hypers, states, optimizer;
--- group_of: the optimizer's group that has the values of a compiled one;
--- check_optimizer(where): finds that, raises for what cannot be taken over;
--- state_name(optimizer, name): what it calls a compiled state, nil for one that
--- is the device's alone.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local text = require("torch.nn.text")
local whole = require("poptorch.whole")

local M = {}

-- ---- weights and buffers ------------------------------------------------------------

-- Tensor of the host -> a token of the run (or copy) that changed it last. An
-- executor has seen what it did itself and what it uploaded (s.seen).
local latest = setmetatable({}, { __mode = "k" })

--- The device has all that was trained up to now.
---@param s table the executor's state
function M.up_to_date(s)
  s.seen = setmetatable({}, { __mode = "k" })
  for _, m in ipairs(s.uploaded) do
    s.seen[m.tensor] = latest[m.tensor]
  end
end

--- Host -> device.
---@param s table the executor's state
function M.upload_weights(s)
  for _, m in ipairs(s.uploaded) do
    s.exec:write(m.index, m.tensor)
  end
  M.up_to_date(s)
end

--- The tensors that come back from this executor's device have new values.
---@param s table the executor's state
function M.note_change(s)
  local token = {}
  for _, m in ipairs(s.mirrored) do
    latest[m.tensor], s.seen[m.tensor] = token, token
  end
end

--- What other executors changed since comes to this one's device, also where
--- it is part of another module. Reading the host's tensor fetches it from
--- their devices (LP_ST_HOOKED). An inference model gets all weights then.
---@param s table the executor's state
function M.refresh(s)
  for _, m in ipairs(s.uploaded) do
    local token = latest[m.tensor]
    if token ~= s.seen[m.tensor] then
      if not s.training then
        return M.upload_weights(s)
      end
      s.exec:write(m.index, m.tensor)
      s.seen[m.tensor] = token
    end
  end
end

-- ---- the optimizer ------------------------------------------------------------------

--- Device -> the optimizer's tensors, if a run has changed them since.
---@param s table the executor's state
function M.optimizer_to_host(s)
  if s.exec:marked("states") then
    s.exec:pull("states")
  end
end

-- The optimizer's tensor of a state, in the form that the device has.
local function host_tensor(s, state)
  local optimizer = s.optimizer
  local t = optimizer:state_tensor(state.param, state.name)
  if not core.is_tensor(t) then
    t = core.tensor(t, { dtype = state.tensor.dtype })
  end
  errors.check(t:numel() == state.tensor:numel(), "RuntimeError",
    "the optimizer's %s has shape %s, the model was compiled for %s", state.name,
    text.repr(t.shape), text.repr(state.tensor.shape))
  local fits = t.dtype == state.tensor.dtype and t:is_contiguous()
    and table.concat(t.shape, " ") == table.concat(state.tensor.shape, " ")
  if not fits then
    t = t:detach():to(state.tensor.dtype):reshape(state.tensor.shape):contiguous()
  end
  optimizer.state[state.param][state.name] = t
  return t
end

-- Reading one of the optimizer's states brings all from the device, which has
-- the only values from now on.
local function mirror_states(s)
  s.exec:unmirror("states")
  for _, state in pairs(s.states) do
    s.exec:mirror(state.index, state.tensor, "states")
  end
  s.exec:mark("states")
end

--- The optimizer's present attributes -> device.
---@param s table the executor's state
function M.upload_hypers(s)
  local groups, group_of = s.optimizer.param_groups, s.group_of
  for _, h in ipairs(s.hypers) do
    h.value = h.whole and core.tensor(whole.value(s.optimizer, h.name), { dtype = h.value.dtype })
      or s.optimizer:hyper_tensor(groups[group_of[h.group] or h.group], h.name)
    s.exec:write(h.index, h.value)
  end
end

--- The optimizer's state tensors -> device, also those that were replaced.
---@param s table the executor's state
function M.upload_states(s)
  M.optimizer_to_host(s)
  for _, state in pairs(s.states) do
    if state.name then
      state.tensor = host_tensor(s, state)
      s.exec:write(state.index, state.tensor)
    end
  end
  mirror_states(s)
end

--- The same, if the host's may be other than the device's.
---@param s table the executor's state
function M.upload_edited_states(s)
  local edited = not s.exec:marked("states")
  for _, state in pairs(s.states) do
    local of = s.optimizer.state[state.param]
    edited = edited or state.name and (not of or of[state.name] ~= state.tensor)
  end
  if edited then
    M.upload_states(s)
  end
end

-- The states by the names that an optimizer gives them.
local function renamed(s, optimizer)
  local states = {}
  for _, state in pairs(s.states) do
    state.name = s.state_name(optimizer, state.compiled_name)
    states[(state.name or state.compiled_name) .. "___" .. state.var] = state
  end
  return states
end

-- One state of the new optimizer: its own goes to the device.
local function take_over(s, state, key)
  local own = s.optimizer.state[state.param]
  own = own and own[state.name]
  local loaded = M.take_loaded(s.optimizer, state.param, state.name, key)
  state.tensor = host_tensor(s, state)
  if own or loaded then
    s.exec:write(state.index, state.tensor)
  end
end

--- The device's states belong to another optimizer from now on. Those that it
--- has of its own (loaded ones) go to the device, the others go on.
---@param s table
---@param optimizer torch.optim.Optimizer
function M.adopt(s, optimizer)
  M.optimizer_to_host(s)
  M.release(s)
  s.optimizer = optimizer
  s.states = renamed(s, optimizer)
  for key, state in pairs(s.states) do
    if state.name then
      take_over(s, state, key)
    end
  end
  mirror_states(s)
end

-- ---- state_dict of poptorch.optim -----------------------------------------------------

--- Puts an entry of a state dict that was loaded before compiling into the
--- optimizer's state.
---@param optimizer torch.optim.Optimizer
---@param param torch.Tensor
---@param name string of the state
---@param key string of the entry
---@return boolean found
function M.take_loaded(optimizer, param, name, key)
  local loaded = rawget(optimizer, "_loaded")
  local value = loaded and loaded[key]
  if not value then
    return false
  end
  loaded[key] = nil
  local t = optimizer:state_tensor(param, name)
  errors.check(t:numel() == value:numel(), "RuntimeError",
    "load_state_dict: '%s' has %d elements, the model's has %d", key, value:numel(), t:numel())
  t:copy_(value:reshape(t.shape))
  return true
end

local function hyper_of(s, group, name)
  for _, h in ipairs(s.hypers) do
    if h.name == name and (h.group == group or h.whole) then
      return h.value
    end
  end
  return nil
end

-- PopART's names: its plain SGD keeps the rate and the decay with all factors
-- in them.
local function attributes(s)
  local out = {}
  for _, rule in ipairs(s.updated) do
    local lr, decay = hyper_of(s, rule.group, "lr"), hyper_of(s, rule.group, "weight_decay")
    if rule.plain then
      local rate = lr * (1 - hyper_of(s, rule.group, "dampening"))
      out["scaledLearningRate0___specific___" .. rule.name] =
        rate / hyper_of(s, rule.group, "loss_scaling")
      out["weightDecayScaleFactor0___specific___" .. rule.name] = 1 - rate * decay
    else
      out["learningRate___specific___" .. rule.name] = lr:clone()
      out["weightDecay___specific___" .. rule.name] = decay:clone()
    end
  end
  local scale = hyper_of(s, 1, "loss_scaling")
  out.lossScaling_FLOAT = scale and scale:clone()
    or require("torch").tensor(whole.value(s.optimizer, "loss_scaling") + 0.0)
  return out
end

--- Adds PopART's names of the optimizer's attributes, in order.
---@param s table the executor's state
---@param names string[]
function M.attribute_names(s, names)
  local first = #names + 1
  for name in pairs(attributes(s)) do
    names[#names + 1] = name
  end
  local own = table.move(names, first, #names, 1, {})
  table.sort(own)
  table.move(own, 1, #own, first, names)
end

-- The optimizer's view of the device.
local Link = {}
Link.__index = Link

--- States and attributes by PopART's names.
function Link:read()
  local s = self.s
  if s and s.exec then
    M.optimizer_to_host(s)
    self.attributes = attributes(s)
  end
  local state = {}
  for key, entry in pairs(self.states) do
    state[key] = entry.name and entry.tensor:clone() or nil
  end
  return state, self.attributes
end

--- Entries of a state dict -> device; what is missing stays as it is.
function Link:write(loaded)
  local s = self.s
  if s and s.exec then
    s.check_optimizer("load_state_dict")
  end
  for key, value in pairs(loaded) do
    local entry = self.states[key]
    if entry then
      entry.tensor:copy_(value:reshape(entry.tensor.shape))
      if s and s.exec then
        s.exec:write(entry.index, entry.tensor)
      end
    end
  end
  if s and s.exec then
    M.upload_hypers(s)
  end
end

--- What a native optimizer has now -> device.
function Link:push()
  self.s.check_optimizer("load_state_dict")
  M.upload_states(self.s)
  M.upload_hypers(self.s)
end

--- The optimizer's states and state_dict speak of this device from now on.
---@param s table the executor's state
function M.link(s)
  if s.offline then
    return
  end
  mirror_states(s)
  s.link = setmetatable({ s = s, states = s.states }, Link)
  s.link.attributes = s.optimizer.variable_attrs and attributes(s)
  s.optimizer._link = s.link
end

--- The optimizer keeps the last values, without the device.
---@param s table the executor's state
function M.release(s)
  local link = s.link
  if not link then
    return
  end
  s.link = nil
  if not s.optimizer.variable_attrs then
    s.optimizer._link = nil
    return
  end
  link:read()
  link.s = nil
  link.states = {}
  for key, entry in pairs(s.states) do
    link.states[key] = { tensor = entry.tensor, name = entry.name }
  end
end

return M
