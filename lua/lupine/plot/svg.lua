--- Curves as a picture that any browser shows: plain SVG, no script, no font of its own.
local COLORS = { "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2",
  "#7f7f7f" }
local LEFT, RIGHT, TOP, BOTTOM, LINE = 64, 16, 34, 44, 18

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

-- Characters that XML cannot have are left out.
local function escape(text)
  return (text:gsub('[&<>"]', ESCAPES):gsub("[%z\1-\8\11\12\14-\31]", ""))
end

-- A path of a curve: of many points in one column of pixels only the ends, the least and
-- the greatest are drawn.
local function path(curve, place)
  local out, column, pen = {}, nil, "M"
  local first, low, high, last
  local function flush()
    for _, p in ipairs(column and { first, low, high, last } or {}) do
      out[#out + 1] = ("%s%.1f %.1f"):format(pen, p[1], p[2])
      pen = "L"
    end
    column = nil
  end
  for _, p in ipairs(curve) do
    if not p then
      flush()
      pen = "M"
    else
      local x, y = place(p)
      local at = math.floor(x)
      if at ~= column then
        flush()
        column, first, low, high = at, { x, y }, { x, y }, { x, y }
      end
      last = { x, y }
      low, high = y < low[2] and last or low, y > high[2] and last or high
    end
  end
  flush()
  return table.concat(out)
end

local function text(x, y, anchor, value)
  return ('<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>'):format(x, y, anchor, escape(value))
end

local function line(x0, y0, x1, y1, color)
  return ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>'):format(x0, y0, x1, y1,
    color)
end

-- Ticks, their lines across the picture and their texts.
local function axes(o, box, out)
  for _, tick in ipairs(o.y.ticks) do
    local y = box.bottom - o.y:at(tick[1]) * (box.bottom - box.top)
    out[#out + 1] = line(box.left, y, box.right, y, "#ddd")
    out[#out + 1] = text(box.left - 6, y + 4, "end", tick[2])
  end
  for _, tick in ipairs(o.x.ticks) do
    local x = box.left + o.x:at(tick[1]) * (box.right - box.left)
    out[#out + 1] = line(x, box.bottom, x, box.bottom + 4, "#888")
    out[#out + 1] = text(x, box.bottom + 17, "middle", tick[2])
  end
  out[#out + 1] = line(box.left, box.bottom, box.right, box.bottom, "#888")
  if o.xlabel ~= "" then
    out[#out + 1] = text((box.left + box.right) / 2, box.bottom + 34, "middle", o.xlabel)
  end
end

--- The SVG of prepared curves (lua/lupine/plot/init.lua).
---@param list table[]
---@param o table
---@return string
return function(list, o)
  local box = { left = LEFT, right = o.width - RIGHT, top = TOP, bottom = o.height - BOTTOM }
  local out = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
      .. 'font-family="sans-serif" font-size="12">'):format(o.width, o.height, o.width, o.height),
    '<rect width="100%" height="100%" fill="white"/>',
    o.title ~= "" and text(o.width / 2, 20, "middle", o.title) or nil,
  }
  axes(o, box, out)
  for k, curve in ipairs(list) do
    local color = COLORS[(k - 1) % #COLORS + 1]
    local d = path(curve, function(p)
      return box.left + o.x:at(p[1]) * (box.right - box.left),
        box.bottom - o.y:at(p[2]) * (box.bottom - box.top)
    end)
    out[#out + 1] = ('<path d="%s" fill="none" stroke="%s" stroke-width="1.5" '
      .. 'stroke-linecap="round" stroke-linejoin="round"/>'):format(d, color)
    out[#out + 1] = ('<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s</text>'):format(
      box.right - 4, box.top + LINE * (k - 0.2), color, escape(curve.name))
  end
  out[#out + 1] = "</svg>"
  return table.concat(out, "\n") .. "\n"
end
