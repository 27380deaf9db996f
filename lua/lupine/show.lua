--- Values as text, for reading: tables sorted, cycles marked, long ones cut.
--- An object whose metatable has __tostring or __name prints itself.
local tables = require("lupine.base.tables")

local M = {}

--- Print options, settable: elements shown of one value, depth, columns.
M.options = { threshold = 1000, depth = 6, width = 80 }

local function quoted(s)
  local text = string.format("%q", s):gsub("\\\n", "\\n"):gsub("\\9", "\\t"):gsub("\\13", "\\r")
  return text
end

local function is_plain(t)
  local mt = debug.getmetatable(t)
  return type(mt) ~= "table"
    or (rawget(mt, "__tostring") == nil and rawget(mt, "__name") == nil)
end

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or
  repeat return then true until while]]):gmatch("%a+") do
  keywords[word] = true
end
M.keywords = keywords

local value

local function key(k, state)
  if type(k) == "string" and k:find("^[%a_][%w_]*$") and not keywords[k] then
    return k
  end
  return "[" .. value(k, state, "") .. "]"
end

-- The parts of a table's text: list elements first, then fields, sorted.
local function parts(t, state, indent)
  local list, keys = {}, {}
  local n = rawlen(t)
  for i = 1, n do
    if state.left <= 0 then
      list[#list + 1] = ("... (%d more)"):format(n - i + 1)
      break
    end
    state.left = state.left - 1
    list[i] = value(rawget(t, i), state, indent)
  end
  for k in next, t do
    if math.type(k) ~= "integer" or k < 1 or k > n then
      keys[#keys + 1] = k
    end
  end
  table.sort(keys, tables.before)
  for i, k in ipairs(keys) do
    if state.left <= 0 then
      list[#list + 1] = ("... (%d more)"):format(#keys - i + 1)
      break
    end
    state.left = state.left - 1
    list[#list + 1] = key(k, state) .. " = " .. value(rawget(t, k), state, indent)
  end
  return list
end

-- Parts of one line each, as many in a line as fit.
local function filled(list, indent)
  local lines, line = {}, ""
  for i, part in ipairs(list) do
    part = part .. (i < #list and "," or "")
    if line ~= "" and #indent + #line + #part + 1 > M.options.width then
      lines[#lines + 1], line = line, ""
    end
    line = line == "" and part or line .. " " .. part
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. indent)
end

-- Numbers and the like alone.
local function is_flat(t, list)
  for i = 1, rawlen(t) do
    local kind = type(rawget(t, i))
    if kind ~= "number" and kind ~= "boolean" then
      return false
    end
  end
  return #list <= rawlen(t) or list[#list]:find("^%.%.%.") ~= nil
end

local function plain_table(t, state, indent)
  if state.open[t] then
    return "<cycle>"
  elseif next(t) == nil then
    return "{}"
  elseif state.depth >= M.options.depth then
    return "{...}"
  end
  state.open[t] = true
  state.depth = state.depth + 1
  local inner = indent .. "  "
  local list = parts(t, state, inner)
  state.depth = state.depth - 1
  state.open[t] = nil
  local line = "{" .. table.concat(list, ", ") .. "}"
  if #line + #indent <= M.options.width and not line:find("\n", 1, true) then
    return line
  end
  local body = is_flat(t, list) and filled(list, inner) or table.concat(list, ",\n" .. inner)
  return "{\n" .. inner .. body .. "\n" .. indent .. "}"
end

function value(v, state, indent)
  if type(v) == "string" then
    return quoted(v)
  elseif type(v) == "table" and is_plain(v) then
    return plain_table(v, state, indent)
  end
  return (tostring(v):gsub("\n", "\n" .. indent))
end

--- The text of any value. A string alone is itself; inside a table it is
--- quoted.
---@param v any
---@return string
function M.show(v)
  if type(v) == "string" then
    return v
  end
  return value(v, { open = {}, depth = 0, left = M.options.threshold }, "")
end

return require("lupine.base.namespace").close(M, "lupine.show")
