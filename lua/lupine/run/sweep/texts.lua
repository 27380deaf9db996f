--- Nodes of a document as the text that a word key=value of the command line takes: what
--- had no quotes has none, so that the run file's schema decides what it is.
local check = require("lupine.base.check")
local core = require("lupine.core")
local emit = require("lupine.run.emit")

local M = {}

local function scalar(node, inside)
  if node.text == nil then
    local value = node.value
    return check.is_none(value) and "null" or type(value) == "string" and core.json_encode(value)
      or emit.value(value)
  elseif node.plain and not node.text:find("\n")
    and (not inside or node.text:find("^[%w_.+/-]*$")) then
    return node.text
  end
  return core.json_encode(node.text)
end

local function text(node, inside)
  if node.kind == "scalar" then
    return scalar(node, inside)
  end
  local parts = {}
  for i, item in ipairs(node.items or node.keys) do
    parts[i] = node.items and text(item, true)
      or ("%s: %s"):format(core.json_encode(item), text(node.values[item], true))
  end
  return (node.items and "[%s]" or "{%s}"):format(table.concat(parts, ", "))
end

--- The text of a node.
---@param node table
---@return string
function M.of(node)
  return text(node, false)
end

--- Calls `f(key, node)` for each value below a mapping, by its key with points.
---@param node table
---@param f fun(key: string, node: table)
---@param is_value? fun(node: table): boolean whether a mapping is a value itself
---@param prefix? string
function M.each(node, f, is_value, prefix)
  for _, name in ipairs(node.keys) do
    local inner, key = node.values[name], prefix and prefix .. "." .. name or name
    if inner.kind == "map" and #inner.keys > 0 and not (is_value and is_value(inner)) then
      M.each(inner, f, is_value, key)
    else
      f(key, inner)
    end
  end
end

return M
