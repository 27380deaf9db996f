--- What functions of ONNX's operators ask of their inputs and attributes. Each
--- raises an error of the node that names what is wrong.
local core = require("lupine.core")

local M = {}

--- The name of an input in the operator's signature.
---@param n lupine.onnx.Node
---@param i integer
---@return string
function M.name(n, i)
  local inputs = n.plan.operator.schema.inputs
  local row = inputs[i] or inputs[#inputs]
  return row.variadic and ("%s[%d]"):format(row.name, i - #inputs) or row.name
end

--- A shape as messages show it.
---@param t torch.Tensor
---@return string
function M.shown(t)
  return "[" .. table.concat(t.shape, ", ") .. "]"
end

local function of_kind(ok, n, i, allowed)
  return n:check(ok(n.inputs[i].dtype), "input '%s' is %s. Allowed: %s", M.name(n, i),
    tostring(n.inputs[i].dtype), allowed) and n.inputs[i]
end

local function is_floating(dtype)
  return dtype.is_floating_point
end

local function is_bool(dtype)
  return dtype == core.dtypes.bool
end

local function is_integer(dtype)
  return not is_floating(dtype) and not is_bool(dtype)
end

--- An input, which must be of floating point.
---@param n lupine.onnx.Node
---@param i integer
---@return torch.Tensor
function M.floating(n, i)
  return of_kind(is_floating, n, i, "floating point")
end

--- An input, which must be of truth values.
---@param n lupine.onnx.Node
---@param i integer
---@return torch.Tensor
function M.bool(n, i)
  return of_kind(is_bool, n, i, "bool")
end

--- An input, which must be of integers.
---@param n lupine.onnx.Node
---@param i integer
---@return torch.Tensor
function M.integer(n, i)
  return of_kind(is_integer, n, i, "integers")
end

local D = core.dtypes
local NARROWED = { [D.int64] = D.int32, [D.float64] = D.float32 }

-- Inputs of a program for IPUs are narrowed before, its constants are not.
local function alike(a, b)
  return a == b or core.is_tracing() and (NARROWED[a] or a) == (NARROWED[b] or b)
end

--- Raises unless inputs i and j, if both are there, are of one type.
---@param n lupine.onnx.Node
---@param i integer
---@param j integer
function M.same_type(n, i, j)
  local a, b = n.inputs[i], n.inputs[j]
  if a and b and not alike(a.dtype, b.dtype) then
    n:fail("inputs '%s' and '%s' must be of one type, got %s and %s", M.name(n, i), M.name(n, j),
      tostring(a.dtype), tostring(b.dtype))
  end
end

--- Raises unless inputs 1 to `last`, those that are there, are of one type.
---@param n lupine.onnx.Node
---@param last integer
function M.one_type(n, last)
  for i = 2, last do
    M.same_type(n, 1, i)
  end
end

-- The size in dimension -i of both; nil if they do not go together.
local function common(a, b)
  a, b = a or 1, b or 1
  return a == 1 and b or (b == 1 or a == b) and a or nil
end

--- Raises unless two inputs broadcast to a common shape.
---@param n lupine.onnx.Node
---@param i integer
---@param j integer
function M.broadcast(n, i, j)
  local a, b = n.inputs[i], n.inputs[j]
  local of_a, of_b = a:dim(), b:dim()
  for back = 1, math.min(of_a, of_b) do
    n:check(common(a:size(-back), b:size(-back)),
      "inputs '%s' of the shape %s and '%s' of the shape %s do not broadcast", M.name(n, i),
      M.shown(a), M.name(n, j), M.shown(b))
  end
end

--- Raises unless input i broadcasts to the shape of input j.
---@param n lupine.onnx.Node
---@param i integer
---@param j integer
function M.broadcast_to(n, i, j)
  local a, b = n.inputs[i], n.inputs[j]
  local ok = a:dim() <= b:dim()
  for back = 1, ok and a:dim() or 0 do
    ok = ok and (a:size(-back) == 1 or a:size(-back) == b:size(-back))
  end
  n:check(ok, "input '%s' of the shape %s does not broadcast to '%s' of the shape %s",
    M.name(n, i), M.shown(a), M.name(n, j), M.shown(b))
end

--- What gives a node's axes, in messages: its attribute, or from some version on its input.
---@param n lupine.onnx.Node
---@return string
function M.giver(n)
  return n.attr.axes and "attribute 'axes'" or "input 'axes'"
end

--- Dimensions counted from the front, each once.
---@param n lupine.onnx.Node
---@param axes integer[]
---@param rank integer
---@return integer[]
function M.axes(n, axes, rank)
  local out, seen, what = {}, {}, M.giver(n)
  for i, axis in ipairs(axes) do
    out[i] = n:axis(axis, rank, what)
    n:check(not seen[out[i]], "%s names dimension %d twice", what, out[i])
    seen[out[i]] = true
  end
  return out
end

--- An input of one element: a number if it is a constant, else a tensor without
--- dimensions.
---@param n lupine.onnx.Node
---@param i integer
---@return number|torch.Tensor|nil
function M.scalar(n, i)
  local t = n.inputs[i]
  if not t then
    return nil
  end
  n:check(t:numel() == 1, "input '%s' has the shape %s. Allowed: one element", M.name(n, i),
    M.shown(t))
  if n.scope:is_known(n.plan.inputs[i]) and not t.is_meta then
    return n:number(i)
  end
  return t:reshape({})
end

--- An attribute that is 0 or 1.
---@param n lupine.onnx.Node
---@param name string
---@return boolean
function M.flag(n, name)
  local value = n.attr[name]
  n:check(value == 0 or value == 1, "attribute '%s' is %s. Allowed: 0, 1", name, tostring(value))
  return value == 1
end

--- An attribute that is one of some words.
---@param n lupine.onnx.Node
---@param name string
---@param ... string
---@return string
function M.word(n, name, ...)
  local value, list = n.attr[name], { ... }
  for _, allowed in ipairs(list) do
    if value == allowed then
      return value
    end
  end
  return n:fail("attribute '%s' is '%s'. Allowed: '%s'", name, tostring(value),
    table.concat(list, "', '"))
end

return M
