--- A profile as a trace file. source: "Trace Event Format", Google, 2016:
--- complete events ("X") with times in microseconds, metadata ("M") that names
--- processes and threads.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local LUA = 0 -- the track of Lua; those of executors follow

-- Names become JSON once each; bytes that are no UTF-8 are shown as "?".
local function quoter()
  local known = {}
  return function(s)
    if not known[s] then
      local text = utf8.len(s) and s or s:gsub("[\128-\255]", "?")
      known[s] = core.json_encode(text)
    end
    return known[s]
  end
end

local function named(quote, put, kind, tid, name)
  put('{"name":"%s","ph":"M","pid":1,"tid":%d,"args":{"name":%s}}', kind, tid, quote(name))
end

local function where_of(row)
  local place = row.places[#row.places]
  return place and place.line > 0 and ("%s:%d"):format(place.file, place.line) or ""
end

-- The events of a flat list (start, ns, row, who); track(who) is each one's.
local function events(p, list, rows, track, quote, put)
  for i = 1, #list, 4 do
    local row = rows[list[i + 2]]
    put('{"name":%s,"cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":1,"tid":%d,"args":'
      .. '{"line":%s,"threads":%d,"flops":%.0f,"bytes":%d}}', quote(row.label), row.part,
      (list[i] - p.begun) / 1e3, list[i + 1] / 1e3, track(list[i + 3]), quote(where_of(row)),
      row.threads, row.flops, row.bytes)
  end
end

-- Maps numbers to tracks, which begin with the first event that names them.
local function tracks(next_tid, name, quote, put)
  local known = {}
  return function(who)
    if not known[who] then
      known[who] = next_tid()
      named(quote, put, "thread_name", known[who], name(who))
    end
    return known[who]
  end
end

--- Writes the trace.
--- error: RuntimeError if it cannot be written
---@param p lupine.Profile
---@param path string
function M.write(p, path)
  local file, why = io.open(path, "w")
  errors.check(file, "RuntimeError", "Profile:write_trace(path): cannot write '%s': %s", path,
    tostring(why):gsub("^.*: ", ""))
  local quote, first = quoter(), true
  local ok = true
  local function put(format, ...)
    ok = file:write(first and "" or ",\n", format:format(...)) and ok
    first = false
  end
  local dropped = 0
  for _, step in ipairs(p.steps) do
    dropped = dropped + step.dropped
  end
  ok = file:write(('{"displayTimeUnit":"ms","otherData":{"events_not_kept":%d},"traceEvents":[\n')
    :format(dropped)) and ok
  named(quote, put, "process_name", LUA, "lupine")
  named(quote, put, "thread_name", LUA, "Lua")
  for _, span in ipairs(p.spans) do
    put('{"name":%s,"cat":"host","ph":"X","ts":%.3f,"dur":%.3f,"pid":1,"tid":%d}',
      quote(span.name), (span.start - p.begun) / 1e3, span.ns / 1e3, LUA)
  end
  local tid = LUA
  local function next_tid()
    tid = tid + 1
    return tid
  end
  for nr, step in ipairs(p.steps) do
    events(p, step.raw.events, step.raw.rows, tracks(next_tid, function(replica)
      return replica < 0 and ("step %d, update"):format(nr)
        or ("step %d, replica %d"):format(nr, replica)
    end, quote, put), quote, put)
  end
  local thread = tracks(next_tid, function(i)
    return ("thread %d"):format(i)
  end, quote, put)
  for _, step in ipairs(p.steps) do
    events(p, step.raw.sections, step.raw.rows, thread, quote, put)
  end
  ok = file:write("\n]}\n") and ok
  ok = file:close() and ok
  errors.check(ok, "RuntimeError", "Profile:write_trace(path): cannot write all of '%s'", path)
end

return M
