--- The checkpoints of a run, or of several, in one folder: step-00000100, with a number
--- behind it where that is taken. The latest is the one that was saved last, also where a
--- run went back to an earlier step: each has a serial number. Which of them stay is a
--- rule; a damaged one is passed over, aloud.
---
--- Any number of processes may save into one folder: each fills a folder of its own, the
--- first free name is its, and who removes old ones holds a lock.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folder = require("lupine.checkpoint.folder")
local objects = require("lupine.checkpoint.objects")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")
local warn = require("lupine.base.warn")

---@class lupine.checkpoint.Manager
---@field root string
---@field keep integer? how many of the last ones stay; nil: all
---@field best {metric: string, mode: string, keep: integer}?
local Manager = class.new("Manager")

---@class lupine.checkpoint.Entry
---@field path string
---@field step integer
---@field metrics table<string, number>
---@field time number seconds since 1970
---@field serial integer the later, the greater

signatures.note(Manager, "Manager(root, options=None)", 1)

-- ---- options -------------------------------------------------------------------------

local OPTIONS, BEST = { "keep", "best" }, { "metric", "mode", "keep" }

local function check_names(given, allowed, where)
  local known = tables.set(allowed)
  for name in pairs(given) do
    errors.check(known[name], "TypeError", "%s: unknown option '%s'%s; allowed are %s", where,
      tostring(name), check.nearest(tostring(name), allowed), table.concat(allowed, ", "))
  end
end

local function best_of(given)
  if given == nil then
    return nil
  end
  check_names(check.plain_table(given, "Manager: best"), BEST, "Manager: best")
  local best = { metric = check.string(given.metric, "Manager: best: metric"),
    mode = given.mode == nil and "min" or given.mode,
    keep = check.int(given.keep == nil and 1 or given.keep, "Manager: best: keep", { min = 1 }) }
  errors.check(best.mode == "min" or best.mode == "max", "ValueError",
    "Manager: best: mode: allowed are \"min\" and \"max\", got %s", check.describe(best.mode))
  return best
end

--- Manager(root, {keep = 3, best = {metric = "val_loss", mode = "min", keep = 1}}): the
--- last `keep` checkpoints stay (all unless given), and the best ones by a metric; a
--- Manager without options removes nothing.
---@param root string a folder; it is made when it is needed
---@param options? table
function Manager:init(root, options)
  self.root = check.string(root, "Manager: root"):gsub("(.)/+$", "%1")
  options = options or {}
  check_names(check.plain_table(options, "Manager: options"), OPTIONS, "Manager")
  self.keep = check.int(options.keep, "Manager: keep", { nullable = true, min = 1 })
  self.best_rule = best_of(options.best)
end

-- ---- what is there -------------------------------------------------------------------

local function name_of(step, k)
  return k == 1 and ("step-%08d"):format(step) or ("step-%08d-%d"):format(step, k)
end

-- step, and which of those of this step; nil for another name
local function number_of(name)
  local step, k = name:match("^step%-(%d+)%-(%d+)$")
  step = step or name:match("^step%-(%d+)$")
  return math.tointeger(step), math.tointeger(k) or 1
end

-- What is no fault of a checkpoint.
local function is_refusal(e)
  local c = errors.classes
  return c.ValueError:is(e) or c.OSError:is(e)
end

local function as_entry(path, name, info)
  local step, k = number_of(name)
  return { path = path, name = name, step = math.tointeger(info.step) or step, k = k,
    serial = math.type(info.serial) == "integer" and info.serial or 0,
    metrics = type(info.metrics) == "table" and info.metrics or {}, time = info.time }
end

local function later(a, b)
  for _, key in ipairs({ "serial", "step", "k" }) do
    if a[key] ~= b[key] then
      return a[key] > b[key]
    end
  end
  return false
end

-- Its entry; nil, aloud, for one that cannot be used, and whether another process has
-- just removed it.
local function entry_of(root, name)
  local path = root .. "/" .. name
  local ok, info = pcall(folder.info, path)
  if ok then
    return as_entry(path, name, info)
  elseif not is_refusal(info) then
    error(info, 0)
  elseif not core.is_folder(path) then
    return nil, true
  end
  warn("%s", info.message)
  return nil, false
end

-- Names of folders within one; none if that is not there. What cannot be listed is an
-- error: the next serial number depends on it.
local function folders_in(root)
  local ok, names = pcall(core.list_folder, root)
  if not ok and not errors.classes.FileNotFoundError:is(names) then
    error(names, 0)
  end
  return ok and names or {}
end

-- The entries, the latest first; whether one went meanwhile; how many there ought to be.
local function entries_of(root)
  local out, gone, count = {}, false, 0
  for _, name in ipairs(folders_in(root)) do
    if number_of(name) then
      local entry, went = entry_of(root, name)
      out[#out + 1] = entry
      gone, count = gone or went, count + 1
    end
  end
  table.sort(out, later)
  return out, gone, count
end

--- The checkpoints that are there, the latest first. Their manifests are read; one
--- without is left out, with a warning (once).
---@return lupine.checkpoint.Entry[]
function Manager:list()
  return (entries_of(self.root))
end

--- The latest checkpoint.
---@return string? path nil if there is none
---@return lupine.checkpoint.Entry?
function Manager:latest()
  local entry = self:list()[1]
  return entry and entry.path, entry
end

-- Those that have the metric, the best first; of equal ones the earlier.
local function ranked(entries, rule)
  local out = {}
  for i = #entries, 1, -1 do
    local value = entries[i].metrics[rule.metric]
    out[#out + 1] = type(value) == "number" and value == value and entries[i] or nil
  end
  local sign, place = rule.mode == "min" and 1 or -1, {}
  for i, entry in ipairs(out) do
    place[entry] = i
  end
  table.sort(out, function(a, b)
    local x, y = sign * a.metrics[rule.metric], sign * b.metrics[rule.metric]
    return x < y or x == y and place[a] < place[b]
  end)
  return out
end

--- The best checkpoint by the rule that the Manager was made with.
--- error: ValueError if it was made with none
---@return string? path nil if there is none that has the metric
---@return lupine.checkpoint.Entry?
function Manager:best()
  errors.check(self.best_rule, "ValueError",
    "best: the Manager was made without best = {metric = …}")
  local entry = ranked(self:list(), self.best_rule)[1]
  return entry and entry.path, entry
end

-- ---- saving --------------------------------------------------------------------------

-- The names that stay.
local function kept(self, entries)
  local stay = {}
  for i = 1, math.min(self.keep or #entries, #entries) do
    stay[entries[i].name] = true
  end
  local best = self.best_rule and ranked(entries, self.best_rule) or {}
  for i = 1, math.min(#best, self.best_rule and self.best_rule.keep or 0) do
    stay[best[i].name] = true
  end
  return stay
end

-- Takes away what the rule does not keep. What was just saved is kept, whatever others
-- have saved of later steps.
local function prune(self, saved)
  local held <close> = core.lock_file(self.root .. "/.lock")
  local entries = self:list()
  local stay = kept(self, entries)
  for _, entry in ipairs(entries) do
    if not stay[entry.name] and entry.name ~= saved then
      core.remove_folder(entry.path)
    end
  end
  held:close()
end

local function check_metrics(self, metrics)
  metrics = metrics or {}
  check.table(metrics, "save: metrics")
  for name, value in pairs(metrics) do
    check.string(name, "save: metrics: a name")
    errors.check(type(value) == "number", "TypeError", "save: metrics: %s: expected a number, "
      .. "got %s", name, check.describe(value))
  end
  local wanted = self.best_rule and self.best_rule.metric
  errors.check(not wanted or metrics[wanted], "ValueError",
    "save: metrics: '%s', by which the best checkpoint is kept, is missing%s", tostring(wanted),
    check.nearest(tostring(wanted), tables.keys(metrics)))
  return metrics
end

--- Saves a checkpoint, then removes those that the rule does not keep. With a rule of
--- the best, metrics must have its metric; NaN is never the best.
--- errors: OSError (what was there is there still), TypeError, ValueError
---@param step integer of the run
---@param what table<string, any> objects and values by name
---@param metrics? table<string, number>
---@return string path
function Manager:save(step, what, metrics)
  check.int(step, "save: step", { min = 0 })
  metrics = check_metrics(self, metrics)
  local states, names = objects.capture(what, "save")
  core.make_folder(self.root)
  local last = self:list()[1]
  local name = folder.write(self.root, function(k)
    return name_of(step, k)
  end, states, { step = step, metrics = metrics, time = core.host.time(),
    serial = last and last.serial + 1 or 1 }, names)
  if self.keep then
    prune(self, name)
  end
  return self.root .. "/" .. name
end

-- ---- going on ------------------------------------------------------------------------

-- {states, info, are_objects, entry =} of the latest one that is whole; else nil, whether
-- one went meanwhile (another process removes old ones), and how many there were.
local function read_latest(root)
  local entries, gone, count = entries_of(root)
  for i, entry in ipairs(entries) do
    local got = table.pack(pcall(folder.read, entry.path))
    if got[1] then
      return { entry = entry, table.unpack(got, 2) }
    elseif not is_refusal(got[2]) then
      error(got[2], 0)
    elseif core.is_folder(entry.path) then
      core.host.log("warn", ("%s; %s"):format(got[2].message, entries[i + 1]
        and "the one before is taken" or "there is none before it"))
    else
      gone = true
    end
  end
  return nil, gone, count
end

local ATTEMPTS = 20

--- Restores the latest checkpoint that is whole: one that is not is passed over, with a
--- warning that says why.
--- errors: ValueError if there are some and none is whole; else as checkpoint.restore
---@param what table<string, any> objects by name
---@return table<string, any>? values that are no objects; nil if there is no checkpoint
---@return lupine.checkpoint.Entry?
function Manager:restore_latest(what)
  check.table(what, "restore_latest: objects")
  local found, gone, count
  local attempts = 0
  repeat
    found, gone, count = read_latest(self.root)
    attempts = attempts + 1
  until found or not gone or attempts == ATTEMPTS
  errors.check(found or count == 0, "ValueError",
    "restore_latest: none of the %s in '%s' can be used", check.count(count or 0, "checkpoint"),
    self.root)
  if not found then
    return nil
  end
  return objects.apply(what, found[1], found[3], ("restore_latest: '%s'"):format(
    found.entry.path)), found.entry
end

return Manager
