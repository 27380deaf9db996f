--- A report as one page of HTML that needs nothing else: memory and schedule are drawn
--- as SVG, tables are sorted by a click on a column's head. It holds the most costly of
--- long lists only, and says how many it leaves out, so that the page of a large model
--- stays small.
local M = {}

local MOST_NODES, MOST_OPERATORS, MOST_ROWS, MOST_MARKS = 500, 200, 300, 4000
local WIDTH = 960

local COLORS = { compute = "#4477aa", copy = "#ee6677", host_in = "#228833", host_out = "#66bb55",
  load = "#ccbb44", store = "#aa9922", collective = "#aa3377", update = "#66ccee" }
local SERIES = { "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999",
  "#995522", "#222266", "#88aa44", "#dd99bb", "#446655" }

local HEAD = [[<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>body{font:14px sans-serif;margin:2em;max-width:1100px}table{border-collapse:collapse}
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}th{cursor:pointer}
td:first-child,th:first-child{text-align:left}svg text{font:11px sans-serif}
pre{background:#f4f4f4;padding:1em;overflow:auto}</style></head><body>
<h1>%s</h1>
]]

local SORT = [[<script>
for (const th of document.querySelectorAll("th")) th.onclick = () => {
  const body = th.closest("table").tBodies[0], i = th.cellIndex
  const down = th.dataset.down = th.dataset.down === "1" ? "0" : "1"
  const value = row => row.cells[i].dataset.n ?? row.cells[i].textContent
  const rows = [...body.rows].sort((a, b) => {
    const x = value(a), y = value(b), d = x - y
    return (isNaN(d) ? x.localeCompare(y) : d) * (down === "1" ? -1 : 1)
  })
  body.append(...rows)
}
</script>
</body></html>
]]

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;",
  ["'"] = "&#39;" }

local function escaped(value)
  return (tostring(value):gsub("[&<>\"']", ESCAPES))
end

local function add(out, fmt, ...)
  out[#out + 1] = fmt:format(...)
end

-- ---- tables ----------------------------------------------------------------------------

-- columns: {head, field or function(row)}.
local function add_table(out, columns, rows, most)
  out[#out + 1] = "<table><thead><tr>"
  for _, c in ipairs(columns) do
    add(out, "<th>%s</th>", escaped(c[1]))
  end
  out[#out + 1] = "</tr></thead><tbody>\n"
  for i = 1, math.min(#rows, most) do
    out[#out + 1] = "<tr>"
    for _, c in ipairs(columns) do
      local value = type(c[2]) == "function" and c[2](rows[i]) or rows[i][c[2]]
      if math.type(value) == "integer" then
        add(out, '<td data-n="%d">%d</td>', value, value)
      else
        add(out, "<td>%s</td>", escaped(value == nil and "" or value))
      end
    end
    out[#out + 1] = "</tr>\n"
  end
  out[#out + 1] = "</tbody></table>\n"
  if #rows > most then
    add(out, "<p>%d of %d rows; the others are smaller.</p>\n", most, #rows)
  end
end

local function by_cycles(a, b)
  return a.cycles > b.cycles
end

local function sorted(list, order)
  local out = table.move(list, 1, #list, 1, {})
  table.sort(out, order)
  return out
end

-- ---- drawings --------------------------------------------------------------------------

local function box(out, x, y, w, h, color, title)
  add(out, '<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"><title>%s</title></rect>\n',
    x, y, math.max(w, 0.2), h, color, escaped(title))
end

local function svg(out, height, draw)
  add(out, '<svg width="%d" height="%d" role="img">\n', WIDTH, height)
  draw()
  out[#out + 1] = "</svg>\n"
end

local function categories_of(memory)
  local list = {}
  for name, bytes in pairs(memory.categories) do
    if bytes > 0 then
      list[#list + 1] = { name = name, bytes = bytes }
    end
  end
  return sorted(list, function(a, b)
    return a.bytes > b.bytes or a.bytes == b.bytes and a.name < b.name
  end)
end

-- A bar of what the IPU's tiles hold by category, and one column a class of tiles.
local function draw_memory(out, memory)
  local list, all = categories_of(memory), 0
  for _, c in ipairs(list) do
    all = all + c.bytes
  end
  svg(out, 130 + 16 * #list, function()
    local x = 0
    for i, c in ipairs(list) do
      local w, color = WIDTH * c.bytes / math.max(all, 1), SERIES[(i - 1) % #SERIES + 1]
      box(out, x, 0, w, 20, color, ("%s: %d bytes"):format(c.name, c.bytes))
      box(out, 0, 26 + 16 * i, 10, 10, color, c.name)
      add(out, '<text x="16" y="%d">%s: %.2f MB</text>\n', 35 + 16 * i, escaped(c.name),
        c.bytes / 1e6)
      x = x + w
    end
    local most = math.max(memory.max_tile_including_gaps, memory.tile_bytes)
    local base, w = 120 + 16 * #list, WIDTH / 2 / #memory.tiles
    for i, bytes in ipairs(memory.tiles) do
      local h = math.floor(80 * bytes / most)
      box(out, WIDTH / 2 + (i - 1) * w, base - h, w - 1, h,
        bytes > memory.tile_bytes and "#cc3311" or "#4477aa",
        ("tiles of class %d: %d bytes"):format(i - 1, bytes))
    end
    local limit = base - 80 * memory.tile_bytes // most
    add(out, '<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#cc3311"/>\n', WIDTH // 2, WIDTH,
      limit, limit)
    add(out, '<text x="%d" y="%d">memory of a tile, %d bytes</text>\n', WIDTH // 2, limit - 3,
      memory.tile_bytes)
  end)
end

local function add_memory(out, report)
  out[#out + 1] = "<h2>Memory</h2>\n"
  local ipus = {}
  for ipu in pairs(report.memory) do
    ipus[#ipus + 1] = ipu
  end
  for _, ipu in ipairs(sorted(ipus)) do
    local m = report.memory[ipu]
    add(out, "<h3>IPU %d: %s, fullest tile %d with %d bytes</h3>\n", ipu,
      m.fits and "fits" or "does not fit", m.fullest_tile, m.max_tile_including_gaps)
    draw_memory(out, m)
    add_table(out, { { "biggest at the peak", "name" }, { "layer", "scope" }, { "kind", "kind" },
      { "bytes", "bytes" } }, m.biggest, MOST_ROWS)
  end
end

-- The time that one turn of each row takes, from left to right; a lane an IPU.
local function add_schedule(out, report)
  local rows, total, lanes = report.schedule, 0, 0
  local shown = math.min(#rows, MOST_ROWS)
  for i = 1, shown do
    total = total + rows[i].cycles
    for _, e in ipairs(rows[i].entries) do
      lanes = math.max(lanes, e.ipu + 1)
    end
  end
  add(out, "<h2>Schedule</h2>\n<p>One turn of each of %d rows%s; %d cycles.</p>\n", shown,
    shown < #rows and (" (of %d)"):format(#rows) or "", total)
  svg(out, lanes * 22 + 20, function()
    local scale, x, marks = (WIDTH - 50) / math.max(total, 1), 50, 0
    for ipu = 0, lanes - 1 do
      add(out, '<text x="0" y="%d">IPU %d</text>\n', ipu * 22 + 14, ipu)
    end
    for i = 1, shown do
      local row, at = rows[i], {}
      for _, e in ipairs(row.entries) do
        local start = at[e.ipu] or x
        marks = marks + 1
        if marks <= MOST_MARKS then
          box(out, start, e.ipu * 22, e.cycles * scale, 18, COLORS[e.kind] or "#999999",
            ("%s, row %d x %d: IPU %d, %s%s, %d cycles"):format(row.kind, i, row.count, e.ipu,
              e.kind, e.stage and (" of stage %d"):format(e.stage) or "", e.cycles))
        end
        at[e.ipu] = start + e.cycles * scale
      end
      x = x + row.cycles * scale
    end
  end)
  out[#out + 1] = "<p>"
  for kind in ("compute copy host_in host_out load store collective update"):gmatch("%S+") do
    add(out, '<span style="color:%s">&#9632;</span> %s \n', COLORS[kind], kind)
  end
  out[#out + 1] = "</p>\n"
end

-- ---- all of it -------------------------------------------------------------------------

local function place(node)
  return node.file and node.file ~= "" and ("%s:%d"):format(node.file, node.line) or ""
end

--- The page.
---@param report lupine.Report
---@return string
function M.text(report)
  local title, out = escaped(tostring(report)), {}
  out[1] = HEAD:format(title, title)
  add(out, "<pre>%s</pre>\n", escaped(report:summary()))
  add_memory(out, report)
  add_schedule(out, report)
  out[#out + 1] = "<h2>Kinds of operators</h2>\n"
  add_table(out, { { "operator", "name" }, { "nodes", "nodes" }, { "executions", "instances" },
    { "cycles", "cycles" }, { "operations", "flops" } }, report.operators, MOST_OPERATORS)
  out[#out + 1] = "<h2>Operators</h2>\n"
  add_table(out, { { "operator", "operator" }, { "layer", "scope" }, { "script", place },
    { "IPU", "ipu" }, { "stage", "stage" }, { "cycles", "cycles" }, { "compute", "compute" },
    { "exchange", "exchange" }, { "operations", "flops" } },
    sorted(report:nodes(), by_cycles), MOST_NODES)
  out[#out + 1] = SORT
  return table.concat(out)
end

return M
