--- The largest live tensors, by the names under which a session reaches them.
--- Tables are read raw, objects by what they show of themselves for completion
--- (lupine.complete): no code of the user runs.
local complete = require("lupine.complete")
local core = require("lupine.core")

local M = {}

local DEPTH = 12 -- of tables below a name
local ROWS = 20

local UNITS = { "B", "kB", "MB", "GB", "TB" }

--- Bytes with a unit.
---@param bytes number
---@return string
function M.size(bytes)
  local unit = 1
  while math.abs(bytes) >= 1000 and unit < #UNITS do
    bytes, unit = bytes / 1000, unit + 1
  end
  return ((unit == 1 and "%d %s" or "%.1f %s"):format(bytes, UNITS[unit]))
end

local function field(path, key)
  if path == "" then
    return tostring(key)
  elseif type(key) == "string" and key:find("^[%a_][%w_]*$") then
    return path .. "." .. key
  end
  local text = type(key) == "string" and ("%q"):format(key)
    or type(key) == "number" and tostring(key) or "..."
  return ("%s[%s]"):format(path, text)
end

-- Libraries are no data of the session.
local function libraries()
  local seen = {}
  for _, module in pairs(package.loaded) do
    seen[module] = true
  end
  return seen
end

local function walk(v, path, walker, depth)
  if core.is_tensor(v) then
    if not walker.seen[v] and not core.is_closed(v) and not v.is_meta then
      walker.seen[v] = true
      walker.list[#walker.list + 1] = { path = path, tensor = v, bytes = v.nbytes }
      walk(v.grad, path .. ".grad", walker, depth)
    end
    return
  elseif (type(v) ~= "table" and type(v) ~= "userdata") or walker.seen[v] or depth > DEPTH then
    return
  end
  walker.seen[v] = true
  local is_object = debug.getmetatable(v) ~= nil -- what starts with _ is its own affair
  for _, t in ipairs(complete.tables_of(v)) do
    for key, value in next, t do
      if not (is_object and type(key) == "string" and key:find("^_")) then
        walk(value, field(path, key), walker, depth + 1)
      end
    end
  end
end

--- Rows {path, tensor, bytes} of all tensors that names lead to, largest first.
---@param names table
---@param globals table
---@return {path: string, tensor: torch.Tensor, bytes: integer}[]
function M.list(names, globals)
  local walker = { list = {}, seen = libraries() }
  walker.seen[names], walker.seen[globals] = true, true
  for _, t in ipairs({ names, globals }) do
    for key, value in next, t do
      walk(value, field("", key), walker, 1)
    end
  end
  table.sort(walker.list, function(a, b)
    return a.bytes > b.bytes or a.bytes == b.bytes and a.path < b.path
  end)
  return walker.list
end

--- The text of `:memory`.
---@param names table the session's locals
---@param globals table
---@return string
function M.text(names, globals)
  local list, m = M.list(names, globals), core.memory()
  local lines, rest = {}, 0
  for i, row in ipairs(list) do
    if i <= ROWS then
      local t = row.tensor
      lines[i] = ("%10s  %-24s %s %s%s"):format(M.size(row.bytes), row.path,
        tostring(t.dtype):gsub("^torch%.", ""), "[" .. table.concat(t.shape, ", ") .. "]",
        t._base and "  (a view)" or "")
    else
      rest = rest + row.bytes
    end
  end
  if #list > ROWS then
    lines[ROWS + 1] = ("%10s  in %d more"):format(M.size(rest), #list - ROWS)
  end
  lines[#lines + 1] = ("live %s, peak %s, cached %s"):format(M.size(m.live), M.size(m.peak),
    M.size(m.cached))
  return table.concat(lines, "\n")
end

return M
