--- Options._Popart: session options by their PopART names, for what Options
--- has no setter for. As in PopTorch a name is only checked when a model is
--- compiled (`validate`). The options themselves: popart.session_options.
local class = require("lupine.base.class")
local Group = require("poptorch.options.group")
local nesting = require("lupine.base.nesting")
local session_options = require("popart.session_options")

local FIXED = "the passes over the graph are fixed"

local Popart
Popart = Group.define("_PopartOptions", {
  {
    name = "set", params = { { "key", kind = "string" }, { "value" } }, tables = { value = true },
    set = function(self, values, _, row)
      local key = Group._argument(row, "key", values[1])
      self:_put(key, nesting.check(values[2], ("options._Popart:set: %s"):format(key),
        "ValueError"))
    end,
    doc = "Sets a session option by its PopART name.",
    effect = "That of the session option, or a note in the report; one that would change "
      .. "results and an unknown name are errors when compiling.",
  },
  {
    name = "setPatterns", params = { { "patterns", kind = "table" },
      { "level", kind = "int", min = 0, max = 3, default = 2 } }, tables = { patterns = true },
    set = function(self, values, given, row)
      local patterns = Group._argument(row, "patterns", values[1])
      for name, on in pairs(patterns) do
        Group._argument(row, "patterns", name, "string")
        Group._argument(row, "patterns", on, "bool")
      end
      self._values.patterns = class.copy(patterns)
      self._values.patterns_level = given.level
        and Group._argument(row, "level", values[2]) or 2
    end,
    doc = "Switches graph patterns on or off by name; level 0 none, 1 minimal, 2 default, 3 all.",
    no_effect = FIXED,
  },
  { key = "patterns", default = {}, doc = "Patterns switched on or off.", no_effect = FIXED,
    setter = "setPatterns",
    idle = function(patterns, program)
      return next(patterns) and ("%s (given: %s)"):format(FIXED, Group.shown(patterns))
        or program.options._Popart.patterns_level ~= 2 and FIXED or nil
    end },
  { key = "patterns_level", default = 2, doc = "Pattern level.", setter = "setPatterns" },
})

--- No options of PopART are set.
function Popart:setup()
  Group.setup(self)
  rawset(self, "_options", {})
end

function Popart:_put(key, value)
  self._options[key] = class.copy(value)
end

--- Adds to a table-valued option, keeping what others put there.
function Popart:_merge(key, values)
  local merged = class.copy(self._options[key]) or {}
  for k, v in pairs(values) do
    merged[k] = v
  end
  self._options[key] = merged
end

--- The session options that were set, as a plain table.
---@return table<string, any>
function Popart:toDict()
  local out = Group.toDict(self)
  for k, v in pairs(self._options) do
    out[k] = Group.plain(class.copy(v))
  end
  return out
end

function Popart:_shown_values()
  local keys, parts = {}, Group._shown_values(self)
  for k in pairs(self._options) do
    keys[#keys + 1] = k
  end
  table.sort(keys)
  for _, k in ipairs(keys) do
    parts[#parts + 1] = ("%s=%s"):format(k, Group.shown(self._options[k]))
  end
  return parts
end

--- Raises poptorch.Error for a session option that does not exist or has a
--- value of the wrong kind. The compile entry calls it.
function Popart:validate()
  for key, value in pairs(self._options) do
    session_options.check(key, Group.plain(value), "options._Popart")
  end
end

return Popart
