--- What of an executor's device has a counterpart on the host: weights and
--- buffers, the optimizer's hyper-parameters and states. Moves them.
---
--- `s` is the executor's state: exec, uploaded, hypers, states, optimizer.
local errors = require("torch.errors")

local M = {}

-- ---- weights and buffers ------------------------------------------------------------

--- Host -> device.
function M.upload_weights(s)
  for _, m in ipairs(s.uploaded) do
    s.exec:write(m.index, m.tensor)
  end
end

-- tensor of the host -> the executor that trained it last
local trainers = setmetatable({}, { __mode = "k" })

--- The tensors that come back from this executor's device are trained by it.
function M.claim(s)
  for _, m in ipairs(s.mirrored) do
    trainers[m.tensor] = s
  end
end

-- Notes what is newest; says whether that is news.
local function look(s)
  local news = false
  for _, m in ipairs(s.uploaded) do
    local trainer = trainers[m.tensor]
    if trainer and s.seen[trainer] ~= trainer.weights_version then
      s.seen[trainer] = trainer.weights_version
      news = true
    end
  end
  return news
end

--- An inference model has all that was trained up to now.
function M.up_to_date(s)
  s.seen = setmetatable({}, { __mode = "k" })
  look(s)
end

--- An inference model gets what was trained since, also as part of another
--- module.
function M.refresh(s)
  if not s.training and look(s) then
    M.upload_weights(s)
  end
end

-- ---- the optimizer ------------------------------------------------------------------

--- Device -> the optimizer's tensors, if a run has changed them since.
function M.optimizer_to_host(s)
  if not s.optimizer_dirty then
    return
  end
  s.optimizer_dirty = false
  for _, state in pairs(s.states) do
    s.exec:read_into(state.index, state.tensor)
  end
end

--- The optimizer's present attributes -> device.
function M.upload_hypers(s)
  local groups = s.optimizer.param_groups
  for _, h in ipairs(s.hypers) do
    h.value = s.optimizer:hyper_tensor(groups[h.group], h.name)
    s.exec:write(h.index, h.value)
  end
end

--- The optimizer's state tensors -> device.
function M.upload_states(s)
  for _, state in pairs(s.states) do
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
  local new_of = {}
  for g, group in ipairs(s.optimizer.param_groups) do
    for i, p in ipairs(group.params) do
      new_of[p] = optimizer.param_groups[g].params[i]
    end
  end
  for key, state in pairs(s.states) do
    local param = new_of[state.param] or state.param
    local own = optimizer.state[param] and optimizer.state[param][state.name]
    local loaded = M.take_loaded(optimizer, param, state.name, key)
    state.param, state.tensor = param, optimizer:state_tensor(param, state.name)
    if own or loaded then
      s.exec:write(state.index, state.tensor)
    else
      s.optimizer_dirty = true
    end
  end
end

-- ---- state_dict of poptorch.optim -----------------------------------------------------

--- Puts an entry of a state dict that was loaded before compiling into the
--- optimizer's state.
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
    or require("torch").tensor(s.optimizer.loss_scaling + 0.0)
  return out
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
    state[key] = entry.tensor:clone()
  end
  return state, self.attributes
end

--- Entries of a state dict -> device; what is missing stays as it is.
function Link:write(loaded)
  local s = self.s
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

--- A poptorch optimizer's state_dict speaks of this device from now on.
function M.link(s)
  if s.optimizer.variable_attrs and not s.offline then
    s.link = setmetatable({ s = s, states = s.states, attributes = attributes(s) }, Link)
    s.optimizer._link = s.link
  end
end

--- The optimizer keeps the last values, without the device.
function M.release(s)
  if s.link then
    s.link:read()
    s.link.s = nil
    s.link.states = {}
    for key, entry in pairs(s.states) do
      s.link.states[key] = { tensor = entry.tensor }
    end
    s.link = nil
  end
end

return M
