--- The functions that a model brings with it (ModelProto.functions): a node of such
--- a domain and name runs a graph, in which attributes of the node stand where the
--- function's own nodes refer to them.
local errors = require("lupine.base.errors")
local proto = require("lupine.onnx.proto")

local M = {}

--- Nodes that may be planned again because functions are called with attributes.
M.MOST_COPIES = 16384
--- Nodes that one run of a graph may have, those of all calls counted.
M.MOST_NODES = 1 << 20

local function key_of(domain, name)
  return proto.domain(domain) .. "\0" .. name
end

--- The functions of a model, for find.
--- error: ValueError for one that is there twice
---@param list table[]? FunctionProto
---@return table
function M.index(list)
  local out = {}
  for _, f in ipairs(list or {}) do
    local key = key_of(f.domain, f.name or "")
    errors.check(not out[key], "ValueError", "the model has two functions '%s' of the domain '%s'",
      tostring(f.name), proto.domain(f.domain))
    out[key] = f
  end
  return out
end

--- The function that a node calls; nil: none.
---@param index table
---@param node table NodeProto
---@return table? FunctionProto
function M.find(index, node)
  return index[key_of(node.domain, node.op_type or "")]
end

local replaced

-- An attribute of a function's node as it is in a call; nil: it is left out.
local function attribute_of(attribute, given)
  local from = attribute.ref_attr_name or ""
  local value = from ~= "" and given[from] or from == "" and attribute
  if not value then
    return nil
  end
  local out = {}
  for key, x in pairs(value) do
    out[key] = x
  end
  out.name = attribute.name
  if from == "" and out.g then
    out.g = replaced(out.g, given)
  end
  return out
end

-- A graph whose nodes refer to attributes of a call, with these.
function replaced(graph, given)
  local out = { node = {} }
  for key, x in pairs(graph) do
    out[key] = out[key] or x
  end
  for i, node in ipairs(graph.node or {}) do
    local copy, attributes = {}, {}
    for key, x in pairs(node) do
      copy[key] = x
    end
    for _, attribute in ipairs(node.attribute or {}) do
      attributes[#attributes + 1] = attribute_of(attribute, given)
    end
    copy.attribute = attributes
    out.node[i] = copy
  end
  return out
end

local function named(list)
  local out = {}
  for i, name in ipairs(list or {}) do
    out[i] = { name = name }
  end
  return out
end

--- The graph that a call of a function runs.
--- error: ValueError for an attribute that the function does not have
---@param f table FunctionProto
---@param node table NodeProto that calls it
---@return table GraphProto
function M.graph(f, node)
  local known, given = {}, {}
  for _, name in ipairs(f.attribute or {}) do
    known[name] = true
  end
  for _, attribute in ipairs(node.attribute or {}) do
    local name = attribute.name or ""
    errors.check(known[name] or name:find("^__"), "ValueError",
      "the function '%s' has no attribute '%s'", tostring(f.name), name)
    given[name] = attribute
  end
  return replaced({ name = f.name, node = f.node, input = named(f.input),
    output = named(f.output) }, given)
end

return M
