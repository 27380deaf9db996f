--- What a sweep varies and what all its jobs have: keys of the run file.
---
--- A parameter is {key, at, values = {text, …}} or
--- {key, at, low, high, log, integer, points}.
local errors = require("lupine.base.errors")
local texts = require("lupine.run.sweep.texts")
local types = require("lupine.run.types")

local M = {}

local RANGE = {
  min = { type = "float" }, max = { type = "float" }, log = { type = "bool" },
  points = { type = "int", min = 2, max = 100000 },
}

local function is_range(node)
  return node.values.min ~= nil or node.values.max ~= nil
end

local function is_integer(node)
  return node.kind == "scalar" and math.type(types.guess(node)) == "integer"
end

local function read_range(key, node)
  local out = {}
  for _, name in ipairs(node.keys) do
    local row, value = RANGE[name], node.values[name]
    errors.check(row, "ConfigFileError", "%s: %s: unknown key '%s' of a range; allowed are min, "
      .. "max, log, points", value.at, key, name)
    out[name] = types[row.type].read(value, row, key .. "." .. name)
  end
  local function need(ok, text)
    errors.check(ok, "ConfigFileError", "%s: %s: %s", node.at, key, text)
  end
  need(out.min and out.max, "a range has a min and a max")
  need(out.min < out.max and out.min > -math.huge and out.max < math.huge,
    "min has to be below max, both finite")
  need(not out.log or out.min > 0, "the min of a range with log has to be above 0")
  return { key = key, at = node.at, low = out.min, high = out.max, log = out.log,
    points = out.points, integer = is_integer(node.values.min) and is_integer(node.values.max) }
end

local function read_values(key, node)
  local items, values = node.kind == "list" and node.items or { node }, {}
  errors.check(#items > 0, "ConfigFileError", "%s: %s: the list has no value", node.at, key)
  for i, item in ipairs(items) do
    values[i] = texts.of(item)
  end
  return { key = key, at = node.at, values = values }
end

-- Puts what a key has into a list. A key can be written in two ways, a.b and a: {b: …},
-- so that the command line's may stand beside the file's: it takes its place.
local function put(list, places, key, node, value)
  local place = places[key]
  errors.check(not place or node.at == "command line", "ConfigFileError", "%s: '%s' stands here a "
    .. "second time", node.at, key)
  places[key] = place or #list + 1
  list[places[key]] = value
end

-- The sweep gives these to each job itself.
local OWN = { folder = "the sweep has a folder of its own", name = "jobs are named by the sweep" }

local function check_key(key, node)
  errors.check(not OWN[key], "ConfigFileError", "%s: %s: %s", node.at, key, OWN[key])
end

local function check_map(node, key)
  if node.kind ~= "map" then
    types.refuse(node, key, "a mapping of the run file's keys, as in {optimizer.args.lr: [0.1, 1]}")
  end
end

--- The parameters of a node, in its order.
--- error: ConfigFileError with file and line
---@param node table
---@return table[]
function M.read(node)
  local out, places = {}, {}
  check_map(node, "parameters")
  texts.each(node, function(key, inner)
    check_key(key, inner)
    local range = inner.kind == "map" and is_range(inner)
    put(out, places, key, inner, (range and read_range or read_values)(key, inner))
  end, is_range)
  errors.check(#out > 0, "ConfigFileError", "%s: parameters: there is none", node.at)
  return out
end

--- The words key=value of what all jobs have.
--- error: ConfigFileError with file and line
---@param node table
---@return string[]
function M.fixed(node)
  local out, places = {}, {}
  check_map(node, "set")
  texts.each(node, function(key, inner)
    check_key(key, inner)
    put(out, places, key, inner, key .. "=" .. texts.of(inner))
  end)
  return out
end

return M
