--- Callbacks: objects whose methods are named after what happens. They are told in their
--- order; an error names the callback.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

M.EVENTS = { "on_start", "on_epoch_start", "on_step", "on_log", "on_validation", "on_checkpoint",
  "on_epoch_end", "on_stop", "on_error" }

-- A misspelt event would never be told.
local function check_methods(callback, name)
  local known, own = tables.set(M.EVENTS), {}
  local t = class.of(callback) or callback
  while type(t) == "table" do
    for key in next, t do
      own[#own + 1] = type(key) == "string" and key:find("^on_") and key or nil
    end
    t = rawget(t, "__base")
  end
  for _, key in ipairs(own) do
    errors.check(known[key], "ValueError", "Trainer: callback '%s': there is no event '%s'%s; "
      .. "allowed are %s", name, key, check.nearest(key, M.EVENTS), table.concat(M.EVENTS, ", "))
  end
end

local function name_of(callback, i, taken)
  local cls = class.of(callback)
  local own = rawget(callback, "name")
  local name = type(own) == "string" and own or cls and cls.__name or "callback" .. i
  name = name:gsub("[^%w_.-]", "_")
  local unique, k = name, 1
  while taken[unique] do
    k = k + 1
    unique = ("%s_%d"):format(name, k)
  end
  taken[unique] = true
  return unique
end

--- The callbacks with their names: the field `name`, the class's or the number.
--- errors: TypeError for what is no object; ValueError for an event that there is not
---@param list any[]?
---@return {name: string, object: table}[]
function M.read(list)
  check.plain_table(list or {}, "Trainer: callbacks")
  local out, taken = {}, {}
  for i, callback in ipairs(list or {}) do
    errors.check(type(callback) == "table", "TypeError", "Trainer: callbacks[%d]: expected a table "
      .. "with methods such as on_step, got %s", i, check.describe(callback))
    local name = name_of(callback, i, taken)
    check_methods(callback, name)
    out[i] = { name = name, object = callback }
  end
  return out
end

-- Errors that are plain texts are named, too.
local function named(what, fn, ...)
  local ok, e = pcall(fn, ...)
  if not ok and type(e) == "string" then
    errors.raise("RuntimeError", "%s: %s", what, e)
  end
  return ok or errors.within(what, error, e, 0)
end

--- Whether any callback hears of an event.
---@param trainer lupine.Trainer
---@param event string
---@return boolean
function M.heard(trainer, event)
  for _, callback in ipairs(trainer._callbacks) do
    if callback.object[event] then
      return true
    end
  end
  return false
end

--- Tells all callbacks.
---@param trainer lupine.Trainer
---@param event string
---@param ... any
function M.tell(trainer, event, ...)
  for _, callback in ipairs(trainer._callbacks) do
    local method = callback.object[event]
    if method then
      named(("callback '%s': %s"):format(callback.name, event), method, callback.object, trainer,
        ...)
    end
  end
end

--- Callbacks with a state, by the names that checkpoints have of them.
---@param trainer lupine.Trainer
---@return table<string, table>
function M.objects(trainer)
  local out = {}
  for _, callback in ipairs(trainer._callbacks) do
    local object = callback.object
    if object.state_dict and object.load_state_dict then
      out["callback_" .. callback.name] = object
    end
  end
  return out
end

return M
