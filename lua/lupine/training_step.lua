--- A training step as a compiled program: forward, loss, backward and update, on this
--- machine alone.
---
---     local optimizer = torch.optim.AdamW(model:parameters(), { lr = 1e-3 })
---     local step = lupine.compile(model, { optimizer = optimizer, loss = nn.CrossEntropyLoss() })
---     for x, target in loader do
---       local out, loss = step(x, target)
---     end
---
--- Weights, buffers and the optimizer's states are the tensors that eager code sees:
--- programs read and write them where they lie, so that both may take turns. A program
--- is compiled for each kind of call (shapes and types of the inputs, modes of the
--- modules, parameters that are trained, kind of update) and kept; the ones that were
--- called longest ago make room.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")
local inputs = require("lupine.training_step.inputs")
local optimizers = require("lupine.training_step.optimizer")
local Program = require("lupine.training_step.program")
local spans = require("lupine.base.spans")
local tables = require("lupine.base.tables")
local Watch = require("lupine.training_step.watch")

---@class lupine.TrainingStepOptions
---@field optimizer torch.optim.Optimizer its groups and states are looked at in every call. The
---  updates of SGD, Adam, AdamW and RMSprop are parts of the program, others run behind it;
---  LBFGS cannot
---@field loss (fun(out: any, ...: any): any)|torch.nn.Module|nil of forward's first result and
---  the arguments that the model does not get: a tensor of one element, or a table of such,
---  whose sum is minimised. nil: forward returns it, as the field `loss` of a table or as
---  the one scalar that has a gradient
---@field accumulation integer? calls whose gradients one update takes the mean of (1)
---@field clip_grad_norm number? the most that the norm of all gradients is
---@field grads boolean? whether calls that end with the update return the gradients, as they
---  were before clipping (false)
---@field guard boolean? whether a loss that is not finite holds the update (false): weights,
---  buffers and states stay as before the call, gradients that were gathered are dropped, and
---  the step's field `held` is true
---@field cache_size integer? programs that are kept (8)
---@field fuse boolean? chains of pointwise operators as one pass (true)
---@field blocked boolean? blocked layouts of images (true)
---@field threads integer?

---@class lupine.TrainingStep
---@field model torch.nn.Module
---@field optimizer torch.optim.Optimizer
---@field accumulation integer calls an update
---@field gathered integer calls since the last update, whose gradients wait for the next one
---@field updates integer that were made
---@field held boolean whether the last call's update was held (see `guard`)
local TrainingStep = class.new("TrainingStep")

-- ---- options ---------------------------------------------------------------------------

local OPTIONS = { "optimizer", "loss", "accumulation", "clip_grad_norm", "grads", "guard",
  "cache_size", "fuse", "blocked", "threads" }
local CACHE_SIZE = 8
local MANY = 4 -- times cache_size: programs after which a warning is due

local function check_names(opts)
  local known = tables.set(OPTIONS)
  for key in pairs(opts) do
    errors.check(known[key], "TypeError", "compile: unknown option '%s'%s; known for a training "
      .. "step are %s", tostring(key), check.nearest(key, OPTIONS), table.concat(OPTIONS, ", "))
  end
end

local function is_module(value)
  return require("torch.nn").Module:is(value)
end

local function count(opts, name, default, most)
  local n = opts[name] == nil and default or opts[name]
  errors.check(math.type(n) == "integer" and n >= 1 and n <= (most or math.maxinteger),
    "ValueError", "compile(opts): %s: expected an int of 1 or more%s, got %s", name,
    most and (" (%d at most)"):format(most) or "", check.describe(opts[name]))
  return n
end

local function flag(opts, name)
  errors.check(opts[name] == nil or type(opts[name]) == "boolean", "TypeError",
    "compile(opts): %s: expected a bool, got %s", name, check.describe(opts[name]))
  return opts[name]
end

local function check_norm(value)
  if value == nil then
    return nil
  end
  check.number(value, "compile(opts): clip_grad_norm")
  errors.check(value > 0, "ValueError", "compile(opts): clip_grad_norm: expected a number above 0, "
    .. "got %s", tostring(value))
  return value
end

local function check_loss(loss)
  errors.check(loss == nil or type(loss) == "function" or is_module(loss), "TypeError",
    "compile(opts): loss: expected function(out, target) … end or a torch.nn.Module, got %s",
    check.describe(loss))
  return loss
end

--- Made by lupine.compile.
---@param model torch.nn.Module
---@param opts lupine.TrainingStepOptions
function TrainingStep:init(model, opts)
  check_names(opts)
  errors.check(is_module(model), "TypeError",
    "compile(model, {optimizer = …}): expected a torch.nn.Module, got %s", check.describe(model))
  optimizers.check(opts.optimizer)
  self.model, self.optimizer, self._loss = model, opts.optimizer, check_loss(opts.loss)
  self.accumulation = count(opts, "accumulation", 1)
  self._max_norm, self._grads = check_norm(opts.clip_grad_norm), flag(opts, "grads") or false
  self._guard, self.held, self._losses = flag(opts, "guard") or false, false, {}
  self._most = count(opts, "cache_size", CACHE_SIZE)
  self._host = { fuse = flag(opts, "fuse"), blocked = flag(opts, "blocked"),
    threads = opts.threads and count(opts, "threads", 1, 4096) }
  self._updates = optimizers.compiles(opts.optimizer)
  self._gathers = self.accumulation > 1 or self._grads or not self._updates
  self._roots = { { prefix = "", module = model },
    is_module(opts.loss) and { prefix = "loss.", module = opts.loss } or nil }
  self._parameters = (arguments.parameters(model.forward))
  self._targets = inputs.targets_of(opts.loss)
  self._watch = Watch(self._roots, opts.optimizer)
  self.gathered, self.updates, self._hits, self._misses = 0, 0, 0, 0
  self._gathering = {}
  self:reset()
end

-- ---- programs --------------------------------------------------------------------------

local function log(level, fmt, ...)
  core.host.log(level, fmt:format(...), "lupine.compile")
end

--- Forgets all compiled programs: the next call compiles anew. For what a program
--- cannot see: plain fields of modules and other values of Lua that forward decided by.
function TrainingStep:reset()
  for _, p in pairs(self._programs or {}) do
    p:close()
  end
  self._programs, self._size, self._calls, self._last = {}, 0, 0, {}
end

-- Makes room for one more.
local function evict(self)
  while self._size >= self._most do
    local oldest
    for key, p in pairs(self._programs) do
      oldest = (not oldest or p.called < self._programs[oldest].called) and key or oldest
    end
    self._programs[oldest]:close()
    self._programs[oldest] = nil
    self._size = self._size - 1
    log("info", "the program that was called longest ago makes room (cache_size = %d)", self._most)
  end
end

-- Errors that are poptorch's by name are RuntimeErrors here.
local function plain(ok, ...)
  if ok then
    return ...
  end
  local e = (...)
  if getmetatable(e) == errors.Error then
    errors.turn(e, errors.RuntimeError)
  end
  error(e, 0)
end

local function compile(self, call, key, why)
  local _ <close> = spans.active and spans.open("compiling")
  local p = plain(pcall(Program, self, call))
  evict(self)
  local _, other = next(self._programs)
  if other then
    p:share(other)
  end
  self._programs[key], self._size = p, self._size + 1
  self._misses = self._misses + 1
  log("info", "compiled %s in %.2f s: %s", call.kind, p.seconds, why)
  if self._misses == MANY * self._most then
    log("warn", "%d programs were compiled for one step, the last one because: %s. Pass numbers "
      .. "that change as tensors, pad batches to a few shapes, or raise cache_size (%d)",
      self._misses, why, self._most)
  end
  return p
end

local function why(self, call, mode)
  local last = self._last[call.kind]
  if not last then
    return "the first one"
  end
  return inputs.difference(last.spec, call)
    or last.mode ~= mode and "modes, trained parameters or the kind of update are other ones"
    or "no program is kept for this call"
end

-- The program of a call: one that is kept, or a new one.
local function program_of(self, call, updates)
  local changed = self._watch:changed()
  if changed then
    log("info", "all programs are dropped: %s", changed)
    self:reset()
    self._watch:take()
  end
  local mode = self._watch:mode(call.trains)
  local key = ("%s %s %s"):format(call.kind, mode, inputs.key(call))
  local p = self._programs[key]
  if p and not (p:fits() and p:bind_states(updates)) then
    log("info", "all programs are dropped: tensors have other types")
    self:reset()
    p = nil
  end
  if p then
    self._hits = self._hits + 1
  else
    p = compile(self, call, key, why(self, call, mode))
    p:bind_states(updates)
  end
  self._calls = self._calls + 1
  p.called, p.mode, self._last[call.kind] = self._calls, mode, p
  return p
end

--- What is kept: like that of functools.lru_cache.
---@return {hits: integer, misses: integer, maxsize: integer, currsize: integer}
function TrainingStep:cache_info()
  return { hits = self._hits, misses = self._misses, maxsize = self._most, currsize = self._size }
end

function TrainingStep:__tostring()
  return ("TrainingStep(%s, %s, %d updates, %d of %d programs)"):format(
    getmetatable(self.model).__name, getmetatable(self.optimizer).__name, self.updates, self._size,
    self._most)
end

-- ---- calls -------------------------------------------------------------------------------

local function take(self, trains, with_loss, values)
  errors.check(not core.is_tracing(), "RuntimeError", "a compiled training step cannot be called "
    .. "in a traced function")
  local targets = { n = 0 }
  if with_loss then
    values, targets = inputs.split(self, values)
  end
  local call = inputs.flatten(self, values, targets)
  call.trains, call.with_loss = trains, with_loss
  call.kind = trains and "a training step" or with_loss and "an evaluation" or "a prediction"
  return call
end

-- A new group of calls begins: gradients are new tensors, where they are returned.
local function begin_group(self)
  if self._grads then
    self._gathering = {}
  else
    for _, g in pairs(self._gathering) do
      g:zero_()
    end
  end
end

-- The gradients of a group, the mean of its calls'.
local function mean_gradients(self, calls)
  if not self._grads then
    return nil
  end
  for _, g in pairs(self._gathering) do
    if calls > 1 then
      g:div_(calls)
    end
  end
  return self._gathering
end

-- Before a run, which ends with the update of so many calls or gathers.
local function prepare(self, p, calls, updates)
  if updates then
    hooks.run(self.optimizer._pre_hooks, self.optimizer, {})
  end
  p:write_hypers()
  if self._gathers then
    if calls == 1 then
      begin_group(self)
    end
    p:bind_gradients(self._gathering)
    p:set_update(updates, calls)
  end
end

-- What was gathered is the gradient of the optimizer's own step.
local function step_eagerly(self, calls)
  local torch, were, params = require("torch"), {}, {}
  for p, name in pairs(self._watch.names) do
    local g = self._gathering[name]
    params[#params + 1] = p
    were[p] = p.grad
    p.grad = g and p.requires_grad and (calls > 1 and g / calls or self._grads and g:clone() or g)
      or nil
  end
  local _ <close> = setmetatable({}, { __close = function()
    for _, p in ipairs(params) do
      p.grad = were[p]
    end
  end })
  if self._max_norm then
    torch.nn.utils.clip_grad_norm_(params, self._max_norm)
  end
  self.optimizer:step()
end

-- A run has ended, with the update if it is a part of the program.
local function finish(self, calls)
  if self._updates then
    self.optimizer._stepped = true
    hooks.run(self.optimizer._post_hooks, self.optimizer, {})
  else
    step_eagerly(self, calls)
  end
  self.updates = self.updates + 1
end

local function train(self, values)
  local _ <close> = spans.active and spans.open("inputs and results")
  local call = take(self, true, self._loss ~= nil, values)
  local calls = self.gathered + 1
  local updates = calls >= self.accumulation
  local p = program_of(self, call, updates and self._updates)
  prepare(self, p, calls, updates and self._updates)
  self.gathered = 0 -- a call that is cut short drops what was gathered
  local out, held, losses = p:run(call.tensors)
  self.held, self._losses = held, losses
  if held then
    return out
  elseif not updates then
    self.gathered = calls
    return out
  end
  finish(self, calls)
  if self._grads then
    out.n = out.n + 1
    out[out.n] = mean_gradients(self, calls)
  end
  return out
end

--- One step: forward, backward and update. Takes the model's arguments and then the
--- loss's. Returns what forward returned, then the loss if there is one of its own,
--- then with `grads` the gradients by name (of calls that end with the update). None
--- of it has a history.
--- error: what compiling and running raise; weights and states are then as before (but
--- for an update behind the program, which is cut short where it is), and gradients that
--- were gathered are dropped
---@param ... any
---@return any ...
function TrainingStep:__call(...)
  local out = train(self, table.pack(...))
  return table.unpack(out, 1, out.n)
end

local function evaluate(self, with_loss, values)
  local _ <close> = spans.active and spans.open("inputs and results")
  local call = take(self, false, with_loss, values)
  local out = program_of(self, call, false):run(call.tensors)
  return table.unpack(out, 1, out.n)
end

--- What the last step minimised, as a number: the loss, or the sum of a table of them.
---@return number? nil: before the first step
function TrainingStep:loss()
  check.method(self, TrainingStep, "loss")
  local sum
  for _, loss in ipairs(self._losses) do
    sum = (sum or 0) + loss:item()
  end
  return sum
end

--- What a step of these arguments returns, without a step: in eval mode, without
--- gradients.
---@param ... any
---@return any ...
function TrainingStep:evaluate(...)
  check.method(self, TrainingStep, "evaluate")
  return evaluate(self, self._loss ~= nil, table.pack(...))
end

--- The model alone, without the loss, in eval mode and without gradients.
---@param ... any the model's arguments
---@return any ... what forward returns
function TrainingStep:predict(...)
  check.method(self, TrainingStep, "predict")
  return evaluate(self, false, table.pack(...))
end

-- ---- groups of calls -----------------------------------------------------------------------

--- The update of a group of fewer than `accumulation` calls, as at the end of an epoch:
--- by the mean of their gradients.
---@return boolean updated false: nothing was gathered
function TrainingStep:update()
  check.method(self, TrainingStep, "update")
  if self.gathered == 0 then
    return false
  end
  step_eagerly(self, self.gathered)
  self.gathered, self.updates = 0, self.updates + 1
  return true
end

--- What a step has of its own, beside the states of model and optimizer and torch's
--- generator: {updates, gathered, gradients = {name = tensor}}, where a group of calls
--- is open.
---@return {updates: integer, gathered: integer, gradients: table<string, torch.Tensor>}
function TrainingStep:state_dict()
  check.method(self, TrainingStep, "state_dict")
  local gradients = {}
  for name, g in pairs(self.gathered > 0 and self._gathering or gradients) do
    gradients[name] = g:clone()
  end
  return { updates = self.updates, gathered = self.gathered, gradients = gradients }
end

local function check_gradients(self, gradients)
  local params = {}
  for p, name in pairs(self._watch.names) do
    params[name] = p
  end
  for name, g in pairs(gradients) do
    local p = errors.check(params[name], "KeyError", "load_state_dict: gradients: the model has no "
      .. "parameter '%s'", tostring(name))
    errors.check(core.is_tensor(g) and tostring(g.shape) == tostring(p.shape), "ValueError",
      "load_state_dict: gradients: '%s': expected a tensor of shape %s, got %s", name,
      tostring(p.shape), check.describe(g))
  end
end

--- Takes such a dictionary over.
--- error: KeyError, ValueError for gradients of another model
---@param dict {updates: integer, gathered: integer, gradients: table<string, torch.Tensor>}
function TrainingStep:load_state_dict(dict)
  check.method(self, TrainingStep, "load_state_dict")
  errors.check(type(dict) == "table" and type(dict.gradients) == "table", "TypeError",
    "load_state_dict: expected {updates = …, gathered = …, gradients = …}, got %s",
    check.describe(dict))
  local updates = check.int(dict.updates, "load_state_dict: updates", { min = 0 })
  local gathered = check.int(dict.gathered, "load_state_dict: gathered", { min = 0 })
  check_gradients(self, dict.gradients)
  self._gathering, self.updates, self.gathered = {}, updates, gathered
  for p, name in pairs(self._watch.names) do
    local g = dict.gradients[name]
    self._gathering[name] = g and g:detach():to(p.dtype, { copy = true }) or nil
  end
end

return TrainingStep
