--- A report as one page of HTML that needs nothing else: its data as JSON, the scripts and
--- styles of the folder page/, and Debian's dygraphs for curves, all inside. Of very long
--- lists the page has the largest entries and says how many it leaves out, so that it stays
--- below 5 MB.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local file = require("lupine.report.file")
local tables = require("lupine.base.tables")

local M = {}

-- What a page has at most: operators, tensors and steps of an IPU, entries of the schedule.
local MOST_NODES, MOST_SPANS, MOST_STEPS, MOST_ENTRIES = 15000, 6000, 20000, 20000

local SCRIPTS = { "base.js", "summary.js", "memory.js", "operations.js", "timeline.js",
  "compare.js" }
local DYGRAPHS = "/usr/share/javascript/dygraphs/"

local HEAD = [[<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<style>
%s</style></head><body>
<a class="skip" href="#main">To the report</a>
<header><h1>Report of a simulated program</h1><p>%s</p>
<span class="tools"><button type="button" id="theme" class="button">light / dark</button></span>
</header><nav role="tablist" aria-label="views"></nav><main id="main"></main>
<div id="tip" hidden></div>
<noscript>The views need JavaScript; this is the report as text.<pre>%s</pre></noscript>
<script type="application/json" id="data">%s</script>
]]

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;",
  ["'"] = "&#39;" }

local function escaped(value)
  return (tostring(value):gsub("[&<>\"']", ESCAPES))
end

local here = debug.getinfo(1, "S").source:match("^@(.*)%.lua$") .. "/"

local function text_of(path, advice)
  local opened <close>, why = io.open(path, "rb")
  errors.check(opened, "FileNotFoundError", "%s%s", why, advice or "")
  return opened:read("a")
end

-- ---- data ----------------------------------------------------------------------------

-- The list's largest entries by a field, in their order; how many are left out.
local function largest(list, field, most)
  if #list <= most then
    return list, 0
  end
  local order = {}
  for i = 1, #list do
    order[i] = i
  end
  table.sort(order, function(a, b)
    local x, y = list[a][field], list[b][field]
    return x > y or x == y and a < b
  end)
  table.move({}, 1, #order - most, most + 1, order)
  table.sort(order)
  local out = {}
  for i, at in ipairs(order) do
    out[i] = list[at]
  end
  return out, #list - most
end

-- A list by columns, with a number for each text: half a page is names otherwise.
local function packed(list, keys, texts)
  local out = { keys = tables.array({ table.unpack(keys) }), text = tables.array({
    table.unpack(texts) }), columns = {}, strings = {} }
  local is_text, number, n = tables.set(texts), {}, 0
  for c, key in ipairs(keys) do
    local column = { n = #list }
    for i, entry in ipairs(list) do
      local value = entry[key]
      if is_text[key] then
        value = value or ""
        if not number[value] then
          number[value], n = n, n + 1
          out.strings[n] = value
        end
        value = number[value]
      elseif type(value) == "boolean" then
        value = value and 1 or 0
      end
      column[i] = value or -1
    end
    out.columns[c] = tables.array(column)
  end
  out.columns.n, out.strings.n = #keys, n
  out.keys.n, out.text.n = #keys, #texts
  out.columns, out.strings = tables.array(out.columns), tables.array(out.strings)
  return out
end

local NODE_KEYS = { "node", "update", "operator", "scope", "file", "line", "ipu", "stage",
  "backward", "cycles", "compute", "exchange", "sync", "flops", "elements" }
local SPAN_KEYS = { "name", "scope", "from", "to", "bytes" }

local function nodes_of(report)
  local list, left = largest(report:nodes(), "cycles", MOST_NODES)
  local out = packed(list, NODE_KEYS, { "operator", "scope", "file" })
  out.left_out = left
  return out
end

local function cut(list, most)
  local n = math.min(#list, most)
  local out = table.move(list, 1, n, 1, {})
  out.n = n
  return tables.array(out)
end

local function liveness_of(report)
  local out = {}
  for ipu, live in pairs(report:liveness().ipus) do
    local entry = { spans = packed(largest(live.spans, "bytes", MOST_SPANS), SPAN_KEYS,
      { "name", "scope" }) }
    for _, key in ipairs({ "node", "stage", "backward", "bytes", "temporary" }) do
      entry[key] = cut(live[key], MOST_STEPS)
    end
    out[tostring(ipu)] = entry
  end
  return out
end

-- The same of another report: how much is held at each step.
local function held_of(report)
  local out = {}
  for ipu, live in pairs(report:liveness().ipus) do
    out[tostring(ipu)] = { bytes = cut(live.bytes, MOST_STEPS),
      temporary = cut(live.temporary, MOST_STEPS) }
  end
  return out
end

-- The figures; of a schedule with very many entries its first rows.
local function figures_of(report)
  local figures = report:stored().figures
  local entries, rows = 0, 0
  for _, row in ipairs(figures.schedule) do
    entries = entries + #row.entries + 1
    rows = rows + (entries <= MOST_ENTRIES and 1 or 0)
  end
  figures = tables.with(figures, { schedule = table.move(figures.schedule, 1, rows, 1, {}),
    rows_left_out = #figures.schedule - rows })
  return file.as_json(figures)
end

-- ---- the page ------------------------------------------------------------------------

--- The page.
--- error: FileNotFoundError where dygraphs (Debian's libjs-dygraphs) is not installed
---@param report lupine.Report
---@param other? lupine.Report to be compared with
---@return string
function M.text(report, other)
  local advice = " (Debian's package libjs-dygraphs has it)"
  local data = { summary = report:summary(), report = figures_of(report),
    nodes = nodes_of(report), liveness = liveness_of(report),
    insights = file.as_json(require("lupine.report.insights").of(report)),
    other = other and { report = figures_of(other), liveness = { ipus = held_of(other) } } }
  local line = tostring(report)
  line = escaped(line:match("^Report%((.*)%)$") or line)
  local style = text_of(DYGRAPHS .. "dygraph.min.css", advice):gsub("/%*#.-%*/", "")
    .. text_of(here .. "style.css")
  -- "</" cannot end a script that has no "<".
  local json = core.json_encode(data):gsub("<", "\\u003c")
  local out = { HEAD:format(line, style, line, escaped(report:summary()), json),
    "<script>", (text_of(DYGRAPHS .. "dygraph.min.js", advice):gsub("//# source[^\n]*", "")),
    "</script>\n<script>\n" }
  for _, name in ipairs(SCRIPTS) do
    out[#out + 1] = text_of(here .. name)
  end
  out[#out + 1] = "</script>\n</body></html>\n"
  return table.concat(out)
end

return M
