--- torch.nn.Module: registration of parameters, buffers and sub-modules by
--- assignment, the call, hooks. What walks the tree of modules stands in
--- module_tree.lua, state dictionaries in module_state.lua, the registration of
--- hooks in module_hooks.lua, all added here.
---
--- An instance holds four raw tables: `_parameters`, `_buffers`, `_modules`
--- (torch.nn.Registry) and `_fields` (every other field). So each read and
--- write of a field passes here, and a field that was a plain value registers
--- when a parameter or module is assigned to it.
---
--- While a model is traced the tracer sets `Module.tracer`:
---   tracer.enter(module), tracer.leave(module)   around every forward
---   tracer.assign(module, name, old)             (may be missing) a plain
---     field is about to change; `old` is its value
---   tracer.made(tensor, name)                    (may be missing) a constructor by
---     type made this tensor of values
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local classes = require("torch.class_names")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")
local keywords = require("torch.nn.keywords")
local ordered = require("torch.nn.ordered")
local text = require("torch.nn.text")

---@class torch.nn.Module
---@field training boolean
---@overload fun(...): any
local Module = class.new("Module")
classes.watch(Module)

--- nil outside a trace.
---@type {enter: fun(module), leave: fun(module), assign: fun(module, name: string, old: any)?}?
Module.tracer = nil

--- What stands before a module's name when it prints; nil: nothing.
---@type (fun(module): string)?
Module.shown_before = nil

-- ---- fields ----------------------------------------------------------------

--- An instance of the class without anything in it: `init` is not called.
---@param cls table
---@return torch.nn.Module
function Module._blank(cls)
  return setmetatable({
    _parameters = ordered.registry(),
    _buffers = ordered.registry(),
    _modules = ordered.registry(),
    _transient = {}, -- names of buffers that state_dict leaves out
    _fields = { training = true },
  }, cls)
end

--- An instance of the class, which `init` gets the arguments of.
---@param cls table
---@param ... any
---@return torch.nn.Module
function Module.new(cls, ...)
  errors.check(class.is_class(cls), "TypeError",
    "new is a method of the class: call the class itself, Net(...), or Net:new(...)")
  local self = Module._blank(cls)
  rawset(self, "_arguments", classes.plain(...)) -- for files of modules: torch/objects.lua
  self:init(...)
  return self
end

local function registered(self, key)
  return self._parameters.values[key] or self._buffers.values[key] or self._modules.values[key]
end

function Module.__index(self, key)
  local value = rawget(self, "_fields")[key]
  if value ~= nil then
    return value
  end
  value = registered(self, key)
  if value then
    return value
  elseif key == "forward" then
    return keywords.checked(getmetatable(self).forward, Module)
  end
  return getmetatable(self)[key]
end

--- For completion.
function Module.__members(self)
  return { rawget(self, "_fields"), self._parameters.values, self._buffers.values,
    self._modules.values }
end

local function is_module(v)
  return Module:is(v)
end

local function kind_of(value)
  return core.is_tensor(value) and "a Tensor" or check.describe(value)
end

local REPLACE = {
  { "_parameters", "parameter", "torch.nn.Parameter or nil" },
  { "_modules", "child module", "torch.nn.Module or nil" },
  { "_buffers", "buffer", "torch.Tensor or nil" },
}

-- A value for a name that is registered already.
local function replace(self, key, value)
  for _, kind in ipairs(REPLACE) do
    local registry = self[kind[1]]
    if registry.values[key] ~= nil then
      errors.check(value == nil or kind[1] == "_buffers" and core.is_tensor(value), "TypeError",
        "cannot assign %s as %s '%s' (%s expected)", kind_of(value), kind[2], tostring(key),
        kind[3])
      errors.check(not (rawget(Module, "tracer") and kind[1] == "_buffers" and value), "Error",
        "'%s' is a registered buffer: inside a traced forward its field cannot be given a new "
        .. "tensor. Update it in place: self.%s:copy_(value), or self.%s:add_(1) for self.%s = "
        .. "self.%s + 1", key, key, key, key, key)
      registry:set(key, value)
      return true
    end
  end
  return false
end

local function callable(v)
  local mt = getmetatable(v)
  return check.is_none(v) or type(v) == "function" or type(mt) == "table" and mt.__call ~= nil
end

local function drop(self, key, keep)
  for _, name in ipairs({ "_parameters", "_buffers", "_modules" }) do
    if name ~= keep then
      self[name]:remove(key)
    end
  end
  self._transient[key] = nil
  self._fields[key] = nil
end

function Module.__newindex(self, key, value)
  if type(value) == "userdata" and core.is_parameter(value) then
    drop(self, key, "_parameters")
    self._parameters:set(key, value)
  elseif type(value) == "table" and is_module(value) then
    drop(self, key, "_modules")
    self._modules:set(key, value)
  elseif not replace(self, key, value) then
    errors.check(key ~= "forward" or callable(value), "TypeError",
      "%s.forward: expected a function, got %s", getmetatable(self).__name, check.describe(value))
    local tracer = rawget(Module, "tracer")
    if tracer and tracer.assign then
      tracer.assign(self, key, self._fields[key])
    end
    if check.is_none(value) then
      value = nil
    end
    self._fields[key] = value
  end
end

-- ---- registration ----------------------------------------------------------

local function check_name(self, name, what, registry)
  errors.check(type(name) == "string", "TypeError", "%s name should be a string, got %s", what,
    check.describe(name))
  errors.check(not name:find(".", 1, true), "KeyError", "%s name can't contain \".\", got: '%s'",
    what, name)
  errors.check(name ~= "", "KeyError", "%s name can't be empty string \"\"", what)
  errors.check(registry.values[name] ~= nil or self[name] == nil, "KeyError",
    "attribute '%s' already exists", name)
end

--- A tensor that belongs to the module's state but is no parameter.
---@param name string
---@param tensor torch.Tensor?
---@param ... any persistent (true): part of state_dict
function Module:register_buffer(name, tensor, ...)
  check.method(self, Module, "register_buffer")
  local persistent = check.arguments("register_buffer", { "persistent" }, nil, ...)[1]
  check_name(self, name, "buffer", self._buffers)
  errors.check(check.is_none(tensor) or core.is_tensor(tensor), "TypeError",
    "cannot assign %s as buffer '%s' (torch Tensor or nil required)", check.describe(tensor), name)
  self._buffers:set(name, not check.is_none(tensor) and tensor)
  self._transient[name] = persistent == false or nil
end

--- Gives the module a parameter, which it counts among its own.
--- errors: TypeError, KeyError (the name is taken)
---@param name string
---@param param torch.nn.Parameter? nil: the name is taken, without a value
function Module:register_parameter(name, param)
  check.method(self, Module, "register_parameter")
  check_name(self, name, "parameter", self._parameters)
  local none = check.is_none(param)
  errors.check(none or core.is_parameter(param), "TypeError",
    "cannot assign %s to parameter '%s' (torch.nn.Parameter or nil required)", kind_of(param),
    name)
  self._parameters:set(name, not none and param)
end

--- Gives the module a child.
--- errors: TypeError, KeyError (the name is taken)
---@param name string
---@param module torch.nn.Module?
function Module:add_module(name, module)
  check.method(self, Module, "add_module")
  local none = check.is_none(module)
  errors.check(none or is_module(module), "TypeError", "%s is not a Module", kind_of(module))
  check_name(self, name, "module", self._modules)
  self._modules:set(name, not none and module)
end
Module.register_module = Module.add_module

-- ---- the call --------------------------------------------------------------

-- Modules whose forward runs, outermost first, and errors that have their
-- place already.
local stack, depth = {}, 0
local placed = setmetatable({}, { __mode = "k" })

local function name_in(parent, module)
  for name, m in parent:named_modules() do
    if m == module then
      return name
    end
  end
  return nil
end

local function place(e)
  if type(e) ~= "table" or placed[e] then
    return
  end
  placed[e] = true
  local root, module = stack[1], stack[depth]
  local name = depth > 1 and name_in(root, module)
  local cls = getmetatable(module).__name
  errors.add_context(e, name and ("in module '%s' (%s) of %s"):format(name, cls,
    getmetatable(root).__name) or ("in module %s"):format(cls))
end

local frame = setmetatable({}, {
  __close = function(_, e)
    if e ~= nil then
      place(e)
    end
    local module = stack[depth]
    stack[depth] = nil
    depth = depth - 1
    local tracer = rawget(Module, "tracer")
    if tracer then
      tracer.leave(module)
    end
  end,
})

local function run(self, ...)
  local cls = getmetatable(self)
  local forward = self._fields.forward or cls.forward
  if not forward then
    errors.raise("NotImplementedError",
      "Module [%s] is missing the required \"forward\" function", cls.__name)
  end
  depth = depth + 1
  stack[depth] = self
  local _ <close> = frame
  local tracer = rawget(Module, "tracer")
  if tracer then
    tracer.enter(self)
  end
  return forward(self, keywords.bind(forward, ...))
end

-- forward and the hooks after it, whose results are the module's: gradients are
-- tapped around both.
local function run_inner(self, args, by_name, list, done)
  local function inner(given)
    local all, n = given, given.n
    if next(by_name) ~= nil then
      n = n + 1
      all = { table.unpack(given, 1, given.n) }
      all[n] = by_name
    end
    return hooks.after(self, list, given, by_name, table.pack(run(self, table.unpack(all, 1, n))),
      done)
  end
  local taps = rawget(self, "_backward_hooks")
  if taps and (#taps.pre > 0 or #taps.full > 0) then
    return require("torch.nn.backward_hooks").run(self, taps, args, inner)
  end
  return inner(args)
end

local function run_hooked(self, ...)
  local forward = self._fields.forward or getmetatable(self).forward
  local list, done = rawget(self, "_hooks"), {}
  local args, by_name = keywords.split(forward, table.pack(...))
  local function body()
    args, by_name = hooks.before(self, rawget(self, "_pre_hooks"), args, by_name)
    return run_inner(self, args, by_name, list, done)
  end
  local always = false
  for _, entry in ipairs(list or {}) do
    always = always or entry.always_call
  end
  local out
  if always then
    local ok, result = pcall(body)
    if not ok then
      hooks.always(self, list, args, by_name, done)
      error(result, 0)
    end
    out = result
  else
    out = body()
  end
  return table.unpack(out, 1, out.n)
end

-- What a generic for calls: two nils. A forward that takes them runs.
local function run_looped(self, ...)
  local results = table.pack(pcall(run, self, ...))
  errors.check(results[1], "TypeError", "%s cannot stand in a loop by itself; there are `for _, "
    .. "m in ipairs(net:children()) do`, `for name, m in net:named_children() do` and `for name, "
    .. "p in net:named_parameters() do` (called with nil, nil: %s)", getmetatable(self).__name,
    tostring(type(results[2]) == "table" and results[2].message or results[2]):match("[^\n]*"))
  return table.unpack(results, 2, results.n)
end

function Module.__call(self, ...)
  local fields = rawget(self, "_fields")
  if fields._hooked then
    return run_hooked(self, ...)
  elseif depth == 0 and (...) == nil and select("#", ...) == 2 and select(2, ...) == nil then
    return run_looped(self, ...)
  end
  return run(self, ...)
end

-- ---- text ------------------------------------------------------------------

--- What stands between the brackets when the module prints; classes override
--- it.
---@return string
function Module.extra_repr()
  return ""
end

--- The lines of the children, as "(name): text".
---@return string[]
function Module:child_lines()
  local lines = {}
  for _, name in ipairs(self._modules.keys) do
    local child = self._modules.values[name]
    lines[#lines + 1] = ("(%s): %s"):format(name, child and text.indent(tostring(child)) or "None")
  end
  return lines
end

function Module.__tostring(self)
  local extra, lines, n_extra = self:extra_repr(), self:child_lines(), 0
  for line in (extra ~= "" and extra .. "\n" or ""):gmatch("(.-)\n") do
    n_extra = n_extra + 1
    table.insert(lines, n_extra, line)
  end
  local inside = table.concat(lines, "\n  ")
  if #lines > 1 or #lines > n_extra then
    inside = "\n  " .. inside .. "\n"
  end
  local before = rawget(Module, "shown_before")
  return ("%s%s(%s)"):format(before and before(self) or "", self:_get_name(), inside)
end

--- error: RuntimeError, there is no such device
function Module.cuda()
  require("torch.cuda")()
end

function Module:_get_name()
  return getmetatable(self).__name
end

for _, part in ipairs({
  "torch.nn.module_tree", "torch.nn.module_state", "torch.nn.module_hooks",
}) do
  for name, method in pairs(require(part)(Module)) do
    Module[name] = method
  end
end

return Module
