--- torch.nn.utils.parametrize: a parameter or buffer computed, whenever it is
--- read, by modules from one tensor or several that are kept in its place.
---
---     local Symmetric = torch.nn.Module:extend("Symmetric")
---     function Symmetric:forward(x)
---       return x:triu() + x:triu(1).mT
---     end
---     parametrize.register_parametrization(layer, "weight", Symmetric())
---
--- The module gets a class of its own ("ParametrizedLinear") whose fields read
--- and write through its child `parametrizations`, a ModuleDict of
--- ParametrizationLists, so names in state dictionaries are PyTorch's:
--- parametrizations.weight.original. Source: PyTorch documentation,
--- torch.nn.utils.parametrize, and its tutorial.
local Module = require("torch.nn.module")
local check = require("lupine.base.check")
local containers = require("torch.nn.layers.containers")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local function torch()
  return require("torch")
end

-- ---- cached values -----------------------------------------------------------

-- Scopes that are open, and the values that were read inside, by list.
local open, values = 0, {}

local Scope = { __name = "torch.nn.utils.parametrize.cached" }

function Scope.__close()
  open = open - 1
  if open == 0 then
    values = {}
  end
end

--- Inside, each parametrized tensor is computed once.
---   local _ <close> = parametrize.cached()     until the end of the block
---   parametrize.cached(function() … end)        inside the function
--- Source: PyTorch documentation, torch.nn.utils.parametrize.cached
---@param fn? function
---@return any ... the scope, or what fn returns
function M.cached(fn)
  errors.check(fn == nil or type(fn) == "function", "TypeError",
    "cached: takes nothing or a function, got %s", check.describe(fn))
  open = open + 1
  local scope = setmetatable({}, Scope)
  if not fn then
    return scope
  end
  local _ <close> = scope
  return fn()
end

-- ---- the list of one tensor ----------------------------------------------------

---@class torch.nn.utils.parametrize.ParametrizationList: torch.nn.ModuleList
---@field original torch.Tensor? original0, original1, … if right_inverse gives several
---@field unsafe boolean
---@field is_tensor boolean
---@field ntensors integer
local List = containers.ModuleList:extend("ParametrizationList")
M.ParametrizationList = List

-- What right_inverse of a parametrization makes of a value; the value where it
-- has none or raises NotImplementedError.
local function inverted(module, value)
  if not module.right_inverse then
    return value
  end
  local results = table.pack(pcall(module.right_inverse, module, value))
  if not results[1] then
    if errors.NotImplementedError:is(results[2]) then
      return value
    end
    error(results[2], 0)
  end
  if results.n > 2 then
    return { table.unpack(results, 2, results.n) }
  end
  return results[2]
end

local function check_result(x, like, what, unsafe_hint)
  errors.check(core.is_tensor(x), "ValueError", "%s must return a tensor, got %s", what,
    check.describe(x))
  errors.check(x.dtype == like.dtype, "ValueError",
    "Registering a parametrization may not change the dtype of the tensor%s: %s gives %s, the "
    .. "tensor is %s", unsafe_hint, what, tostring(x.dtype), tostring(like.dtype))
  errors.check(x.shape == like.shape, "ValueError",
    "Registering a parametrization may not change the shape of the tensor%s: %s gives %s, the "
    .. "tensor is %s", unsafe_hint, what, tostring(x.shape), tostring(like.shape))
end

local UNLESS = ", unless the `unsafe` flag is enabled"

local function keep(module, name, x)
  if core.is_parameter(x) then
    module:register_parameter(name, x)
  else
    module:register_buffer(name, x)
  end
end

-- Registers what the first parametrization starts from.
local function keep_originals(self, original, new)
  self.is_tensor = core.is_tensor(new)
  errors.check(self.is_tensor or type(new) == "table", "ValueError",
    "'right_inverse' must return a Tensor or a list of tensors, got %s", check.describe(new))
  self.ntensors = self.is_tensor and 1 or #new
  if self.is_tensor then
    errors.check(new.dtype == original.dtype, "ValueError", "When `right_inverse` outputs one "
      .. "tensor, it may not change the dtype: %s became %s", tostring(original.dtype),
      tostring(new.dtype))
    torch().no_grad(function()
      original:set_(new)
    end)
    keep(self, "original", original)
    return
  end
  for i, x in ipairs(new) do
    errors.check(core.is_tensor(x), "ValueError", "'right_inverse' must return a Tensor or a list "
      .. "of tensors, got element %d: %s", i, check.describe(x))
    if core.is_parameter(original) then
      x = torch().nn.Parameter(x, original.requires_grad)
    else
      x:requires_grad_(original.requires_grad)
    end
    keep(self, ("original%d"):format(i - 1), x)
  end
end

function List:init(modules, original, unsafe)
  check.table(modules, "ParametrizationList: modules")
  errors.check(#modules > 0, "ValueError", "ParametrizationList requires one or more modules.")
  for _, module in ipairs(modules) do
    self:append(module)
  end
  self.unsafe = unsafe or false
  local like = { dtype = original.dtype, shape = original.shape }
  local new = torch().no_grad(function()
    local x = original
    for i = #modules, 1, -1 do
      x = inverted(modules[i], x)
    end
    return x
  end)
  keep_originals(self, original, new)
  if not self.unsafe then
    check_result(self(), like, "the parametrization", UNLESS)
  end
end

function List:originals()
  if self.is_tensor then
    return self.original
  end
  local out = {}
  for i = 1, self.ntensors do
    out[i] = self[("original%d"):format(i - 1)]
  end
  return table.unpack(out, 1, self.ntensors)
end

function List:forward()
  local x = self[1](self:originals())
  for i = 2, #self do
    x = self[i](x)
  end
  return x
end

--- Sets the originals so that the tensor becomes `value`, as far as the
--- parametrizations can.
--- errors: RuntimeError (one has no right_inverse), ValueError (what it gives)
---@param value torch.Tensor
function List:right_inverse(value)
  torch().no_grad(function()
    for i = #self, 1, -1 do
      errors.check(self[i].right_inverse, "RuntimeError",
        "parametrization %s does not implement right_inverse.", self[i]:_get_name())
      value = table.pack(self[i]:right_inverse(value))
      value = value.n > 1 and value or value[1]
    end
    local list = self.is_tensor and { value } or value
    errors.check(type(list) == "table" and #list == self.ntensors, "ValueError",
      "'right_inverse' must return a list of %d tensors, got %s", self.ntensors,
      check.describe(value))
    for i, x in ipairs(list) do
      local own = self[self.is_tensor and "original" or ("original%d"):format(i - 1)]
      errors.check(core.is_tensor(x), "ValueError",
        "`right_inverse` should return a tensor, got %s", check.describe(x))
      errors.check(x.dtype == own.dtype, "ValueError",
        "the tensor returned by `right_inverse` has dtype %s while `original` has dtype %s",
        tostring(x.dtype), tostring(own.dtype))
      own:set_(x)
    end
  end)
end

-- ---- the module's class --------------------------------------------------------

-- The list of a module's tensor, or nil.
local function list_of(module, name)
  local children = rawget(module, "_modules")
  local all = children and children.values.parametrizations
  return all and all._modules.values[name] or nil
end

local function compute(list)
  if open == 0 then
    return list()
  end
  values[list] = values[list] or list()
  return values[list]
end

--- Puts a class between the module and its own, whose parametrized fields are computed.
---@param module torch.nn.Module
function M._inject(module)
  local cls = getmetatable(module)
  local new = Module.extend(cls, "Parametrized" .. cls.__name)
  local read, write = cls.__index, cls.__newindex
  function new.__index(self, key)
    local list = list_of(self, key)
    if list then
      return compute(list)
    end
    return read(self, key)
  end
  function new.__newindex(self, key, value)
    local list = list_of(self, key)
    if list then
      return list:right_inverse(value)
    end
    return write(self, key, value)
  end
  new._before_parametrizations = cls
  setmetatable(module, new)
end

-- ---- registering ---------------------------------------------------------------

local function check_further(module, name, parametrization)
  local y = module[name]
  local x = parametrization(y)
  check_result(x, y, "the parametrization", UNLESS)
  if parametrization.right_inverse then
    local z = inverted(parametrization, x)
    check_result(z, y, "right_inverse", UNLESS)
  end
end

--- Makes a parameter or buffer the result of a module: of what is kept in its
--- place (right_inverse of its value, or the value), and of the earlier ones.
--- errors: ValueError (no such tensor; another shape or dtype without unsafe)
--- Source: PyTorch documentation, register_parametrization
---@param module torch.nn.Module
---@param tensor_name string
---@param parametrization torch.nn.Module forward(tensor) gives a tensor; may have right_inverse
---@param ... any unsafe (false): shape and dtype may change, nothing is checked
---@return torch.nn.Module the same
function M.register_parametrization(module, tensor_name, parametrization, ...)
  local unsafe = check.arguments("register_parametrization", { "unsafe" }, nil, ...)[1] or false
  errors.check(Module:is(module), "TypeError",
    "register_parametrization: module: expected a Module, got %s", check.describe(module))
  errors.check(Module:is(parametrization), "TypeError",
    "register_parametrization: parametrization: expected a Module, got %s",
    check.describe(parametrization))
  check.string(tensor_name, "register_parametrization: tensor_name")
  parametrization:train(module.training)
  if M.is_parametrized(module, tensor_name) then
    if not unsafe then
      check_further(module, tensor_name, parametrization)
    end
    local list = list_of(module, tensor_name)
    list:append(parametrization)
    list.unsafe = list.unsafe or unsafe
    return module
  end
  local original = module._parameters.values[tensor_name] or module._buffers.values[tensor_name]
  errors.check(original, "ValueError", "Module '%s' does not have a parameter, a buffer, or a "
    .. "parametrized element with name '%s'", module:_get_name(), tensor_name)
  local list = List({ parametrization }, original, unsafe)
  module._parameters:remove(tensor_name)
  module._buffers:remove(tensor_name)
  if not M.is_parametrized(module) then
    M._inject(module)
    module.parametrizations = containers.ModuleDict()
  end
  module.parametrizations:add_module(tensor_name, list)
  return module
end

--- Whether the module has a parametrization, or one of the named tensor.
---@param module torch.nn.Module
---@param tensor_name? string
---@return boolean
function M.is_parametrized(module, tensor_name)
  errors.check(Module:is(module), "TypeError", "is_parametrized: expected a Module, got %s",
    check.describe(module))
  if not getmetatable(module)._before_parametrizations then
    return false
  elseif check.is_none(tensor_name) then
    return true
  end
  return list_of(module, tensor_name) ~= nil
end

--- Makes the tensor a parameter or buffer again: with its computed value, or with
--- that of the original.
--- errors: ValueError (not parametrized; several originals without a value)
--- Source: PyTorch documentation, remove_parametrizations
---@param module torch.nn.Module
---@param tensor_name string
---@param ... any leave_parametrized (true): the computed value
---@return torch.nn.Module the same
function M.remove_parametrizations(module, tensor_name, ...)
  local leave = check.arguments("remove_parametrizations", { "leave_parametrized" }, nil, ...)[1]
  errors.check(M.is_parametrized(module, tensor_name), "ValueError",
    "Module %s does not have a parametrization on %s", module:_get_name(), tostring(tensor_name))
  local list = list_of(module, tensor_name)
  local value = list.original
  if list.is_tensor then
    if leave ~= false then
      torch().no_grad(function()
        value:set_(module[tensor_name])
      end)
    end
  else
    errors.check(leave ~= false, "ValueError", "Cannot leave unparametrized "
      .. "(`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of "
      .. "tensors.")
    value = module[tensor_name]
    value = value.requires_grad and torch().nn.Parameter(value:detach()) or value
  end
  local all = module.parametrizations
  all:pop(tensor_name)
  if #all:keys() == 0 then
    setmetatable(module, getmetatable(module)._before_parametrizations)
    module._modules:remove("parametrizations")
  end
  keep(module, tensor_name, value)
  return module
end

--- The module's class without its parametrizations.
---@param module torch.nn.Module
---@return table class
function M.type_before_parametrizations(module)
  return M.is_parametrized(module) and getmetatable(module)._before_parametrizations
    or getmetatable(module)
end

return require("lupine.base.namespace").close(M, "torch.nn.utils.parametrize")
