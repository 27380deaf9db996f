--- state_dict and load_state_dict of optimizers: parameters by their number,
--- which counts from 0 over all groups.
local check = require("lupine.check")
local core = require("lupine.core")
local errors = require("torch.errors")

local M = {}

local function each_param(self)
  local all = {}
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      all[#all + 1] = p
    end
  end
  return all
end

-- A state that exists only for the rule is left out.
local function is_public(self, name)
  return not (self.private_state and self.private_state[name])
end

--- {state = {[0] = {exp_avg = tensor, …}, …}, param_groups = {{lr = …, params
--- = {0, 1, …}}, …}}. The tensors are the optimizer's own.
function M:state_dict()
  local out = { state = {}, param_groups = {} }
  local number = 0
  for g, group in ipairs(self.param_groups) do
    local packed = {}
    for name, value in pairs(group) do
      packed[name] = type(value) == "table" and { table.unpack(value) } or value
    end
    packed.params = {}
    for i, p in ipairs(group.params) do
      packed.params[i] = number
      if self.state[p] then
        out.state[number] = {}
        for name, value in pairs(self.state[p]) do
          out.state[number][name] = is_public(self, name) and value or nil
        end
      end
      number = number + 1
    end
    out.param_groups[g] = packed
  end
  return out
end

local function copy_state(param, name, value)
  if not core.is_tensor(value) then
    return type(value) == "table" and { table.unpack(value) } or value
  elseif name ~= "step" and value:is_floating_point() then
    return value:detach():to(param.dtype, { copy = true })
  end
  return value:detach():clone()
end

local function check_groups(self, groups)
  errors.check(#groups == #self.param_groups, "ValueError",
    "loaded state dict has a different number of parameter groups: %d, this optimizer has %d",
    #groups, #self.param_groups)
  for g, group in ipairs(groups) do
    errors.check(#group.params == #self.param_groups[g].params, "ValueError",
      "loaded state dict contains a parameter group that doesn't match the size of optimizer's "
      .. "group: group %d has %d parameters, this optimizer's %d", g, #group.params,
      #self.param_groups[g].params)
  end
end

--- Takes over the values of state_dict; parameters match by their order.
--- error: ValueError for groups of other number or sizes
function M:load_state_dict(dict)
  errors.check(type(dict) == "table" and type(dict.param_groups) == "table"
    and type(dict.state) == "table", "TypeError",
    "load_state_dict: expected {state = …, param_groups = …}, got %s", check.describe(dict))
  check_groups(self, dict.param_groups)
  local params, by_number, at = each_param(self), {}, 0
  for g, group in ipairs(dict.param_groups) do
    local own = self.param_groups[g]
    for name, value in pairs(group) do
      if name ~= "params" then
        own[name] = type(value) == "table" and { table.unpack(value) } or value
      end
    end
    for _, number in ipairs(group.params) do
      at = at + 1
      by_number[number] = params[at]
    end
  end
  self.state = {}
  for number, state in pairs(dict.state) do
    local p = errors.check(by_number[number], "ValueError",
      "load_state_dict: state of parameter %s, which is in no group", tostring(number))
    self.state[p] = {}
    for name, value in pairs(state) do
      self.state[p][name] = copy_state(p, name, value)
    end
    if self.loaded then
      self:loaded(p, self.state[p])
    end
  end
  self:_push_loaded()
end

-- A model on a device that is trained by this optimizer takes the values over.
function M:_push_loaded()
  local link = rawget(self, "_link")
  if link then
    link:push()
  end
end

return M
