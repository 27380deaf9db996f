--- Calls of einsum and tensordot that a form cannot spell: sublists in place
--- of an equation, and lists of dimensions.
---
--- A sublist numbers the dimensions of the operand before it, 0 to 51, with
--- torch.ellipsis for "...": torch.einsum(x, {0, 1}, y, {1, 2}, {0, 2}).
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}
local functions, internal = core.forms.functions, core.forms.internal

local LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

local function subscripts(list, what)
  errors.check(type(list) == "table", "TypeError",
    "einsum(): %s must be a list of dimensions, as in {0, 1}", what)
  local out = {}
  for i, label in ipairs(list) do
    if label == core.ellipsis then
      out[i] = "..."
    else
      errors.check(math.type(label) == "integer" and label >= 0 and label < #LETTERS,
        "ValueError", "einsum(): %s has the subscript %s; it must be an integer from 0 to 51 "
        .. "or torch.ellipsis", what, tostring(label))
      out[i] = LETTERS:sub(label + 1, label + 1)
    end
  end
  return table.concat(out)
end

-- operand, list, …, maybe the result's list -> equation, operands
local function from_sublists(...)
  local n, args = select("#", ...), { ... }
  local parts, operands = {}, {}
  for i = 1, n - 1, 2 do
    operands[#operands + 1] = args[i]
    parts[#parts + 1] = subscripts(args[i + 1], "the list after operand " .. #operands - 1)
  end
  local equation = table.concat(parts, ",")
  if n % 2 == 1 then
    equation = equation .. "->" .. subscripts(args[n], "the result's list")
  end
  return equation, operands
end

--- Products of elements whose letters agree, summed over the letters that the
--- result lacks: einsum("ij,jk->ik", a, b), a list of operands, or operands each
--- followed by a list of numbers. errors: ValueError, RuntimeError
--- Source: PyTorch documentation, torch.einsum
---@param first string|torch.Tensor the equation, or the first operand
---@param ... any operands and lists of numbers
---@return torch.Tensor
function M.einsum(first, ...)
  if core.is_tensor(first) then
    return functions.einsum(from_sublists(first, ...))
  end
  if type(first) == "string" and core.is_tensor((...)) then
    return functions.einsum(first, { ... })
  end
  return functions.einsum(first, ...)
end

-- {{0, 1}, {2, 0}}, or {{0}, {1}}: lists of both tensors.
local function pair_of_lists(dims)
  return type(dims) == "table" and #dims == 2 and type(dims[1]) == "table"
    and type(dims[2]) == "table"
end

-- Contracts over lists, with the keywords beside dims.
local function over_lists(a, b, of_a, of_b, given)
  local keywords = { dims_self = of_a, dims_other = of_b }
  for key, value in pairs(type(given) == "table" and given or {}) do
    if key ~= "dims" then
      keywords[key] = value
    end
  end
  return internal.tensordot_lists(a, b, keywords)
end

--- Sums of products over dimensions of both: the last `dims` of a with the first
--- of b, or those of two lists. Source: PyTorch documentation, torch.tensordot
---@param a torch.Tensor
---@param b torch.Tensor
---@param dims integer|integer[][]|{dims: integer[][]}
---@param ... any keywords
---@return torch.Tensor
function M.tensordot(a, b, dims, ...)
  local lists, keywords = dims, (...)
  if type(dims) == "table" and type(dims.dims) == "table" then
    lists, keywords = dims.dims, dims
  end
  if pair_of_lists(lists) then
    return over_lists(a, b, lists[1], lists[2], keywords)
  end
  if type(lists) == "table" and #lists == 2 and math.type(lists[1]) == "integer"
    and math.type(lists[2]) == "integer" then
    return over_lists(a, b, { lists[1] }, { lists[2] }, keywords)
  end
  return functions.tensordot(a, b, dims, ...)
end

return M
