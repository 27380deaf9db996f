--- The executor behind poptorch.trainingModel and poptorch.inferenceModel:
--- traces the model at the first call, compiles, runs; keeps the weights of
--- host and device in step.
---
--- Life: wrapped -> compiled (holds device memory) -> destroyed, and so on.
--- Sources: PopTorch API reference, PoplarExecutor; user guide 4.2, 4.3.
local arguments = require("lupine.arguments")
local class = require("lupine.class")
local completing = require("poptorch.completing")
local enums = require("poptorch.enums")
local errors = require("torch.errors")
local logging = require("poptorch.logging")
local placement = require("poptorch.placement")
local rules = require("poptorch.options.rules")
local tracing = require("poptorch.tracing")

local Executor = class.new("PoplarExecutor")

-- Methods are found in the class, everything else in the user's model.
local own = {}
local methods = {}

-- user model -> its training executor while it is wrapped
local wrapped = setmetatable({}, { __mode = "k" })

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

function Executor:init(model, options, training, optimizer)
  rawset(self, own, {
    options = rules.for_executor(options, training),
    training = training, optimizer = optimizer, model = model,
  })
end

function Executor.__index(self, key)
  local method = methods[key]
  if method then
    return method
  end
  local s = rawget(self, own)
  if not s then -- under construction
    return Executor[key]
  elseif key == "options" then
    return s.options
  elseif key == "model" then
    return s.model
  elseif key == "rng_state" then
    errors.check(s.exec, "Error", "rng_state: the model is not compiled (or was destroyed)")
    return { s.exec:rng() }
  end
  local value = s.model[key]
  errors.check(value ~= nil, "AttributeError", "neither the executor nor the model has '%s'",
    tostring(key))
  if type(value) == "function" then -- a method of the model
    return function(first, ...)
      if rawequal(first, self) then
        first = s.model
      end
      return value(first, ...)
    end
  end
  return value
end

function Executor.__newindex(self, key, value)
  local s = rawget(self, own)
  if key == "rng_state" then
    errors.check(s.exec, "Error", "rng_state: the model is not compiled (or was destroyed)")
    s.exec:rng(value[1], value[2])
    return
  end
  s.model[key] = value
end

-- ---- compiling ----------------------------------------------------------------

local function check_replicated_buffers(s, vars)
  if s.options.replication_factor <= 1 or not s.options.broadcast_buffers then
    return
  end
  for _, v in ipairs(vars) do
    errors.check(not (v.role == "buffer" and v.written), "Error",
      "buffer '%s' is modified by forward and there are %d replicas: each would have its own "
      .. "value; allow that with options:broadcastBuffers(false)", v.name,
      s.options.replication_factor)
  end
end

-- The device's variables that mirror tensors of the host.
local function mirror(s)
  for _, v in ipairs(s.vars) do
    local t = v.role == "parameter" and s.params[v.name]
      or v.role == "buffer" and v.written and s.buffers[v.name]
    if t then
      s.mirrored[#s.mirrored + 1] = { index = v.index, tensor = t }
      if s.training then
        s.exec:mirror(v.index, t)
      end
    end
  end
end

local function compile(s, spec, tensors)
  local started = os.clock()
  local target = rules.check_compile(s.options, s.training)
  local step, losses, out_spec, assigner = tracing.trace(s, spec, tensors)
  placement.check_order(assigner)
  placement.check_batching(assigner, s.options, s.training)
  s.num_ipus = placement.num_ipus(assigner, s.options, target.kind == "hardware")
  local _, by_name = completing.index(step)
  completing.complete(s, step, losses, by_name)
  s.vars = completing.index(step)
  check_replicated_buffers(s, s.vars)
  s.params, s.buffers, s.mirrored = {}, {}, {}
  for name, p in s.model:named_parameters() do
    s.params[name] = p
  end
  for name, b in s.model:named_buffers() do
    s.buffers[name] = b
  end
  s.spec, s.out_spec, s.assigner = spec, out_spec, assigner
  s.report = require("poptorch.simulation").analyse(s, step, target)
  s.exec = step:compile({})
  if s.options.random_seed then
    s.exec:rng(s.options.random_seed, 0)
  end
  s.inputs, s.outputs, s.written_inputs = {}, {}, {}
  for _, v in ipairs(s.vars) do
    if v.role == "input" then
      s.inputs[#s.inputs + 1] = v
    elseif v.role == "output" then
      if v.of > 0 then
        s.written_inputs[#s.written_inputs + 1] = v
      else
        s.outputs[#s.outputs + 1] = v
      end
    end
  end
  mirror(s)
  s.compile_seconds = os.clock() - started
  logging.info("compiled in %.2f s", s.compile_seconds)
end

-- ---- running ---------------------------------------------------------------

-- An inference model sees weights that a training model of the same module has
-- changed since.
local function refresh_weights(s)
  local trainer = wrapped[s.model]
  local version = trainer and rawget(trainer, own).weights_version or nil
  if s.training or not version or version == s.seen_version then
    return
  end
  s.seen_version = version
  for _, m in ipairs(s.mirrored) do
    s.exec:write(m.index, m.tensor)
  end
end

local function modes_of(s)
  local o = s.options
  local mode = { mode = MODE[o.output_mode], period = o.output_return_period }
  errors.check(mode.mode ~= "everyn" or o.device_iterations % mode.period == 0, "Error",
    "OutputMode.EveryN: the period %d must divide the %d device iterations", mode.period,
    o.device_iterations)
  local modes = {}
  for _, v in ipairs(s.outputs) do
    modes[v.index] = mode
  end
  for _, v in ipairs(s.written_inputs) do
    modes[v.index] = { mode = "all", period = 1 }
  end
  return modes
end

local function call(s, values)
  local spec, tensors = tracing.flatten_call(s, values)
  local originals = {}
  for i, t in ipairs(tensors) do
    originals[i] = t.tensor
    t.tensor = narrow(t.tensor:detach())
  end
  for i = 1, spec.n do
    spec[i] = arguments.flatten(values[i], s.names[i] or ("argument %d"):format(i), {})
  end
  if not s.exec then
    compile(s, spec, tensors)
  else
    errors.check(spec.n == s.spec.n, "Error", "expected %d arguments as compiled, got %d",
      s.spec.n, spec.n)
    for i = 1, spec.n do
      arguments.match(s.spec[i], spec[i], s.names[i] or ("argument %d"):format(i))
    end
  end
  refresh_weights(s)
  local feed = {}
  for i, v in ipairs(s.inputs) do
    feed[v.index] = tensors[i].tensor
  end
  local got = s.exec:run(feed, modes_of(s))
  if s.training then
    s.exec:mark()
    s.weights_version = (s.weights_version or 0) + 1
    s.optimizer_dirty = true
  end
  for _, v in ipairs(s.written_inputs) do
    require("torch").no_grad(function()
      originals[v.of]:copy_(got[v.index])
    end)
  end
  local at = 0
  local out = {}
  for i = 1, s.out_spec.n do
    out[i] = arguments.rebuild(s.out_spec[i], function()
      at = at + 1
      return got[s.outputs[at].index]
    end)
  end
  return table.unpack(out, 1, s.out_spec.n)
end

local function bind(s, ...)
  if not s.names then
    s.names, s.variadic = arguments.parameters(s.model.forward)
  end
  return arguments.bind(s.names, s.variadic, ...)
end

function Executor.__call(self, ...)
  local s = rawget(self, own)
  return call(s, bind(s, ...))
end

--- Compiles for inputs of these shapes and types without running.
--- source: 001 PoplarExecutor.compile
---@param ... any the arguments of forward
function methods.compile(self, ...)
  local s = rawget(self, own)
  if s.exec then
    logging.warn("compile: the model is compiled already, this call is ignored")
    return
  end
  local spec, tensors = tracing.flatten_call(s, bind(s, ...))
  for _, t in ipairs(tensors) do
    t.tensor = narrow(t.tensor:detach())
  end
  compile(s, spec, tensors)
end

local function compiled(self, what)
  local s = rawget(self, own)
  errors.check(s.exec, "Error", "%s: the model is not compiled (or was destroyed)", what)
  return s
end

---@return boolean
function methods.isCompiled(self)
  return rawget(self, own).exec ~= nil
end

--- Copies the device's parameters and modified buffers to the host module.
function methods.copyWeightsToHost(self)
  local s = compiled(self, "copyWeightsToHost")
  if s.training then
    s.exec:pull()
    return
  end
  for _, m in ipairs(s.mirrored) do
    s.exec:read_into(m.index, m.tensor)
  end
end

--- The same, only if the device's are newer.
---@return boolean copied
function methods.copyWeightsToHostIfNeeded(self)
  local s = compiled(self, "copyWeightsToHostIfNeeded")
  if not s.training or not s.exec:marked() then
    return false
  end
  s.exec:pull()
  return true
end

--- Copies the host module's parameters and buffers to the device; what was
--- trained there since the last copy to the host is lost.
function methods.copyWeightsToDevice(self)
  local s = compiled(self, "copyWeightsToDevice")
  if s.training then
    s.exec:unmark()
    s.weights_version = (s.weights_version or 0) + 1
  end
  for _, m in ipairs(s.mirrored) do
    s.exec:write(m.index, m.tensor)
  end
end

--- Number of times that weights came from the device to the host.
function methods.weightPulls(self)
  return compiled(self, "weightPulls").exec:pulls()
end

--- New values of the optimizer's attributes take effect; with another optimizer
--- of the same kind its values and, if it has any, its state.
--- source: 001 PoplarExecutor.setOptimizer
---@param optimizer torch.optim.Optimizer
function methods.setOptimizer(self, optimizer)
  local s = rawget(self, own)
  errors.check(s.training, "Error", "setOptimizer: this is no training model")
  local old = s.optimizer
  s.optimizer = optimizer
  if not s.exec then
    return
  end
  errors.check(class.of(old) == class.of(optimizer), "Error",
    "setOptimizer: the model was compiled for %s, not %s", class.of(old).__name,
    class.of(optimizer).__name)
  for _, h in ipairs(s.hypers) do
    local group = optimizer.param_groups[h.group]
    errors.check(group, "Error", "setOptimizer: the model was compiled for %d parameter groups, "
      .. "this optimizer has %d", h.group, #optimizer.param_groups)
    s.exec:write(h.index, optimizer:hyper_tensor(group, h.name))
  end
end

--- Loads a state dict into the module and onto the device.
---@param state table
---@param strict? boolean
---@return table missing_and_unexpected
function methods.load_state_dict(self, state, strict)
  local s = rawget(self, own)
  local result = s.model:load_state_dict(state, strict)
  if s.exec then
    methods.copyWeightsToDevice(self)
  end
  return result
end

function methods.state_dict(self)
  return rawget(self, own).model:state_dict()
end

function methods.train(self, mode)
  rawget(self, own).model:train(mode)
  return self
end

function methods.eval(self)
  rawget(self, own).model:eval()
  return self
end

--- Frees the device; weights and optimizer state come to the host first. A
--- training model is unwrapped.
function methods.destroy(self)
  local s = rawget(self, own)
  if not s.exec then
    return
  end
  if s.training then
    if s.exec:marked() then
      s.exec:pull()
    end
    for _, state in pairs(s.states) do
      s.exec:read_into(state.index, state.tensor)
    end
    wrapped[s.model] = nil
  end
  s.exec:close()
  s.exec = nil
end

--- Seconds that compiling took.
---@return number
function methods.compilationTime(self)
  local s = compiled(self, "compilationTime")
  errors.check(s.options.show_compilation_progress_bar ~= false, "Error",
    "compilationTime: not measured when the progress bar is off "
    .. "(Options.showCompilationProgressBar(false))")
  return s.compile_seconds
end

--- Names of the compiled program's tensors.
---@return string[]
function methods.getTensorNames(self)
  local s = rawget(self, own)
  errors.check(s.exec, "AssertionError", "getTensorNames: the model is not compiled")
  local names = {}
  for i, v in ipairs(s.vars) do
    names[i] = v.name
  end
  return names
end

--- What the simulated system says about the compiled program.
---@return lupine.Report
function methods.report(self)
  return compiled(self, "report").report
end

function Executor.__tostring(self)
  return tostring(rawget(self, own).model)
end

local M = { Executor = Executor }

--- Wraps a module for training: forward, loss, backward and weight update run
--- on the device. source: 001 poptorch.trainingModel
--- error: RuntimeError if the module is wrapped already
---@param model torch.nn.Module whose forward computes a loss
---@param options? poptorch.Options
---@param optimizer? torch.optim.Optimizer default SGD with lr 0.01
---@return poptorch.PoplarExecutor
function M.trainingModel(model, options, optimizer)
  if Executor:is(model) then
    model = rawget(model, own).model
  end
  options, optimizer = M._keywords(options, optimizer)
  errors.check(not wrapped[model], "RuntimeError",
    "this model is already wrapped by poptorch.trainingModel: destroy() that one first")
  optimizer = optimizer or require("torch.optim").SGD(model:parameters(), { lr = 0.01 })
  local executor = Executor(model, options, true, optimizer)
  wrapped[model] = executor
  return executor
end

--- Wraps a module for inference. source: 001 poptorch.inferenceModel
--- error: poptorch.Error for options with gradient accumulation
---@param model torch.nn.Module|poptorch.PoplarExecutor
---@param options? poptorch.Options
---@return poptorch.PoplarExecutor
function M.inferenceModel(model, options)
  if Executor:is(model) then
    model = rawget(model, own).model
  end
  options = M._keywords(options)
  return Executor(model, options, false)
end

-- {options = …, optimizer = …} as the last argument.
function M._keywords(options, optimizer)
  if type(options) == "table" and not getmetatable(options) and next(options) ~= nil then
    for key in pairs(options) do
      errors.check(key == "options" or key == "optimizer", "TypeError",
        "unknown keyword '%s': options and optimizer are allowed", tostring(key))
    end
    return options.options, options.optimizer
  elseif type(optimizer) == "table" and not getmetatable(optimizer) and optimizer.optimizer then
    return options, optimizer.optimizer
  end
  return options, optimizer
end

return M
