--- Runs a node in all three ways and sees that they agree:
---
---     local both = require("spec.lupine.onnx.both")
---     local y = both("CumSum", { x, axis }, { reverse = 1 }, { constants = { [2] = true } })
---
--- eagerly (the outputs that it returns), under lupine.compile (the same elements), and
--- on the device "meta" (the same shapes and types). Arguments are those of
--- spec/lupine/onnx/node.lua.
local graphs = require("spec.lupine.onnx.graphs")
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local M = {}

--- A nested list of a tensor's elements, in one row.
---@param t torch.Tensor
---@return number[]
function M.flat(t)
  return setmetatable(t:reshape({ -1 }):tolist(), nil)
end

--- fn of the elements of tensors, broadcast, as a list in one row.
---@param fn fun(...: number): number|boolean
---@param ... torch.Tensor
---@return (number|boolean)[]
function M.map(fn, ...)
  local lists = {}
  for i, t in ipairs(torch.broadcast_tensors(...)) do
    lists[i] = M.flat(t)
  end
  local out = {}
  for i = 1, #lists[1] do
    local args = {}
    for k, list in ipairs(lists) do
      args[k] = list[i]
    end
    out[i] = fn(table.unpack(args))
  end
  return out
end

--- The elements of t are those of the list, in a row.
---@param t torch.Tensor
---@param list (number|boolean)[]
---@param tol? number[]
function M.near(t, list, tol)
  helper.near(t:reshape({ -1 }), list, tol)
end

M.refuses = node.refuses

--- The gradients of a node's first output are those of differences, in float64.
---@param op string
---@param inputs torch.Tensor[]
---@param values? table<string, any>
---@param options? table
function M.gradients(op, inputs, values, options)
  local leaves = {}
  for i, t in ipairs(inputs) do
    leaves[i] = t and t.dtype.is_floating_point and t:double():requires_grad_(true) or t
  end
  local model, given = node.model(op, leaves, values, options)
  for _, t in ipairs(given) do
    if t.dtype.is_floating_point then
      t:requires_grad_(true)
    end
  end
  assert(torch.autograd.gradcheck(function(...)
    return (model(...))
  end, given))
end

return setmetatable(M, { __call = function(_, op, inputs, values, options)
  return graphs.both(node.model(op, inputs, values, options))
end })
