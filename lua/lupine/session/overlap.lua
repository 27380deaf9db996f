--- Marks of inputs and outputs that go to and from the host while the device
--- computes (step:overlaps()): where they hide nothing.
local M = {}

--- Why marks of one way and mode hide nothing, as a key for a front end's words;
--- nil: they do.
---   synthetic     nothing goes to or from the host
---   output_mode   outputs go at the end of a run
---   accumulation  an update has one micro-batch, there is no loop over several
---   single        a run has one micro-batch
---@param step lupine.Step complete
---@param spec table what a session keeps: output, system
---@param output boolean outputs, not inputs
---@param iterations boolean over the loop of device iterations, not that of accumulation
---@return string?
function M.idle(step, spec, output, iterations)
  local device_iterations, accumulation = step:loops()
  if spec.system.synthetic_data then
    return "synthetic"
  elseif output and spec.output.mode ~= "all" then
    return "output_mode"
  elseif not iterations and accumulation == 1 then
    return "accumulation"
  elseif device_iterations * accumulation == 1 then
    return "single"
  end
  return nil
end

return M
