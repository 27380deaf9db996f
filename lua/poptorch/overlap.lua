--- Marks of inputs and outputs that go to and from the host while the IPU
--- computes: I/O tiles fetch the next micro-batch's and send the last one's.
--- They change no value.
---
--- Source: PopTorch API reference, set_overlap_for_input,
--- set_overlap_for_output, OverlapMode.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local session_overlap = require("lupine.session.overlap")
local signatures = require("lupine.base.signatures")

local M = {}

local O = enums.OutputMode

local function no_tensor(value, where)
  errors.raise("Error", "%s: You may only set overlap for tensors, and lists and tables of them, "
    .. "got %s", where, check.describe(value))
end

local function only_tensors(spec, where)
  if spec.kind == "value" then
    no_tensor(spec.value, where)
  end
  for _, part in ipairs(spec) do
    only_tensors(part, where)
  end
end

-- poptorch.NAME(TENSORS, mode): each tensor as the operator of that name gives it.
local function mark(name, parameter)
  local names = { parameter, "mode" }
  local function marked(...)
    local a = check.arguments(name, names, { [parameter] = "list" }, ...)
    local mode = check.enum(a[2], name .. ": mode", enums.OverlapMode)
    local list, at = {}, 0
    local spec = arguments.flatten(a[1], parameter, list)
    only_tensors(spec, name)
    return arguments.rebuild(spec, function()
      at = at + 1
      return core.forms.internal[name](list[at].tensor, mode.value)
    end)
  end
  signatures.note(marked, ("%s(%s)"):format(name, table.concat(names, ", ")))
  return marked
end

--- The tensors, to be fetched from the host while the IPU computes as far ahead as
--- the mode says. Takes an input of the model before anything else does, or a list
--- or table of inputs, and stands for it from then on. Needs
--- TensorLocations.numIOTiles, another strategy than PipelinedExecution and the
--- output mode All or Sum. OverlapAccumulationLoop acts with gradient accumulation.
--- error: poptorch.Error for anything but tensors; when the model is compiled, for a
--- mark in another place or where an option is missing
--- source: 001 poptorch.set_overlap_for_input
---@type fun(input_tensors: any, mode: poptorch.OverlapMode): any
M.set_overlap_for_input = mark("set_overlap_for_input", "input_tensors")

--- The tensors, to be sent to the host while the IPU computes what comes next.
--- Takes what forward returns, last of all, or a list or table of that; needs what
--- set_overlap_for_input needs. With OutputMode.Sum outputs go at the end of a call,
--- and nothing is hidden.
--- error: as set_overlap_for_input
--- source: 001 poptorch.set_overlap_for_output
---@type fun(output_tensors: any, mode: poptorch.OverlapMode): any
M.set_overlap_for_output = mark("set_overlap_for_output", "output_tensors")

-- Whether anything asks for overlap.
local function any(asked)
  for _, way in pairs(asked) do
    if way[1] or way[2] then
      return true
    end
  end
  return false
end

--- The marks of a traced step are where they may be, and the options let them
--- act.
--- error: poptorch.Error
---@param options poptorch.Options
---@param step lupine.Step
---@return table asked step:overlaps()
function M.check(options, step)
  local asked = step:overlaps()
  if not any(asked) then
    return asked
  end
  errors.check(options.execution_strategy.kind ~= "pipelined", "Error", "Overlapped IO is not "
    .. "supported with poptorch.PipelinedExecution. If you are using only one IPU, please switch "
    .. "to poptorch.ShardedExecution.")
  errors.check((options.TensorLocations.num_io_tiles or 0) > 0, "Error", "No IO tiles allocated. "
    .. "You must allocate at least 32 IO tiles using "
    .. "poptorch.Options().TensorLocations.numIOTiles.")
  errors.check(options.output_mode == O.All or options.output_mode == O.Sum, "Error",
    "Unsupported output mode for overlapped IO. Please switch output mode to "
    .. "poptorch.OutputMode.All or poptorch.OutputMode.Sum. (%s)", tostring(options.output_mode))
  return asked
end

-- Why marks hide nothing, by what lupine.session.overlap says.
local WHY = {
  synthetic = "with synthetic data nothing goes to or from the host",
  output_mode = "OutputMode.Sum returns outputs at the end of a call",
  accumulation = "there is no accumulation loop (gradientAccumulation is 1)",
  single = "a call has one micro-batch",
}

--- Names marks that change nothing in this program.
---@param asked table M.check's
---@param session lupine.Session
---@param note fun(name: string, why: string)
function M.note(asked, session, note)
  local step = session.exec:step()
  for _, way in ipairs({ "input", "output" }) do
    for i, mode in ipairs({ "OverlapAccumulationLoop", "OverlapDeviceIterationLoop" }) do
      local why = session_overlap.idle(step, session.spec, way == "output", i == 2)
      if asked[way][i] and why then
        note(("set_overlap_for_%s(%s)"):format(way, mode), WHY[why])
      end
    end
  end
end

return M
