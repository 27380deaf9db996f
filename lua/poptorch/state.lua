--- The optimizer of a training model and what its device has of it: how a
--- session sees it, state_dict by PopART's names, another one in its place.
---
--- `s` is the executor's state: session, optimizer, updated (the rules);
--- group_of: the optimizer's group that has the values of a compiled one;
--- check_optimizer(where): finds that, raises for what cannot be taken over;
--- state_name(optimizer, name): what it calls a compiled state, nil for one that
--- is the device's alone.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local scaling = require("lupine.session.scaling")
local tables = require("lupine.base.tables")
local text = require("torch.nn.text")
local whole = require("poptorch.whole")

local M = {}

-- The entry `key` of a state dict in the form of a state. The count of updates,
-- which state dicts have for each replica group, is one for all of them.
local function fit(value, room, key)
  errors.check(core.is_tensor(value), "TypeError", "load_state_dict: '%s' is %s, no tensor", key,
    check.describe(value))
  if room:dim() == 0 and value:dim() > 0 then
    value = value:reshape(-1)[0]
  end
  errors.check(value:numel() == room:numel(), "RuntimeError",
    "load_state_dict: '%s' has %d elements, the model's has %d", key, value:numel(), room:numel())
  return value:reshape(room.shape)
end

-- Puts an entry of a state dict that was loaded before compiling into the
-- optimizer's state; returns whether there was one.
local function take_loaded(optimizer, param, name, key)
  local loaded = rawget(optimizer, "_loaded")
  local value = loaded and loaded[key]
  if not value then
    return false
  end
  loaded[key] = nil
  local t = optimizer:state_tensor(param, name)
  t:copy_(fit(value, t, key))
  return true
end

-- What the optimizer of now calls a state of a parameter; nil for one that is the
-- device's alone.
local function name_of(s, state)
  return state.rule and s.state_name(s.optimizer, state.name) or nil
end

local function key_of(s, state)
  return state.rule and (name_of(s, state) or state.name) .. "___" .. state.rule.param
    or state.name
end

-- The first value of a state of no parameter: what a state dict had that was loaded
-- before compiling, if any.
local function first_of_all(optimizer, name)
  local loaded, first = rawget(optimizer, "_loaded"), scaling.first(name)
  if loaded and loaded[name] then
    first:copy_(fit(loaded[name], first, name))
    loaded[name] = nil
  end
  return first
end

-- ---- as a session sees it -------------------------------------------------------------

--- The executor's optimizer as lupine/session/training.lua describes it: the
--- one that it has now.
local View = class.new("View")
M.View = View

---@param s table the executor's state
function View:init(s)
  self.s = s
end

--- How each parameter is updated.
---@return table[]
function View:rules()
  return self.s.updated
end

--- A hyper-parameter's present value.
---@param group integer? of the compiled optimizer; nil: of the optimizer as a whole
---@param name string
---@return torch.Tensor value, string key
function View:hyper(group, name)
  local s = self.s
  if whole.may_vary[name] then
    local value = whole.value(s.optimizer, name)
    return core.tensor(value, { dtype = core.dtypes.float32 }), name
  end
  local present = s.optimizer.param_groups[s.group_of and s.group_of[group] or group]
  return s.optimizer:hyper_tensor(present, name), ("%s___group%d"):format(name, group - 1)
end

--- Room for a state: at least float32 unless the optimizer says otherwise.
---@param rule table
---@param name string
---@return torch.Tensor room, boolean new
function View:room(rule, name)
  if not rule then
    return first_of_all(self.s.optimizer, name), false
  end
  local optimizer, param = self.s.optimizer, rule.tensor
  take_loaded(optimizer, param, name, name .. "___" .. rule.param)
  local own = optimizer.state[param][name]
  local t = own or optimizer:empty_state(param, name)
  if not optimizer.variable_attrs and t.dtype == core.dtypes.float16 then
    t = own and own:float() or require("torch").empty_like(t, { dtype = core.dtypes.float32 })
  end
  optimizer.state[param][name] = own and t
  return t, not own
end

--- First values of a state.
---@param state table
function View:start(state)
  local optimizer, param = self.s.optimizer, state.rule.tensor
  optimizer:start_state(param, state.name, state.tensor)
  optimizer.state[param][state.name] = state.tensor
end

--- The optimizer's tensor of a state, in the form that the device has.
---@param state table
---@return torch.Tensor?
function View:tensor(state)
  local optimizer, name = self.s.optimizer, name_of(self.s, state)
  if not name then
    return nil
  end
  local param = state.rule.tensor
  local t = optimizer:state_tensor(param, name)
  if not core.is_tensor(t) then
    t = core.tensor(t, { dtype = state.tensor.dtype })
  end
  errors.check(t:numel() == state.tensor:numel(), "RuntimeError",
    "the optimizer's %s has shape %s, the model was compiled for %s", name,
    text.repr(t.shape), text.repr(state.tensor.shape))
  local fits = t.dtype == state.tensor.dtype and t:is_contiguous()
    and table.concat(t.shape, " ") == table.concat(state.tensor.shape, " ")
  if not fits then
    t = t:detach():to(state.tensor.dtype):reshape(state.tensor.shape):contiguous()
  end
  optimizer.state[param][name] = t
  return t
end

-- ---- from the host to the device ------------------------------------------------------

--- The optimizer's state tensors -> device, if they may be other than its.
---@param s table the executor's state
function M.upload_edited(s)
  local edited = not s.session.exec:marked("states")
  for _, state in ipairs(s.session.states) do
    local name = name_of(s, state)
    local of = name and s.optimizer.state[state.rule.tensor]
    edited = edited or name and (not of or of[name] ~= state.tensor)
  end
  if edited then
    s.session:upload_states()
  end
end

-- One state of the new optimizer: its own goes to the device.
local function take_over(s, state)
  local name = name_of(s, state)
  if not name then
    if not state.rule and (rawget(s.optimizer, "_loaded") or {})[state.name] then
      state.tensor:copy_(first_of_all(s.optimizer, state.name))
      s.session.exec:write(state.index, state.tensor)
    end
    return
  end
  local own = s.optimizer.state[state.rule.tensor]
  own = own and own[name]
  local loaded = take_loaded(s.optimizer, state.rule.tensor, name, key_of(s, state))
  state.tensor = s.session.optimizer:tensor(state)
  if own or loaded then
    s.session.exec:write(state.index, state.tensor)
  end
end

--- The device's states belong to another optimizer from now on. Those that it
--- has of its own (loaded ones) go to the device, the others go on.
---@param s table
---@param optimizer torch.optim.Optimizer
function M.adopt(s, optimizer)
  s.session:states_to_host()
  M.release(s)
  s.optimizer = optimizer
  for _, state in ipairs(s.session.states) do
    take_over(s, state)
  end
  s.session:mirror_states()
  s.session.exec:mark("states")
end

-- ---- state_dict of poptorch.optim -----------------------------------------------------

local function hyper_of(s, group, name)
  for _, h in ipairs(s.session.hypers) do
    if h.name == name and (h.group == group or whole.may_vary[name]) then
      return h.value
    end
  end
  return nil
end

-- A group's two attributes, as PopART calls them: its plain SGD keeps the rate and
-- the decay with all factors in them.
local function attributes_of_group(s, group, plain)
  local lr, decay = hyper_of(s, group, "lr"), hyper_of(s, group, "weight_decay")
  if not plain then
    return { learningRate = lr, weightDecay = decay }
  end
  local rate = lr * (1 - hyper_of(s, group, "dampening"))
  return { weightDecayScaleFactor0 = 1 - rate * decay,
    scaledLearningRate0 = rate / (hyper_of(s, group, "loss_scaling") or 1) } -- native: none
end

local function attributes(s)
  local out, of = {}, { [true] = {}, [false] = {} }
  for _, rule in ipairs(s.updated) do
    local plain = rule.op == "popart_sgd_step" and not rule.inputs[3]
    local known = of[plain]
    known[rule.group] = known[rule.group] or attributes_of_group(s, rule.group, plain)
    for name, value in pairs(known[rule.group]) do
      out[("%s___specific___%s"):format(name, rule.param)] = value:clone()
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
  local own = tables.keys(attributes(s))
  table.move(own, 1, #own, #names + 1, names)
end

-- The optimizer's view of the device. `states` has {tensor, index, name} by
-- the key of a state dict's entry; without a name it is the device's alone.
local Link = {}
Link.__index = Link

local function entries(s)
  local out = {}
  for _, state in ipairs(s.session.states) do
    local param = state.rule and state.rule.tensor
    out[key_of(s, state)] = { tensor = state.tensor, index = state.index,
      name = param and name_of(s, state) or not param and state.name or nil,
      slices = param and s.groups and s.groups[param] and param:size(0) }
  end
  return out
end

--- States and attributes by PopART's names.
function Link:read()
  local s = self.s
  if s and s.session then
    s.session:states_to_host()
    self.states, self.attributes = entries(s), attributes(s)
  end
  local state = {}
  for key, entry in pairs(self.states) do
    if entry.name then
      local t = entry.tensor
      state[key] = entry.slices and t:dim() == 0 and t:expand({ entry.slices }):clone() or t:clone()
    end
  end
  return state, self.attributes
end

--- Entries of a state dict -> device; what is missing stays as it is.
function Link:write(loaded)
  local session = self.s and self.s.session
  if session then
    self.s.check_optimizer("load_state_dict")
    self.states = entries(self.s)
  end
  local fitting = {}
  for key, value in pairs(loaded) do
    local entry = self.states[key]
    if entry then
      fitting[entry] = fit(value, entry.tensor, key)
    end
  end
  for entry, value in pairs(fitting) do -- all fit
    entry.tensor:copy_(value)
    if session then
      session.exec:write(entry.index, entry.tensor)
    end
  end
end

--- What a native optimizer has now -> device.
function Link:push()
  self.s.check_optimizer("load_state_dict")
  self.s.session:upload_states()
  self.s.session:upload_hypers()
end

--- The optimizer's states and state_dict speak of this device from now on.
---@param s table the executor's state
function M.link(s)
  if s.offline then
    return
  end
  s.link = setmetatable({ s = s, states = {} }, Link)
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
end

return M
