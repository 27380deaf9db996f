--- Methods of torch.nn.Module that go through the tree: lists and iterators of
--- parameters, buffers and modules, look-up by path, modes, conversion, copies.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local enum = require("lupine.base.enum")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")

-- name, value iterator over {{name, value}, …}
local function iterator(pairs_list)
  local i = 0
  return function()
    i = i + 1
    local entry = pairs_list[i]
    if entry then
      return entry[1], entry[2]
    end
  end
end

local function join(prefix, name)
  return prefix == "" and name or prefix .. "." .. name
end

local function collect_modules(self, seen, prefix, unique, out)
  if unique and seen[self] then
    return out
  end
  seen[self] = true
  out[#out + 1] = { prefix, self }
  for _, name, child in self._modules:each() do
    collect_modules(child, seen, join(prefix, name), unique, out)
  end
  return out
end

-- {{name, value}, …} of a registry over the tree.
local function collect(self, registry, prefix, recurse, unique)
  local modules = recurse and collect_modules(self, {}, prefix, unique, {}) or { { prefix, self } }
  local seen, out = {}, {}
  for _, entry in ipairs(modules) do
    for _, name, value in entry[2][registry]:each() do
      if not (unique and seen[value]) then
        seen[value] = true
        out[#out + 1] = { join(entry[1], name), value }
      end
    end
  end
  return out
end

local function values_of(list)
  local out = {}
  for i, entry in ipairs(list) do
    out[i] = entry[2]
  end
  return core.list(out)
end

local function options(where, names, defaults, ...)
  local values = check.arguments(where, names, {}, ...) -- no list among them
  for i in ipairs(names) do
    if values[i] == nil then
      values[i] = defaults[i]
    end
  end
  return table.unpack(values, 1, #names)
end

return function(Module)
  local M = {}

  local MEMBER = { "prefix", "recurse", "remove_duplicate" }
  local function members(singular, plural, registry)
    --- Iterator of name, value in the order of registration.
    --- (prefix = "", recurse = true, remove_duplicate = true)
    M["named_" .. plural] = function(self, ...)
      check.method(self, Module, "named_" .. plural)
      return iterator(collect(self, registry,
        options("named_" .. plural, MEMBER, { "", true, true }, ...)))
    end

    --- A list; parameters(recurse = true).
    M[plural] = function(self, ...)
      check.method(self, Module, plural)
      local recurse = options(plural, { "recurse" }, { true }, ...)
      return values_of(collect(self, registry, "", recurse, true))
    end

    --- By its path, such as "layers.0.weight".
    M["get_" .. singular] = function(self, path)
      check.string(path, ("get_%s(target)"):format(singular))
      local owner, name = path:match("^(.*)%.([^.]*)$")
      local module = M.get_submodule(self, owner or "")
      local value = module[registry].values[name or path]
      return errors.check(value or nil, "AttributeError", "%s has no %s '%s'",
        module:_get_name(), singular, name or path)
    end
  end
  members("parameter", "parameters", "_parameters")
  members("buffer", "buffers", "_buffers")

  --- Iterator of name, module; the module itself first, under the name
  --- "". (memo is not taken; prefix = "", remove_duplicate = true)
  function M:named_modules(...)
    check.method(self, Module, "named_modules")
    local prefix, unique = options("named_modules", { "prefix", "remove_duplicate" },
      { "", true }, ...)
    return iterator(collect_modules(self, {}, prefix, unique, {}))
  end

  --- A list of the module and all below it.
  function M:modules(...)
    check.method(self, Module, "modules")
    check.most("modules", 0, ...)
    return values_of(collect_modules(self, {}, "", true, {}))
  end

  local function direct(self)
    local seen, out = {}, {}
    for _, name, child in self._modules:each() do
      if not seen[child] then
        seen[child] = true
        out[#out + 1] = { name, child }
      end
    end
    return out
  end

  --- Iterator of name, module over the direct children.
  function M:named_children(...)
    check.method(self, Module, "named_children")
    check.most("named_children", 0, ...)
    return iterator(direct(self))
  end

  --- A list of the direct children.
  function M:children(...)
    check.method(self, Module, "children")
    check.most("children", 0, ...)
    return values_of(direct(self))
  end

  --- By its path, such as "layers.0"; "" is the module itself.
  function M:get_submodule(path)
    check.method(self, Module, "get_submodule")
    check.string(path, "get_submodule(target)")
    local module = self
    for name in path:gmatch("[^.]+") do
      local child = module._modules.values[name]
      module = errors.check(child or nil, "AttributeError", "%s has no submodule '%s'",
        module:_get_name(), name)
    end
    return module
  end

  --- Puts a module at a path; strict: only where there is one already.
  function M:set_submodule(path, module, ...)
    local strict = options("set_submodule", { "strict" }, { false }, ...)
    errors.check(type(path) == "string" and path ~= "", "ValueError",
      "set_submodule(target): cannot set the submodule without a target name")
    errors.check(Module:is(module), "ValueError", "set_submodule(module): expected a module, got "
      .. "%s", check.describe(module))
    local owner, name = path:match("^(.*)%.([^.]*)$")
    local parent = M.get_submodule(self, owner or "")
    errors.check(not strict or parent._modules.values[name or path], "AttributeError",
      "%s has no submodule '%s'", parent:_get_name(), name or path)
    parent._modules:set(name or path, module)
  end

  --- Training mode for the module and all below it.
  function M:train(mode, ...)
    check.method(self, Module, "train")
    check.most("train", 1, mode, ...)
    mode = check.bool(mode == nil or mode, "train(mode)", { error = "ValueError" })
    self.training = mode
    for _, child in ipairs(self:children()) do
      child:train(mode)
    end
    return self
  end

  function M:eval(...)
    check.method(self, Module, "eval")
    check.most("eval", 0, ...)
    return self:train(false)
  end

  function M:requires_grad_(on)
    check.method(self, Module, "requires_grad_")
    if type(on) == "table" then
      on = on.requires_grad
    end
    on = check.bool(on, "requires_grad_: requires_grad", { nullable = true })
    for _, p in ipairs(self:parameters()) do
      p:requires_grad_(on ~= false)
    end
    return self
  end

  --- Takes all gradients away, or with set_to_none = false fills them with 0.
  function M:zero_grad(...)
    check.method(self, Module, "zero_grad")
    local to_none = options("zero_grad", { "set_to_none" }, { true }, ...)
    for _, p in ipairs(self:parameters()) do
      local g = p.grad
      if g and to_none then
        p.grad = nil
      elseif g then
        p.grad = g:detach():zero_()
      end
    end
  end

  --- fn(module) for all modules, children first.
  function M:apply(fn)
    check.callable(fn, "apply: fn")
    for _, child in ipairs(self:children()) do
      child:apply(fn)
    end
    fn(self)
    return self
  end

  -- ---- conversion ----------------------------------------------------------

  --- Replaces the contents of parameters, gradients and buffers by fn(tensor);
  --- parameters stay the same objects.
  function M:_apply(fn)
    for _, child in ipairs(self:children()) do
      child:_apply(fn)
    end
    return self:_apply_own(fn)
  end

  --- The same without the children.
  function M:_apply_own(fn)
    for _, _, p in self._parameters:each() do
      local new = fn(p.data)
      local grad = p.grad
      p.grad = nil
      p.data = new
      p.grad = grad and fn(grad)
    end
    for _, name, b in self._buffers:each() do
      self._buffers:set(name, fn(b))
    end
    return self
  end

  for _, name in ipairs({ "half", "float", "double", "bfloat16" }) do
    --- Floating-point parameters and buffers in this dtype.
    M[name] = function(self, ...)
      check.method(self, Module, name)
      check.most(name, 0, ...)
      return self:_apply(function(t)
        return t:is_floating_point() and t[name](t) or t
      end)
    end
  end

  --- to(dtype), to(device), to(device, dtype), to(tensor): the dtype is for
  --- floating-point parameters and buffers.
  function M:to(...)
    check.method(self, Module, "to")
    local probe = require("torch").empty({ 0 }):to(...)
    local args = { ... }
    local last = args[#args]
    local given = type(last) == "table" and last.dtype
    for _, a in ipairs(args) do
      given = given or core.is_tensor(a) or tostring(a):find("^torch%.") ~= nil
    end
    errors.check(not given or probe:is_floating_point(), "TypeError",
      "nn.Module.to only accepts floating point dtypes, but got desired dtype=%s",
      tostring(probe.dtype))
    local device = probe.device
    return self:_apply(function(t)
      local floating = given and t:is_floating_point()
      return t:to(device, floating and probe.dtype or t.dtype)
    end)
  end

  --- All parameters and buffers in this dtype.
  function M:type(dtype)
    check.method(self, Module, "type")
    return self:_apply(function(t)
      return t:type(dtype)
    end)
  end

  function M:cpu(...)
    check.method(self, Module, "cpu")
    check.most("cpu", 0, ...)
    return self:_apply(function(t)
      return t:cpu()
    end)
  end

  --- On another device, with undefined elements: to_empty({device = "cpu"}).
  function M:to_empty(...)
    local device = options("to_empty", { "device" }, {}, ...)
    errors.check(device ~= nil, "TypeError", "to_empty(): argument 'device' is missing")
    local empty = require("torch").empty
    return self:_apply(function(t)
      return empty(t.shape, { dtype = t.dtype, device = device })
    end)
  end

  -- ---- copies --------------------------------------------------------------

  local function copy_tensor(t)
    local new = t:detach():clone()
    if core.is_parameter(t) then
      new = core.parameter(new, t.requires_grad)
    else
      new:requires_grad_(t.requires_grad)
    end
    if t.grad then
      new.grad = t.grad:clone()
    end
    return new
  end

  -- As class.copy: what has a foreign metatable is shared.
  local function is_copied(value)
    local mt = getmetatable(value)
    if class.is_class(value) or enum.is_member(value) then
      return false
    end
    return not mt or class.is_class(mt) or ordered.is_registry(value)
  end

  -- Tensors and tables once each. Numbers are no identities: as a key 0.0 is 0.
  local copy
  local function copy_table(value, seen)
    local out = {}
    seen[value] = out
    for k, v in next, value do
      rawset(out, copy(k, seen), copy(v, seen))
    end
    return setmetatable(out, getmetatable(value) or nil)
  end

  -- A whole tensor once for its memory, whichever view or name of it comes first.
  local function copy_whole(t, seen)
    local place = t:numel() > 0 and t:data_ptr()
    local new = place and seen[place]
    if not new or new.shape ~= t.shape or new.dtype ~= t.dtype then
      new = copy_tensor(t)
    end
    if place then
      seen[place] = new
    end
    return new
  end

  -- Buffers that are views of one memory stay so.
  local function copy_buffer(t, seen)
    local base = t._base
    if base and base:is_contiguous() then
      return copy_whole(base, seen):as_strided(t:size(), t:stride(), t:storage_offset())
    end
    return base and copy_tensor(t) or copy_whole(t, seen)
  end

  function copy(value, seen)
    if core.is_tensor(value) then
      local shared = not core.is_parameter(value) and not value.requires_grad and not value.grad
      seen[value] = seen[value] or (shared and copy_buffer or copy_tensor)(value, seen)
      return seen[value]
    elseif type(value) == "table" and is_copied(value) then
      return seen[value] or copy_table(value, seen)
    end
    return value
  end

  --- A copy of the module and everything below it; parameters that are shared
  --- inside stay shared.
  function M:deepcopy()
    errors.check(Module:is(self), "TypeError", "deepcopy is called on a module")
    return copy(self, {})
  end

  return M
end
