--- An optimizer as a session sees it (lupine/session/training.lua): the states have
--- PopART's names, Accl___w, Accl1___w, Accl2___w, Accl3___w and Step___w.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local clipping = require("popart.optimizers.clipping")
local core = require("lupine.core")
local errors = require("popart.errors")
local scaling = require("lupine.session.scaling")

local M = {}

local float32, empty = core.dtypes.float32, core.forms.functions.empty

---@class popart.optimizers.View
---@field optimizer popart.Optimizer
---@field states table<string, torch.Tensor> by name, as they were last on the host
---@field loss_scale string? where the step scales
---@field scaling table? how the step finds the scale: lua/lupine/session/scaling.lua
local View = class.new("View")
M.View = View

--- parameters: {name =, tensor =} each, of which those of floating types are updated;
--- given: tensors by name, among them states that go on.
--- error: popart_exception for clip groups that the parameters do not fit
---@param optimizer popart.Optimizer
---@param parameters table[]
---@param given? table<string, torch.Tensor>
function View:init(optimizer, parameters, given)
  self.optimizer, self.given, self.states, self.weights = optimizer, given or {}, {}, {}
  self.names = {}
  for _, p in ipairs(parameters) do
    if p.tensor:is_floating_point() then
      self.names[#self.names + 1] = p.name
      self.weights[p.name] = p.tensor
    end
  end
  self.clip_group = clipping.groups(optimizer.clip_norm_settings, self.names)
  local scale = optimizer:lossScaling()
  if scale:val() ~= 1 or not scale:isConst() then
    self.loss_scale = "lossScaling"
  end
end

--- How each weight is updated.
---@return table[]
function View:rules()
  local list = {}
  for i, name in ipairs(self.names) do
    local rule, clips = self.optimizer:_rule(name), self.clip_group[name]
    rule.param, rule.group = name, name
    rule.max_norm = clips and "maxNorm:" .. clips
    list[i] = rule
  end
  return list
end

local function scalar(value)
  return core.tensor(value + 0.0, { dtype = float32 })
end

--- A value's present number, by the name of PopART's tensor.
---@param id string? a weight; nil: of all
---@param name string
---@return torch.Tensor value, string key
function View:hyper(id, name)
  local optimizer, clips = self.optimizer, tonumber(name:match("^maxNorm:(%d+)$"))
  if clips then
    return scalar(optimizer.clip_norm_settings[clips].maxNorm), name
  elseif name == "lossScaling" then
    return scalar(optimizer:getLossScalingVal()), "lossScaling_FLOAT"
  end
  local specific = optimizer:hasSpecific(id)
  return scalar(optimizer:_of(name, id)),
    name .. (specific and "___specific___" .. id or "___default___FLOAT")
end

-- The loss scale that moments are in units of, beside them in a model.
local PREVIOUS = "PreviousLossScaling_FLOAT"

local function check_size(given, room, key)
  errors.check(given:numel() == room:numel(), "popart_exception",
    "the initialiser %s has %d elements, the optimizer's state has %d", key, given:numel(),
    room:numel())
end

-- A given state in the form of `room`, in units of the present loss scale.
local function fit(self, given, room, name, key)
  check_size(given, room, key)
  local optimizer, before = self.optimizer, self.given[PREVIOUS]
  local factor = before and optimizer.scaled_optimizer_state
    and optimizer:_rescaled(name, optimizer:getLossScalingVal() / before:item()) or 1
  return room:copy_(given:detach():reshape(room.shape) * factor)
end

-- A state of no weight, with the value that is given or its first.
function View:_of_all(name)
  if not self.states[name] then
    local room, given = scaling.first(name), self.given[name]
    if given then
      check_size(given, room, name)
      room:copy_(given:detach():reshape(room.shape))
    end
    self.states[name] = room
  end
  return self.states[name]
end

--- Room for a state; given ones have their values.
---@param rule table
---@param name string
---@return torch.Tensor room, boolean new
function View:room(rule, name)
  if not rule then
    return self:_of_all(name), false
  end
  local key, weight = name .. "___" .. rule.param, self.weights[rule.param]
  local own = self.states[key]
  if not own then
    local shape = name == "Step" and {} or weight.shape
    local dtype = self.optimizer:_state_type(name) or weight.dtype
    own, self.states[key] = self.given[key], empty(shape, { dtype = dtype })
    if own then
      fit(self, own, self.states[key], name, key)
    end
  end
  return self.states[key], not own
end

--- First values of a state.
---@param state table
function View:start(state)
  local id = state.rule.param
  self.optimizer:_start(id, state.name, state.tensor, self.weights[id])
end

--- A state on the host.
---@param state table
---@return torch.Tensor
function View:tensor(state)
  return self.states[state.rule and state.name .. "___" .. state.rule.param or state.name]
end

--- What goes on with another session, by the names of a model's initialisers: `given`
--- of its view.
---@param session lupine.Session
---@return table<string, torch.Tensor>
function View:saved(session)
  session:states_to_host()
  local out = {}
  for key, state in pairs(self.states) do
    out[key] = state:clone()
  end
  if self.optimizer.scaled_optimizer_state and not self.optimizer:lossScaling():isConst() then
    out[PREVIOUS] = scalar(self.optimizer:getLossScalingVal())
  end
  return out
end

-- Moments in units of the loss scale follow it.
local function rescale(self, session, ratio)
  session:states_to_host()
  for _, state in ipairs(session.states) do
    local factor = self.optimizer:_rescaled(state.name, ratio)
    if factor then
      state.tensor:mul_(factor)
    end
  end
  session:upload_states()
end

--- Takes another optimizer's values; the states stay.
--- error: optimizer_replacement_error for one that the program is not of
---@param optimizer popart.Optimizer
---@param session? lupine.Session whose device gets them
function View:replace(optimizer, session)
  check.instance(optimizer, "updateOptimizerFromHost: optimizer",
    require("popart.optimizers.base").Optimizer)
  self.optimizer:validReplacement(optimizer)
  local ratio = optimizer:getLossScalingVal() / self.optimizer:getLossScalingVal()
  self.optimizer = optimizer
  if not session then
    return
  end
  if ratio ~= 1 and optimizer.scaled_optimizer_state then
    rescale(self, session, ratio)
  end
  session:upload_hypers()
end

return M
