--- Curves in dots of braille: a character is two dots wide and four high.
---
--- Source: Unicode 15, braille patterns (U+2800): the bit of each dot.
local BITS = { { 0x01, 0x02, 0x04, 0x40 }, { 0x08, 0x10, 0x20, 0x80 } }

-- Colours of curves that can be told apart on dark and on light ground.
local COLORS = { 34, 33, 32, 31, 35, 36 }

local function canvas(columns, rows)
  local cells, owner = {}, {}
  local c = { cells = cells, owner = owner, columns = columns, rows = rows }
  function c.dot(x, y, curve)
    local column, row = x // 2, y // 4
    if column < 0 or column >= columns or row < 0 or row >= rows then
      return
    end
    local i = row * columns + column
    cells[i] = (cells[i] or 0) | BITS[x % 2 + 1][y % 4 + 1]
    owner[i] = curve
  end
  return c
end

-- Bresenham's line.
local function line(c, x0, y0, x1, y1, curve)
  local dx, dy = math.abs(x1 - x0), -math.abs(y1 - y0)
  local sx, sy = x0 < x1 and 1 or -1, y0 < y1 and 1 or -1
  local e = dx + dy
  while true do
    c.dot(x0, y0, curve)
    if x0 == x1 and y0 == y1 then
      return
    end
    local twice = 2 * e
    if twice >= dy then
      e, x0 = e + dy, x0 + sx
    end
    if twice <= dx then
      e, y0 = e + dx, y0 + sy
    end
  end
end

local function draw(c, curve, k, o)
  local width, height = c.columns * 2 - 1, c.rows * 4 - 1
  local last_x, last_y
  for _, p in ipairs(curve) do
    local x, y
    if p then
      x = math.floor(o.x:at(p[1]) * width + 0.5)
      y = math.floor((1 - o.y:at(p[2])) * height + 0.5)
      line(c, last_x or x, last_y or y, x, y, k)
    end
    last_x, last_y = x, y
  end
end

local function painted(text, k, o)
  return o.color and ("\27[%dm%s\27[0m"):format(COLORS[(k - 1) % #COLORS + 1], text) or text
end

local function row_text(c, row, o)
  local out = {}
  for column = 0, c.columns - 1 do
    local i = row * c.columns + column
    local cell = c.cells[i]
    out[#out + 1] = cell and painted(utf8.char(0x2800 + cell), c.owner[i], o) or " "
  end
  return (table.concat(out):gsub(" +$", ""))
end

-- Labels of the y axis by row.
local function labels(o, rows)
  local out, widest = {}, 0
  for _, tick in ipairs(o.y.ticks) do
    local row = math.floor((1 - o.y:at(tick[1])) * (rows - 1) + 0.5)
    out[row] = out[row] or tick[2]
    widest = math.max(widest, #tick[2])
  end
  return out, widest
end

-- The line below the x axis.
local function x_labels(o, columns)
  local line_of, at = "", 0
  for _, tick in ipairs(o.x.ticks) do
    local column = math.floor(o.x:at(tick[1]) * (columns - 1) + 0.5)
    local from = math.max(0, math.min(column - #tick[2] // 2, columns - #tick[2]))
    if from >= at + (at > 0 and 1 or 0) then
      line_of = line_of .. (" "):rep(from - at) .. tick[2]
      at = from + #tick[2]
    end
  end
  return line_of
end

-- What the curves are called, in as many lines as it takes.
local function legend(list, o, margin, before)
  local lines, at = { before }, utf8.len(before)
  for k, curve in ipairs(list) do
    local last
    for _, p in ipairs(curve) do
      last = p or last
    end
    local text = ("%s %s"):format(curve.name, last and ("%.5g"):format(last[2]) or "no value")
    local length = utf8.len(text) or #text
    if at > margin and at + length > o.width then
      lines[#lines + 1], at = (" "):rep(margin), margin
    end
    local gap = at > margin and "   " or ""
    lines[#lines] = lines[#lines] .. gap .. painted(text, k, o)
    at = at + #gap + length
  end
  return table.concat(lines, "\n")
end

--- The text of prepared curves (lua/lupine/plot/init.lua).
---@param list table[]
---@param o table
---@return string
return function(list, o)
  local at, widest = labels(o, o.height)
  local c = canvas(math.max(8, o.width - widest - 2), o.height)
  for k, curve in ipairs(list) do
    draw(c, curve, k, o)
  end
  local out = { o.title ~= "" and o.title or nil }
  for row = 0, o.height - 1 do
    local tick = at[row]
    out[#out + 1] = ("%" .. widest .. "s %s%s"):format(tick or "", tick and "┤" or "│",
      row_text(c, row, o))
  end
  local margin = (" "):rep(widest + 1)
  out[#out + 1] = margin .. "└" .. ("─"):rep(c.columns)
  out[#out + 1] = margin .. " " .. x_labels(o, c.columns)
  out[#out + 1] = legend(list, o, widest + 2, margin .. " " .. o.xlabel)
  return table.concat(out, "\n") .. "\n"
end
