--- Functions of poptorch for use in forward: the loss that is to be minimised,
--- prints, and marks that leave values as they are. Outside a trace they run
--- on the host: the marks give their operand back.
---
--- Source: PopTorch API reference, "Custom ops" and "Helper functions"; user
--- guide 4.6.
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local control = require("lupine.control")
local core = require("lupine.core")
local define = require("poptorch.define")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")

local M = {}

local forms = core.forms.internal

local function tensor(value, where, class_name)
  errors.check(core.is_tensor(value), class_name or "Error", "%s: expected a Tensor, got %s",
    where, check.describe(value))
  return value
end

local function only_in_inference(where)
  errors.check(not (blocks.tracer and blocks.tracer.training), "Error",
    "%s() is only supported in inference. (lupine.control has loops and branches with gradients)",
    where)
end

local REDUCTIONS = { sum = true, mean = true, none = true }

--- Marks what is to be minimised; the reductions are "sum", "mean" and "none".
--- error: AssertionError for another reduction
---@type fun(x: torch.Tensor, reduction: string): torch.Tensor
M.identity_loss = define("identity_loss(x, reduction)", function(x, reduction)
  errors.check(REDUCTIONS[reduction], "AssertionError",
    "identity_loss: reduction: allowed are sum, mean and none, got %s", check.describe(reduction))
  return forms.identity_loss(tensor(x, "identity_loss: x"), reduction)
end)

--- An operation that does nothing, but stays in the program.
--- error: poptorch.Error for anything but a tensor
---@type fun(tensor: torch.Tensor): torch.Tensor
M.nop = define("nop(tensor)", function(x)
  return forms.nop(tensor(x, "nop: tensor"))
end)

local function checkpoint(value, at)
  return forms.recomputation_checkpoint(tensor(value, "recomputationCheckpoint: " .. at,
    "ValueError"))
end

--- Marks values that are stored in the forward pass; what comes before them is
--- computed again in the backward pass. Takes tensors, or one list of them.
--- error: ValueError for anything else
---@param ... any
---@return any the tensors as they were given: one, several, or a list
function M.recomputationCheckpoint(...)
  local n = select("#", ...)
  local first = ...
  if n == 1 and type(first) == "table" and not getmetatable(first) then
    local out = {}
    for i, value in ipairs(first) do
      out[i] = checkpoint(value, ("element %d"):format(i - 1))
    end
    return out
  end
  local out = {}
  for i = 1, n do
    out[i] = checkpoint((select(i, ...)), ("argument %d"):format(i - 1))
  end
  return table.unpack(out, 1, n)
end

--- lhs times rhs, as smaller products one after another, and their gradients alike, to
--- need less memory at a time. `mode` says what is cut into `factor` parts: of an m by n
--- matrix and an n by p matrix m (InputChannels), n (ReducingDim) or p (OutputChannels).
--- With keep_precision the parts of halves are summed as float32, where the product or
--- its gradients sum parts (ReducingDim, InputChannels); they cost what float32 ones do.
--- error: AssertionError for another kind of mode, factor or keep_precision, poptorch.Error
--- if the factor does not divide what is cut
--- source: 001 poptorch.serializedMatMul
---@type fun(lhs, rhs, mode: table, factor: integer?, keep_precision: boolean?): torch.Tensor
M.serializedMatMul = define("serializedMatMul(lhs, rhs, mode, factor=0, keep_precision=False)",
  function(lhs, rhs, mode, factor, keep_precision)
    local where, AE = "serializedMatMul", { error = "AssertionError" }
    tensor(lhs, where .. ": lhs", "TypeError")
    tensor(rhs, where .. ": rhs", "TypeError")
    check.enum(mode, where .. ": mode", enums.MatMulSerializationMode, AE)
    factor = check.int(factor == nil and 0 or factor, where .. ": factor", AE)
    keep_precision = check.bool(keep_precision or false, where .. ": keep_precision", AE)
    return forms.serialized_matmul(lhs, rhs, mode.value, factor, keep_precision)
  end)

--- The share of a tile's memory that the operation which made the tensor may
--- use for temporaries.
--- error: poptorch.Error for anything but a tensor
---@type fun(tensor: torch.Tensor, available_memory_proportion: number): torch.Tensor
M.set_available_memory = define("set_available_memory(tensor, available_memory_proportion)",
  function(x, proportion)
    return forms.set_available_memory(tensor(x, "set_available_memory: tensor"),
      check.number(proportion, "set_available_memory: available_memory_proportion"))
  end)

local PE = { error = "Error" }

local function start_of(where, start)
  tensor(start, where .. ": start")
  errors.check(not start:is_floating_point() and start.dtype ~= core.dtypes.bool, "Error",
    "%s: start: expected a tensor of integers, got %s", where, check.describe(start))
  return start
end

--- `size` elements of the dimension from `start` on, a tensor of one integer that is
--- read when the program runs; of these every `step`th. `size` must divide the
--- dimension; behind its end the slice goes on at its beginning.
--- error: poptorch.Error for another kind of argument, a size below 1 or that does not
--- divide the dimension, a step below 1, a training model
--- source: 001 poptorch.dynamic_slice; tests of PopTorch 3.4
---@type fun(tensor, dim: integer, start: torch.Tensor, size: integer, step: integer): torch.Tensor
M.dynamic_slice = define("dynamic_slice(tensor, dim, start, size, step)",
  function(x, dim, start, size, step)
    local where = "dynamic_slice"
    tensor(x, where .. ": tensor")
    check.int(dim, where .. ": dim", PE)
    start_of(where, start)
    check.int(size, where .. ": size", PE)
    check.int(step, where .. ": step", PE)
    only_in_inference("poptorch.dynamic_slice")
    return forms.dynamic_slice(x, dim, start, size, step)
  end)

--- The input with `size` places of the dimension, from `start` on, taken by `src`:
--- a tensor of one integer that is read when the program runs. Behind the dimension's
--- end the places go on at its beginning. The input itself stays as it is.
--- error: poptorch.Error for another kind of argument, other ranks or types of input and
--- src, a size below 1 or above the dimension's, a training model
--- source: 000:4.6.7 dynamic_update; PopTorch 3.4, poptorch.dynamic_update
---@type fun(input, src, dim: integer, start: torch.Tensor, size: integer): torch.Tensor
M.dynamic_update = define("dynamic_update(input, src, dim, start, size)",
  function(input, src, dim, start, size)
    local where = "dynamic_update"
    tensor(input, where .. ": input")
    tensor(src, where .. ": src")
    check.int(dim, where .. ": dim", PE)
    start_of(where, start)
    check.int(size, where .. ": size", PE)
    only_in_inference("poptorch.dynamic_update")
    return forms.dynamic_update(input, src, dim, start, size)
  end)

local PRINT = { "title", "print_gradient", "summarise_threshold", "edge_items", "max_line_width",
  "digits", "float_format", "separator", "open_bracket", "close_bracket" }

--- Prints the tensor every time that the program comes here, and its gradient
--- as title_gradient. The result must be used, or nothing is printed.
--- error: poptorch.Error for anything but a tensor
---@type fun(tensor: torch.Tensor, title: string?, ...: any): torch.Tensor
M.ipu_print_tensor = define("ipu_print_tensor(tensor, " .. table.concat(PRINT, ", ") .. ")",
  function(x, ...)
    tensor(x, "ipu_print_tensor: tensor")
    local options = {}
    for i, name in ipairs(PRINT) do
      options[name] = select(i, ...)
    end
    return next(options) and forms.print_tensor(x, options) or forms.print_tensor(x)
  end)

-- PopTorch's own sentences.
local function list_of_tensors(list, where, what)
  local function wrong(...)
    errors.raise("ValueError", "%s expects %s to be a list of tensors. (%s)", where, what,
      string.format(...))
  end
  if type(list) ~= "table" or getmetatable(list) then
    wrong("Object is not list")
  end
  for i = 1, #list do
    if not core.is_tensor(list[i]) then
      wrong("Object contained in list at index %d is not torch.tensor", i - 1)
    end
  end
  return list
end

--- The most likely labellings of the batch's samples by a beam search (CTC): probs are the
--- logarithms of probabilities, of shape [input_length, batch_size, num_classes], lengths
--- how many steps of each sample count.
--- error: poptorch.Error for other kinds of arguments, other shapes, a blank that is no
--- class, top_paths beyond beam_width
--- source: 001 poptorch.ctc_beam_search_decoder
---@param ... any probs, lengths, blank (0), beam_width (100), top_paths (1)
---@return torch.Tensor probabilities logarithms, best first, [batch_size, top_paths]
---@return torch.Tensor lengths of the paths, the same shape
---@return torch.Tensor paths [batch_size, top_paths, input_length], blanks behind the ends
M.ctc_beam_search_decoder = define("ctc_beam_search_decoder(probs, lengths, blank=0, "
  .. "beam_width=100, top_paths=1)", function(probs, lengths, blank, beam_width, top_paths)
  local where = "ctc_beam_search_decoder: "
  tensor(probs, where .. "probs")
  tensor(lengths, where .. "lengths")
  return forms.ctc_beam_search_decoder(probs, lengths,
    check.int(blank == nil and 0 or blank, where .. "blank", PE),
    check.int(beam_width == nil and 100 or beam_width, where .. "beam_width", PE),
    check.int(top_paths == nil and 1 or top_paths, where .. "top_paths", PE))
end)

--- Runs the body `count` times on the device: on the inputs, then on what it
--- returned in the round before. The inputs are passed by value; other tensors
--- may be read (captured), not written. On the host the loop is Lua's.
--- error: ValueError if inputs is no list of tensors or the body returns others
--- than it takes, poptorch.Error in a training model
--- source: 001 poptorch.for_loop
---@type fun(count: integer, body: function, inputs: torch.Tensor[]): torch.Tensor[]
M.for_loop = define("for_loop(count, body, inputs)", function(count, body, inputs)
  list_of_tensors(inputs, "poptorch.for_loop", "input tensors (inputs)")
  only_in_inference("poptorch.for_loop")
  return control.loop(count, body, inputs, "poptorch.for_loop")
end, { inputs = "list" })

--- Runs one of two bodies, functions of tensors, with its list of inputs on the
--- device, as a tensor of one element says. Both must return as many tensors, of
--- the same types; inputs and what is captured are passed by value. On the host
--- the branch is Lua's.
--- error: ValueError if the inputs are no lists of tensors or the results
--- differ, poptorch.Error in a training model
--- source: PopTorch 3.4, poptorch.cond
---@type fun(condition, then_body, then_inps, else_body, else_inps): torch.Tensor[]
M.cond = define("cond(condition, then_body, then_inps, else_body, else_inps)",
  function(condition, then_body, then_inps, else_body, else_inps)
    for _, list in ipairs({ then_inps or false, else_inps or false }) do
      list_of_tensors(list, "poptorch.cond", "then_inps and else_inps tensors")
    end
    only_in_inference("poptorch.cond")
    return control.branch(condition, then_body, then_inps, else_body, else_inps, "poptorch.cond")
  end, { else_inps = "list" })

return M
