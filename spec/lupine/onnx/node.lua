--- Runs one node of a model on tensors:
---
---     local node = require("spec.lupine.onnx.node")
---     local y = node("Conv", { x, w, b }, { pads = { 1, 1, 1, 1 } }, { version = 11 })
---
--- An input of `false` is left out. The last argument may have `domain` (""),
--- `version` of the domain's operators (17; 1 of others), `outputs` (how many, or their
--- names, "" for one that is not wanted), `constants` (index of an input -> true: it is
--- an initializer), `training` (the model is in training mode), `compiled` (it runs
--- under lupine.compile), `opsets` (domain -> version, of what bodies use).
local compile = require("lupine.compile")
local graphs = require("spec.lupine.onnx.graphs")
local helper = require("spec.helper")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local M = {}

local function names_of(outputs)
  if type(outputs) == "table" then
    return outputs
  end
  local list = {}
  for i = 1, outputs or 1 do
    list[i] = "y" .. i
  end
  return list
end

--- The model of one node, and the tensors that it takes.
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any> attributes
---@param options? table
---@return lupine.onnx.Module
---@return torch.Tensor[]
function M.model(op, inputs, values, options)
  options = options or {}
  local domain = options.domain or ""
  local version = options.version or domain == "" and 17 or 1
  local graph = { name = op, input = {}, output = {}, initializer = {}, node = {} }
  local node = graphs.node(domain, op, version, values)
  node.output = names_of(options.outputs)
  local given = {}
  for i, t in ipairs(inputs) do
    node.input[i] = t and "x" .. i or ""
    if t and (options.constants or {})[i] then
      table.insert(graph.initializer, tensors.write(node.input[i], t))
    elseif t then
      table.insert(graph.input, proto.info(node.input[i], t.dtype, t.shape))
      given[#given + 1] = t
    end
  end
  for _, name in ipairs(node.output) do
    if name ~= "" then
      table.insert(graph.output, { name = name })
    end
  end
  graph.node[1] = node
  local opsets = { [domain] = version }
  for name, of in pairs(options.opsets or {}) do
    opsets[name] = of
  end
  return graphs.load(graph, opsets):train(options.training or false), given
end

--- Runs a node: its outputs that are wanted.
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any> attributes
---@param options? table
---@return ... torch.Tensor
function M.run(op, inputs, values, options)
  local model, given = M.model(op, inputs, values, options)
  local run = options and options.compiled and compile(model, given) or model
  return run(table.unpack(given))
end

--- A node that is refused with a ValueError, or an error of the class `options.error`,
--- whose message has the text.
---@param text string
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any>
---@param options? table
function M.refuses(text, op, inputs, values, options)
  helper.refuses((options or {}).error or "ValueError", (text:gsub("%p", "%%%0")), M.run, op,
    inputs, values, options)
end

-- Copies, of which those that can have gradients.
local function leaves(inputs, infer)
  local list = {}
  for i, t in ipairs(inputs) do
    list[i] = t and t:clone() or false
    if t and not infer then
      list[i]:requires_grad_(t:is_floating_point())
    end
  end
  return list
end

-- Sums the results, each element with a weight of its own, and goes back.
local function backward(results)
  local sum
  for _, y in ipairs(results) do
    if y:is_floating_point() and y.requires_grad then
      local weights = (torch.arange(y:numel()) * 0.7 + 1):sin():to(y.dtype):reshape(y.shape)
      sum = sum and sum + (y * weights):sum() or (y * weights):sum()
    end
  end
  if sum then
    sum:backward()
  end
end

local function near(what, got, want, tolerance)
  assert(got.dtype == want.dtype, ("%s is %s, not %s"):format(what, tostring(got.dtype),
    tostring(want.dtype)))
  assert(tostring(got.shape) == tostring(want.shape), ("%s has the shape %s, not %s"):format(what,
    tostring(got.shape), tostring(want.shape)))
  helper.near(got:detach(), want:detach(), tolerance)
end

-- The types of the results follow from those of the inputs.
local function check_outline(op, inputs, values, options, got)
  local model, given = M.model(op, inputs, values, options)
  for i, t in ipairs(given) do
    given[i] = torch.empty(t.shape, { dtype = t.dtype, device = "meta" })
  end
  for i, y in ipairs({ model(table.unpack(given)) }) do
    assert(y.dtype == got[i].dtype and tostring(y.shape) == tostring(got[i].shape),
      ("result %d of %s is inferred as %s %s"):format(i, op, tostring(y.dtype),
        tostring(y.shape)))
  end
end

--- A node has the results of a function of its inputs, and their gradients; compiled the
--- same results, whose types are inferred. Options are those of model(), and `infer` (no
--- gradients are asked for), `tolerance` (as helper.near's).
---@param reference fun(...: torch.Tensor): ...
---@param op string
---@param inputs (torch.Tensor|false)[]
---@param values? table<string, any>
---@param options? table
function M.agrees(reference, op, inputs, values, options)
  options = options or {}
  local mine, theirs = leaves(inputs, options.infer), leaves(inputs, options.infer)
  local want = { reference(table.unpack(theirs)) }
  options = setmetatable({ outputs = options.outputs or #want }, { __index = options })
  local got = { M.run(op, mine, values, options) }
  check_outline(op, inputs, values, options, got)
  options.compiled = true
  local compiled = { M.run(op, leaves(inputs, true), values, options) }
  for i, y in ipairs(want) do
    near(("result %d of %s"):format(i, op), got[i], y, options.tolerance)
    near(("compiled result %d of %s"):format(i, op), compiled[i], y, options.tolerance)
  end
  if not options.infer then
    backward(want)
    backward({ table.unpack(got, 1, #want) })
    for i, t in ipairs(theirs) do
      if t and t.grad then
        near(("gradient %d of %s"):format(i, op), mine[i].grad, t.grad, options.tolerance)
      end
    end
  end
end

return setmetatable(M, { __call = function(_, ...)
  return M.run(...)
end })
