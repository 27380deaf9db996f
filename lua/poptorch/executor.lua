--- The executor behind poptorch.trainingModel and poptorch.inferenceModel:
--- traces the model at the first call, compiles, runs; keeps the weights of
--- host and device in step.
---
--- Life: wrapped -> compiled (holds device memory) -> destroyed, and so on.
--- Sources: PopTorch API reference, PoplarExecutor; user guide 4.2, 4.3.
local advice = require("poptorch.advice")
local arguments = require("lupine.base.arguments")
local as_wrapped = require("poptorch.as_wrapped")
local blocks = require("poptorch.blocks")
local casting = require("poptorch.casting")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local Channel = require("lupine.tracepoints").Channel
local compiled_optimizer = require("poptorch.compiled_optimizer")
local core = require("lupine.core")
local define = require("poptorch.define")
local errors = require("lupine.base.errors")
local executables = require("poptorch.executor.executables")
local groups = require("poptorch.groups")
local hooks = require("torch.nn.hooks")
local logging = require("poptorch.logging")
local own = require("poptorch.executor.own")
local rules = require("poptorch.options.rules")
local running = require("poptorch.running")
local signatures = require("lupine.base.signatures")
local state = require("poptorch.state")

local Executor = class.new("PoplarExecutor")

signatures.note(Executor, "PoplarExecutor(model, options, training, poptorch_version=None, "
  .. "optimizer=None, user_model=None)", 1)

-- Methods are found here, everything else in the user's model.
local methods = {}
for _, group in ipairs({ "device", "weights", "figures", "modes", "resuming" }) do
  for name, method in pairs(require("poptorch.executor." .. group)) do
    methods[name] = method
  end
end
for name, method in pairs(executables.methods) do
  methods[name] = method
end
Executor.__methods = methods -- for completion

-- user model -> its training executor while it is wrapped
local wrapped = setmetatable({}, { __mode = "k" })

local ARGUMENTS = { "model", "options", "training", "poptorch_version", "optimizer",
  "user_model" }

-- Training writes buffers back as plain tensors.
local function check_buffers(model)
  for name, buffer in model:named_buffers() do
    errors.check(not core.is_parameter(buffer), "Error", "trainingModel: the buffer '%s' is a "
      .. "torch.nn.Parameter: register it as a parameter, or a plain tensor as the buffer", name)
  end
end

--- trainingModel and inferenceModel make executors, not users. Arguments: model,
--- whose forward runs; options; training; poptorch_version, which is not looked
--- at; optimizer, for training; user_model, the module whose weights and
--- attributes are the executor's, the model itself unless given.
---@param ... any
function Executor:init(...)
  local model, options, training, _, optimizer, user_model =
    table.unpack(check.arguments("PoplarExecutor", ARGUMENTS, nil, ...), 1, #ARGUMENTS)
  user_model = user_model or model
  training = check.bool(training, "PoplarExecutor(training)")
  errors.check(training or check.is_none(optimizer), "AssertionError",
    "PoplarExecutor(optimizer): an optimizer is for training only")
  options = rules.for_executor(options, training)
  local log_file = logging.file(options, training)
  for _, m in ipairs({ model, user_model }) do
    casting.apply(m, options)
  end
  local channel = Channel(training and "poptorch.trainingModel" or "poptorch.inferenceModel")
  rawset(self, own.KEY, {
    options = options, channel = channel, log_file = log_file,
    training = training, optimizer = optimizer, model = user_model, called = model,
    as_wrapped = as_wrapped.take(model, user_model),
  })
  if training then
    check_buffers(user_model)
    local s = own.state(self)
    s.optimizer = not check.is_none(optimizer) and optimizer
      or require("poptorch.optim").SGD(user_model:parameters(), { lr = 0.01 })
    compiled_optimizer.check_kind(s.optimizer)
    compiled_optimizer.choose_reduction(s, s.optimizer)
  end
  groups.note(own.state(self))
  channel:instrument(self, "copyWeightsToHost", "copyWeightsToDevice", "setOptimizer", "compile",
    "destroy", "compileAndExport", "loadExecutable")
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
  local s = rawget(self, own.KEY)
  if not s then -- under construction
    return Executor[key]
  elseif key == "options" then
    return s.options
  elseif key == "model" then
    s.view = s.view or not s.training and as_wrapped.view(s.model) or nil
    return s.view or s.model
  elseif key == "rng_state" then
    errors.check(s.session, "Error", "rng_state: the model is not compiled (or was destroyed)")
    return { s.session:random_state() }
  elseif key == "training" then
    as_wrapped.follow(s.as_wrapped, s.model, s.view)
    return s.as_wrapped[s.model].training
  end
  local value = (s.view or s.model)[key]
  if value == nil then
    require("lupine.base.absent")("PoplarExecutor", key)
    errors.raise("AttributeError", "neither the executor nor the model has '%s'%s", tostring(key),
      check.nearest(key, names_of(s.model)))
  end
  if type(value) ~= "function" then
    groups.note(s)
  else -- a method of the model
    return function(first, ...)
      if rawequal(first, self) then
        first = s.model
      end
      return value(first, ...)
    end
  end
  return value
end

local function set_random_state(s, value)
  local n = type(value) == "table" and #value or 0
  errors.check(n == 1 or n == 2, "TypeError",
    "rng_state: expected a list as rng_state gives, {seed, micro-batches}, got %s",
    check.describe(value))
  for i = 1, n do
    check.int(value[i], ("rng_state[%d]"):format(i))
  end
  s.session:random_state(value[1], value[2])
end

function Executor.__newindex(self, key, value)
  local s = own.state(self)
  if key == "rng_state" then
    own.idle(self, "rng_state")
    set_random_state(own.compiled(self, "rng_state"), value)
    return
  end
  errors.check(key ~= "options" and key ~= "model", "AttributeError",
    "an executor's %s cannot be set: wrap the module again", key)
  s.model[key] = value
  as_wrapped.assign(s.as_wrapped, s.model, key, value)
end

-- ---- running ----------------------------------------------------------------

local function bind(s, ...)
  if not s.names then
    s.names, s.variadic = arguments.parameters(s.called.forward)
  end
  return arguments.bind(s.names, s.variadic, ...)
end

function Executor.__call(self, ...)
  local s = own.idle(self, "call")
  return running.call(s, bind(s, ...))
end

--- Compiles for inputs of these shapes and types without running.
--- source: 001 PoplarExecutor.compile
---@param ... any the arguments of forward
function methods.compile(self, ...)
  local s = own.state(self)
  if s.session then
    logging.warn("compile: the model is compiled already, this call is ignored")
    return
  end
  running.compile(s, bind(s, ...))
end

--- How many IPUs, and how: lupine.plan of this program. One that is not compiled, as it does
--- not fit perhaps, is traced for opts.inputs, the arguments of forward.
--- error: poptorch.Error without both
---@param opts? table as for lupine.plan
---@return lupine.Plan
function methods.plan(self, opts)
  local s, plan = own.state(self), require("lupine.plan")
  opts = class.copy(opts or {})
  errors.check(opts.system == nil, "ValueError",
    "plan: system: an executor's is what its options say")
  local step
  if s.session then
    step, opts.system, opts.smaller = s.session.exec:step(), s.session.spec.system, s.smaller
  else
    errors.check(opts.inputs, "Error", "plan: the model is not compiled: give the arguments of "
      .. "forward, { inputs = { x, y } }")
    local wanted
    step, wanted = running.step(s, bind(s, table.unpack(opts.inputs)))
    opts.system, opts.smaller = wanted.system, wanted.smaller
  end
  opts.spelling = advice.OPTIONS
  opts.inputs = nil
  return plan(step, opts)
end

---@return boolean
function methods.isCompiled(self)
  return own.state(self).session ~= nil
end

--- Frees the device; weights and optimizer state come to the host first. A
--- training model is unwrapped.
function methods.destroy(self)
  local s = own.idle(self, "destroy")
  if not s.session then
    return
  end
  s.session:settle()
  if s.training then
    state.release(s)
  end
  if rawequal(wrapped[s.model], self) then
    wrapped[s.model] = nil
  end
  s.session:close()
  s.session, s.smaller = nil, nil
end

function Executor.__tostring(self)
  return blocks.text(own.state(self).model)
end

-- The user's module: given as it is, or as the executor that wraps it.
local function module_of(model, where)
  if Executor:is(model) then
    return own.state(model).model
  end
  errors.check(require("torch.nn").Module:is(model), "Error",
    "%s(model): expected a torch.nn.Module, got %s", where, check.describe(model))
  return model
end

local M = { Executor = Executor }

--- Wraps a module for training: forward, loss, backward and weight update run
--- on the device. source: 001 poptorch.trainingModel
--- error: RuntimeError if the module is wrapped already
--- The model's forward computes a loss; the optimizer is SGD with lr 0.01 unless
--- one is given.
---@type fun(model: torch.nn.Module, options: poptorch.Options?, optimizer: any): any
M.trainingModel = define("trainingModel(model, options, optimizer)",
  function(model, options, optimizer)
    model = module_of(model, "trainingModel")
    errors.check(not wrapped[model], "RuntimeError",
      "this model is already wrapped by poptorch.trainingModel: destroy() that one first%s",
      wrapped[model] and not own.state(wrapped[model]).session
        and ", once it is compiled: until then destroy() does nothing" or "")
    local executor = Executor(model, options, true, nil, optimizer)
    wrapped[model] = executor
    M._add_destroy()
    return executor
  end)

--- Wraps a module, or what an executor wraps, for inference.
--- source: 001 poptorch.inferenceModel
--- error: poptorch.Error for options with gradient accumulation
---@type fun(model: any, options: poptorch.Options?): poptorch.PoplarExecutor
M.inferenceModel = define("inferenceModel(model, options)", function(model, options)
  return Executor(module_of(model, "inferenceModel"), options, false)
end)

--- Loads a model that executor:save or compileAndExport wrote: module, weights,
--- optimizer and executable. The script makes the module's class before.
--- source: 001 poptorch.load
--- error: AssertionError for a file of another version or without a model;
--- AttributeError for a class that is not there; ValueError for a damaged file
---@param filename string
---@param ... any edit_opts_fn (nil): called with the options before they are used; of
---  these the device iterations act, and what concerns running
---@return poptorch.PoplarExecutor
function M.load(filename, ...)
  return executables.load(M, filename, ...)
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

return M
