--- Methods of an executor that tell what the simulated machine did, what the
--- program is made of, and how long compiling took.
local check = require("lupine.base.check")
local counters = require("lupine.session.counters")
local errors = require("lupine.base.errors")
local own = require("poptorch.executor.own")
local state = require("poptorch.state")

local M = {}

--- Cycles of the last call on the simulated IPU, those of the first replica.
--- error: poptorch.Error without Options.logCycleCount(true), or before a call
---@return integer
function M.cycleCount(self)
  local s = own.compiled(self, "cycleCount")
  errors.check(s.options.log_cycle_count, "Error",
    "cycleCount: cycles are not counted; set options:logCycleCount(true)")
  errors.check(s.session.has_run, "Error",
    "cycleCount: the model was compiled but has not been run")
  return s.session.report.cycles
end

--- When the tensors of the last call went to and from the simulated IPU, in
--- seconds since that call began: input (asked for), input_complete, output
--- (offered) and output_complete, each [tensor][event].
---@return {input: number[][], input_complete: number[][], output: number[][],
---  output_complete: number[][]}
function M.getPerfCounters(self)
  return counters.events(own.state(self).session)
end

--- Seconds from the first input asked for to the last one on the IPU.
---@return number min, number max, number avg
function M.getHostIpuLatency(self)
  return counters.latency(own.state(self).session, "input", "input_complete", math.min, math.max)
end

--- Seconds from the last input on the IPU to the first output offered.
---@return number min, number max, number avg
function M.getComputeLatency(self)
  return counters.latency(own.state(self).session, "input_complete", "output", math.max, math.min)
end

--- Seconds from the first output offered to the last one on the host.
---@return number min, number max, number avg
function M.getIpuHostLatency(self)
  return counters.latency(own.state(self).session, "output", "output_complete", math.min, math.max)
end

--- Seconds from the first input asked for to the last output on the host.
---@return number min, number max, number avg
function M.getLatency(self)
  return counters.latency(own.state(self).session, "input", "output_complete", math.min, math.max)
end

--- Seconds that compiling took.
---@return number
function M.compilationTime(self)
  local s = own.compiled(self, "compilationTime")
  errors.check(s.options.show_compilation_progress_bar ~= false, "Error",
    "compilationTime: not measured when the progress bar is off "
    .. "(Options.showCompilationProgressBar(false))")
  return s.compile_seconds
end

--- Where the host's time went in the calls so far.
--- error: poptorch.Error without Options.hostProfile(true), or before a call
---@return lupine.Profile
function M.hostProfile(self)
  local s = own.compiled(self, "hostProfile")
  errors.check(s.options.host_profile, "Error",
    "hostProfile: the host's time is not taken; set options:hostProfile(true)")
  errors.check(s.session.has_run, "Error",
    "hostProfile: the model was compiled but has not been run")
  return require("lupine.profile").of(s.session.exec)
end

--- Names of the compiled program's tensors, as PopART spells them: input/x,
--- fc.weight, Gradient___fc.weight, UpdatedVar___fc.weight, loss, fc/MatMul:0. Those
--- of the optimizer's attributes aside anchorTensor takes them.
---@return string[]
function M.getTensorNames(self)
  local s = own.state(self)
  errors.check(s.session, "AssertionError", "getTensorNames: the model is not compiled")
  local names = s.session.exec:step():names()
  if s.training then
    state.attribute_names(s, names)
  end
  return names
end

--- The tensor that options:anchorTensor named, as the last call left it: a slice
--- for each micro-batch that the anchor's output mode returns, by device
--- iteration, in each by micro-batch, in each by replica.
--- error: AssertionError if the model is not compiled, has no such anchor, or
--- was not called since
--- source: 001 Options.anchorTensor
---@param ... any short_name (string)
---@return torch.Tensor
function M.getAnchoredTensor(self, ...)
  local s, short_name = own.state(self), check.one("getAnchoredTensor", "short_name", ...)
  errors.check(s.session, "AssertionError", "getAnchoredTensor: the model is not compiled")
  local names = {}
  for i, anchor in ipairs(s.anchors) do
    names[i] = anchor.short_name
    names[anchor.short_name] = true
  end
  errors.check(names[short_name], "AssertionError", "getAnchoredTensor: there is no anchor '%s'. "
    .. "Allowed: %s", tostring(short_name), #names > 0 and table.concat(names, ", ")
    or "none, options:anchorTensor was not called before the model was made")
  return errors.check(s.anchored[short_name], "AssertionError",
    "getAnchoredTensor: the model was compiled but has not been run")
end

--- What the simulated system says about the compiled program.
---@return lupine.Report
function M.report(self)
  return own.compiled(self, "report").session.report
end

return M
