--- Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict. The names
--- inside (state_dict, printing) count from "0"; `[]` counts from 1.
local Module = require("torch.nn.module")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")
local text = require("torch.nn.text")

local M = {}

-- Is it a container that counts as a list?
local function has_length(v)
  local cls = class.of(v)
  return cls ~= nil and cls.__len ~= nil
end

-- Appends what one list (or another container) holds to a container.
local function append_all(self, where, what, values, ...)
  if not has_length(values) or select("#", ...) > 0 then
    check.list(where, what, values, ...)
  end
  for _, value in ipairs(values) do
    self:append(value)
  end
  return self
end

-- ---- lists of modules ------------------------------------------------------

-- list["1:3"]: another one of some of the modules; as in tensors' slices the
-- text is Python's and counts from 0.
local function slice(self, cls, name, span)
  local from, to, step = span:match("^%s*(-?%d*)%s*:%s*(-?%d*)%s*:?%s*(%d*)%s*$")
  errors.check(from and step ~= "0", "IndexError", "%s[%q]: expected a slice such as \"1:3\"",
    name, span)
  local n = #self
  local function place(digits, default)
    local i = tonumber(digits) or default
    return math.max(0, math.min(n, i < 0 and n + i or i))
  end
  local out = cls()
  local names = {}
  for _, key in self._modules:each() do
    names[#names + 1] = key
  end
  for i = place(from, 0), place(to, n) - 1, tonumber(step) or 1 do
    local named = name == "Sequential" and names[i + 1] or tostring(#out)
    out:add_module(named, self[i + 1])
  end
  return out
end

-- What Sequential and ModuleList share: `[]`, #, append, extend, insert.
local function list_class(name)
  local cls = Module:extend(name)

  local function slot(self, i)
    local n = #self._modules.keys
    return self._modules.keys[i < 0 and n + 1 + i or i]
  end

  function cls.__index(self, key)
    if math.type(key) == "integer" then
      errors.check(key ~= 0, "IndexError", "%s[0]: its modules are counted from 1", name)
      local found = slot(self, key)
      return found and self._modules.values[found] or nil
    elseif type(key) == "string" and key:find(":", 1, true) then
      return slice(self, cls, name, key)
    end
    return Module.__index(self, key)
  end

  function cls.__newindex(self, key, value)
    if math.type(key) ~= "integer" then
      return Module.__newindex(self, key, value)
    end
    local found = errors.check(slot(self, key), "IndexError",
      "%s: index %d is out of range: it has %d modules, counted from 1", name, key, #self)
    errors.check(Module:is(value), "TypeError", "%s[%d]: expected a module, got %s", name, key,
      check.describe(value))
    self._modules:set(found, value)
  end

  function cls.__len(self)
    return #self._modules.keys
  end

  --- Adds a module at the end.
  function cls:append(module)
    errors.check(Module:is(module), "TypeError", "%s:append(module): expected a module, got %s",
      name, check.describe(module))
    self:add_module(tostring(#self), module)
    return self
  end

  --- Adds the modules of a list (or of another container) at the end.
  function cls:extend(modules)
    if class.is_class(self) then -- Sequential:extend("Name")
      return Module.extend(self, modules)
    end
    return append_all(self, name .. ":extend", "modules", modules)
  end

  --- Puts a module before number `at` (from 1).
  function cls:insert(at, module)
    local modules = {}
    for _, _, m in self._modules:each() do
      modules[#modules + 1] = m
    end
    errors.check(math.type(at) == "integer" and at >= 1 and at <= #modules + 1, "IndexError",
      "%s:insert(at, module): at is %s, allowed is 1..%d", name, tostring(at), #modules + 1)
    table.insert(modules, at, module)
    for i, m in ipairs(modules) do
      self._modules:set(tostring(i - 1), m)
    end
    return self
  end

  -- The modules in order; those of a list as they stand.
  local function list_of(where, value)
    local out = {}
    errors.check(type(value) == "table", "TypeError", "%s: expected a list of modules, got %s",
      where, check.describe(value))
    for i, m in ipairs(value) do
      out[i] = m
    end
    return out
  end

  -- Takes all modules away and numbers the given ones anew.
  local function refill(self, modules)
    for _, key in ipairs({ table.unpack(self._modules.keys) }) do
      self._modules:remove(key)
    end
    return self:extend(modules)
  end

  --- Takes module number `at` (from 1; none: the last) away; the later ones
  --- move up.
  function cls:pop(at)
    local modules = list_of(name, self)
    local n = #modules
    at = at == nil and n or at
    local i = math.type(at) == "integer" and at < 0 and n + 1 + at or at
    errors.check(math.type(i) == "integer" and i >= 1 and i <= n, "IndexError",
      "%s:pop(at): at is %s, it has %d modules, counted from 1", name, tostring(at), n)
    local gone = table.remove(modules, i)
    refill(self, modules)
    return gone
  end

  --- a + b: a new one of the modules of both.
  function cls.__add(a, b)
    return refill(cls(), list_of(name, a)):extend(list_of(name, b))
  end

  --- a * n: a new one of the same modules n times.
  function cls.__mul(a, b)
    local list, n = a, b
    if type(a) == "number" then
      list, n = b, a
    end
    errors.check(math.type(n) == "integer" and n > 0, "ValueError",
      "%s * n: n must be a positive integer, not %s", name, check.describe(n))
    local out = cls()
    for _ = 1, n do
      out:extend(list_of(name, list))
    end
    return out
  end

  return cls
end

---@class torch.nn.Sequential: torch.nn.Module
M.Sequential = list_class("Sequential")

local function add_named(self, where, entry)
  local ok = type(entry) == "table" and not class.of(entry) and type(entry[1]) == "string"
  errors.check(ok, "TypeError",
    "%s: expected modules or {name, module} pairs, got %s", where, check.describe(entry))
  self:add_module(entry[1], entry[2])
end

--- Sequential(a, b, …), Sequential({a, b, …}) or, with names,
--- Sequential({{"conv", a}, {"act", b}}).
function M.Sequential:init(first, ...)
  local list = table.pack(first, ...)
  if type(first) == "table" and not Module:is(first) then
    list = first
    errors.check(type(first[1]) ~= "string", "TypeError", "Sequential: {name, module} pairs stand "
      .. "in one list: Sequential({{%q, module}, …})", first[1])
    if ordered.is_dict(first) then
      list = {}
      for name, module in pairs(first) do
        list[#list + 1] = { name, module }
      end
    end
    errors.check(next(list) == nil or #list > 0, "TypeError",
      "Sequential: a table by name has no order; give {{name, module}, …}")
  end
  check.dense(list, "Sequential", first ~= nil and list.n or nil)
  for i, entry in ipairs(list) do
    if Module:is(entry) then
      self:add_module(tostring(i - 1), entry)
    else
      add_named(self, "Sequential", entry)
    end
  end
end

local function chain(modules, i, ...)
  local module = modules[i]
  if module == nil then
    return ...
  end
  return chain(modules, i + 1, module(...))
end

--- Several results of a module are several arguments of the next.
function M.Sequential:forward(input, ...)
  local modules = {}
  for _, _, module in self._modules:each() do
    modules[#modules + 1] = module
  end
  return chain(modules, 1, input, ...)
end

---@class torch.nn.ModuleList: torch.nn.Module
M.ModuleList = list_class("ModuleList")

function M.ModuleList:init(first, ...)
  if first ~= nil or select("#", ...) > 0 then
    append_all(self, "ModuleList", "modules", first, ...)
  end
end

-- Equal neighbours are one line: "(0-2): 3 x Linear(…)".
function M.ModuleList:child_lines()
  local lines, first, last, before = {}, 0, 0, nil
  local function flush()
    if before then
      local head = first == last and ("(%d): "):format(first)
        or ("(%d-%d): %d x "):format(first, last, last - first + 1)
      lines[#lines + 1] = text.indent(head .. before)
    end
  end
  for i, module in ipairs(self) do
    local shown = tostring(module)
    if shown ~= before then
      flush()
      first, before = i - 1, shown
    end
    last = i - 1
  end
  flush()
  return lines
end

-- ---- dictionaries ----------------------------------------------------------

-- What ModuleDict and ParameterDict share; `registry` holds the entries.
local function dict_class(name, registry, put)
  local cls = Module:extend(name)

  --- From a table by name (in the order of the names) or, to keep an order, a
  --- list of {name, value} pairs.
  function cls:init(entries)
    self:update(entries or {})
  end

  function cls:update(entries)
    errors.check(type(entries) == "table" and (class.of(entries) == nil or has_length(entries)),
      "TypeError", "%s: expected a table by name, %s({name = value}), got %s", name, name,
      check.describe(entries))
    if #entries > 0 then
      for _, entry in ipairs(entries) do
        put(self, entry[1], entry[2])
      end
      return
    end
    for _, key in ipairs(tables.keys(entries)) do
      put(self, key, entries[key])
    end
  end

  function cls:keys()
    return { table.unpack(self[registry].keys) }
  end

  --- Iterator of name, value in order.
  function cls:items()
    local step, state, i, key, value = self[registry]:each()
    return function()
      i, key, value = step(state, i)
      return key, value
    end
  end

  function cls:values()
    local out = {}
    for _, value in self:items() do
      out[#out + 1] = value
    end
    return out
  end

  function cls:pop(key)
    local value = errors.check(self[registry].values[key] or nil, "KeyError", "%s has no '%s'",
      name, tostring(key))
    self[registry]:remove(key)
    return value
  end

  --- The last key and its value, which go.
  function cls:popitem()
    local key = self[registry].keys[#self[registry].keys]
    errors.check(key, "KeyError", "popitem(): the %s is empty", name)
    return key, self:pop(key)
  end

  --- The value, or `default` if the key is not there.
  function cls:get(key, default)
    return self[registry].values[key] or default
  end

  function cls:setdefault(key, default)
    if self[registry].values[key] == nil then
      put(self, key, default)
    end
    return self[registry].values[key] or nil
  end

  --- Another one of the same values.
  function cls:copy()
    local out = cls()
    for key, value in self:items() do
      put(out, key, value)
    end
    return out
  end

  function cls:clear()
    for _, key in ipairs(self:keys()) do
      self[registry]:remove(key)
    end
  end

  function cls:contains(key)
    return (self[registry].values[key] or nil) ~= nil
  end

  --- dict.name = value adds or replaces, = nil takes away.
  function cls.__newindex(self, key, value)
    if value == nil and self[registry].values[key] then
      self[registry]:remove(key)
    elseif registry == "_parameters" and core.is_tensor(value)
      and not core.is_parameter(value) then
      put(self, key, value)
    else
      Module.__newindex(self, key, value)
    end
  end

  function cls.__len(self)
    return #self[registry].keys
  end

  function cls.__pairs(self)
    return self:items()
  end

  return cls
end

---@class torch.nn.ModuleDict: torch.nn.Module
M.ModuleDict = dict_class("ModuleDict", "_modules", function(self, key, value)
  self:add_module(key, value)
end)

-- ---- parameters ------------------------------------------------------------

local function parameter(where, value)
  errors.check(core.is_tensor(value), "TypeError", "%s: expected a Tensor, got %s", where,
    check.describe(value))
  return core.is_parameter(value) and value or core.parameter(value, true)
end

local function parameter_lines(self)
  local lines = {}
  for _, key, p in self._parameters:each() do
    local sizes = {}
    for i = 1, p:dim() do
      sizes[i] = p.shape[i]
    end
    lines[#lines + 1] = ("  (%s): Parameter containing: [%s of size %s]"):format(key,
      tostring(p.dtype), table.concat(sizes, "x"))
  end
  return table.concat(lines, "\n")
end

---@class torch.nn.ParameterDict: torch.nn.Module
M.ParameterDict = dict_class("ParameterDict", "_parameters", function(self, key, value)
  self[key] = parameter("ParameterDict", value)
end)
M.ParameterDict.extra_repr = parameter_lines

---@class torch.nn.ParameterList: torch.nn.Module
M.ParameterList = Module:extend("ParameterList")
local ParameterList = M.ParameterList
ParameterList.extra_repr = parameter_lines

function ParameterList:init(first, ...)
  if first ~= nil or select("#", ...) > 0 then
    append_all(self, "ParameterList", "parameters", first, ...)
  end
end

function ParameterList.__index(self, key)
  if math.type(key) == "integer" then
    errors.check(key ~= 0, "IndexError", "ParameterList[0]: its parameters are counted from 1")
    local n = #self._parameters.keys
    return self._parameters.values[tostring((key < 0 and n + 1 + key or key) - 1)]
  end
  return Module.__index(self, key)
end

function ParameterList.__newindex(self, key, value)
  if math.type(key) == "integer" then
    errors.check(key >= 1 and key <= #self, "IndexError",
      "ParameterList: index %d is out of range: it has %d parameters, counted from 1", key, #self)
    self._parameters:set(tostring(key - 1), parameter("ParameterList", value))
  else
    Module.__newindex(self, key, value)
  end
end

function ParameterList.__len(self)
  return #self._parameters.keys
end

--- Adds a parameter at the end; a plain tensor becomes one.
function ParameterList:append(value)
  self._parameters:set(tostring(#self), parameter("ParameterList", value))
  return self
end

--- Adds a list's parameters at the end.
function ParameterList:extend(values)
  if class.is_class(self) then -- ParameterList:extend("Name")
    return Module.extend(self, values)
  end
  return append_all(self, "ParameterList:extend", "parameters", values)
end

return M
