--- Scopes of a forward other than blocks: name prefixes, attributes and automatic
--- casting.
--- Like blocks they speak to the tracer of a trace (`blocks.tracer`) and do
--- nothing at any other time:
---   tracer.begin_name_scope(name)    tracer.end_name_scope()
---   tracer.begin_attributes(table)   tracer.end_attributes()
---   tracer.begin_autocast(enabled)   tracer.end_autocast()
---
--- Sources: PopTorch API reference, poptorch.NameScope; user guide 2.6,
--- "Automatic casting".
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")

local M = {}

-- A class whose instances are open scopes of the tracer. `Cls(arg)` opens one
-- for `local _ <close>`; `Cls(arg, f)` runs f inside it. `tables` as of
-- check.arguments.
local function scope_class(name, param, checked, begin, finish, tables)
  local cls = class.new(name)

  function cls.new(self, ...)
    local n = select("#", ...)
    local f = n > 0 and (select(n, ...)) or nil
    if type(f) == "function" then
      local args = { ... }
      local _ <close> = self:new(table.unpack(args, 1, n - 1))
      return f()
    end
    local values, given = check.arguments(name, { param }, tables, ...)
    local scope = setmetatable({}, self)
    scope[param] = checked(values[1], given[param])
    if blocks.tracer then
      blocks.tracer[begin](scope[param])
    end
    blocks.opened(scope)
    return scope
  end

  function cls.__close(scope)
    if blocks.closed(scope) then
      blocks.tracer[finish]()
    end
  end

  function cls.__tostring(scope)
    return ("%s(%s)"):format(name, tostring(scope[param]))
  end
  signatures.note(cls, ("%s(%s)"):format(name, param))
  return cls
end

--- Prefixes the names of the operators inside with `name`.
---
---     local _ <close> = poptorch.NameScope("CustomString")
---     y = poptorch.NameScope("A", function() return a + b end)   -- "A/Add"
---
--- error: AssertionError for a name that is no string
M.NameScope = scope_class("NameScope", "name", function(name)
  return check.string(name, "NameScope(name)", { error = "AssertionError" })
end, "begin_name_scope", "end_name_scope")

-- {attribute = {key = value}}, all strings.
local function check_attributes(attributes)
  check.plain_table(attributes, "Attribute")
  for name, values in pairs(attributes) do
    check.string(name, "Attribute: the name of an attribute")
    check.plain_table(values, "Attribute: " .. name)
    for key, value in pairs(values) do
      check.string(key, "Attribute: a key of " .. name)
      check.string(value, ("Attribute: %s.%s"):format(name, key))
    end
  end
  return attributes
end

--- Gives the operators inside, and their gradients, attributes: {name = {key = value}}, all
--- strings. Equal operators are one piece of code on the device only if their
--- `__outline` is the same, which costs memory where it is not; other attributes do nothing,
--- as the report says. Scopes in scopes add to each other.
---
---     local _ <close> = poptorch.Attribute({ __outline = { layer = "embedding" } })
---
--- error: TypeError for anything else
--- source: PopTorch 3.4, poptorch.Attribute; PopART's extra outline attributes
M.Attribute = scope_class("Attribute", "attributes", check_attributes, "begin_attributes",
  "end_attributes", { attributes = true })

--- Automatic casting inside, by the policy of Options.Precision.autocastPolicy,
--- or none with false; nil is true. A scope, or a decorator:
--- `Net.forward = poptorch.autocast()(Net.forward)`.
--- error: TypeError for anything but a bool
M.autocast = scope_class("autocast", "enabled", function(enabled)
  if enabled == nil then
    return true
  end
  return check.bool(enabled, "autocast(enabled)")
end, "begin_autocast", "end_autocast")

-- As a decorator the object is no scope: what making it opened is closed.
function M.autocast.__call(scope, f)
  errors.check(type(f) == "function", "TypeError",
    "autocast: expected a function to decorate, got %s", check.describe(f))
  M.autocast.__close(scope)
  local enabled = scope.enabled
  return function(...)
    local _ <close> = M.autocast(enabled)
    return f(...)
  end
end

return M
