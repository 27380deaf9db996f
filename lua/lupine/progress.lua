--- A progress display on standard error: a bar that is drawn again in place on
--- a terminal, plain lines every few seconds elsewhere.
---
---     local bar = lupine.progress(#loader, { desc = "epoch 1" })
---     bar:update(1, { loss = loss })      -- 1 more done; what to show beside
---     bar:close()
---
--- Tensors among the shown values are only read when something is drawn.
--- `local bar <close> = …` closes by itself.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

---@class lupine.Progress
local Progress = class.new("Progress")

local REDRAW = 0.1    -- seconds between two pictures on a terminal
local SMOOTHING = 0.3 -- weight of the latest rate in the mean shown
local NARROWEST, WIDEST = 10, 40

local OPTIONS = { "desc", "unit", "interval", "stream", "columns", "clock" }

local function utf8_locale()
  local name = os.getenv("LC_ALL") or ""
  name = name ~= "" and name or os.getenv("LC_CTYPE") or ""
  name = name ~= "" and name or os.getenv("LANG") or ""
  return name:lower():find("utf%-?8") ~= nil
end

--- total: how many updates of 1 are expected; nil if unknown. Options: desc,
--- a label; unit, what is counted ("samples"); interval, seconds between plain
--- lines (5). stream, columns (false: no terminal) and clock replace standard
--- error, its width and the clock.
---@param total integer?
---@param options? table
function Progress:init(total, options)
  options = check.plain_table(options or {}, "progress: options")
  for key in pairs(options) do
    errors.check(table.concat(OPTIONS, " "):find("%f[%w]" .. tostring(key) .. "%f[%W]"),
      "TypeError", "progress: unknown option '%s'; allowed are %s%s", tostring(key),
      table.concat(OPTIONS, ", "), check.nearest(key, OPTIONS))
  end
  self.total = check.number(total, "progress: total", { nullable = true, min = 0 })
  self.desc = check.string(options.desc or "", "progress: desc")
  self.unit = check.string(options.unit or "", "progress: unit")
  self.interval = check.number(options.interval or 5, "progress: interval", { min = 0 })
  self.stream = options.stream or io.stderr
  self.columns = options.columns
  if options.columns == nil and not options.stream then
    self.columns = core.terminal_columns()
  end
  self.clock = options.clock or core.host.clock
  self.n, self.values, self.closed = 0, {}, false
  self.started = self.clock()
  self.drawn, self.drawn_n = self.started, 0
  self.full, self.rest = "#", "."
  if utf8_locale() then
    self.full, self.rest = "█", "░"
  end
end

-- ---- text ------------------------------------------------------------------

local function duration(seconds)
  local s = math.floor(seconds + 0.5)
  if s >= 3600 then
    return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60)
  end
  return ("%d:%02d"):format(s // 60, s % 60)
end

local function number(x)
  if math.type(x) == "integer" then
    return tostring(x)
  end
  return x == 0 and "0" or (math.abs(x) >= 1000 and "%.0f" or "%.4g"):format(x)
end

local function shown(value)
  if type(value) == "userdata" and core.is_tensor(value) then
    value = value:numel() == 1 and value:item() or value:mean():item()
  end
  return type(value) == "number" and number(value) or tostring(value)
end

local function values_text(values)
  local parts = {}
  for i, name in ipairs(tables.keys(values)) do
    parts[i] = ("%s %s"):format(name, shown(values[name]))
  end
  return parts
end

-- "1200/6000 samples", "5321 samples/s", values, "ETA 0:07" (or the time taken)
local function parts_of(self, now)
  local unit = self.unit ~= "" and " " .. self.unit or ""
  local parts = { (self.total and "%s/%s%s" or "%s%.0s%s"):format(number(self.n),
    number(self.total or 0), unit) }
  local elapsed = now - self.started
  local rate = self.closed and elapsed > 0 and self.n / elapsed or self.rate
  if rate and rate > 0 then
    parts[#parts + 1] = ("%s%s/s"):format(rate >= 100 and ("%.0f"):format(rate) or number(rate),
      unit)
  end
  table.move(values_text(self.values), 1, 1000, #parts + 1, parts)
  if self.closed then
    parts[#parts + 1] = ("%.1f s"):format(elapsed)
  elseif rate and rate > 0 and self.total then
    parts[#parts + 1] = "ETA " .. duration(math.max(self.total - self.n, 0) / rate)
  end
  return parts
end

local function bar_line(self, parts)
  local text = table.concat(parts, "  ")
  local label = self.desc ~= "" and self.desc .. " " or ""
  if not self.total then
    return (label .. text):sub(1, self.columns - 1)
  end
  local done = self.total > 0 and math.min(self.n / self.total, 1) or 1
  local left = ("%s%3d%% "):format(label, math.floor(100 * done))
  local width = math.min(self.columns - 2 - #left - #text, WIDEST)
  if width < NARROWEST then
    return (left .. text):sub(1, self.columns - 1)
  end
  local full = math.floor(done * width)
  return left .. self.full:rep(full) .. self.rest:rep(width - full) .. " " .. text
end

local function draw(self, now)
  local span, fresh = now - self.drawn, self.n - self.drawn_n
  if span > 0 and fresh > 0 then
    local rate = fresh / span
    self.rate = self.rate and self.rate + SMOOTHING * (rate - self.rate) or rate
  end
  self.drawn, self.drawn_n = now, self.n
  local parts = parts_of(self, now)
  if self.columns then
    self.stream:write("\r", bar_line(self, parts), "\27[K", self.closed and "\n" or "")
  else
    local percent = self.total and self.total > 0
      and (" (%d %%)"):format(math.floor(100 * self.n / self.total)) or ""
    parts[1] = parts[1] .. percent
    self.stream:write(self.desc ~= "" and self.desc .. ": " or "", table.concat(parts, ", "), "\n")
  end
  self.stream:flush()
end

-- ---- use -------------------------------------------------------------------

--- n more are done; `values` are shown from now on.
---@param n? number 1 unless given
---@param values? table<string, number|torch.Tensor|string>
function Progress:update(n, values)
  errors.check(not self.closed, "RuntimeError", "progress: update after close")
  self.n = self.n + check.number(n or 1, "progress: update: n")
  for name, value in pairs(values or {}) do
    self.values[name] = value
  end
  local now = self.clock()
  local ending = not self.columns and self.total and self.n >= self.total -- close's line
  if not ending and now - self.drawn >= (self.columns and REDRAW or self.interval) then
    draw(self, now)
  end
end

--- Draws the last state with the time taken. Closing twice does nothing.
function Progress:close()
  if not self.closed then
    self.closed = true
    draw(self, self.clock())
  end
end

Progress.__close = Progress.close

return Progress
