--- Deleting runs: nothing but folders of runs, none that is trained, after a question.
local codes = require("lupine.commands")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local scores = require("lupine.run.sweep.scores")

local M = {}

-- Those that are not among the best `keep`.
local function without_best(entries, keep, judged)
  local values, modes, list = {}, {}, table.move(entries, 1, #entries, 1, {})
  local name
  for _, entry in ipairs(entries) do
    local metric, mode = judged(entry)
    errors.check(not name or name == metric, "ValueError", "--keep-best: some runs are judged by "
      .. "'%s', others by '%s'; --metric NAME chooses", name, metric)
    name, modes[entry], values[entry] = metric, mode, entry:best(metric, mode)
  end
  table.sort(list, function(a, b)
    if values[a] ~= values[b] then
      return scores.better(values[a], values[b], modes[a])
    end
    return a.path < b.path
  end)
  return table.move(list, keep + 1, #list, 1, {}), table.move(list, 1, math.min(keep, #list), 1, {})
end

-- A folder that is one: a link leads to what may be something else.
local function is_link(path)
  local quoted = "'" .. path:gsub("'", "'\\''") .. "'"
  return (os.execute("test -L " .. quoted)) == true
end

-- Why an entry cannot be deleted.
local function obstacle(entry)
  if entry.run:is_running() ~= false then
    return entry.facts.host == core.host.process().host
      and ("it is trained by process %s"):format(entry.facts.pid)
      or ("it says that it is trained on '%s'"):format(tostring(entry.facts.host))
  elseif is_link(entry.path) or is_link(entry.path:match("^(.*)/") or ".") then
    return "it is, or lies in, what a link leads to"
  elseif type(entry.facts.pid) ~= "number" or next(entry:config()) == nil then
    return "lupine has not made it"
  end
  return nil
end

local function agreed(count)
  if not os.execute("test -t 0") then
    io.stderr:write("lupine runs: there is no terminal to ask; --yes deletes without a question\n")
    return false
  end
  io.stderr:write(("delete %d runs? [y/N] "):format(count))
  local answer = io.stdin:read("l") or ""
  return answer:lower() == "y" or answer:lower() == "yes"
end

--- Deletes runs; `o`: keep (how many of the best stay), yes (no question), judged.
---@param entries lupine.run.Entry[]
---@param o table
---@return integer exit code
function M.run(entries, o)
  local kept
  if o.keep then
    entries, kept = without_best(entries, o.keep, o.judged)
  end
  for _, entry in ipairs(kept or {}) do
    print("keep    " .. entry.path)
  end
  for _, entry in ipairs(entries) do
    local why = obstacle(entry)
    errors.check(not why, "ValueError", "'%s' cannot be deleted: %s; nothing was", entry.path, why)
    print(("delete  %s  (%s)"):format(entry.path, entry:status()))
  end
  if #entries == 0 then
    print("no run to delete")
    return codes.DONE
  elseif not o.yes and not agreed(#entries) then
    io.stderr:write("nothing was deleted\n")
    return codes.ERROR
  end
  for _, entry in ipairs(entries) do
    core.remove_folder(entry.path)
  end
  print(("deleted %d"):format(#entries))
  return codes.DONE
end

return M
