--- Patterns of log lines as spdlog has them, whose flags POPART_LOG_FORMAT is made
--- of: "[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] %v". A width and a side may stand before a
--- flag's letter: %8l, %-8l, %=8l. Of the flags those of source positions (%s, %g,
--- %#, %@, %!) are empty, as they are without a position in spdlog.
---
--- Source: spdlog's documentation of custom formatting.
local errors = require("lupine.base.errors")

local M = {}

-- Flag -> a format of os.date.
local DATE = { a = "%a", A = "%A", b = "%b", B = "%B", h = "%b", c = "%a %b %d %H:%M:%S %Y",
  C = "%y", Y = "%Y", D = "%m/%d/%y", x = "%m/%d/%y", m = "%m", d = "%d", H = "%H", I = "%I",
  M = "%M", S = "%S", p = "%p", r = "%I:%M:%S %p", R = "%H:%M", T = "%H:%M:%S", X = "%H:%M:%S" }

local function fraction(scale, digits)
  return function(line)
    return ("%0" .. digits .. "d"):format(math.floor((line.time % 1) * scale))
  end
end

local function field(name)
  return function(line)
    return tostring(line[name])
  end
end

local function none()
  return ""
end

-- Flag -> what it shows of a line {time, utc, name, level, letter, pid, text, last}.
local FLAGS = {
  v = field("text"), n = field("name"), l = field("level"), L = field("letter"),
  P = field("pid"), t = field("pid"), -- one thread logs
  e = fraction(1e3, 3), f = fraction(1e6, 6), F = fraction(1e9, 9),
  E = function(line)
    return tostring(math.floor(line.time))
  end,
  z = function(line)
    local zone = line.utc and "+0000" or os.date("%z", math.floor(line.time))
    return (zone:gsub("^(...)", "%1:"))
  end,
  i = function(line)
    return ("%06d"):format(math.floor((line.time - line.last) * 1e6))
  end,
  o = function(line)
    return ("%06d"):format(math.floor((line.time - line.last) * 1e3))
  end,
  ["%"] = function()
    return "%"
  end,
  s = none, g = none, ["#"] = none, ["@"] = none, ["!"] = none, ["^"] = none, ["$"] = none,
}
for flag, format in pairs(DATE) do
  FLAGS[flag] = function(line)
    return os.date((line.utc and "!" or "") .. format, math.floor(line.time))
  end
end

local function padded(text, side, width)
  local blanks = width - #text
  if blanks <= 0 then
    return text
  elseif side == "-" then
    return text .. (" "):rep(blanks)
  elseif side == "=" then
    return (" "):rep(blanks // 2) .. text .. (" "):rep(blanks - blanks // 2)
  end
  return (" "):rep(blanks) .. text
end

-- The next flag of a text from `at` on, as a function of a line; where it ends.
local function flag_at(text, at)
  local side, width, letter, after = text:match("^%%([%-=]?)(%d*)(.)()", at)
  local show = FLAGS[letter]
  errors.check(show, "ValueError", "no flag '%s' in the pattern '%s'", text:sub(at, at + 1), text)
  local n = math.min(tonumber(width) or 0, 64) -- spdlog's most
  return n == 0 and show or function(line)
    return padded(show(line), side, n)
  end, after
end

--- A pattern as a function of lines.
--- error: ValueError for a flag that spdlog does not have
---@param text string
---@return fun(line: table): string
function M.compile(text)
  text = text:gsub("%%%+", "[%%Y-%%m-%%d %%H:%%M:%%S.%%e] [%%n] [%%l] %%v")
  local parts, at = {}, 1
  while at <= #text do
    local plain, after = text:match("^([^%%]+)()", at)
    if plain then
      parts[#parts + 1] = plain
    else
      parts[#parts + 1], after = flag_at(text, at)
    end
    at = after
  end
  return function(line)
    local out = {}
    for i, part in ipairs(parts) do
      out[i] = type(part) == "string" and part or part(line)
    end
    return table.concat(out)
  end
end

return M
