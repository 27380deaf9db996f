--- What a loader gives and what a model returns, as all engines and metrics see it.
local core = require("lupine.core")
local inputs = require("lupine.training_step.inputs")
local loop = require("torch.utils.data.loop")

local M = {}

local function is_plain(value)
  return type(value) == "table" and not getmetatable(value)
end

-- The first tensor of a value, depth first; a table's names in their order.
local function first_tensor(value)
  if core.is_tensor(value) then
    return value
  elseif not is_plain(value) then
    return nil
  end
  for _, key in ipairs(#value > 0 and value or require("lupine.base.tables").keys(value)) do
    local found = first_tensor(#value > 0 and key or value[key])
    if found then
      return found
    end
  end
  return nil
end

--- How many samples a batch has: rows of its first tensor.
---@param values {n: integer}
---@return integer
function M.samples(values)
  for i = 1, values.n do
    local t = first_tensor(values[i])
    if t then
      return t:dim() > 0 and t:size(0) or 1
    end
  end
  return 0
end

--- The values of the next batch, packed; n is 0 at the end. A batch that is a list is
--- several values.
---@param step fun(): any ...
---@return {n: integer}
function M.next(step)
  local values = table.pack(step())
  if values[1] == nil then
    return { n = 0 }
  elseif values.n == 1 and loop.is_list(values[1]) then
    return table.pack(loop.spread(values[1]))
  end
  return values
end

local function cast(value, dtype)
  if core.is_tensor(value) then
    return value:is_floating_point() and value:to(dtype) or value
  elseif not is_plain(value) then
    return value
  end
  local out = {}
  for key, v in pairs(value) do
    out[key] = cast(v, dtype)
  end
  return out
end

--- Floating tensors of a batch in another type.
---@param values {n: integer}
---@param dtype torch.dtype|false
---@return {n: integer}
function M.cast(values, dtype)
  if not dtype then
    return values
  end
  local out = { n = values.n }
  for i = 1, values.n do
    out[i] = cast(values[i], dtype)
  end
  return out
end

--- A batch's arguments of the model, and those of the loss.
--- error: TypeError for too few
---@param step {_targets: string[], _parameters: string[]}
---@param values {n: integer}
---@return {n: integer} of_model, {n: integer} of_loss
function M.split(step, values)
  if #step._targets == 0 then
    return values, { n = 0 }
  end
  return inputs.split(step, table.pack(table.unpack(values, 1, values.n)))
end

local LABELS = { "labels", "label", "targets", "target", "y" }

--- What metrics compare outputs with: the loss's first argument, or where forward has
--- the loss the batch's last value or the one that is called labels or target.
---@param step table
---@param values {n: integer}
---@return any
function M.target(step, values)
  if #step._targets > 0 then
    return select(2, M.split(step, values))[1]
  end
  local last = values[values.n]
  if is_plain(last) and #last == 0 then
    for _, name in ipairs(LABELS) do
      if last[name] ~= nil then
        return last[name]
      end
    end
    return nil
  end
  return values.n > 1 and last or nil
end

local OUTPUTS = { "logits", "output", "out", "prediction" }

--- What metrics look at: forward's first result that is not the loss; of a table the
--- field `logits` or `output`, or its first tensor.
---@param results {n: integer} of forward
---@param loss torch.Tensor? that is one of them
---@return any
function M.output(results, loss)
  for i = 1, results.n do
    local r = results[i]
    if is_plain(r) and #r == 0 then
      for _, name in ipairs(OUTPUTS) do
        if r[name] ~= nil then
          return r[name]
        end
      end
    elseif r ~= nil and not rawequal(r, loss) then
      return is_plain(r) and first_tensor(r) or r
    end
  end
  return nil
end

local function is_scalar(t)
  return core.is_tensor(t) and t:is_floating_point() and t:numel() == 1
end

--- The loss that forward returned, where nothing has a gradient: the field `loss`, or
--- the last scalar.
---@param results {n: integer}
---@return torch.Tensor?
function M.loss(results)
  for i = results.n, 1, -1 do
    local r = results[i]
    if is_plain(r) and r.loss ~= nil then
      return r.loss
    elseif is_scalar(r) then
      return r
    end
  end
  return nil
end

--- A loss as a number: a tensor's mean, the sum of a table's.
---@param loss any
---@return number?
function M.number(loss)
  if core.is_tensor(loss) then
    return loss:numel() == 1 and loss:item() or loss:double():mean():item()
  elseif not is_plain(loss) then
    return type(loss) == "number" and loss or nil
  end
  local sum
  for _, part in pairs(loss) do
    sum = (sum or 0) + (M.number(part) or 0)
  end
  return sum
end

return M
