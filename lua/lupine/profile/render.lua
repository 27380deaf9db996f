--- A profile as text: tables in columns.
local core = require("lupine.core")

local M = {}

-- ---- columns ------------------------------------------------------------------------

local function display_width(s)
  return utf8.len(s) or #s
end

-- Columns named with a leading "<" stand left. Trailing blanks are cut.
local function layout(head, rows)
  local width, left = {}, {}
  for c, name in ipairs(head) do
    left[c] = name:sub(1, 1) == "<"
    head[c] = left[c] and name:sub(2) or name
    width[c] = display_width(head[c])
  end
  for _, row in ipairs(rows) do
    for c = 1, #head do
      width[c] = math.max(width[c], display_width(row[c]))
    end
  end
  local out = {}
  local function put(row)
    local cells = {}
    for c = 1, #head do
      local pad = (" "):rep(width[c] - display_width(row[c]))
      cells[c] = left[c] and row[c] .. pad or pad .. row[c]
    end
    out[#out + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  put(head)
  for _, row in ipairs(rows) do
    put(row)
  end
  return table.concat(out, "\n")
end

local function ms(ns)
  return ("%.3f"):format(ns / 1e6)
end

local function percent(part, all)
  return all > 0 and ("%.1f %%"):format(100 * part / all) or "-"
end

-- The n first rows, and one for the rest; `sum` gives its numbers.
local function cut(list, top, line, rest)
  local rows = {}
  local n = top == 0 and #list or math.min(top, #list)
  for i = 1, n do
    rows[i] = line(list[i])
  end
  if n < #list then
    local sum = { calls = 0, self_ns = 0, flops = 0, bytes = 0 }
    for i = n + 1, #list do
      for key, v in pairs(sum) do
        sum[key] = v + list[i][key]
      end
    end
    rows[#rows + 1] = rest(sum, #list - n)
  end
  return rows
end

-- Source text of a line, where the file is there.
local function reader()
  local files = {}
  return function(file, line)
    if not file or not line or line < 1 then
      return ""
    end
    if not files[file] then
      files[file] = {}
      local f = io.open(file)
      if f then
        for text in f:lines() do
          table.insert(files[file], text)
        end
        f:close()
      end
    end
    local text = (files[file][line] or ""):gsub("^%s+", ""):gsub("[%c]", " ")
    return utf8.len(text) and #text > 60 and text:sub(1, utf8.offset(text, 0, 58) - 1) .. "…"
      or text
  end
end

-- ---- tables -------------------------------------------------------------------------

local function rates(e, peak)
  local s = e.self_ns / 1e9
  local known = s > 0 and e.flops > 0
  return known and ("%.2f"):format(e.flops / s / 1e9) or "-",
    known and peak and percent(e.flops / s, peak.flops) or "-",
    s > 0 and e.bytes > 0 and ("%.2f"):format(e.bytes / 1e6) or "-",
    s > 0 and e.bytes > 0 and ("%.2f"):format(e.bytes / s / 1e9) or "-"
end

local function kernels(p, step, top)
  local function line(e)
    local flops, of_peak, bytes, rate = rates(e, p.peaks[e.threads])
    return { e.part, tostring(e.calls), ms(e.self_ns), percent(e.self_ns, step.ns), flops, of_peak,
      bytes, rate, tostring(e.threads), e.label, e.where }
  end
  return layout({ "<part", "calls", "ms", "share", "GFLOP/s", "of peak", "MB", "GB/s", "threads",
    "<kernel", "<line" }, cut(step.kernels, top, line, function(sum, n)
    local flops, _, bytes, rate = rates(sum)
    return { "", tostring(sum.calls), ms(sum.self_ns), percent(sum.self_ns, step.ns), flops, "-",
      bytes, rate, "", ("%d more"):format(n), "" }
  end))
end

local function lines(step, top)
  local source = reader()
  local function line(e)
    return { tostring(e.calls), ms(e.total_ns), ms(e.self_ns), percent(e.self_ns, step.ns),
      e.where == "" and "(no line: executor, optimizer)" or e.where, source(e.file, e.line) }
  end
  return layout({ "calls", "total ms", "self ms", "share", "<line", "<" },
    cut(step.lines, top, line, function(sum, n)
      return { tostring(sum.calls), "", ms(sum.self_ns), percent(sum.self_ns, step.ns),
        ("%d more"):format(n), "" }
    end))
end

local function modules(step, top)
  local list = {}
  for i, e in ipairs(step.modules) do
    list[i] = e
  end
  table.sort(list, function(a, b)
    if a.total_ns ~= b.total_ns then
      return a.total_ns > b.total_ns
    end
    return a.scope < b.scope
  end)
  return layout({ "calls", "total ms", "self ms", "share", "<module" },
    cut(list, top, function(e)
      return { tostring(e.calls), ms(e.total_ns), ms(e.self_ns), percent(e.total_ns, step.ns),
        e.scope == "" and "(all)" or e.scope }
    end, function(sum, n)
      return { tostring(sum.calls), "", ms(sum.self_ns), "", ("%d more"):format(n) }
    end))
end

local function host(p)
  local rows = {}
  for i, h in ipairs(p.host) do
    rows[i] = { h.name, tostring(h.calls), ("%.3f"):format(h.seconds),
      percent(h.seconds, p.seconds) }
  end
  return layout({ "<where", "calls", "seconds", "share" }, rows)
end

local function peaks(p)
  local rows = {}
  for threads, peak in pairs(p.peaks) do
    rows[#rows + 1] = { threads = threads, tostring(threads), ("%.1f"):format(peak.flops / 1e9),
      ("%.1f"):format(peak.bytes / 1e9) }
  end
  table.sort(rows, function(a, b)
    return a.threads < b.threads
  end)
  return layout({ "threads", "peak GFLOP/s", "copy GB/s" }, rows)
end

local function step_title(i, step)
  local flops = 0
  for _, k in ipairs(step.kernels) do
    flops = flops + k.flops
  end
  return ("step %d (%s): %d calls, %.3f s, %.3f ms a call, %.2f GFLOP/s"):format(i,
    step.trains and "training" or "inference", step.runs, step.ns / 1e9,
    step.ns / 1e6 / math.max(step.runs, 1), step.ns > 0 and flops / step.ns or 0)
end

--- All tables of a profile.
---@param p lupine.Profile
---@param top integer rows of each; 0: all
---@return string
function M.text(p, top)
  local cpu = core.host.cpu()
  local simd = cpu.simd .. (cpu.amx and " with AMX" or "")
  local out = { ("%.3f s on %s, %s"):format(p.seconds, cpu.name, simd), "", host(p) }
  local function put(...)
    for _, text in ipairs({ ... }) do
      out[#out + 1] = text
    end
  end
  if #p.steps > 0 then
    put("", peaks(p))
  end
  for i, step in ipairs(p.steps) do
    put("", step_title(i, step), "", kernels(p, step, top), "", lines(step, top))
    if #step.modules > 1 then
      put("", modules(step, top))
    end
  end
  return table.concat(out, "\n") .. "\n"
end

return M
