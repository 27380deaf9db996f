--- `lupine runs`: what runs there are, how they differ, and deleting them.
local codes = require("lupine.commands")
local columns = require("lupine.base.columns")
local compare = require("lupine.run.compare")
local core = require("lupine.core")
local delete = require("lupine.run.delete")
local errors = require("lupine.base.errors")
local filters = require("lupine.run.filters")
local listing = require("lupine.run.listing")
local tables = require("lupine.base.tables")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine runs [FOLDER] [NAME…] [CONDITION…] [options]
       lupine runs show RUN
       lupine runs compare RUN RUN…
       lupine runs delete RUN… [CONDITION…] [options]
Lists the runs of FOLDER (runs) and of the sweeps in it, the latest first. NAME may be a
pattern: 'base-*'. Conditions: status=failed, 'optimizer.args.lr<0.01', epochs!=3; of keys
of the run file, metrics, and status, name, step, age (seconds). RUN is a folder of a run
or of a sweep, a name, or a pattern.
]]

local STATUS = [[
Status: running, finished, interrupted (it has saved: `lupine run --resume RUN`), failed,
died (its process is gone without a word; --resume goes on from the last checkpoint).
]]

local OPTIONS = {
  { "--folder", value = "FOLDER", doc = "where runs are looked for by their names (runs)" },
  { "--sort", value = "KEY", doc = "by a key, metric, status, name, step or age; -KEY: the\n"
      .. "greatest first" },
  { "--metric", value = "NAME", doc = "the metric that is told, and by which runs are the best;\n"
      .. "else each run's checkpoint.best, or validation.loss" },
  { "--mode", value = "MODE", doc = "min or max: whether less or more of it is better" },
  { "--json", doc = "the list as JSON" },
  { "--keep-best", value = "N", doc = "of delete: the best N stay" },
  { "--yes", short = "-y", doc = "of delete: without asking" },
}

local function help()
  return USAGE .. words.describe(OPTIONS) .. "  -h, --help        print this\n" .. STATUS
end

-- ---- the list ------------------------------------------------------------------------

local UNITS = { { "d", 86400 }, { "h", 3600 }, { "min", 60 } }

local function age(seconds)
  for _, unit in ipairs(seconds and UNITS or {}) do
    if seconds >= unit[2] then
      return ("%d %s"):format(seconds // unit[2], unit[1])
    end
  end
  return seconds and ("%d s"):format(math.max(0, seconds) // 1) or ""
end

-- The metric of a run, and whether less is better.
local function judged(entry, o)
  local metric, mode = entry:judged()
  if o.metric and o.metric ~= metric then
    metric, mode = o.metric, "min"
  end
  return metric, o.mode or mode
end

local function print_table(entries, o)
  local heads, rows = { "name", "status", "age", "step", "metric", "last", "best", "changed" }, {}
  for i, entry in ipairs(entries) do
    local metric, mode = judged(entry, o)
    local last = entry:last(metric)
    rows[i] = { entry.name, entry:status(), age(entry:age()), columns.number(entry:step()),
      last and metric or "", columns.number(last), columns.number(entry:best(metric, mode)),
      entry:changed() }
  end
  io.stdout:write(#rows > 0 and columns.text(heads, rows) or "")
end

local function as_json(entry, o)
  local metric, mode = judged(entry, o)
  local config, last = {}, {}
  for key, leaf in pairs(entry:config()) do
    config[key] = filters.plain(leaf)
  end
  for _, row in ipairs(entry:rows()) do
    for name, value in pairs(row) do
      last[name] = value
    end
  end
  return { name = entry.name, path = entry.path, status = entry:status(),
    started = entry.facts.started, step = entry:step(), metric = metric,
    best = entry:best(metric, mode), last = last, config = config }
end

local function print_json(entries, o)
  local out = {}
  for i, entry in ipairs(entries) do
    out[i] = as_json(entry, o)
  end
  io.stdout:write(core.json_encode(tables.array(out), 1), "\n")
end

-- Words as conditions and others.
local function sorted(rest)
  local conditions, names = {}, {}
  for _, word in ipairs(rest) do
    local condition = filters.read(word)
    table.insert(condition and conditions or names, condition or word)
  end
  return conditions, names
end

local function list(o, rest)
  local conditions, names = sorted(rest)
  local parent = o.folder
  if names[1] and core.is_folder(names[1]) and not listing.is_run(names[1]) then
    errors.check(not parent, "ValueError", "'%s': --folder tells the folder", names[1])
    parent = table.remove(names, 1)
  end
  parent = parent or "runs"
  local entries = #names > 0 and listing.of_words(names, parent) or listing.all(parent)
  entries = filters.apply(entries, conditions)
  if o.sort then
    filters.sort(entries, o.sort)
  end
  return function()
    if o.json then
      print_json(entries, o)
    elseif #entries == 0 then
      print(("no run in '%s'%s"):format(parent, #conditions > 0 and " meets the conditions" or ""))
    else
      print_table(entries, o)
    end
    return codes.DONE
  end
end

-- ---- the others ----------------------------------------------------------------------

local function selected(o, rest, least)
  local conditions, names = sorted(rest)
  local parent = o.folder or "runs"
  if #names == 0 and (#conditions == 0 or least) then
    words.refuse("no run is given")
  end
  local entries = #names > 0 and listing.of_words(names, parent) or listing.all(parent)
  entries = filters.apply(entries, conditions)
  if least and #entries < least then
    words.refuse("%d runs at least are needed, %d is given", least, #entries)
  end
  return entries
end

local function show(o, rest)
  local entries = selected(o, rest, 1)
  return function()
    for _, entry in ipairs(entries) do
      io.stdout:write(compare.show(entry))
    end
    return codes.DONE
  end
end

local function compared(o, rest)
  local entries = selected(o, rest, 2)
  return function()
    io.stdout:write(compare.text(entries))
    return codes.DONE
  end
end

local function deleted(o, rest)
  local keep = o["keep-best"] and math.tointeger(tonumber(o["keep-best"]))
  if o["keep-best"] and (not keep or keep < 0) then
    words.refuse("--keep-best: expected an int >= 0, got '%s'", o["keep-best"])
  end
  local entries = selected(o, rest)
  return function()
    return delete.run(entries, { keep = keep, yes = o.yes, judged = function(entry)
      return judged(entry, o)
    end })
  end
end

local OF_DELETE = { ["keep-best"] = true, yes = true }
local OF_LIST = { sort = true, json = true }
local SUB = { show = { show, {} }, compare = { compared, {} }, delete = { deleted, OF_DELETE } }

-- Options that say nothing to a sub-command are refused.
local function check_options(o, name, own)
  for key in pairs(o) do
    if (OF_DELETE[key] or OF_LIST[key]) and not own[key] then
      words.refuse("--%s is none of %s's", key, name)
    end
  end
  if o.mode and o.mode ~= "min" and o.mode ~= "max" then
    words.refuse("--mode: expected min or max, got '%s'", o.mode)
  end
end

local function prepare(o, rest)
  local sub = SUB[rest[1]]
  if sub then
    check_options(o, table.remove(rest, 1), sub[2])
    return sub[1](o, rest)
  end
  check_options(o, "the list", OF_LIST)
  return list(o, rest)
end

--- Runs with the words of the command line after "runs".
---@param ... string
---@return integer? exit code
function M.run(...)
  return words.run("runs", OPTIONS, help, prepare, ...)
end

return M
