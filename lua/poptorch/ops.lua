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
local errors = require("lupine.base.errors")

local M = {}

local forms = core.forms.internal

local function tensor(value, where, class_name)
  errors.check(core.is_tensor(value), class_name or "Error", "%s: expected a Tensor, got %s",
    where, check.describe(value))
  return value
end

local REDUCTIONS = { sum = true, mean = true, none = true }

--- Marks what is to be minimised; the reductions are "sum", "mean" and "none".
--- error: AssertionError for another reduction
---@param ... any x (Tensor), reduction (string)
---@return torch.Tensor
function M.identity_loss(...)
  local a = check.arguments("identity_loss", { "x", "reduction" }, nil, ...)
  errors.check(REDUCTIONS[a[2]], "AssertionError",
    "identity_loss: reduction: allowed are sum, mean and none, got %s", check.describe(a[2]))
  return forms.identity_loss(tensor(a[1], "identity_loss: x"), a[2])
end

--- An operation that does nothing, but stays in the program.
--- error: poptorch.Error for anything but a tensor
---@param ... any tensor
---@return torch.Tensor
function M.nop(...)
  return forms.nop(tensor(check.arguments("nop", { "tensor" }, nil, ...)[1], "nop: tensor"))
end

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

--- The share of a tile's memory that the operation which made the tensor may
--- use for temporaries.
--- error: poptorch.Error for anything but a tensor
---@param ... any tensor, available_memory_proportion (0 to 1)
---@return torch.Tensor
function M.set_available_memory(...)
  local a = check.arguments("set_available_memory", { "tensor", "available_memory_proportion" },
    nil, ...)
  return forms.set_available_memory(tensor(a[1], "set_available_memory: tensor"),
    check.number(a[2], "set_available_memory: available_memory_proportion", {}))
end

local PRINT = { "tensor", "title", "print_gradient", "summarise_threshold", "edge_items",
  "max_line_width", "digits", "float_format", "separator", "open_bracket", "close_bracket" }

--- Prints the tensor every time that the program comes here, and its gradient
--- as title_gradient. The result must be used, or nothing is printed.
--- error: poptorch.Error for anything but a tensor
---@param ... any tensor, title, and the options of the format (PRINT)
---@return torch.Tensor
function M.ipu_print_tensor(...)
  local a = check.arguments("ipu_print_tensor", PRINT, nil, ...)
  tensor(a[1], "ipu_print_tensor: tensor")
  local options = {}
  for i = 2, #PRINT do
    options[PRINT[i]] = a[i]
  end
  return next(options) and forms.print_tensor(a[1], options) or forms.print_tensor(a[1])
end

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

local function only_in_inference(where)
  errors.check(not (blocks.tracer and blocks.tracer.training), "Error",
    "%s() is only supported in inference. (lupine.control has loops and branches with gradients)",
    where)
end

--- Runs the body `count` times on the device: on the inputs, then on what it
--- returned in the round before. The inputs are passed by value; other tensors
--- may be read (captured), not written. On the host the loop is Lua's.
--- error: ValueError if inputs is no list of tensors or the body returns others
--- than it takes, poptorch.Error in a training model
--- source: 001 poptorch.for_loop
---@param ... any count (integer), body (fun(...: torch.Tensor): ...), inputs (torch.Tensor[])
---@return torch.Tensor[] # what the last round returned
function M.for_loop(...)
  local a = check.arguments("for_loop", { "count", "body", "inputs" }, { inputs = "list" },
    ...)
  list_of_tensors(a[3], "poptorch.for_loop", "input tensors (inputs)")
  only_in_inference("poptorch.for_loop")
  return control.loop(a[1], a[2], a[3], "poptorch.for_loop")
end

--- Runs one of two bodies on the device, as a tensor of one element says. Both
--- must return as many tensors, of the same types; inputs and what is captured
--- are passed by value. On the host the branch is Lua's.
--- error: ValueError if the inputs are no lists of tensors or the results
--- differ, poptorch.Error in a training model
--- source: PopTorch 3.4, poptorch.cond
---@param ... any condition (torch.Tensor), then_body (fun(...: torch.Tensor): ...), then_inps
---  (torch.Tensor[]), else_body (likewise), else_inps (torch.Tensor[])
---@return torch.Tensor[]
function M.cond(...)
  local a = check.arguments("cond", { "condition", "then_body", "then_inps", "else_body",
    "else_inps" }, { else_inps = "list" }, ...)
  for i = 3, 5, 2 do
    list_of_tensors(a[i], "poptorch.cond", "then_inps and else_inps tensors")
  end
  only_in_inference("poptorch.cond")
  return control.branch(a[1], a[2], a[3], a[4], a[5], "poptorch.cond")
end

--- Whether IPUs can be used: the simulated system is the hardware.
---@param num_ipus? integer how many (1)
---@return boolean
function M.ipuHardwareIsAvailable(num_ipus)
  return (num_ipus or 1) <= require("poptorch.placement").MOST_IPUS
end

--- The version of the IPUs: 2, the Mk2 of the Bow and IPU-M2000 systems.
---@return integer
function M.ipuHardwareVersion()
  return 2
end

return M
