--- The executor behind poptorch.trainingModel and poptorch.inferenceModel:
--- traces the model at the first call, compiles, runs; keeps the weights of
--- host and device in step.
---
--- Life: wrapped -> compiled (holds device memory) -> destroyed, and so on.
--- Sources: PopTorch API reference, PoplarExecutor; user guide 4.2, 4.3.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local completing = require("poptorch.completing")
local counters = require("poptorch.counters")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")
local logging = require("poptorch.logging")
local rules = require("poptorch.options.rules")
local running = require("poptorch.running")
local state = require("poptorch.state")

local Executor = class.new("PoplarExecutor")

-- Methods are found in the class, everything else in the user's model.
local own = {}
local methods = {}
Executor.__methods = methods -- for completion

-- user model -> its training executor while it is wrapped
local wrapped = setmetatable({}, { __mode = "k" })

function Executor:init(model, options, training, optimizer)
  rawset(self, own, {
    options = rules.for_executor(options, training),
    training = training, optimizer = optimizer, model = model,
  })
end

-- Methods of the executor and of the model's classes.
local function names_of(model)
  local names = { "options", "model", "rng_state" }
  local function add(t)
    for name in next, t do
      names[#names + 1] = type(name) == "string" and not name:find("^_") and name or nil
    end
  end
  add(methods)
  local cls = class.of(model)
  while cls do
    add(cls)
    cls = rawget(cls, "__base")
  end
  return names
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
    errors.check(s.session, "Error", "rng_state: the model is not compiled (or was destroyed)")
    return { s.session:random_state() }
  end
  local value = s.model[key]
  if value == nil then
    require("lupine.base.absent")("PoplarExecutor", key)
    errors.raise("AttributeError", "neither the executor nor the model has '%s'%s", tostring(key),
      check.nearest(key, names_of(s.model)))
  end
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
    errors.check(s.session, "Error", "rng_state: the model is not compiled (or was destroyed)")
    s.session:random_state(value[1], value[2])
    return
  end
  s.model[key] = value
end

-- ---- running ----------------------------------------------------------------

-- Takes a device and brings what the host has there.
local function attach(s)
  if not s.attached then
    s.session:upload()
    if s.training then
      s.session:upload_hypers()
      s.session:upload_states()
    end
    s.attached = true
  end
end

local function bind(s, ...)
  if not s.names then
    s.names, s.variadic = arguments.parameters(s.model.forward)
  end
  return arguments.bind(s.names, s.variadic, ...)
end

function Executor.__call(self, ...)
  local s = rawget(self, own)
  return running.call(s, bind(s, ...), attach)
end

--- Compiles for inputs of these shapes and types without running.
--- source: 001 PoplarExecutor.compile
---@param ... any the arguments of forward
function methods.compile(self, ...)
  local s = rawget(self, own)
  if s.session then
    logging.warn("compile: the model is compiled already, this call is ignored")
    return
  end
  running.compile(s, bind(s, ...))
end

local function compiled(self, what)
  local s = rawget(self, own)
  errors.check(s.session, "Error", "%s: the model is not compiled (or was destroyed)", what)
  return s
end

---@return boolean
function methods.isCompiled(self)
  return rawget(self, own).session ~= nil
end

---@return boolean
function methods.isAttachedToDevice(self)
  local s = rawget(self, own)
  return s.session ~= nil and s.attached
end

-- ---- weights and buffers ----------------------------------------------------------

local function attached(self, what)
  local s = compiled(self, what)
  errors.check(s.attached, "Error", "%s: the model is not attached to a device", what)
  return s
end

--- Copies the device's parameters and modified buffers to the host module.
function methods.copyWeightsToHost(self)
  attached(self, "copyWeightsToHost").session:download()
end

--- The same, only if the device's are newer.
---@return boolean copied
function methods.copyWeightsToHostIfNeeded(self)
  return compiled(self, "copyWeightsToHostIfNeeded").session:download_newer()
end

--- Copies the host module's parameters and buffers to the device; what was
--- trained there since the last copy to the host is lost.
function methods.copyWeightsToDevice(self)
  attached(self, "copyWeightsToDevice").session:overwrite()
end

--- Copies the buffers that Options.updatableNamedBuffers lists to the device.
--- error: poptorch.Error if that option was not given
function methods.copyNamedBuffersToDevice(self)
  local s, names = attached(self, "copyNamedBuffersToDevice"), {}
  errors.check(s.options.updatable_named_buffers, "Error",
    "copyNamedBuffersToDevice: no buffer was named by Options.updatableNamedBuffers")
  for _, name in ipairs(s.options.updatable_named_buffers) do
    names[name] = true
  end
  s.session:upload_named("buffer", names)
end

--- Number of times that weights came from the device to the host.
function methods.weightPulls(self)
  return compiled(self, "weightPulls").session.exec:pulls()
end

-- ---- the optimizer ------------------------------------------------------------------

--- New values of the optimizer's attributes take effect; with another optimizer
--- of the same kind its values and, if it has any, its state.
--- source: 001 PoplarExecutor.setOptimizer
---@param optimizer torch.optim.Optimizer
function methods.setOptimizer(self, optimizer)
  local s = rawget(self, own)
  errors.check(s.training, "Error", "setOptimizer: this is no training model")
  completing.check_kind(optimizer, "setOptimizer")
  completing.choose_reduction(s, optimizer, "setOptimizer")
  if not s.session then
    s.optimizer = optimizer
    return
  end
  completing.check_optimizer(s, optimizer, "setOptimizer")
  if optimizer ~= s.optimizer then
    state.adopt(s, optimizer)
    s.session:upload_hypers()
    state.link(s)
  else
    state.upload_edited(s)
    s.session:upload_hypers()
  end
end

--- Loads a state dict into the module and onto the device.
---@param values table
---@param ... any strict (true)
---@return table missing_and_unexpected
function methods.load_state_dict(self, values, ...)
  local s = rawget(self, own)
  local result = s.model:load_state_dict(values, ...)
  if s.session and s.attached then
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

-- ---- the device ---------------------------------------------------------------------

--- Gives the device back; weights, optimizer state and random state are kept on
--- the host.
--- error: poptorch.Error if the model is not compiled or not attached
function methods.detachFromDevice(self)
  local s = attached(self, "detachFromDevice")
  s.session:settle()
  s.attached = false
end

--- Takes a device again and brings weights, optimizer and random state there.
--- A call of a detached model does that by itself.
--- error: poptorch.Error if the model is not compiled or is attached
function methods.attachToDevice(self)
  local s = compiled(self, "attachToDevice")
  errors.check(s.options.connection_type ~= enums.ConnectionType.Never, "AssertionError",
    "attachToDevice: the model was compiled for an offline device (ConnectionType.Never)")
  errors.check(not s.attached, "Error", "attachToDevice: the model is attached to a device")
  attach(s)
end

--- Frees the device; weights and optimizer state come to the host first. A
--- training model is unwrapped.
function methods.destroy(self)
  local s = rawget(self, own)
  if not s.session then
    return
  end
  s.session:settle()
  if s.training then
    state.release(s)
    wrapped[s.model] = nil
  end
  s.session:close()
  s.session, s.attached = nil, false
end

-- ---- figures of the simulated machine ---------------------------------------------------

--- Cycles of the last call on the simulated IPU, those of the first replica.
--- error: poptorch.Error without Options.logCycleCount(true), or before a call
---@return integer
function methods.cycleCount(self)
  local s = compiled(self, "cycleCount")
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
function methods.getPerfCounters(self)
  return counters.events(rawget(self, own))
end

--- Seconds from the first input asked for to the last one on the IPU.
---@return number min, number max, number avg
function methods.getHostIpuLatency(self)
  return counters.latency(rawget(self, own), "input", "input_complete", math.min, math.max)
end

--- Seconds from the last input on the IPU to the first output offered.
---@return number min, number max, number avg
function methods.getComputeLatency(self)
  return counters.latency(rawget(self, own), "input_complete", "output", math.max, math.min)
end

--- Seconds from the first output offered to the last one on the host.
---@return number min, number max, number avg
function methods.getIpuHostLatency(self)
  return counters.latency(rawget(self, own), "output", "output_complete", math.min, math.max)
end

--- Seconds from the first input asked for to the last output on the host.
---@return number min, number max, number avg
function methods.getLatency(self)
  return counters.latency(rawget(self, own), "input", "output_complete", math.min, math.max)
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

--- Where the host's time went in the calls so far.
--- error: poptorch.Error without Options.hostProfile(true), or before a call
---@return lupine.Profile
function methods.hostProfile(self)
  local s = compiled(self, "hostProfile")
  errors.check(s.options.host_profile, "Error",
    "hostProfile: the host's time is not taken; set options:hostProfile(true)")
  errors.check(s.session.has_run, "Error",
    "hostProfile: the model was compiled but has not been run")
  return require("lupine.profile").of(s.session.exec)
end

--- Names of the compiled program's tensors, as PopART spells them: input/x,
--- fc.weight, Gradient___fc.weight, UpdatedVar___fc.weight, loss, fc/mm:0. Those
--- of the optimizer's attributes aside anchorTensor takes them.
---@return string[]
function methods.getTensorNames(self)
  local s = rawget(self, own)
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
---@param short_name string
---@return torch.Tensor
function methods.getAnchoredTensor(self, short_name)
  local s = rawget(self, own)
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
function methods.report(self)
  return compiled(self, "report").session.report
end

function Executor.__tostring(self)
  return tostring(rawget(self, own).model)
end

-- The user's module: given as it is, or as the executor that wraps it.
local function module_of(model, where)
  if Executor:is(model) then
    return rawget(model, own).model
  end
  errors.check(require("torch.nn").Module:is(model), "Error",
    "%s(model): expected a torch.nn.Module, got %s", where, check.describe(model))
  return model
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
  model = module_of(model, "trainingModel")
  options, optimizer = M._keywords(options, optimizer)
  errors.check(not wrapped[model], "RuntimeError",
    "this model is already wrapped by poptorch.trainingModel: destroy() that one first")
  optimizer = optimizer or require("poptorch.optim").SGD(model:parameters(), { lr = 0.01 })
  completing.check_kind(optimizer, "trainingModel")
  local executor = Executor(model, options, true, optimizer)
  completing.choose_reduction(rawget(executor, own), optimizer, "trainingModel")
  wrapped[model] = executor
  M._add_destroy()
  return executor
end

--- Wraps a module for inference. source: 001 poptorch.inferenceModel
--- error: poptorch.Error for options with gradient accumulation
---@param model torch.nn.Module|poptorch.PoplarExecutor
---@param options? poptorch.Options
---@return poptorch.PoplarExecutor
function M.inferenceModel(model, options)
  model = module_of(model, "inferenceModel")
  options = M._keywords(options)
  return Executor(model, options, false)
end

-- model:destroy() of a wrapped module is that of its executor.
function M._add_destroy()
  local Module = require("torch.nn").Module
  Module.destroy = Module.destroy or function(model)
    errors.check(wrapped[model], "AttributeError",
      "destroy: this module is not wrapped by poptorch.trainingModel")
    wrapped[model]:destroy()
  end
end

--- fn() runs before every compilation. Returns a handle with remove().
--- error: RuntimeError for what can not be called
---@param fn function
---@return torch.RemovableHandle
function M.registerPreCompileHook(fn)
  errors.check(type(fn) == "function", "RuntimeError",
    "registerPreCompileHook: expected a function, got %s", type(fn))
  return hooks.add(running.pre_compile_hooks, fn)
end

--- fn() runs after every compilation. Returns a handle with remove().
--- error: RuntimeError for what can not be called
---@param fn function
---@return torch.RemovableHandle
function M.registerPostCompileHook(fn)
  errors.check(type(fn) == "function", "RuntimeError",
    "registerPostCompileHook: expected a function, got %s", type(fn))
  return hooks.add(running.post_compile_hooks, fn)
end

-- A table by name, of allowed names; nil for anything else.
local function by_name(keywords, allowed)
  if type(keywords) ~= "table" or getmetatable(keywords) then
    return nil
  end
  for key in pairs(keywords) do
    errors.check(allowed[key], "TypeError", "unknown keyword '%s': %s", tostring(key),
      allowed.options and "options and optimizer are allowed" or "optimizer is allowed")
  end
  return keywords
end

-- {options = …, optimizer = …} as the last argument.
function M._keywords(options, optimizer)
  local all = by_name(options, { options = true, optimizer = true })
  if all then
    return all.options, all.optimizer
  end
  local last = by_name(optimizer, { optimizer = true })
  if last then
    return options, last.optimizer
  end
  return options, optimizer
end

return M
