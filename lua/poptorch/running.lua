--- The executor's work: compiles a traced model and runs it. What the device
--- holds and what it was compiled for stands in the executor's state `s`.
---
--- Rows of the host's tensors are in the order [device iteration]
--- [accumulation step][replica, or input group][rows of a micro-batch].
--- Source: PopTorch user guide 4.2 and 5.
local arguments = require("lupine.base.arguments")
local completing = require("poptorch.completing")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")
local logging = require("poptorch.logging")
local placement = require("poptorch.placement")
local rules = require("poptorch.options.rules")
local spans = require("lupine.base.spans")
local state = require("poptorch.state")
local supported = require("poptorch.supported")
local tracing = require("poptorch.tracing")

local M = { pre_compile_hooks = {}, post_compile_hooks = {} }

local NARROW -- dtypes that the device has in a narrower form

local function narrow(tensor)
  local torch = require("torch")
  NARROW = NARROW or { [torch.int64] = torch.int32, [torch.float64] = torch.float32,
    [torch.bfloat16] = torch.float32 }
  local to = NARROW[tensor.dtype]
  return to and tensor:to(to) or tensor
end

local MODE = { [enums.OutputMode.Final] = "final", [enums.OutputMode.EveryN] = "everyn",
  [enums.OutputMode.All] = "all", [enums.OutputMode.Sum] = "sum" }

-- ---- arguments -----------------------------------------------------------------

local warned = {} -- kinds of input that were warned of

local function warn_once(kind, path, text)
  if not warned[kind] then
    warned[kind] = true
    logging.warn("%s: %s", path, text)
  end
end

-- The device has no 64 bits.
local function check_range(t)
  local torch = require("torch")
  local x, limit = t.tensor
  if x:numel() == 0 or x.is_meta then
    return
  elseif x.dtype == torch.int64 then
    limit = torch.iinfo(torch.int32).max
  elseif x.dtype == torch.float64 then
    limit = torch.finfo(torch.float32).max
  else
    return
  end
  x = x:detach()
  local low, high = x:min():item(), x:max():item()
  if high > limit and high < math.huge or low < -limit - 1 and low > -math.huge then
    local has = x:is_floating_point() and "float32" or "int32"
    warn_once("range " .. t.path, t.path, ("values from %s to %s do not fit in %s, which the "
      .. "device has for %s: they are changed"):format(low, high, has, tostring(x.dtype)))
  end
end

-- The call's arguments as specs of what the device gets, their tensors, and
-- the tensors that the caller gave.
local function take(s, values)
  local spec, tensors = tracing.flatten_call(s, values)
  local originals = {}
  for i, t in ipairs(tensors) do
    originals[i] = t.tensor
    if t.tensor.requires_grad then
      warn_once("grad", t.path, "an input that requires a gradient is detached: none flows out "
        .. "of the device")
    end
    if not t.tensor:is_contiguous() then
      warn_once("strides", t.path, "an input that is not contiguous is copied at every call")
    end
    check_range(t)
    t.tensor = narrow(t.tensor:detach())
    t.spec.dtype, t.spec.given = t.tensor.dtype, t.spec.dtype
  end
  return spec, tensors, originals
end

local function match(s, spec)
  errors.check(spec.n == s.spec.n, "Error", "number of arguments: expected %d as compiled, "
    .. "got %d; to compile for other inputs, destroy() the model or wrap it again", s.spec.n,
    spec.n)
  for i = 1, spec.n do
    arguments.match(s.spec[i], spec[i], s.names[i] or ("argument %d"):format(i))
  end
end

-- ---- compiling -----------------------------------------------------------------

local function check_replicated_buffers(s)
  if s.options.replication_factor <= 1 or not s.options.broadcast_buffers then
    return
  end
  for _, v in ipairs(s.vars) do
    errors.check(not (v.role == "buffer" and v.written), "Error",
      "buffer '%s' is modified by forward and there are %d replicas: each would have its own "
      .. "value; allow that with options:broadcastBuffers(false)", v.name,
      s.options.replication_factor)
  end
end

local function state_of(s)
  local params, buffers = {}, {}
  for name, p in s.model:named_parameters() do
    params[name] = p
  end
  for name, b in s.model:named_buffers() do
    buffers[name] = b
  end
  return params, buffers
end

-- Buffers that copyNamedBuffersToDevice may change.
local function updatable(s, buffers)
  local set = {}
  for _, name in ipairs(s.options.updatable_named_buffers or {}) do
    errors.check(buffers[name], "Error",
      "updatableNamedBuffers: the model has no buffer '%s'", tostring(name))
    set[name] = true
  end
  return set
end

-- The device's variables that have a tensor on the host: `mirrored` come back
-- (parameters, buffers that forward writes), all are `uploaded`.
local function mirror(s)
  local params, buffers = state_of(s)
  local named = updatable(s, buffers)
  s.mirrored, s.uploaded, s.named_buffers = {}, {}, {}
  for _, v in ipairs(s.vars) do
    local t = v.role == "parameter" and params[v.name] or v.role == "buffer" and buffers[v.name]
    if t then
      local entry = { index = v.index, tensor = t }
      s.uploaded[#s.uploaded + 1] = entry
      if v.role == "parameter" or v.written then
        s.mirrored[#s.mirrored + 1] = entry
        if s.training then
          s.exec:mirror(v.index, t)
        end
      end
      if v.role == "buffer" and named[v.name] then
        s.named_buffers[#s.named_buffers + 1] = entry
      end
    end
  end
  state.up_to_date(s)
end

-- The outputs of a step: what forward returned, inputs that it wrote, anchors.
local function sort_streams(s)
  s.inputs, s.outputs, s.written_inputs, s.modes = {}, {}, {}, {}
  local mode = { mode = MODE[s.options.output_mode], period = s.options.output_return_period }
  local outputs = {}
  for _, v in ipairs(s.vars) do
    if v.role == "input" then
      s.inputs[#s.inputs + 1] = v
    elseif v.role == "output" then
      outputs[#outputs + 1] = v
    end
  end
  local own = #outputs - #s.anchors
  for i, v in ipairs(outputs) do
    if i > own then
      local anchor = s.anchors[i - own]
      anchor.index = v.index
      s.modes[v.index] = { mode = MODE[anchor.mode] or mode.mode, period = anchor.period }
    else
      local list = v.of > 0 and s.written_inputs or s.outputs
      list[#list + 1] = v
      s.modes[v.index] = v.of > 0 and { mode = "all", period = 1 } or mode
    end
  end
end

-- For each slice that the program reads the host's slice, where replicas of a
-- group share one: Consecutive replica r reads group r // size, Orthogonal
-- group r % groups.
local function group_order(options)
  local rf, size = options.replication_factor, options.input_group_size
  if size == 1 then
    return nil
  end
  local groups = rf // size
  local orthogonal = options.input_group_type == enums.CommGroupType.Orthogonal
  local order = {}
  for step = 0, options.device_iterations * options.Training.gradient_accumulation - 1 do
    for r = 0, rf - 1 do
      order[#order + 1] = step * groups + (orthogonal and r % groups or r // size)
    end
  end
  return order, groups
end

local function seed(s)
  return s.options.random_seed or require("torch").initial_seed()
end

local function build(s, spec, tensors)
  local target = rules.check_compile(s.options, s.training)
  local step, losses, out_spec, assigner = tracing.trace(s, spec, tensors)
  placement.check_order(assigner)
  placement.check_batching(assigner, s.options, s.training)
  s.num_ipus = placement.num_ipus(assigner, s.options, target.kind == "hardware")
  local vars, by_name = completing.index(step)
  supported.check(s.options, s.training, vars)
  completing.complete(s, step, losses, by_name)
  s.vars = completing.index(step)
  check_replicated_buffers(s)
  sort_streams(s)
  s.spec, s.out_spec, s.assigner, s.synthetic = spec, out_spec, assigner, nil
  s.order, s.groups = group_order(s.options)
  s.report = require("poptorch.simulation").analyse(s, step, target)
  completing.start_states(s)
  return step:compile({})
end

local function compile(s, spec, tensors)
  local _ <close> = spans.active and spans.open("compiling")
  hooks.run(M.pre_compile_hooks)
  local started = os.clock()
  local exec = build(s, spec, tensors)
  s.exec, s.has_run, s.anchored = exec, false, {}
  if s.options.host_profile then
    exec:profile(true)
  end
  local ok, e = pcall(mirror, s)
  if not ok then
    s.exec = nil
    exec:close()
    error(e, 0)
  end
  exec:rng(seed(s), 0)
  s.attached = s.options.connection_type ~= enums.ConnectionType.Never
  s.offline = not s.attached
  if s.training then
    state.link(s)
  end
  s.compile_seconds = os.clock() - started
  logging.info("compiled in %.2f s", s.compile_seconds)
  hooks.run(M.post_compile_hooks)
end

--- Compiles for a call's arguments without running.
---@param s table
---@param values {n: integer}
function M.compile(s, values)
  local spec, tensors = take(s, values)
  compile(s, spec, tensors)
end

-- ---- running ---------------------------------------------------------------------

local function rows_of(tensor, order, count)
  local torch = require("torch")
  local n = tensor:dim() > 0 and tensor:size(0) // count or 1
  local rest = tensor:dim() > 0 and { table.unpack(tensor.shape, 2) } or {}
  return tensor:reshape({ count, n, table.unpack(rest) })
    :index_select(0, torch.tensor(order, { dtype = torch.int32 })),
    { #order * n, table.unpack(rest) }
end

-- The host's rows as the program reads them.
local function spread(s, tensor)
  if not s.order then
    return tensor
  end
  local steps = #s.order // s.options.replication_factor
  local rows, shape = rows_of(tensor, s.order, steps * s.groups)
  return rows:reshape(shape)
end

-- The host's rows from those of all replicas: of a group the first replica's.
local function gather(s, tensor)
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
  local rows, shape = rows_of(tensor, at, #s.order)
  return rows:reshape(shape)
end

-- With synthetic data nothing comes from the host: floating inputs are normal
-- numbers, made once, others are 0 (any class id or index allows that).
local function synthetic(s, tensors)
  local torch = require("torch")
  local g = torch.Generator()
  g:manual_seed(seed(s))
  local feed = {}
  for i, v in ipairs(s.inputs) do
    local t = spread(s, tensors[i].tensor)
    feed[v.index] = t:is_floating_point()
      and torch.randn(t.shape, { generator = g, dtype = t.dtype }) or torch.zeros_like(t)
  end
  return feed
end

local function feed_of(s, tensors)
  if s.options.enable_synthetic_data then
    s.synthetic = s.synthetic or synthetic(s, tensors)
    return s.synthetic
  end
  local feed = {}
  for i, v in ipairs(s.inputs) do
    feed[v.index] = spread(s, tensors[i].tensor)
  end
  return feed
end

local function write_back(s, originals, got)
  local torch = require("torch")
  for _, v in ipairs(s.written_inputs) do
    torch.no_grad(function()
      local original = originals[v.of]
      original:copy_(gather(s, got[v.index]):reshape(original.shape))
    end)
  end
end

-- Results of calls: a training model has done the backward pass already.
local returned = setmetatable({}, { __mode = "k" })

local backward = core.methods.backward
function core.methods.backward(self, ...)
  errors.check(not returned[self], "Error", "backward() on a result of a poptorch model: a model "
    .. "wrapped by trainingModel runs the backward pass and the weight update itself when it is "
    .. "called; take the backward() and optimizer:step() calls out")
  return backward(self, ...)
end

local function results(s, got)
  local at = 0
  local function next_output()
    at = at + 1
    local t = narrow(got[s.outputs[at].index])
    returned[t] = true
    return t
  end
  local out = {}
  for i = 1, s.out_spec.n do
    out[i] = arguments.rebuild(s.out_spec[i], next_output)
  end
  return table.unpack(out, 1, s.out_spec.n)
end

-- Also after a run that was cut short: what it finished has taken effect.
local function note_training(s)
  s.exec:mark()
  s.exec:mark("states")
  state.note_change(s)
end

--- One call of the model.
---@param s table
---@param values {n: integer}
---@param refresh fun(s: table) run before the program starts
---@return any ... what forward returned
function M.call(s, values, refresh)
  local _ <close> = spans.active and spans.open("inputs and results")
  errors.check(s.options.connection_type ~= enums.ConnectionType.Never, "AssertionError",
    "the model is for an offline device (ConnectionType.Never): it can be compiled, not run")
  local spec, tensors, originals = take(s, values)
  if s.exec then
    match(s, spec)
  else
    compile(s, spec, tensors)
  end
  refresh(s)
  local ok, got = pcall(s.exec.run, s.exec, feed_of(s, tensors), s.modes)
  if s.training then
    note_training(s)
  end
  if not ok then
    error(got, 0)
  end
  s.has_run = true
  for _, anchor in ipairs(s.anchors) do
    s.anchored[anchor.short_name] = narrow(got[anchor.index])
  end
  if not s.options.enable_synthetic_data then
    write_back(s, originals, got)
  end
  return results(s, got)
end

return M
