--- A configuration as YAML text: the keys in the schema's order, in a form that reads
--- back to the same values.
local types = require("lupine.run.types")

local function in_quotes(text)
  return '"' .. text:gsub('[%c"\\]', function(c)
    return c == '"' and '\\"' or c == "\\" and "\\\\" or c == "\n" and "\\n"
      or ("\\x%02x"):format(c:byte())
  end) .. '"'
end

-- A text that would be read as something else without quotes, or not at all.
local function quoted(text)
  local plain = text:find("^[%a_./][%w_./ -]*$") and not text:find(" $") and not text:find("^%.")
    and type(types.guess({ text = text, plain = true })) == "string"
    and not ({ yes = true, no = true, on = true, off = true })[text:lower()]
  if plain then
    return text
  end
  return in_quotes((text:gsub("%${", "$${")))
end

local function number(value)
  if math.type(value) == "integer" then
    return ("%d"):format(value)
  elseif value ~= value then
    return ".nan"
  elseif value == math.huge or value == -math.huge then
    return value > 0 and ".inf" or "-.inf"
  end
  local short = ("%.15g"):format(value)
  short = tonumber(short) == value and short or ("%.17g"):format(value)
  return short:find("[.eE]") and short or short .. ".0"
end

local flow

local function sorted(map)
  local keys = {}
  for key in pairs(map) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

-- A value in one line.
function flow(value)
  if value == nil then
    return "null"
  elseif type(value) == "number" then
    return number(value)
  elseif type(value) == "boolean" then
    return tostring(value)
  elseif type(value) ~= "table" or getmetatable(value) then
    return quoted(tostring(value))
  end
  local parts = {}
  if #value > 0 then
    for i, item in ipairs(value) do
      parts[i] = flow(item)
    end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  for i, key in ipairs(sorted(value)) do
    parts[i] = ("%s: %s"):format(quoted(key), flow(value[key]))
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function scalar(node)
  if node.written then
    return in_quotes(node.written)
  elseif node.text == nil then
    return flow(node.value)
  end
  local value = node.plain and types.guess(node)
  return node.plain and type(value) ~= "string" and node.text or quoted(node.text)
end

local EVERY = "%d %s%s"

-- A typed value in one line.
local function typed(value, row)
  if row.type == "every" then
    return EVERY:format(value.count, value.unit, value.count == 1 and "" or "s")
  end
  return flow(value)
end

-- Lines are pairs of text and origin.
local function add(lines, depth, text, at)
  lines[#lines + 1] = { ("  "):rep(depth) .. text, at }
end

-- A tree as it was written, in blocks: objects and options, whose leaves come from
-- different places.
local function block(lines, depth, head, node)
  if node.kind == "scalar" then
    add(lines, depth, head .. " " .. scalar(node), node.at)
  elseif #(node.keys or node.items) == 0 then
    add(lines, depth, head .. (node.kind == "map" and " {}" or " []"), node.at)
  elseif node.kind == "map" then
    add(lines, depth, head)
    for _, key in ipairs(node.keys) do
      block(lines, depth + 1, quoted(key) .. ":", node.values[key])
    end
  else
    add(lines, depth, head)
    for _, item in ipairs(node.items) do
      block(lines, depth + 1, "-", item)
    end
  end
end

local TREES = { object = true, options = true, list = true }
local COLUMN = 44 -- of the origins

local function add_row(lines, row, value, node, complete)
  local depth = select(2, row.name:gsub("%.", ""))
  local head = row.name:match("[^.]+$") .. ":"
  if row.type == "group" then
    add(lines, depth, head)
  elseif value == nil then
    if complete then
      add(lines, depth, head .. " null", "not set")
    end
  elseif TREES[row.type] then
    block(lines, depth, head, node)
  else
    local text = node.written and scalar(node) or typed(value, row)
    add(lines, depth, ("%s %s"):format(head, text), node.at)
  end
end

--- The text of a configuration.
---@param schema table[]
---@param values table<string, any> by full names
---@param nodes table<string, table> where they stood
---@param with_origins? boolean
---@return string
local function config(schema, values, nodes, with_origins)
  local lines = {}
  for _, row in ipairs(schema) do
    if row.name ~= "include" then -- what was included stands here
      add_row(lines, row, values[row.name], nodes[row.name], with_origins)
    end
  end
  for i, line in ipairs(lines) do
    lines[i] = with_origins and line[2]
      and ("%-" .. COLUMN .. "s # %s"):format(line[1], (line[2]:gsub("%c", "?")))
      or line[1]
  end
  return table.concat(lines, "\n") .. "\n"
end

return { config = config, value = flow }
