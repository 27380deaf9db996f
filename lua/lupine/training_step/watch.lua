--- What programs of a training step depend on beside the inputs: which parameters
--- and buffers there are, which the optimizer has, and modes. Looked at before every
--- call.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local rules = require("lupine.training_step.optimizer")

local REGISTRIES = { "_parameters", "_buffers", "_modules" }

---@class lupine.training_step.Watch
---@field names table<torch.Tensor, string> of the parameters
local Watch = class.new("Watch")

--- roots: the model, and the loss if it is a module
---@param roots {prefix: string, module: torch.nn.Module}[]
---@param optimizer torch.optim.Optimizer
function Watch:init(roots, optimizer)
  self.roots, self.optimizer = roots, optimizer
  self:take()
end

-- Fields and lists of a module, as they are now.
function Watch:_note(module)
  self.modules[#self.modules + 1] = module
  for _, kind in ipairs(REGISTRIES) do
    local registry = module[kind]
    self.lists[#self.lists + 1] = { keys = registry.keys, n = #registry.keys }
    for _, name in ipairs(registry.keys) do
      self.fields[#self.fields + 1] = { values = registry.values, name = name,
        value = registry.values[name] }
    end
  end
end

local function check_known(self)
  for g, group in ipairs(self.optimizer.param_groups) do
    for i, p in ipairs(group.params) do
      errors.check(self.names[p], "ValueError", "compile(opts): optimizer: parameter %d of group "
        .. "%d, of shape %s, is none of the model's: make the optimizer of its parameters()", i - 1,
        g - 1, tostring(p.shape))
    end
  end
end

--- Notes how things stand.
--- error: ValueError for an optimizer of other parameters
function Watch:take()
  self.modules, self.lists, self.fields, self.names, self.owned = {}, {}, {}, {}, {}
  for _, root in ipairs(self.roots) do
    for _, module in ipairs(root.module:modules()) do
      self:_note(module)
    end
    for name, p in root.module:named_parameters() do
      self.names[p] = self.names[p] or root.prefix .. name
    end
  end
  check_known(self)
  for g, group in ipairs(self.optimizer.param_groups) do
    for i, p in ipairs(group.params) do
      self.owned[#self.owned + 1] = { params = group.params, i = i, group = g, param = p }
    end
  end
  self.text, self.trained, self.training = nil, {}, {}
end

local function same_modules(self)
  for _, list in ipairs(self.lists) do
    if #list.keys ~= list.n then
      return false
    end
  end
  for _, f in ipairs(self.fields) do
    if not rawequal(f.values[f.name], f.value) then
      return false
    end
  end
  return true
end

local function same_groups(self)
  local groups, n = self.optimizer.param_groups, 0
  for _, o in ipairs(self.owned) do
    if not groups[o.group] or not rawequal(groups[o.group].params[o.i], o.param) then
      return false
    end
  end
  for _, group in ipairs(groups) do
    n = n + #group.params
  end
  return n == #self.owned
end

--- Are parameters, buffers, modules and groups those that were noted?
---@return string? what is another one
function Watch:changed()
  return not same_modules(self) and "the model has other parameters, buffers or modules"
    or not same_groups(self) and "the optimizer has other groups" or nil
end

-- Flags of a list, and whether one has changed: most calls find that none has.
local function refresh(now, list, get)
  local other = #now ~= #list
  for i, element in ipairs(list) do
    local flag = get(element)
    other = other or now[i] ~= flag
    now[i] = flag
  end
  return other
end

local function training_of(module)
  return module.training and 1 or 0
end

-- 2: with functions that are called with its gradient
local function trained(owned)
  local p = owned.param
  return p.requires_grad and (core.hooked(p) and 2 or 1) or 0
end

-- What torch is set to, which programs keep.
local function surroundings()
  local torch, casts, custom = require("torch"), core.autocast()
  return ("%s %s %s %s %s %d"):format(tostring(casts), tostring(custom),
    torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(),
    torch.get_default_dtype(), torch.get_num_threads())
end

--- How all that stands that may change from call to call.
---@param training boolean a step, or else the model alone in eval mode
---@return string
function Watch:mode(training)
  local around = surroundings()
  if not training then
    return "eval " .. around
  end
  local other = refresh(self.training, self.modules, training_of)
  other = refresh(self.trained, self.owned, trained) or other
  if other or not self.text then
    self.text = table.concat(self.training) .. " " .. table.concat(self.trained)
  end
  return self.text .. " " .. rules.key(self.optimizer) .. " " .. around
end

return Watch
