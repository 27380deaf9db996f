--- Traces a wrapped model: its forward runs once on stand-ins for inputs,
--- parameters and buffers, and the graph of what it did becomes a step.
local arguments = require("lupine.arguments")
local blocks = require("poptorch.blocks")
local core = require("lupine.core")
local errors = require("torch.errors")
local placement = require("poptorch.placement")
local rules = require("poptorch.options.rules")

local M = {}

-- Tells the trace which block, stage, IPU and module each operator is in.
local function tracer_of(trace, assigner)
  local function place(block)
    local p = assigner.active
    trace:origin({ block = block or (p and p.block) or "", ipu = p and p.ipu or -1,
      stage = p and p.stage or -1, phase = p and p.phase or -1 })
  end
  place()
  return {
    set_block = function(user_id, ipu_id)
      assigner:enter(user_id, ipu_id)
      place(user_id)
    end,
    end_block = function()
      assigner:leave()
      place("")
    end,
  }
end

local function scope_of(trace, model)
  local name_of, stack = {}, {}
  for name, module in model:named_modules() do
    name_of[module] = name:gsub("%.", "/")
  end
  return {
    enter = function(module)
      stack[#stack + 1] = name_of[module] or ""
      trace:origin({ scope = stack[#stack] })
    end,
    leave = function()
      stack[#stack] = nil
      trace:origin({ scope = stack[#stack] or "" })
    end,
  }
end

local function declare_state(s, trace)
  for name, p in s.model:named_parameters() do
    trace:declare("parameter", name, p)
  end
  for name, b in s.model:named_buffers() do
    trace:declare("buffer", name, b)
  end
end

local function micro_shape(shape, options, path)
  local p = rules.input_factor(options)
  local rows = shape[1] or 1
  errors.check(rows % p == 0, "AssertionError",
    "%s: dimension 0 of shape %s must be a multiple of %d = %d device iterations x %d gradient "
    .. "accumulations x %d replicas (in input groups of %d)", path, tostring(shape), p,
    options.device_iterations, options.Training.gradient_accumulation,
    options.replication_factor, options.input_group_size)
  local out = {}
  for i = 1, #shape do
    out[i] = shape[i]
  end
  if #out > 0 then
    out[1] = rows // p
  end
  return out
end

--- The call's values as specs, and their tensors as {tensor, path}.
---@param s table the executor's state
---@param values {n: integer}
function M.flatten_call(s, values)
  local tensors, spec = {}, {}
  for i = 1, values.n do
    spec[i] = arguments.flatten(values[i], s.names[i] or ("argument %d"):format(i), tensors)
  end
  spec.n = values.n
  return spec, tensors
end

-- Runs forward under the trace; results as {n, …}.
local function run_forward(s, trace, assigner, spec, stand_ins)
  local Module = require("torch.nn").Module
  local at = 0
  local args = {}
  for i = 1, spec.n do
    args[i] = arguments.rebuild(spec[i], function()
      at = at + 1
      return stand_ins[at]
    end)
  end
  blocks.tracer = tracer_of(trace, assigner)
  Module.tracer = scope_of(trace, s.model)
  trace:start()
  local results = table.pack(pcall(s.model, table.unpack(args, 1, spec.n)))
  trace:stop()
  blocks.tracer, Module.tracer = nil, nil
  if not results[1] then
    error(results[2], 0)
  end
  return table.pack(table.unpack(results, 2, results.n))
end

-- Which stretches of the program hold operators. One outside any block, after
-- a block has ended, is refused.
local function mark_used(assigner, step)
  for _, p in ipairs(step:places()) do
    errors.check(p.ipu >= 0, "Error",
      "No active Block: %s (%s:%d) is outside any block, after a block has ended; move it into a "
      .. "Block scope", p.op, p.file, p.line)
    for _, place in ipairs(assigner.places) do
      if place.ipu == p.ipu and place.stage == p.stage and (place.block or "") == p.block then
        place.used = true
      end
    end
  end
end

--- Runs forward under a trace.
---@param s table the executor's state
---@param spec table of the arguments, from flatten_call
---@param tensors {tensor: torch.Tensor, path: string}[]
---@return lupine.Step step
---@return integer[] losses values of final losses
---@return table out_spec
---@return poptorch.Assigner assigner
function M.trace(s, spec, tensors)
  local trace = core.trace()
  local assigner = placement.Assigner(s.options.execution_strategy)
  local stand_ins = {}
  for i, t in ipairs(tensors) do
    local shape = micro_shape(t.tensor.shape, s.options, t.path)
    for _, size in ipairs(shape) do
      errors.check(size > 0, "Error", "%s: a tensor without elements cannot be sent to the device",
        t.path)
    end
    stand_ins[i] = trace:declare("input", t.path, nil, shape, t.tensor.dtype)
  end
  declare_state(s, trace)
  local results = run_forward(s, trace, assigner, spec, stand_ins)
  local outs, out_spec = {}, { n = results.n }
  for i = 1, results.n do
    out_spec[i] = arguments.flatten(results[i], "result", outs)
  end
  local list = {}
  for i, o in ipairs(outs) do
    list[i] = o.tensor
  end
  local step, losses = trace:step(list)
  mark_used(assigner, step)
  return step, losses, out_spec, assigner
end

return M
