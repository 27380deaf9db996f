--- Outputs of classifiers and the classes that were due, brought to one form: scores of
--- classes as a matrix with a row for each decision, or decisions.
---
---   output [N, C, d…], target [N, d…]   scores, classes in dimension 1 (as CrossEntropyLoss)
---   output [N, d…, C], target [N, d…]   scores, classes in the last one
---   output [N, d…],    target [N, d…]   integers: decisions; floats: logits of a yes,
---                                       which is above `threshold` (0)
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local function without(shape, dim)
  local out = {}
  for i, n in ipairs(shape) do
    out[#out + 1] = i ~= dim + 1 and n or nil
  end
  return table.concat(out, " ")
end

local function text(shape)
  return table.concat(shape, " ")
end

local function sizes(t)
  return { table.unpack(t.shape) }
end

-- The dimension of the classes; nil: there is none.
local function class_dim(output, target, where)
  local shape, wanted = sizes(output), text(sizes(target))
  if #shape == target:dim() + 1 then
    for _, dim in ipairs({ #shape > 1 and 1 or 0, #shape - 1 }) do
      if without(shape, dim) == wanted then
        return dim
      end
    end
  elseif text(shape) == wanted then
    return nil
  end
  return errors.raise("ValueError", "%s: expected an output [N, C, …], [N, …, C] or [N, …] for a "
    .. "target [N, …], got %s and %s", where, tostring(output.shape), tostring(target.shape))
end

local function check_tensors(output, target, where)
  for name, t in pairs({ output = output, target = target }) do
    errors.check(core.is_tensor(t), "TypeError", "%s: %s: expected a tensor, got %s", where, name,
      check.describe(t))
  end
end

--- Scores as a matrix and classes as a vector; or, where the output has no scores of
--- classes, nil and both as they are.
--- errors: TypeError, ValueError for shapes that do not fit
---@param output torch.Tensor
---@param target torch.Tensor
---@param where string for messages
---@return torch.Tensor? scores [M, C]
---@return torch.Tensor target [M] int64
---@return torch.Tensor output without a history
function M.scores(output, target, where)
  check_tensors(output, target, where)
  output = output:detach()
  if output:dim() == target:dim() + 1 and output:size(-1) == 1 then -- one logit each
    output = output:squeeze(-1)
  end
  local dim = class_dim(output, target, where)
  local flat = target:detach():reshape(-1):long()
  if not dim then
    return nil, flat, output:reshape(-1)
  end
  local scores = dim == output:dim() - 1 and output or output:movedim(dim, -1)
  return scores:reshape(-1, scores:size(-1)), flat, output
end

--- Outputs [N, L, C] of a language model and its tokens [N, L], each output beside the
--- token that comes next.
--- error: ValueError for other shapes
---@param output torch.Tensor
---@param tokens torch.Tensor
---@param where string
---@return torch.Tensor output, torch.Tensor target
function M.shifted(output, tokens, where)
  check_tensors(output, tokens, where)
  errors.check(output:dim() == 3 and tokens:dim() == 2 and output:size(1) == tokens:size(1)
    and tokens:size(1) > 1, "ValueError", "%s: shift: expected an output [N, L, C] and a target "
    .. "[N, L] with L of 2 or more, got %s and %s", where, tostring(output.shape),
    tostring(tokens.shape))
  local n = tokens:size(1) - 1
  return output:narrow(1, 0, n), tokens:narrow(1, 1, n)
end

--- Decisions and the classes that were due, without those that are not looked at, and
--- how many classes there are, if that is known.
---@param output torch.Tensor
---@param target torch.Tensor
---@param o {threshold: number?, ignore_index: integer?}
---@param where string
---@return torch.Tensor decided, torch.Tensor target, integer? classes
function M.decided(output, target, o, where)
  local scores, due, flat = M.scores(output, target, where)
  local decided, classes
  if scores then
    decided, classes = scores:argmax(1), scores:size(1)
  elseif flat:is_floating_point() then
    decided, classes = flat:gt(o.threshold or 0):long(), 2
  else
    decided = flat:long()
  end
  if o.ignore_index then
    local looked = due:ne(o.ignore_index)
    decided, due = decided:masked_select(looked), due:masked_select(looked)
  end
  return decided, due, classes
end

return M
