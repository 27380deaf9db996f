--- What a session's run does with an IStepIO: takes its inputs, gives its anchors, and
--- before the first one compares sizes. The session describes its tensors; a description is
--- a table {id, dtype, shape, steps, replicas, broadcast, value, art}:
---   steps      micro-batches of a run that read it, or values of it that a run returns
---   replicas   how many replicas read or return a value of their own
---   broadcast  of an input: all replicas read the same
---   value      of an output: what the run returned, steps x replicas values
---   art        of an output: its AnchorReturnType
--- What follows from these is kept in it: count and total, its elements in a micro-batch
--- and in a run.
---
--- Source: PopART user guide 4.1; its Python API, IStepIO.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("popart.errors")
local logging = require("popart.logging")
local stepio = require("popart.stepio")
local tables = require("lupine.base.tables")
local tensor_info = require("popart.tensor_info")
local torch = require("torch")

local M = {}

local PyStepIO = stepio.PyStepIO

local dtypes = core.dtypes

local warned = false

-- Values as the program reads them: int64 becomes int32, nothing else changes its type.
local function typed(tensor, d)
  local have = tensor.dtype
  if have == d.dtype then
    return tensor
  elseif have == dtypes.int64 and d.dtype == dtypes.int32 then
    if not warned then
      logging.warn("devicex", "Copying (host) tensor %s from INT64 to INT32. Will only warn once",
        d.id)
      warned = true
    end
    return tensor:to(dtypes.int32)
  end
  return errors.raise("popart_runtime_error", "Type discrepancy for tensor %s. User provided : %s "
    .. "and expected : %s", d.id, tensor_info.type_name(have, d.id),
    tensor_info.type_name(d.dtype, d.id))
end

-- Elements of a micro-batch.
local function elements(d)
  d.count = d.count or tensor_info.elements(d.shape)
  return d.count
end

local function buffers(d)
  return d.broadcast and 1 or d.replicas
end

-- Elements of a run.
local function total(d)
  d.total = d.total or elements(d) * d.steps * buffers(d)
  return d.total
end

-- The shape of n micro-batches.
local function stacked(d, n)
  return { n, table.unpack(d.shape) }
end

-- A tensor's elements in a shape, without history.
local function shaped(tensor, shape)
  local same = tensor:dim() == #shape
  for i, size in ipairs(shape) do
    same = same and tensor:size(i - 1) == size
  end
  tensor = tensor.requires_grad and tensor:detach() or tensor
  return same and tensor or tensor:view(shape)
end

local function check_count(tensor, n, d, what)
  if tensor:numel() ~= n then
    errors.raise("popart_runtime_error", "the %s for tensor %s has %d elements, expected %d", what,
      d.id, tensor:numel(), n)
  end
end

-- Checks what a method of an IStepIO gave.
local function check_given(io, tensor, d, method, what)
  if not core.is_tensor(tensor) then
    errors.raise("popart_runtime_error", "%s:%s('%s') returned %s: expected a tensor of %d "
      .. "elements", class.of(io).__name, method, d.id, check.describe(tensor), elements(d))
  end
  check_count(tensor, elements(d), d, what)
end

-- Are an IStepIO's methods those of PyStepIO, so that a run's values can be taken at once?
local function is_plain(io, method)
  return io[method] == PyStepIO[method] and PyStepIO:is(io)
end

-- The values of a whole run as they lie in a PyStepIO's tensor, nil where the tensor has
-- fewer or the run would begin again amid it.
local function at_once(io, d, n, side, method)
  local tensor = is_plain(io, method) and side.tensors[d.id]
  local at, size = tensor and side.at[d.id] or 0, tensor and tensor:numel()
  if not tensor or at + n > size then
    return nil
  end
  return n == size and tensor or io[method](io, d.id, n)
end

-- One micro-batch of one replica.
local function read(io, entry)
  local d = entry.d
  local n, broadcast = elements(d), d.broadcast or false
  local tensor = io:in_(d.id, n, false, broadcast, d.dtype)
  check_given(io, tensor, d, "in_", "input")
  entry.at = entry.at + 1
  entry.rows[entry.at]:copy_(shaped(typed(tensor, d), d.shape))
  io:inComplete(d.id, n, broadcast)
end

-- A run's values as the program reads them, the same for all replicas of a broadcast.
local function finish_input(d, values)
  if d.broadcast and d.replicas > 1 then
    values = values:reshape({ d.steps, 1, elements(d) }):expand({ -1, d.replicas, -1 })
      :contiguous()
  end
  d.rows = d.rows or stacked(d, d.steps * d.replicas)
  return shaped(values, d.rows)
end

-- fn(io, entry) for each buffer in order: micro-batch, tensor, replica.
local function each_buffer(entries, fn, io)
  local most = 0
  for _, entry in ipairs(entries) do
    most = math.max(most, entry.d.steps)
  end
  for step = 1, most do
    for _, entry in ipairs(entries) do
      for _ = 1, step <= entry.d.steps and buffers(entry.d) or 0 do
        fn(io, entry)
      end
    end
  end
end

-- What takes the micro-batches of a run one by one.
local function begin_input(d, place)
  local values = torch.empty(stacked(d, d.steps * buffers(d)), { dtype = d.dtype })
  return { d = d, place = place, values = values, rows = values:unbind(0), at = 0 }
end

--- What a run reads: a tensor for each description, of steps x replicas values, in the
--- order of the micro-batches and of the shape `rows`: the description's behind one
--- dimension, unless it says another one.
--- error: popart_runtime_error for an input that is missing, or of another type or size;
--- what callbacks raise
---@param io popart.IStepIO
---@param list {id: string, dtype: torch.dtype, shape: integer[], steps: integer,
---  replicas: integer, broadcast: boolean?, rows: integer[]?}[]
---@return torch.Tensor[]
function M.inputs(io, list)
  local entries, out = {}, {}
  for i, d in ipairs(list) do
    local whole = at_once(io, d, total(d), io._inputs, "in_")
    if whole then
      out[i] = finish_input(d, typed(whole, d))
    else
      entries[#entries + 1] = begin_input(d, i)
    end
  end
  each_buffer(entries, read, io)
  for _, entry in ipairs(entries) do
    out[entry.place] = finish_input(entry.d, entry.values)
  end
  return out
end

local function check_type(tensor, d)
  if tensor.dtype ~= d.dtype then
    errors.raise("popart_runtime_error", "Type discrepancy for tensor %s. User provided : %s and "
      .. "expected : %s", d.id, tensor_info.type_name(tensor.dtype, d.id),
      tensor_info.type_name(d.dtype, d.id))
  end
end

-- Values -> a tensor of as many, of any shape.
local function fill(tensor, values)
  tensor = tensor.requires_grad and tensor:detach() or tensor
  local same = tensor:dim() == values:dim()
  for i = 0, same and tensor:dim() - 1 or -1 do
    same = same and tensor:size(i) == values:size(i)
  end
  tensor:copy_(same and values or values:view_as(tensor))
end

local function write(io, entry)
  local d = entry.d
  local tensor = io:out(d.id, elements(d), d.dtype)
  check_given(io, tensor, d, "out", "output")
  check_type(tensor, d)
  entry.at = entry.at + 1
  fill(tensor, entry.rows[entry.at])
  io:outComplete(d.id)
end

--- Gives what a run returned: each description's value, of steps x replicas values.
--- error: popart_runtime_error for an anchor that is missing, or of another type or size;
--- what callbacks raise
---@param io popart.IStepIO
---@param list {id: string, dtype: torch.dtype, shape: integer[], steps: integer,
---  replicas: integer, value: torch.Tensor}[]
function M.outputs(io, list)
  local entries = {}
  for _, d in ipairs(list) do
    local values = d.value:contiguous()
    check_count(values, total(d), d, "value")
    local whole = at_once(io, d, total(d), io._outputs, "out")
    if whole then
      check_type(whole, d)
      fill(whole, values)
    else
      local rows = values:view(stacked(d, d.steps * d.replicas)):unbind(0)
      entries[#entries + 1] = { d = d, rows = rows, at = 0 }
    end
  end
  each_buffer(entries, write, io)
end

--- Whether a run can give a PyStepIO what it returns: found out before it changes weights.
--- error: popart_runtime_error for an anchor that is missing, or of another type
---@param io popart.IStepIO
---@param list {id: string, dtype: torch.dtype}[]
function M.check_places(io, list)
  for _, d in ipairs(is_plain(io, "out") and list or {}) do
    check_type(io:_place(d.id), d)
  end
end

-- ---- sizes ------------------------------------------------------------------------------

local function size_error(kind, d, expected, n, counts)
  local lines = { ("Unexpected number of %s elements for Tensor %s. Expected %d, but received %d."):
    format(kind, d.id, expected, n),
    "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.", "This with, ",
    ("   replication  factor = %d"):format(counts.replicas),
    ("   accumulation factor = %d"):format(counts.accumulation),
    ("   batches per step    = %d"):format(counts.batches),
    ("   Tensor nelms        = %d"):format(elements(d)) }
  if d.art then
    lines[#lines + 1] = "The anchor return type is  " .. d.art:id().name
  end
  if d.art and d.art:id().name == "EveryN" then
    lines[#lines + 1] = ("The return period is %d"):format(d.art:rp())
  end
  errors.raise("popart_runtime_error", "%s", table.concat(lines, "\n"))
end

local function by_id(list)
  local out = {}
  for _, d in ipairs(list) do
    out[d.id] = d
  end
  return out
end

-- An input that the program does not read.
local function check_other(id, program)
  if program.model_inputs[id] then
    logging.warn("devicex", "The input Tensor %s to the ONNX Model does not appear in the "
      .. "optimized PopART Ir, possibly due to constant folding. Therefore, the input buffer "
      .. "provided will not be used.", id)
    return
  end
  errors.check(not program.tensors[id], "popart_runtime_error", "The tensor '%s' has been provided "
    .. "as one of the inputs to the stepIO, but it is not registered as one of the inputs to the "
    .. "model. Please check this tensor and your stepIO.", id)
  errors.raise("popart_runtime_error", "Testing that the buffer provided by user for input Tensor "
    .. "%s has the correct number of elements, But there is no Tensor named %s in the Ir's main "
    .. "Graph, and it does not exist in the original ONNX Model.%s", id, id,
    check.nearest(id, tables.keys(program.model_inputs)))
end

local function check_inputs(side, program)
  local known = by_id(program.inputs)
  for _, id in ipairs(tables.keys(side.tensors)) do
    local d = known[id]
    if not d then
      check_other(id, program)
    else
      local n = total(d)
      if side.tensors[id]:numel() ~= n then
        size_error("input", d, n, side.tensors[id]:numel(), program)
      end
    end
  end
end

local function check_outputs(side, program)
  local known = by_id(program.outputs)
  for _, id in ipairs(tables.keys(side.tensors)) do
    local d = known[id]
    if not (d or program.tensors[id]) then
      errors.raise("popart_runtime_error", "Testing that the buffer provided by user for output "
        .. "Tensor %s has the correct number of elements,  But there is no Tensor named %s in the "
        .. "Ir's tensors. %s", id, id, check.nearest(id, tables.keys(known)))
    end
    errors.check(d, "popart_exception", "Tensor %s is not an anchor: it was provided as one of the "
      .. "outputs of the stepIO", id)
    local n = total(d)
    if side.tensors[id]:numel() ~= n then
      size_error("output", d, n, side.tensors[id]:numel(), program)
    end
  end
end

--- Compares the tensors of a PyStepIO with what a program reads and returns, unless
--- enableRuntimeAsserts(false): what a session does before its first run. Of another class
--- `assertNumElements(program)` is called, if it has one.
---
--- program: inputs and outputs (descriptions), tensors (the names of all tensors, as a
--- set), model_inputs (the names of the model's own inputs, read or not, as a set),
--- batches, accumulation, replicas.
--- error: popart_runtime_error naming the tensor
---@param io popart.IStepIO
---@param program table
function M.check_sizes(io, program)
  if not io.runtimeAsserts then
    return
  elseif PyStepIO:is(io) then
    check_inputs(io._inputs, program)
    check_outputs(io._outputs, program)
  elseif io.assertNumElements then
    io:assertNumElements(program)
  end
end

return M
