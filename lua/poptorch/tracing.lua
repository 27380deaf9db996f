--- Traces a wrapped model: its forward runs once on stand-ins for inputs,
--- parameters and buffers, and the graph of what it did becomes a step.
local arguments = require("lupine.base.arguments")
local as_wrapped = require("poptorch.as_wrapped")
local blocks = require("poptorch.blocks")
local casting = require("poptorch.casting")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local forward = require("lupine.session.forward")
local groups = require("poptorch.groups")
local logging = require("poptorch.logging")
local memory = require("lupine.session.memory")
local multi_conv = require("lupine.multi_conv")
local overlap = require("poptorch.overlap")
local placement = require("poptorch.placement")
local rules = require("poptorch.options.rules")
local tables = require("lupine.base.tables")

local M = {}

-- What starts a block without an id, for messages.
local function starter(from, model)
  if type(from) == "string" then
    return from
  end
  for name, module in model:named_modules() do
    if rawequal(module, from) then
      return name == "" and "BeginBlock of the model" or ("BeginBlock of '%s'"):format(name)
    end
  end
  return "BeginBlock of a module"
end

-- What convolutions outside multi-convolutions have: their library's type of partials, if it
-- is not that of all products, and dithering.
local function conv_settings(options)
  local all = options.Precision.partials_type
  local own = (options._Popart:toDict().convolutionOptions or {}).partialsType or all
  local dithers = options.Training.convolution_dithering
  return own == all and not dithers and "" or multi_conv.text(-1, { plan = "convolutions",
    reserved = 0, back_off = 0, partials = own ~= all and { own } or nil,
    dithering = dithers and { true } or nil })
end

-- The multi-convolutions of a trace.
local function convs_of(trace, s)
  local number, inside, default = -1, false, conv_settings(s.options)
  trace:origin({ multi_conv = default })
  return {
    begin = function()
      errors.check(not inside, "Error", "Nested poptorch.MultiConv is not supported.")
      number, inside = number + 1, true
    end,
    set = function(settings)
      trace:origin({ multi_conv = multi_conv.text(number, settings) })
    end,
    finish = function()
      inside = false
      trace:origin({ multi_conv = default })
      return trace:convolutions(number)
    end,
  }
end

-- The attributes of open scopes, the later ones over the earlier.
local function attributes_of(trace, s)
  local open = {}
  local function tell()
    local outline, list = {}, {}
    for _, attributes in ipairs(open) do
      for key, value in pairs(attributes.__outline or {}) do
        outline[key] = value
      end
    end
    for key, value in pairs(outline) do
      list[#list + 1] = ("%s:%s"):format(key, value)
    end
    table.sort(list)
    trace:origin({ outline = table.concat(list, ", ") })
  end
  return {
    begin = function(attributes)
      open[#open + 1] = attributes
      for name in pairs(attributes) do
        s.traced.attributes[name] = true
      end
      tell()
    end,
    finish = function()
      open[#open] = nil
      tell()
    end,
  }
end

-- Tells the trace which block, stage and IPU each operator is in.
local function tracer_of(trace, assigner, names, s)
  local function place(block)
    local p = assigner.active
    trace:origin({ block = block or (p and p.block) or "", ipu = p and p.ipu or -1,
      stage = p and p.stage or -1, phase = p and p.phase or -1 })
  end
  place()
  local convs, attributes = convs_of(trace, s), attributes_of(trace, s)
  return {
    training = s.training,
    set_block = function(user_id, ipu_id, auto)
      assigner:enter(user_id, ipu_id, auto and starter(auto, s.model))
      place(user_id)
    end,
    end_block = function()
      assigner:leave()
      place("")
    end,
    begin_name_scope = names.scope,
    end_name_scope = names.leave_scope,
    begin_autocast = function(enabled)
      s.casting:open(enabled)
    end,
    end_autocast = function()
      s.casting:close()
    end,
    host_call = function(id, owner, fn)
      local other = s.call_owners[id]
      errors.check(not other or rawequal(other, owner), "Error",
        "two CPU ops of the model have the ID '%s': give each an ID of its own", id)
      s.call_owners[id], s.calls[id] = owner, fn
    end,
    begin_multi_conv = convs.begin,
    set_multi_conv = convs.set,
    end_multi_conv = convs.finish,
    begin_attributes = attributes.begin,
    end_attributes = attributes.finish,
  }
end

-- Names the module that each operator is in. `frozen` gathers what plain
-- fields held before forward assigned to them: {module, name, value}; `made`
-- what constructors by type made: {tensor, name, where}.
local function scope_of(names, s, frozen, made)
  local name_of = {}
  for name, module in s.model:named_modules() do
    name_of[module] = name:gsub("%.", "/")
  end
  return {
    enter = function(module)
      names.module(name_of[module] or "")
      s.casting:enter(module)
    end,
    leave = function()
      s.casting:leave()
      names.leave()
    end,
    assign = forward.assigner(frozen),
    made = function(tensor, name)
      made[#made + 1] = { tensor = tensor, name = name, where = errors.caller() }
    end,
  }
end

-- Returns what forward is to see in place of a parameter, where that is less.
local function declare_state(s, trace)
  local shown = {}
  memory.separate(s.model)
  local float64, bfloat16 = core.dtypes.float64, core.dtypes.bfloat16
  for name, p in s.model:named_parameters() do
    errors.check(p.dtype ~= float64 and p.dtype ~= bfloat16, "Error",
      "parameter '%s' has the dtype %s, which the device does not have: convert the model with "
      .. "model:float() or model:half()", name, tostring(p.dtype))
    local group = groups.of(s, name, p)
    local stand_in = trace:declare("parameter", name, p, group)
    shown[p] = group and stand_in
  end
  for name, b in s.model:named_buffers() do
    trace:declare("buffer", name, b)
  end
  return shown
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
---@return table spec
---@return {tensor: torch.Tensor, path: string}[] tensors
function M.flatten_call(s, values)
  local tensors, spec = {}, {}
  for i = 1, values.n do
    spec[i] = arguments.flatten(values[i], s.names[i] or ("argument %d"):format(i), tensors)
  end
  spec.n = values.n
  return spec, tensors
end

-- Arguments of forward that were left out.
local function left_out(s, spec)
  local names = {}
  for i, name in ipairs(s.names) do
    if i > spec.n or spec[i].kind == "value" and spec[i].value == nil then
      names[#names + 1] = ("'%s'"):format(name)
    end
  end
  return #names > 0 and table.concat(names, ", ") or nil
end

local function fail(s, spec, e)
  local missing = left_out(s, spec)
  local text = type(e) == "table" and e.message or tostring(e)
  if missing and (text:find("%f[%w]nil%f[%W]") or text:find("is missing", 1, true)) then
    errors.raise("Error", "forward failed and was called without its argument(s) %s: %s",
      missing, text)
  end
  if errors.Exception:is(e) and e.type == "untraceable_error" then
    e.type = "poptorch_cpp_error"
    setmetatable(e, errors.Error)
  end
  error(e, 0)
end

-- A constructor by type makes tensors of the host, whose other tensors become
-- constants: in forward it is torch.tensor that makes those of the device.
local function check_made(trace, made)
  for _, m in ipairs(made) do
    if trace:knows(m.tensor) then
      local t = m.tensor
      errors.fail(nil, "Expected an IPU tensor but got tensor(device=cpu, shape=[%s], "
        .. "dtype=%s), which torch.%s made at %s: write torch.tensor(values, {dtype = %s})",
        table.concat({ table.unpack(t.shape) }, ", "), m.name:match("^(%w+)Tensor$") or "Float",
        m.name, m.where, tostring(t.dtype))
    end
  end
end

-- Runs forward under the trace; results as {n, …}.
local function run_forward(s, trace, assigner, spec, stand_ins, shown)
  local Module = require("torch.nn").Module
  local at = 0
  local args = {}
  for i = 1, spec.n do
    args[i] = arguments.rebuild(spec[i], function()
      at = at + 1
      return stand_ins[at]
    end)
  end
  local frozen, made, before = {}, {}, forward.registered(s.model)
  local names = forward.names_of(trace, s.options.module_namescope)
  local results, changed
  do
    forward.show(before, shown)
    as_wrapped.follow(s.as_wrapped, s.model, s.view)
    local _ <close> = as_wrapped.restore(s.as_wrapped)
    local _ <close> = setmetatable({}, { __close = function(_, e)
      blocks.tracer, Module.tracer = nil, nil
      s.casting:finish()
      forward.thaw(frozen)
      changed = forward.take_back(before)
      blocks.check_closed(e or not results[1])
    end })
    s.casting = casting.Scopes(s.options)
    blocks.tracer = tracer_of(trace, assigner, names, s)
    Module.tracer = scope_of(names, s, frozen, made)
    local on = s.training or core.is_grad_enabled()
    local _ <close> = require("torch").set_grad_enabled(on)
    results = table.pack(pcall(trace.run, trace, false, s.called, table.unpack(args, 1, spec.n)))
  end
  forward.check_refused(trace, not results[1] and results[2])
  if not results[1] then
    fail(s, spec, results[2])
  end
  forward.check_registered(changed)
  check_made(trace, made)
  return table.pack(table.unpack(results, 2, results.n))
end

-- An operator outside any block, after a block has ended, is refused.
local function check_placed(step)
  for _, p in ipairs(step:places()) do
    if p.ipu < 0 then
      errors.fail(nil, "No active Block: %s (%s:%d) is outside any block, after a block has ended; "
        .. "move it into a Block scope", p.op, p.file, p.line)
    end
  end
end

-- Options.sourceLocationExcludes: the three that are there from the start stand
-- for the library, wherever its files are.
local function exclude(trace, options)
  local library, texts = false, {}
  local ours = tables.set(options:_row("source_location_excludes").default)
  for _, text in ipairs(options.source_location_excludes) do
    library = library or ours[text]
    texts[#texts + 1] = not ours[text] and text or nil
  end
  trace:excludes(texts, library)
end

--- Runs forward under a trace. What a report says of it beside the step is s.traced:
--- names of attributes, whether casting was asked for, overlaps.
--- error: poptorch.Error for what the trace or the options refuse
---@param s table the executor's state
---@param spec table of the arguments, from flatten_call
---@param tensors {tensor: torch.Tensor, path: string}[]
---@return lupine.Step step
---@return integer[] losses values of final losses
---@return table out_spec
function M.trace(s, spec, tensors)
  local trace = core.trace()
  trace:tolerate()
  trace:narrow()
  exclude(trace, s.options)
  s.calls, s.call_owners = {}, {}
  s.traced = { attributes = {} }
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
  local shown = declare_state(s, trace)
  local results = run_forward(s, trace, assigner, spec, stand_ins, shown)
  local outs, out_spec = {}, { n = results.n }
  for i = 1, results.n do
    out_spec[i] = arguments.flatten(results[i], "result", outs)
  end
  local list = {}
  for _, o in ipairs(outs) do
    if trace:knows(o.tensor) then
      list[#list + 1] = o.tensor
    else
      logging.warn("%s: a tensor that is not on the IPU is returned as it is now", o.path)
      o.spec.kind, o.spec.value = "value", o.tensor
    end
  end
  local step, losses = trace:step(list)
  check_placed(step)
  s.traced.casting = s.casting.asked
  s.traced.overlap = overlap.check(s.options, step)
  return step, losses, out_spec
end

return M
