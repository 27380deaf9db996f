--- Runs as `lupine runs` and `lupine plot` see them: what their folders say, read without
--- waiting for anything and whatever state they are in.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folder = require("lupine.run.folder")
local scores = require("lupine.run.sweep.scores")
local sources = require("lupine.run.sources")
local state = require("lupine.run.sweep.state")
local texts = require("lupine.run.sweep.texts")
local types = require("lupine.run.types")

local M = {}

---@class lupine.run.Entry
---@field name string as lists have it: "run-001", "sweep-001/job-002-001"
---@field path string
---@field run lupine.run.Folder
---@field facts table of run.json
local Entry = class.new("Entry")

function Entry:init(run, name)
  self.run, self.path, self.facts, self.name = run, run.path, run.facts, name
  self._rows = {}
end

-- ---- what one says -----------------------------------------------------------------------

--- How it stands: "died" is one that says it runs and whose process is gone.
---@return string
function Entry:status()
  local status = self.facts.status
  return status == "running" and self.run:is_running() == false and "died" or status
end

--- Its rows of metrics.
---@param name? string only those that have it, which are sooner read
---@return table[]
---@return string? damage why they cannot be read
function Entry:rows(name)
  local key = name or false
  self._rows[key] = self._rows[key] or table.pack(scores.rows(self.path, name))
  return table.unpack(self._rows[key], 1, 2)
end

--- The last value of a metric.
---@param name string
---@return number?
function Entry:last(name)
  local rows = self:rows(name)
  for i = #rows, 1, -1 do
    if type(rows[i][name]) == "number" then
      return rows[i][name]
    end
  end
  return nil
end

--- The updates that were made, as far as is known.
---@return integer?
function Entry:step()
  return self.facts.step or self:last("step")
end

--- The seconds since it began.
---@return number?
function Entry:age()
  local began = self.facts.started
  return type(began) == "number" and core.host.time() - began or nil
end

-- Leaves of its configuration, by names with points: {value, text, origin}.
local function leaves(path)
  local out = {}
  local ok, root = pcall(sources.with_origins, path)
  if ok then
    texts.each(root, function(key, node)
      local value
      if node.kind == "scalar" then
        value = types.guess(node)
      end
      out[key] = { value = value, origin = node.at,
        text = type(value) == "string" and value or texts.of(node) }
    end)
  end
  return out
end

--- Its configuration: by names with points, {value (a number, text or truth value),
--- text, origin}.
---@return table<string, table>
function Entry:config()
  self._config = self._config or leaves(self.path .. "/config.yaml")
  return self._config
end

-- What says where a run is, not how it was trained.
local PLACE = { name = true, folder = true }

--- "optimizer.args.lr=0.1 epochs=3": what the command line changed.
---@return string
function Entry:changed()
  local out = {}
  for key, leaf in pairs(self:config()) do
    out[#out + 1] = leaf.origin == "command line" and not PLACE[key] and key .. "=" .. leaf.text
      or nil
  end
  table.sort(out)
  return table.concat(out, " ")
end

--- The metric by which it is judged: what checkpoints are, or the loss of validation.
---@return string metric
---@return "min"|"max" mode
function Entry:judged()
  local c = self:config()
  local best = c["checkpoint.best"] and c["checkpoint.best"].value
  if type(best) == "string" then
    local mode = c["checkpoint.best_mode"]
    return best, mode and mode.value == "max" and "max" or "min"
  end
  return self:last("validation.loss") and "validation.loss" or "loss", "min"
end

--- The best value of a metric.
---@param metric string
---@param mode "min"|"max"
---@return number?
function Entry:best(metric, mode)
  return (scores.best(self:rows(metric), metric, mode))
end

-- ---- lists -------------------------------------------------------------------------------

local function base(path)
  return path:match("([^/]+)/*$") or path
end

--- Whether a folder is a run's.
---@param path string
---@return boolean
function M.is_run(path)
  return (pcall(folder.open, path))
end

--- The runs of a folder and of the sweeps in it, the latest first.
---@param parent string
---@param prefix? string before their names
---@return lupine.run.Entry[]
function M.all(parent, prefix)
  local out = {}
  local function take(from, within)
    for _, run in ipairs(folder.list(from)) do
      out[#out + 1] = Entry(run, (prefix or "") .. within .. base(run.path))
    end
  end
  take(parent, "")
  for _, entry in ipairs(core.is_folder(parent) and core.list_folder(parent) or {}) do
    local path = parent .. "/" .. entry
    if state.is_sweep(path) then
      take(path, entry .. "/")
    end
  end
  local place = {}
  for i, entry in ipairs(out) do
    place[entry] = i
  end
  local function began(entry)
    return type(entry.facts.started) == "number" and entry.facts.started or 0
  end
  table.sort(out, function(a, b)
    if began(a) ~= began(b) then
      return began(a) > began(b)
    end
    return place[a] < place[b]
  end)
  return out
end

--- A pattern of Lua for a name with `*` and `?`, as a shell has them.
---@param glob string
---@return string
function M.pattern(glob)
  return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
end

local function names_of(list)
  local names = {}
  for i, entry in ipairs(list) do
    names[i] = entry.name
  end
  return names
end

-- Those of a list whose names, or whose names within their sweep, match.
local function matching(list, word)
  local pattern, out = M.pattern(word), {}
  for _, entry in ipairs(list) do
    if entry.name:find(pattern) or base(entry.name):find(pattern)
      or entry.path:find(M.pattern(word:gsub("(.)/+$", "%1"))) then
      out[#out + 1] = entry
    end
  end
  return out
end

local function of_word(word, all, parent)
  if core.is_folder(word) then
    local path = word:gsub("(.)/+$", "%1")
    if state.is_sweep(path) then
      local runs = M.all(path, base(path) .. "/")
      errors.check(#runs > 0, "FileNotFoundError", "the sweep '%s' has no run yet", word)
      return runs
    end
    return { Entry(folder.open(path), base(path)) }
  elseif state.is_sweep(parent .. "/" .. word) then
    return M.all(parent .. "/" .. word, word .. "/")
  end
  local found = matching(all, word)
  local names = names_of(all)
  errors.check(#found > 0, "FileNotFoundError", "there is no run '%s'%s", word, #names == 0 and ""
    or #names > 12 and (", among %d%s"):format(#names, check.nearest(word, names))
    or (": there are %s%s"):format(table.concat(names, ", "), check.nearest(word, names)))
  return found
end

--- The runs that words name: folders of runs and of sweeps, names in `parent`, and
--- patterns of names (run-*). Each is there once.
--- errors: FileNotFoundError, ValueError
---@param words string[]
---@param parent string
---@return lupine.run.Entry[]
function M.of_words(words, parent)
  local all, out, seen = M.all(parent), {}, {}
  for _, word in ipairs(words) do
    for _, entry in ipairs(of_word(word, all, parent)) do
      if not seen[entry.path] then
        seen[entry.path], out[#out + 1] = true, entry
      end
    end
  end
  return out
end

return M
