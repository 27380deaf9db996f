--- The operators of ONNX models, in one table: domain, name, version -> signature
--- and what computes it, out of torch's functions.
---
--- A family of them is a file of operators/, which gets a function `op`:
---
---     op("LeakyRelu(X; alpha: float = 0.01) -> (Y)", { 6, 16 }, function(n, x)
---       return F.leaky_relu(x, n.attr.alpha)
---     end)
---
--- The numbers are the versions of the operator set that changed it and that this
--- signature and function are right for; a model written with version v has the
--- row of the greatest number up to v. The function gets the node (graph.lua:
--- Node), then the inputs, nil for those that are left out, and returns the outputs.
--- The inputs are tensors of the host, of the device "meta" or of a trace: the same
--- function computes, infers shapes and builds a program. What decides the shape of
--- a result (a new shape, axes, sizes, repeats) must be known then: n:ints(i),
--- n:number(i), n:value(i) read such an input.
local errors = require("lupine.base.errors")
local library = require("lupine.onnx.library")
local schema = require("lupine.onnx.schema")
local tables = require("lupine.base.tables")

local M = {}

-- domain -> name -> rows, the newest first
local table_of = {}

---@class lupine.onnx.Operator
---@field schema lupine.onnx.Schema
---@field since integer
---@field run fun(n: lupine.onnx.Node, ...: torch.Tensor?): ...
---@field shape_only boolean? the result follows from shapes alone
---@field random boolean? draws numbers, or what it gives differs between replicas
---@field effect boolean? does more than compute
---@field constants table<integer, true>? inputs that must be known
---@field buffers table<integer, true>? inputs that are no parameters: running statistics
---@field updates table<integer, true>? inputs that it writes
---@field calls string? the attribute whose graph gets its inputs, one for one
---@field internal table<integer, true>? outputs that only the original's own passes read,
---  and that it need not give

local function define(domain, text, versions, run, flags)
  local parsed = schema.parse(text)
  local names = table_of[domain] or {}
  table_of[domain] = names
  names[parsed.name] = names[parsed.name] or {}
  for _, since in ipairs(type(versions) == "table" and versions or { versions }) do
    local row = { schema = parsed, since = since, run = run }
    for key, value in pairs(flags or {}) do
      row[key] = value
    end
    table.insert(names[parsed.name], row)
  end
  table.sort(names[parsed.name], function(a, b)
    return a.since > b.since
  end)
end

--- Adds a family: its file returns a function that gets `op`.
---@param domain string "" is ONNX's own
---@param family fun(op: fun(text: string, versions: integer|integer[], run: function,
---  flags?: table))
function M.add(domain, family)
  family(function(...)
    define(domain, ...)
  end)
end

local FAMILIES = {
  { "", "activation" },
  { "", "arithmetic" },
  { "", "control" },
  { "", "conv" },
  { "", "index" },
  { "", "loss" },
  { "", "normalization" },
  { "", "parts" },
  { "", "pointwise" },
  { "", "pool" },
  { "", "product" },
  { "", "quantize" },
  { "", "random" },
  { "", "recurrent" },
  { "", "reduce" },
  { "", "resize" },
  { "", "sampling" },
  { "", "shape" },
  { "", "signal" },
  { "ai.onnx.preview.training", "training" },
  { "ai.graphcore", "graphcore" },
  { "ai.graphcore", "graphcore_collectives" },
  { "ai.graphcore", "graphcore_control" },
  { "ai.graphcore", "graphcore_nn" },
  { "ai.graphcore", "graphcore_parts" },
}

local function load_families()
  for _, row in ipairs(FAMILIES) do
    M.add(row[1], require("lupine.onnx.operators." .. row[2]))
  end
  load_families = function() end
end

--- The operator of a node in a model with this version of its domain's operators;
--- nil: there is none.
---@param domain string
---@param name string
---@param version integer
---@return lupine.onnx.Operator?
function M.find(domain, name, version)
  load_families()
  for _, row in ipairs((table_of[domain] or {})[name] or {}) do
    if row.since <= version then
      return row
    end
  end
  return library.find(domain, name, version)
end

--- The names of a domain's operators, sorted.
---@param domain string
---@return string[]
function M.names(domain)
  load_families()
  local list = {}
  for name in pairs(table_of[domain] or {}) do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

--- Calls fn(domain, name, row) for each operator in each of its versions, in order.
---@param fn fun(domain: string, name: string, row: lupine.onnx.Operator)
function M.each(fn)
  load_families()
  for _, domain in ipairs(tables.keys(table_of)) do
    for _, name in ipairs(M.names(domain)) do
      local rows = table_of[domain][name]
      for i = #rows, 1, -1 do
        fn(domain, name, rows[i])
      end
    end
  end
end

--- Why there is no such operator.
---@param domain string
---@param name string
---@param version integer?
---@return string
function M.why(domain, name, version)
  load_families()
  local known = (table_of[domain] or {})[name]
  local shown = domain == "" and name or domain .. "." .. name
  if not version then
    return ("%s: the model names no version of the operators of '%s'"):format(shown,
      domain == "" and "ai.onnx" or domain)
  end
  return known and ("%s of version %d; it is there from version %d on"):format(shown, version,
    known[#known].since) or shown
end

--- Raises for operators that are not there, all at once.
---@param missing string[] M.why's
function M.refuse(missing)
  if #missing > 0 then
    errors.raise("NotImplementedError", "the model uses operators that are not supported: %s",
      table.concat(missing, ", "))
  end
end

return M
