--- The executor's work: traces a model, checks and narrows what it is called
--- with, opens a session and runs it. What it was compiled for stands in the
--- executor's state `s`. Source: PopTorch user guide 4.2 and 5.
local advice = require("poptorch.advice")
local arguments = require("lupine.base.arguments")
local attaching = require("poptorch.attaching")
local auto_blocks = require("poptorch.auto_blocks")
local caching = require("poptorch.caching")
local compile_log = require("poptorch.compile_log")
local completing = require("poptorch.completing")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")
local logging = require("poptorch.logging")
local own = require("poptorch.executor.own")
local reports = require("poptorch.reports")
local returned = require("lupine.session.returned")
local rules = require("poptorch.options.rules")
local session = require("lupine.session")
local simulation = require("poptorch.simulation")
local spans = require("lupine.base.spans")
local state = require("poptorch.state")
local supported = require("poptorch.supported")
local tables = require("lupine.base.tables")
local tracepoints = require("lupine.tracepoints")
local tracing = require("poptorch.tracing")

local M = { pre_compile_hooks = {}, post_compile_hooks = {} }

local NARROW -- dtypes that the device has in a narrower form

--- The type in which the device has tensors of a dtype.
---@param dtype torch.dtype
---@return torch.dtype
function M.narrow_dtype(dtype)
  local torch = require("torch")
  NARROW = NARROW or { [torch.int64] = torch.int32, [torch.float64] = torch.float32,
    [torch.bfloat16] = torch.float32 }
  return NARROW[dtype] or dtype
end

--- The tensor as the device has it.
---@param tensor torch.Tensor
---@return torch.Tensor
function M.narrow(tensor)
  local to = M.narrow_dtype(tensor.dtype)
  return to == tensor.dtype and tensor or tensor:to(to)
end
local narrow = M.narrow

-- ---- arguments -----------------------------------------------------------------

-- Warns once a model of a kind of input.
local function warn_once(s, kind, path, text)
  s.warned = s.warned or {}
  if not s.warned[kind] then
    s.warned[kind] = true
    logging.warn("%s: %s", path, text)
  end
end

-- The device has no 64 bits.
local function check_range(s, t)
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
    warn_once(s, "range " .. t.path, t.path, ("values from %s to %s do not fit in %s, which the "
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
      warn_once(s, "grad", t.path, "an input that requires a gradient is detached: none flows out "
        .. "of the device")
    end
    if not t.tensor:is_contiguous() then
      warn_once(s, "strides", t.path, "an input that is not contiguous is copied at every call")
    end
    check_range(s, t)
    t.tensor = narrow(t.tensor:detach())
    t.spec.dtype, t.spec.given = t.tensor.dtype, t.spec.dtype
  end
  return spec, tensors, originals
end

local function match(s, spec)
  arguments.need(spec.n == s.spec.n, "number of arguments: expected %d as compiled, got %d",
    s.spec.n, spec.n)
  for i = 1, spec.n do
    arguments.match(s.spec[i], spec[i], s.names[i] or ("argument %d"):format(i))
  end
end

-- ---- compiling -----------------------------------------------------------------

local function check_replicated_buffers(s, vars)
  if s.options.replication_factor <= 1 or not s.options.broadcast_buffers then
    return
  end
  for _, v in ipairs(vars) do
    if v.role == "buffer" and v.written then
      errors.fail(nil, "buffer '%s' is modified by forward and there are %d replicas: each would "
        .. "have its own value; allow that with options:broadcastBuffers(false)", v.name,
        s.options.replication_factor)
    end
  end
end

-- Traces the model and checks what it asks for; the step and what a session
-- makes of it.
local function trace(s, spec, tensors)
  local target = rules.check_compile(s.options, s.training)
  local step, losses, out_spec = tracing.trace(s, spec, tensors)
  local vars, by_name = session.index(step)
  supported.check(s.options, s.training)
  check_replicated_buffers(s, vars)
  local wanted = completing.spec(s, losses, by_name)
  wanted.system, wanted.spelling = simulation.settings(s.options, target), advice.OPTIONS
  wanted.system.recompute = s.recompute or wanted.system.recompute
  wanted.cache = caching.of(s.options, target)
  wanted.tensors, wanted.calls = own.tensors_of(s), s.calls
  wanted.seed = s.options.random_seed or require("torch").initial_seed()
  function wanted.place(report)
    return attaching.place(s, target, report)
  end
  s.spec, s.out_spec, s.anchors = spec, out_spec, wanted.anchors
  return step, wanted
end

-- Inputs of these types with other rows: as many times as n is of `of`.
local function with_rows(tensors, n, of)
  local out = {}
  for i, t in ipairs(tensors) do
    local shape = { table.unpack(t.tensor.shape) }
    shape[1] = shape[1] and shape[1] * n // of
    out[i] = { path = t.path, tensor = { shape = shape, dtype = t.tensor.dtype } }
  end
  return out
end

-- Fewer rows a micro-batch by a factor and as many more of them in an update, of the same
-- call, or n of them: the step, its system and how many there are.
local function smaller(s, spec, tensors, factor, n)
  local other = tables.with(s, { options = s.options:clone() })
  local same = math.tointeger(factor * s.options.Training.gradient_accumulation)
  errors.check(same, "Error", "gradientAccumulation: no whole number of micro-batches")
  n = n or same
  other.options.Training:gradientAccumulation(n)
  local step, wanted = trace(other, spec, with_rows(tensors, n, same))
  session.complete(step, wanted)
  return step, wanted.system, n
end

-- The same as a function of the factor and of n, for inputs of these types; nil for
-- inference, which has none.
local function smaller_of(s, spec, tensors)
  local types = with_rows(tensors, 1, 1)
  return s.training and function(factor, n)
    return smaller(s, spec, types, factor, n)
  end or nil
end

--- The step of a model that is not compiled, complete, and what it is compiled with.
---@param s table the executor's state
---@param values table the call's arguments
---@return lupine.Step step
---@return table wanted spec of lupine.session
function M.step(s, values)
  local spec, tensors = take(s, values)
  local step, wanted = trace(s, spec, tensors)
  session.complete(step, wanted)
  wanted.smaller = smaller_of(s, spec, tensors)
  return step, wanted
end

-- Opens a session of the model, traced and compiled.
local function open(s, spec, tensors)
  local bar <close> = compile_log.bar(s.options)
  local step, wanted = s.channel:tracepoint("graphPreprocessing", function()
    if auto_blocks.begin(s) then
      auto_blocks.place(s, trace(s, spec, tensors))
    end
    return trace(s, spec, tensors)
  end)
  if bar then
    bar:update()
    wanted.progress = function()
      bar:update()
    end
  end
  wanted.smaller = smaller_of(s, spec, tensors)
  s.smaller = wanted.smaller
  local opened = session.open(step, wanted)
  if bar then -- a program of the cache has not been compiled in parts
    bar:update(bar.total - bar.n)
  end
  return opened
end

--- The executor has this session from now on.
---@param s table the executor's state
---@param opened lupine.Session
---@param started number core.host.clock() before that
---@param what string "compiled", or where from
function M.install(s, opened, started, what)
  simulation.annotate(s, opened)
  if s.options.host_profile then
    opened.exec:profile(true)
  end
  s.session, s.anchored, s.logs_cycles = opened, {}, s.options.log_cycle_count
  if s.training then
    state.link(s)
  end
  s.compile_seconds = core.host.clock() - started
  logging.info("%s in %.2f s", what, s.compile_seconds)
  attaching.complete(s)
end

local function compile(s, spec, tensors)
  local _ <close> = s.channel:_scope("modelCompilation", "compiling")
  if s.spec then
    compile_log.again(pcall(match, s, spec))
  end
  compile_log.options(s.options)
  reports.prepare(s)
  hooks.run(M.pre_compile_hooks)
  local started = core.host.clock()
  local opened = open(s, spec, tensors)
  M.install(s, opened, started, "compiled")
  compile_log.program(opened)
  reports.write(s, opened)
  hooks.run(M.post_compile_hooks)
end

--- Compiles for a call's arguments without running.
---@param s table
---@param values {n: integer}
function M.compile(s, values)
  logging.use_file(s.log_file)
  local spec, tensors = take(s, values)
  advice.call(compile, s, spec, tensors)
end

-- ---- running ---------------------------------------------------------------------

local NO_BACKWARD = { class = "Error", message = "backward() on a result of a poptorch model: a "
  .. "model wrapped by trainingModel runs the backward pass and the weight update itself when it "
  .. "is called; take the backward() and optimizer:step() calls out" }

local function rebuild(s, results)
  local at = 0
  local function next_output()
    at = at + 1
    local t = narrow(results[at])
    returned.mark(t, NO_BACKWARD)
    return t
  end
  local out = {}
  for i = 1, s.out_spec.n do
    out[i] = arguments.rebuild(s.out_spec[i], next_output)
  end
  return table.unpack(out, 1, s.out_spec.n)
end

local function call(s, values)
  local _ <close> = spans.active and spans.open("inputs and results")
  errors.check(s.options.connection_type ~= enums.ConnectionType.Never, "AssertionError",
    "the model is for an offline device (ConnectionType.Never): it can be compiled, not run")
  if logging.file_now ~= s.log_file then
    logging.use_file(s.log_file)
  end
  local spec, tensors, originals = take(s, values)
  if s.session then
    match(s, spec)
  else
    compile(s, spec, tensors)
  end
  attaching.attach(s)
  for i, t in ipairs(tensors) do
    tensors[i] = t.tensor
  end
  local synthetic = s.options.enable_synthetic_data
  local results, written, anchors
  do
    local _ <close> = tracepoints.active and s.channel:tracepoint("modelExecution")
    results, written, anchors = s.session:run(tensors, synthetic)
  end
  if s.logs_cycles then
    logging.debug("Total number of IPU cycles: %d", s.session.report.cycles)
  end
  for i, anchor in ipairs(s.anchors) do
    s.anchored[anchor.short_name] = narrow(anchors[i])
  end
  for i, t in pairs(synthetic and {} or written) do
    require("torch").no_grad(function()
      originals[i]:copy_(t:reshape(originals[i].shape))
    end)
  end
  return rebuild(s, results)
end

--- One call of the model.
---@param s table
---@param values {n: integer}
---@return any ... what forward returned
function M.call(s, values)
  return advice.call(call, s, values)
end

return M
