--- Runs beside each other, and one by itself, as text.
local columns = require("lupine.base.columns")
local scores = require("lupine.run.sweep.scores")

local M = {}

-- A long text, from its beginning.
local function short(text)
  return #text > 40 and text:sub(1, 37) .. "..." or text
end

local function names_of(entries)
  local out = {}
  for i, entry in ipairs(entries) do
    out[i] = entry.name
  end
  return out
end

-- Names that `each(entry, add)` adds, sorted.
local function union(entries, each)
  local out, known = {}, {}
  for _, entry in ipairs(entries) do
    each(entry, function(name)
      if not known[name] then
        known[name], out[#out + 1] = true, name
      end
    end)
  end
  table.sort(out)
  return out
end

-- A row of the table if the texts differ.
local function differing(rows, name, entries, text_of)
  local row, differ = { name }, false
  for i, entry in ipairs(entries) do
    row[i + 1] = text_of(entry)
    differ = differ or row[i + 1] ~= row[2]
  end
  rows[#rows + 1] = differ and row or nil
end

local function table_of(title, entries, rows, otherwise)
  if #rows == 0 then
    return otherwise
  end
  return columns.text({ title, table.unpack(names_of(entries)) }, rows)
end

local function config_rows(entries)
  local rows = {}
  local keys = union(entries, function(entry, add)
    for key in pairs(entry:config()) do
      add(key)
    end
  end)
  for _, key in ipairs(keys) do
    differing(rows, key, entries, function(entry)
      local leaf = entry:config()[key]
      return leaf and short(leaf.text) or "-"
    end)
  end
  return rows
end

local function metric_rows(entries)
  local rows = {}
  local names = union(entries, function(entry, add)
    for _, name in ipairs(scores.names(entry:rows())) do
      add(name)
    end
  end)
  for _, name in ipairs(names) do
    local row = { name }
    for i, entry in ipairs(entries) do
      row[i + 1] = columns.number(entry:last(name))
    end
    rows[#rows + 1] = row
  end
  return rows
end

local FACTS = { "status", "reason", "step", "epoch" }

local function fact_rows(entries)
  local rows = {}
  for _, name in ipairs(FACTS) do
    local row = { name }
    for i, entry in ipairs(entries) do
      local value = entry.facts[name]
      row[i + 1] = name == "status" and entry:status() or name == "step"
        and tostring(entry:step() or "-") or tostring(value == nil and "-" or value)
    end
    rows[#rows + 1] = row
  end
  return rows
end

--- Runs side by side: how they stand, the keys in which they differ, their last metrics.
---@param entries lupine.run.Entry[]
---@return string
function M.text(entries)
  return table_of("run", entries, fact_rows(entries), "") .. "\n"
    .. table_of("key", entries, config_rows(entries), "their configurations are the same\n") .. "\n"
    .. table_of("last value", entries, metric_rows(entries), "they have no metrics\n")
end

-- ---- one run ---------------------------------------------------------------------------

local function date(seconds)
  return type(seconds) == "number" and os.date("%Y-%m-%d %H:%M:%S", seconds // 1) or nil
end

local function git_text(git)
  if type(git) ~= "table" or type(git.commit) ~= "string" then
    return nil
  end
  return git.commit .. (git.dirty and " with changes (git.diff)" or "")
end

local function command_text(command)
  return type(command) == "table" and table.concat(command, " ") or nil
end

local function facts_text(entry)
  local f = entry.facts
  local rows = {
    { "folder", entry.path }, { "status", entry:status() }, { "reason", f.why or f.reason },
    { "began", date(f.started) }, { "ended", date(f.ended) }, { "step", entry:step() },
    { "epoch", f.epoch or entry:last("epoch") }, { "seed", f.seed }, { "machine", f.host },
    { "command", command_text(f.command) }, { "git", git_text(f.git) },
  }
  local out = {}
  for i = 1, 11 do
    local value = rows[i][2]
    local kind = type(value)
    out[#out + 1] = (kind == "string" or kind == "number")
      and ("%-8s %s\n"):format(rows[i][1], value) or nil
  end
  return table.concat(out)
end

-- The last, least and greatest value of each metric.
local function metrics_text(entry)
  local rows = {}
  for i, name in ipairs(scores.names(entry:rows())) do
    rows[i] = { name, columns.number(entry:last(name)), columns.number(entry:best(name, "min")),
      columns.number(entry:best(name, "max")) }
  end
  return #rows > 0 and columns.text({ "metric", "last", "least", "greatest" }, rows)
    or "no metrics\n"
end

--- One run: how it stands and came to be, its metrics, what was not left at a default.
---@param entry lupine.run.Entry
---@return string
function M.show(entry)
  local rows = {}
  for key, leaf in pairs(entry:config()) do
    if leaf.origin ~= "default" and leaf.origin ~= "not set" then
      rows[#rows + 1] = { key, short(leaf.text), leaf.origin }
    end
  end
  table.sort(rows, function(a, b)
    return a[1] < b[1]
  end)
  return ("%s\n%s\n%s\n%s\n"):format(entry.name, facts_text(entry), metrics_text(entry),
    columns.text({ "key", "value", "from" }, rows))
end

return M
