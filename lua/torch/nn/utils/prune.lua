--- torch.nn.utils.prune: parameters with elements that are held at 0 by a mask.
--- The parameter NAME becomes NAME_orig, the mask is the buffer NAME_mask, and
--- NAME, their product, is computed before every forward. Pruning again takes
--- its amount of what is left. Source: PyTorch documentation,
--- torch.nn.utils.prune, and its tutorial.
local Module = require("torch.nn.module")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local function torch()
  return require("torch")
end

-- ---- amounts -------------------------------------------------------------------

local function check_amount(amount)
  errors.check(type(amount) == "number", "TypeError",
    "Invalid type for amount: %s. Must be int or float.", check.describe(amount))
  errors.check(amount >= 0 and (math.type(amount) == "integer" or amount <= 1), "ValueError",
    "amount=%s should either be a float in the range [0, 1] or a non-negative integer",
    tostring(amount))
  return amount
end

-- How many of n: the amount, or that part of n, halves to the even number.
local function count_of(amount, n)
  if math.type(amount) == "float" then
    local exact = amount * n
    local k = math.floor(exact + 0.5)
    return k - exact == 0.5 and k % 2 == 1 and k - 1 or k
  end
  errors.check(amount <= n, "ValueError",
    "amount=%d should be smaller than the number of parameters to prune=%d", amount, n)
  return amount
end

-- ---- methods -------------------------------------------------------------------

---@class torch.nn.utils.prune.BasePruningMethod
---@field PRUNING_TYPE string "unstructured", "structured" (by `dim`) or "global"
local Base = class.new("BasePruningMethod")

local function check_module(module, where)
  errors.check(Module:is(module), "TypeError", "%s: module: expected a Module, got %s", where,
    check.describe(module))
  return module
end

-- A module's tensor of that name.
local function tensor_of(module, name, where)
  check_module(module, where)
  check.string(name, where .. ": name")
  local x = module[name]
  errors.check(core.is_tensor(x), "AttributeError", "%s: the module %s has no '%s'", where,
    module:_get_name(), name)
  return x
end

-- The pre-hook's entry that prunes the tensor, and its place.
local function entry_of(module, name)
  for i, entry in ipairs(rawget(module, "_pre_hooks") or {}) do
    if Base:is(entry.fn) and (name == nil or entry.fn._tensor_name == name) then
      return entry, i
    end
  end
  return nil
end

--- The hook: computes the pruned tensor before a forward.
function Base:__call(module)
  module[self._tensor_name] = self:apply_mask(module)
end

--- The mask of a tensor whose elements have those importances; classes that
--- extend this one give it.
---@param t torch.Tensor importances
---@param default_mask torch.Tensor of the shape of t: the mask so far
---@return torch.Tensor mask
function Base:compute_mask(t, default_mask) -- luacheck: no unused args
  errors.raise("NotImplementedError", "%s: compute_mask(t, default_mask) is missing",
    getmetatable(self).__name)
end

--- The pruned tensor: the original times its mask.
---@param module torch.nn.Module
---@return torch.Tensor
function Base:apply_mask(module)
  local name = errors.check(self._tensor_name, "AssertionError", "Module %s has to be pruned",
    module:_get_name())
  local original = module[name .. "_orig"]
  return module[name .. "_mask"]:to(original.dtype) * original
end

local function check_scores(scores, x)
  errors.check(core.is_tensor(scores) and scores.shape == x.shape, "AssertionError",
    "importance_scores should have the same shape as the parameter, got %s vs %s",
    core.is_tensor(scores) and tostring(scores.shape) or check.describe(scores), tostring(x.shape))
end

--- A tensor pruned as the method would, which belongs to no module.
---@param t torch.Tensor
---@param default_mask? torch.Tensor the mask so far (ones)
---@param importance_scores? torch.Tensor of the shape of t (t)
---@return torch.Tensor
function Base:prune(t, default_mask, importance_scores)
  if not check.is_none(importance_scores) then
    check_scores(importance_scores, t)
  else
    importance_scores = t
  end
  default_mask = not check.is_none(default_mask) and default_mask or torch().ones_like(t)
  return t * self:compute_mask(importance_scores, default_mask)
end

--- Makes the pruned tensor a parameter again; the zeros stay.
---@param module torch.nn.Module
function Base:remove(module)
  local name = errors.check(self._tensor_name, "AssertionError",
    "Module %s has to be pruned before pruning can be removed", module:_get_name())
  local original, value = module[name .. "_orig"], self:apply_mask(module):detach()
  torch().no_grad(function()
    original:copy_(value)
  end)
  module[name] = nil
  module._parameters:remove(name .. "_orig")
  module._buffers:remove(name .. "_mask")
  module[name] = original
end

---@class torch.nn.utils.prune.PruningContainer: torch.nn.utils.prune.BasePruningMethod
local Container = Base:extend("PruningContainer")
Container.PRUNING_TYPE = "container"

--- Methods that prune one tensor, one after another.
function Container:init(...)
  self.methods = {}
  for i = 1, select("#", ...) do
    local method = select(i, ...)
    self._tensor_name = self._tensor_name or method._tensor_name
    self:add_pruning_method(method)
  end
end

--- Adds a method for the same tensor.
--- errors: TypeError, ValueError (it is for another tensor)
---@param method torch.nn.utils.prune.BasePruningMethod
function Container:add_pruning_method(method)
  errors.check(Base:is(method), "TypeError", "%s is not a BasePruningMethod subclass",
    check.describe(method))
  errors.check(self._tensor_name == method._tensor_name, "ValueError",
    "Can only add pruning methods acting on the parameter named '%s' to PruningContainer. Found "
    .. "'%s'", tostring(self._tensor_name), tostring(method._tensor_name))
  self.methods[#self.methods + 1] = method
end

function Container:__len()
  return #self.methods
end

-- Channels along a dimension that are not all 0 yet.
local function channels_left(mask, dim)
  local over = {}
  for d = 0, mask:dim() - 1 do
    if d ~= dim then
      over[#over + 1] = d
    end
  end
  return mask:sum(over):ne(0):nonzero():flatten()
end

--- The last method's mask, of what the mask so far leaves.
function Container:compute_mask(t, default_mask)
  local method, mask = self.methods[#self.methods], default_mask:to(t.dtype)
  local kind = method.PRUNING_TYPE
  if kind == "unstructured" then
    local left = mask:eq(1)
    return mask:masked_scatter(left, method:compute_mask(t:masked_select(left),
      mask:masked_select(left)):to(mask.dtype))
  elseif kind == "structured" then
    local dim = errors.check(method.dim, "AttributeError", "Pruning methods of PRUNING_TYPE "
      .. "\"structured\" need to have the attribute `dim` defined.")
    errors.check(dim >= -t:dim() and dim < t:dim(), "IndexError",
      "Index %d is out of bounds for tensor with dimensions %d", dim, t:dim())
    dim = dim % t:dim()
    local left = channels_left(mask, dim)
    return mask:index_copy(dim, left, method:compute_mask(t:index_select(dim, left),
      mask:index_select(dim, left)):to(mask.dtype))
  end
  errors.check(kind == "global", "ValueError", "Unrecognized PRUNING_TYPE %s", tostring(kind))
  return method:compute_mask(t, mask):to(mask.dtype)
end

-- The method that prunes the tensor from now on: a container, if there is one
-- already.
local function combined(module, name, method)
  local entry, at = entry_of(module, name)
  if not entry then
    return method
  end
  table.remove(rawget(module, "_pre_hooks"), at)
  local old = entry.fn
  local container = Container:is(old) and old or Container(old)
  container:add_pruning_method(method)
  return container
end

-- Moves the parameter to NAME_orig.
local function move(module, name)
  local original = errors.check(module._parameters.values[name] or nil, "AttributeError",
    "the module %s has no parameter '%s'", module:_get_name(), name)
  module:register_parameter(name .. "_orig", original)
  module._parameters:remove(name)
end

local function apply(cls, module, name, scores, ...)
  local value = tensor_of(module, name, cls.__name .. ".apply")
  local method = cls(...)
  method._tensor_name = name
  scores = not check.is_none(scores) and scores or value
  check_scores(scores, value)
  local first = not entry_of(module, name)
  local default = first and torch().ones_like(value) or module[name .. "_mask"]:detach():clone()
  local rule = first and method or Container(method)
  local mask = torch().no_grad(function() -- may fail: nothing has changed yet
    return rule:compute_mask(scores:detach(), default):detach()
  end)
  method = combined(module, name, method)
  if first then
    move(module, name)
    module:register_buffer(name .. "_mask", mask)
  else
    module[name .. "_mask"] = mask
  end
  module[name] = method:apply_mask(module)
  module:register_forward_pre_hook(method)
  return method
end

-- X.apply(module, name, …), also X:apply(…): the rest is init's.
local function with_apply(cls)
  function cls.apply(first, ...)
    if rawequal(first, cls) then
      return cls.apply(...)
    end
    local given = table.pack(...)
    local last, scores = given[given.n], nil
    if type(last) == "table" and not getmetatable(last) then
      scores, given[given.n] = last.importance_scores, {}
      for key, value in pairs(last) do
        given[given.n][key] = key ~= "importance_scores" and value or nil
      end
      given.n = next(given[given.n]) and given.n or given.n - 1
    end
    return apply(cls, first, given[1], scores, table.unpack(given, 2, given.n))
  end
  return cls
end

local extend = Base.extend

function Base:extend(name)
  return with_apply(extend(self, name))
end

with_apply(Base)
M.BasePruningMethod, M.PruningContainer = Base, Container

-- A class whose init has these parameters.
local function define(name, kind, params, body)
  local cls = Base:extend(name)
  cls.PRUNING_TYPE = kind
  function cls:init(...)
    local values = check.arguments(name, params, nil, ...)
    for i, param in ipairs(params) do
      self[param] = values[i]
    end
    if params[1] == "amount" then
      check_amount(self.amount)
    end
    if body.check then
      body.check(self)
    end
  end
  cls.compute_mask = body.compute_mask
  M[name] = cls
end

define("Identity", "unstructured", {}, {
  compute_mask = function(_, _, mask) return mask end,
})

-- The mask without the k elements that topk takes of the scores.
local function without(mask, scores, k, largest)
  if k == 0 then
    return mask:clone()
  end
  local _, at = scores:flatten():topk(k, { largest = largest })
  return mask:flatten():index_fill(0, at, 0):reshape(mask.shape)
end

define("RandomUnstructured", "unstructured", { "amount" }, {
  compute_mask = function(self, t, mask)
    return without(mask, torch().rand_like(t), count_of(self.amount, t:numel()), true)
  end,
})

define("L1Unstructured", "unstructured", { "amount" }, {
  compute_mask = function(self, t, mask)
    return without(mask, t:abs(), count_of(self.amount, t:numel()), false)
  end,
})

local function check_channels(self, t)
  errors.check(t:dim() > 1, "ValueError", "Structured pruning can only be applied to "
    .. "multidimensional tensors. Found tensor of shape %s with %d dims", tostring(t.shape),
    t:dim())
  errors.check(self.dim >= -t:dim() and self.dim < t:dim(), "IndexError",
    "Invalid index %d for tensor of size %s", self.dim, tostring(t.shape))
  return count_of(self.amount, t:size(self.dim)), self.dim % t:dim()
end

-- The mask with the channels alone that have the greatest scores.
local function with_channels(mask, dim, scores, k)
  local _, at = scores:topk(k)
  return mask * torch().zeros_like(mask):index_fill(dim, at, 1)
end

local function default_dim(self)
  self.dim = check.int(self.dim == nil and -1 or self.dim, "dim")
end

define("RandomStructured", "structured", { "amount", "dim" }, {
  check = default_dim,
  compute_mask = function(self, t, mask)
    local k, dim = check_channels(self, t)
    local n = t:size(dim)
    return k == 0 and mask or with_channels(mask, dim, torch().rand({ n }), n - k)
  end,
})

define("LnStructured", "structured", { "amount", "n", "dim" }, {
  check = function(self)
    default_dim(self)
    errors.check(type(self.n) == "number" or self.n == "fro" or self.n == "nuc", "TypeError",
      "LnStructured: n: expected a number, \"fro\" or \"nuc\", got %s", check.describe(self.n))
  end,
  compute_mask = function(self, t, mask)
    local k, dim = check_channels(self, t)
    if k == 0 then
      return mask
    end
    local over = {}
    for d = 0, t:dim() - 1 do
      over[#over + 1] = d ~= dim and d or nil
    end
    local norm = self.n == "nuc" and torch().linalg.matrix_norm(t, "nuc", over)
      or torch().linalg.vector_norm(t, self.n == "fro" and 2 or self.n, over)
    return with_channels(mask, dim, norm, t:size(dim) - k)
  end,
})

define("CustomFromMask", "global", { "mask" }, {
  check = function(self)
    errors.check(core.is_tensor(self.mask), "TypeError",
      "CustomFromMask: mask: expected a Tensor, got %s", check.describe(self.mask))
  end,
  compute_mask = function(self, _, mask)
    errors.check(self.mask.shape == mask.shape, "AssertionError",
      "CustomFromMask: the mask has shape %s, the tensor %s", tostring(self.mask.shape),
      tostring(mask.shape))
    return mask * self.mask:to(mask.dtype)
  end,
})

-- ---- functions -----------------------------------------------------------------

-- f(module, name, …) of a class; importance_scores stand behind its parameters.
local function pruner(fn, cls, params)
  local names = table.move(params, 1, #params, 3, { "module", "name" })
  names[#names + 1] = "importance_scores"
  M[fn] = function(...)
    local v = check.arguments(fn, names, nil, ...)
    local keywords = { importance_scores = v[#names] }
    for i, param in ipairs(params) do
      keywords[param] = v[i + 2]
    end
    M[cls].apply(v[1], v[2], keywords)
    return v[1]
  end
end

pruner("identity", "Identity", {})
pruner("random_unstructured", "RandomUnstructured", { "amount" })
pruner("l1_unstructured", "L1Unstructured", { "amount" })
pruner("random_structured", "RandomStructured", { "amount", "dim" })
pruner("ln_structured", "LnStructured", { "amount", "n", "dim" })
pruner("custom_from_mask", "CustomFromMask", { "mask" })

--- Prunes tensors of several modules as if they were one: the least important
--- elements of all go. A last table holds the method's parameters and
--- importance_scores, {[module] = {name = Tensor}}.
--- error: TypeError for a method that is not unstructured
--- Source: PyTorch documentation, global_unstructured
---@param parameters table[] {module, name} pairs
---@param pruning_method table a class, such as prune.L1Unstructured
---@param keywords? table {amount = 0.2}, importance_scores
function M.global_unstructured(parameters, pruning_method, keywords)
  check.table(parameters, "global_unstructured: parameters")
  errors.check(Base:is_base_of(pruning_method), "TypeError",
    "global_unstructured: pruning_method: expected a pruning method's class, got %s",
    check.describe(pruning_method))
  errors.check(pruning_method.PRUNING_TYPE == "unstructured", "TypeError",
    "Only \"unstructured\" PRUNING_TYPE supported for the `pruning_method`. Found method %s of "
    .. "type %s", pruning_method.__name, tostring(pruning_method.PRUNING_TYPE))
  local own, scores, masks, given = {}, {}, {}, {}
  for key, value in pairs(keywords or {}) do
    own[key] = key ~= "importance_scores" and value or nil
  end
  given = keywords and keywords.importance_scores or given
  for i, pair in ipairs(parameters) do
    local where = ("global_unstructured: parameters: element %d"):format(i)
    local module, name = table.unpack(check.table(pair, where))
    local x = tensor_of(module, name, where)
    local of = given[module] and given[module][name] or x
    check_scores(of, x)
    scores[i] = of:detach():flatten()
    masks[i] = (module[name .. "_mask"] or torch().ones_like(x)):detach():flatten()
  end
  local method = next(own) and pruning_method(own) or pruning_method()
  local mask = Container(method):compute_mask(torch().cat(scores), torch().cat(masks))
  local at = 0
  for _, pair in ipairs(parameters) do
    local x = pair[1][pair[2]]
    M.custom_from_mask(pair[1], pair[2], mask:narrow(0, at, x:numel()):reshape(x.shape))
    at = at + x:numel()
  end
end

--- Makes the pruned tensor a parameter again; the zeros stay.
--- error: ValueError for a tensor that is not pruned
---@param module torch.nn.Module
---@param name string
---@return torch.nn.Module the same
function M.remove(module, name)
  local entry, at = entry_of(check_module(module, "remove"), check.string(name, "remove: name"))
  errors.check(entry, "ValueError",
    "Parameter '%s' of module %s has to be pruned before pruning can be removed", tostring(name),
    module:_get_name())
  entry.fn:remove(module)
  table.remove(rawget(module, "_pre_hooks"), at)
  return module
end

--- Whether a tensor of the module, or of one inside it, is pruned.
---@param module torch.nn.Module
---@return boolean
function M.is_pruned(module)
  for _, m in check_module(module, "is_pruned"):named_modules() do
    if entry_of(m) then
      return true
    end
  end
  return false
end

classes.space("torch.nn.utils.prune", M)
classes.note_data(Base)

return require("lupine.base.namespace").close(M, "torch.nn.utils.prune")
