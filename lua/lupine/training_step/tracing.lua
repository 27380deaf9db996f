--- Traces a call of a training step: the model, then the loss, on stand-ins for
--- inputs, parameters and buffers.
local arguments = require("lupine.base.arguments")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local forward = require("lupine.session.forward")
local memory = require("lupine.session.memory")
local modes = require("lupine.base.modes")

local M = {}

-- ---- what forward sees -------------------------------------------------------------

local KINDS = { { "parameter", "named_parameters" }, { "buffer", "named_buffers" } }

-- The modules' tensors as variables, by role and name.
local function declare_state(trace, roots)
  local of, seen = { parameter = {}, buffer = {} }, {}
  for _, root in ipairs(roots) do
    memory.separate(root.module)
    for _, kind in ipairs(KINDS) do
      local role = kind[1]
      for name, t in root.module[kind[2]](root.module) do
        if not seen[t] then
          seen[t] = true
          errors.check(role == "buffer" or not trace:knows(t), "ValueError", "compile: the "
            .. "parameter '%s' lies in the memory of another one: give both modules the same "
            .. "Parameter, or clone it", root.prefix .. name)
          trace:declare(role, root.prefix .. name, t)
          of[role][root.prefix .. name] = t
        end
      end
    end
  end
  return of
end

local function tracer_of(trace, roots, frozen)
  local names, name_of = forward.names_of(trace, true), {}
  for _, root in ipairs(roots) do
    for name, module in root.module:named_modules() do
      name_of[module] = (root.prefix .. name):gsub("%.$", ""):gsub("%.", "/")
    end
  end
  return {
    enter = function(module)
      names.module(name_of[module] or "")
    end,
    leave = names.leave,
    assign = forward.assigner(frozen),
  }
end

-- eval() of all modules until the value is closed.
local function evaluating(roots)
  local list = {}
  for i, root in ipairs(roots) do
    list[i] = root.module
  end
  return modes.set(list, false)
end

local function registered(roots)
  local list = {}
  for _, root in ipairs(roots) do
    local own = forward.registered(root.module)
    table.move(own, 1, #own, #list + 1, list)
  end
  return list
end

-- fn(...) under the trace; fields are as before afterwards.
local function guarded(trace, roots, training, fn, ...)
  local Module = require("torch.nn").Module
  local frozen, before = {}, registered(roots)
  local results, changed
  do
    forward.show(before, {})
    local _ <close> = setmetatable({}, { __close = function()
      Module.tracer = nil
      forward.thaw(frozen)
      changed = forward.take_back(before)
    end })
    local _ <close> = not training and evaluating(roots) or nil
    Module.tracer = tracer_of(trace, roots, frozen)
    local _ <close> = require("torch").set_grad_enabled(training)
    results = table.pack(pcall(trace.run, trace, true, fn, ...))
  end
  forward.check_refused(trace, not results[1] and results[2])
  if not results[1] then
    error(results[2], 0)
  end
  forward.check_registered(changed)
  return table.pack(table.unpack(results, 2, results.n))
end

-- ---- the loss ----------------------------------------------------------------------

local function is_scalar(t)
  return arguments.is_tensor(t) and t:is_floating_point() and t:numel() == 1
end

--- What is minimised: a tensor of one element, or the sum of those of a table.
--- errors: TypeError, ValueError, RuntimeError for what cannot be minimised
---@param loss any
---@return torch.Tensor sum
---@return {tensor: torch.Tensor}[] parts
function M.total(loss)
  local list, sum = {}, nil
  if arguments.is_tensor(loss) then
    list[1] = { tensor = loss, path = "the loss" }
  else
    arguments.flatten(loss, "the loss", list)
  end
  for _, t in ipairs(list) do
    errors.check(is_scalar(t.tensor), "ValueError", "%s: expected a floating tensor of one element "
      .. "(or a table of such), got %s of shape %s: reduce it, loss:mean()", t.path,
      tostring(t.tensor.dtype), tostring(t.tensor.shape))
    sum = sum and sum + t.tensor:reshape({}) or t.tensor
  end
  errors.check(sum, "TypeError", "the loss has no tensor: expected one of one element")
  errors.check(sum.requires_grad, "RuntimeError", "the loss does not depend on any parameter that "
    .. "requires a gradient")
  return sum, list
end

--- The loss that forward returned itself: the field `loss` of a table, or the one
--- scalar that has a gradient.
--- error: ValueError for none or several
---@param results {n: integer}
---@return any
function M.own_loss(results)
  for i = 1, results.n do
    local r = results[i]
    if type(r) == "table" and not getmetatable(r) and r.loss ~= nil then
      return r.loss
    end
  end
  local flat, found = {}, {}
  for i = 1, results.n do
    arguments.flatten(results[i], "result", flat)
  end
  for _, o in ipairs(flat) do
    found[#found + 1] = is_scalar(o.tensor) and o.tensor.requires_grad and o.tensor or nil
  end
  errors.check(#found > 0, "ValueError", "compile(opts): loss: forward returns no scalar that has "
    .. "a gradient: give loss = function(out, target) … end, or a module of torch.nn")
  errors.check(#found == 1, "ValueError", "compile(opts): loss: forward returns %d scalars that "
    .. "have gradients: return {loss = …} with the one to be minimised, or give loss = "
    .. "function(out, target) … end", #found)
  return found[1]
end

local function loss_of(call, results)
  if call.with_loss then
    return results[results.n]
  end
  return M.own_loss(results)
end

-- ---- all of it ---------------------------------------------------------------------

-- The model's results and then the loss.
local function body_of(step, call)
  return function(...)
    local at, args, tensors = 0, {}, { ... }
    for i = 1, call.n do
      args[i] = arguments.rebuild(call[i], function()
        at = at + 1
        return tensors[at]
      end)
    end
    local results = table.pack(step.model(table.unpack(args, 1, call.n_model)))
    if call.with_loss then
      results.n = results.n + 1
      results[results.n] = step._loss(results.n > 1 and results[1] or nil,
        table.unpack(args, call.n_model + 1, call.n))
    end
    return table.unpack(results, 1, results.n)
  end
end

local function declare_inputs(trace, call)
  local stand_ins = {}
  for i, t in ipairs(call.tensors) do
    stand_ins[i] = trace:declare("input", "input_" .. i, nil, { table.unpack(t.tensor.shape) },
      t.tensor.dtype)
  end
  return stand_ins
end

-- Results as specs; those that are of the host are returned as they are now. `losses`
-- are the numbers of the outputs whose sum is minimised.
local function outputs(trace, results, parts)
  local flat, list, spec, losses = {}, {}, { n = results.n }, {}
  for i = 1, results.n do
    spec[i] = arguments.flatten(results[i], "result", flat)
  end
  for _, o in ipairs(flat) do
    if trace:knows(o.tensor) then
      list[#list + 1] = o.tensor
      losses[#losses + 1] = parts[o.tensor] and #list or nil
    else
      o.spec.kind, o.spec.value = "value", o.tensor
    end
  end
  return spec, list, losses
end

--- Traces a call.
--- error: RuntimeError for what cannot be compiled, ValueError without a loss
---@param step lupine.TrainingStep
---@param call table of inputs.flatten; trains: with gradients; with_loss: the loss runs
---  behind the model
---@return lupine.Step traced, integer? loss its value, table spec of the results, table state
---@return integer[] losses numbers of the outputs whose sum is minimised
function M.trace(step, call)
  local trace = core.trace()
  trace:tolerate()
  local stand_ins = declare_inputs(trace, call)
  local state = declare_state(trace, step._roots)
  local loss
  local parts = {}
  local results = guarded(trace, step._roots, call.trains, function(...)
    local got = table.pack(body_of(step, call)(...))
    if call.trains then
      local sum, list = M.total(loss_of(call, got))
      loss = trace:value(sum)
      for _, part in ipairs(list) do
        parts[part.tensor] = true
      end
    end
    return table.unpack(got, 1, got.n)
  end, table.unpack(stand_ins))
  local spec, list, losses = outputs(trace, results, parts)
  return (trace:step(list)), loss, spec, state, losses
end

return M
