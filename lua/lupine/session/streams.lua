--- What goes into and comes out of a session's runs: inputs, which groups of
--- replicas may share; results, inputs that the step wrote, and anchors, each
--- with its mode.
---
--- Rows of the host's tensors are in the order [device iteration]
--- [accumulation step][replica, or input group][rows of a micro-batch].
local core = require("lupine.core")

local M = {}

-- For each slice that the program reads the host's slice, where replicas of a
-- group share one: consecutive replica r reads group r // size, an orthogonal
-- one group r % groups. nil where each replica has its own.
local function group_order(step, grouping)
  local size = grouping.size
  if size == 1 then
    return nil
  end
  local iterations, accumulation, replicas = step:loops()
  local groups, order, steps = replicas // size, {}, iterations * accumulation
  for at = 0, steps - 1 do
    for r = 0, replicas - 1 do
      order[#order + 1] = at * groups + (grouping.orthogonal and r % groups or r // size)
    end
  end
  return order, steps * groups
end

--- Sorts the variables of a completed step: inputs, outputs (results),
--- written_inputs (of: the input's number), anchors (index: the variable), and
--- modes by variable.
---@param step lupine.Step
---@param vars table[] of the step, each with its index
---@param spec table what lupine.Session keeps: anchors, output, input_groups
---@return table streams
function M.sort(step, vars, spec)
  local s = { inputs = {}, outputs = {}, written_inputs = {}, anchors = {}, modes = {} }
  s.order, s.slices = group_order(step, spec.input_groups)
  local outputs, anchors, every = {}, spec.anchors, spec.output
  for _, v in ipairs(vars) do
    local list = v.role == "input" and s.inputs or v.role == "output" and outputs or {}
    list[#list + 1] = v
  end
  local own = #outputs - #anchors
  for i, v in ipairs(outputs) do
    local anchor = anchors[i - own]
    local list = anchor and s.anchors or v.of > 0 and s.written_inputs or s.outputs
    list[#list + 1] = v
    s.modes[v.index] = anchor and { mode = anchor.mode or every.mode, period = anchor.period }
      or v.of > 0 and { mode = "all", period = 1 } or every
  end
  return s
end

-- The slices of a tensor that has `count` of them, in the order of `picked`
-- (from 0).
local function pick(tensor, picked, count)
  local scalars = tensor:dim() == 0
  local rows = scalars and 1 or tensor:size(0) // count
  local rest = scalars and {} or { table.unpack(tensor.shape, 2) }
  return tensor:reshape({ count, rows, table.unpack(rest) })
    :index_select(0, core.tensor(picked, { dtype = core.dtypes.int32 }))
    :reshape({ #picked * rows, table.unpack(rest) })
end

-- The host's rows as the program reads them.
local function spread(s, tensor)
  return s.order and pick(tensor, s.order, s.slices) or tensor
end

--- The host's rows from those of all replicas: of a group the first replica's.
---@param s table from sort
---@param tensor torch.Tensor
---@return torch.Tensor
function M.gather(s, tensor)
  if not s.order then
    return tensor
  end
  local first, at = {}, {}
  for i, slice in ipairs(s.order) do
    if not first[slice] then
      first[slice] = true
      at[slice + 1] = i - 1
    end
  end
  return pick(tensor, at, #s.order)
end

--- What a run reads, by variable.
---@param s table from sort
---@param tensors torch.Tensor[] one for each input
---@return table<integer, torch.Tensor>
function M.feed(s, tensors)
  local feed = {}
  for i, v in ipairs(s.inputs) do
    feed[v.index] = spread(s, tensors[i])
  end
  return feed
end

--- The same where nothing comes from the host: floating inputs are normal
--- numbers, others are 0 (any class id or index allows that).
---@param s table from sort
---@param tensors torch.Tensor[] one for each input, of its size and type
---@param seed integer
---@return table<integer, torch.Tensor>
function M.synthetic(s, tensors, seed)
  local torch = require("torch")
  local g = torch.Generator()
  g:manual_seed(seed)
  local feed = M.feed(s, tensors)
  for _, v in ipairs(s.inputs) do
    local t = feed[v.index]
    feed[v.index] = t:is_floating_point()
      and torch.randn(t.shape, { generator = g, dtype = t.dtype }) or torch.zeros_like(t)
  end
  return feed
end

return M
