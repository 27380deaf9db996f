--- One compiled program of a training step: for inputs of certain shapes and types,
--- in a certain mode. Its parameters, buffers, the optimizer's states and the
--- gradients that gather lie in the host's tensors (core's exec:bind), which all
--- programs share: nothing is copied from one to the other.
local arguments = require("lupine.base.arguments")
local class = require("lupine.base.class")
local core = require("lupine.core")
local memory = require("lupine.session.memory")
local optimizer = require("lupine.training_step.optimizer")
local returned = require("lupine.session.returned")
local session = require("lupine.session")
local tracing = require("lupine.training_step.tracing")
local training = require("lupine.session.training")

---@class lupine.training_step.Program
---@field spec table of the inputs it was compiled for
local Program = class.new("Program")

-- ---- compiling -----------------------------------------------------------------------

local GATHERED = "gathered calls"

local function training_spec(self, step, traced, by_name, loss)
  local spec = { loss = loss }
  self.view = optimizer.View(step, step._watch.names)
  self.hypers, self.states = training.complete(traced, by_name, self.view, spec)
  for _, state in ipairs(self.states) do
    state.fresh = true
  end
  if step._gathers then
    spec.gathered = traced:add_var("hyper", GATHERED,
      core.tensor(1, { dtype = core.dtypes.float32 }))
    self.gathered = spec.gathered
  end
  return spec
end

-- Variables of the compiled step that lie in the host's tensors.
local function bind_state(self, vars, state)
  for i, v in ipairs(vars) do
    local t = state[v.role] and state[v.role][v.name]
    if t then
      self.exec:bind(i, t)
    end
  end
end

-- What of the optimizer the program really has: parameters without a gradient have no
-- accumulator and are not updated.
local function sort_training(self, vars)
  local updated, states = {}, {}
  for i, v in ipairs(vars) do
    if v.role == "accumulator" then
      local name = vars[v.of].name
      updated[name] = true
      self.accumulators[#self.accumulators + 1] = { index = i, name = name, shape = v.shape,
        dtype = v.dtype }
    end
  end
  for _, s in ipairs(self.states) do
    states[#states + 1] = updated[s.rule.param] and s or nil
    s.dtype, s.shape = vars[s.index].dtype, table.concat(vars[s.index].shape, " ")
  end
  self.states = states
end

local function sort_streams(self, vars)
  self.inputs, self.outputs, self.written = {}, {}, {}
  local number = {} -- of an input's variable -> of the input
  for i, v in ipairs(vars) do
    if v.role == "input" then
      self.inputs[#self.inputs + 1] = i
      number[i] = #self.inputs
    elseif v.role == "output" and v.of > 0 then
      self.written[number[v.of]] = i
    elseif v.role == "output" then
      self.outputs[#self.outputs + 1] = i
    end
  end
end

--- Traces and compiles a call.
--- error: what tracing.trace and core.compile raise
---@param step lupine.TrainingStep
---@param call table of inputs.flatten, with trains and with_loss
function Program:init(step, call)
  local started = core.host.clock()
  local traced, loss, results, state, losses = tracing.trace(step, call)
  self.results, self.hypers, self.states, self.accumulators = results, {}, {}, {}
  self.spec = { n = call.n, table.unpack(call, 1, call.n) } -- not the tensors of this call
  local _, by_name = session.index(traced)
  local compile = loss and training_spec(self, step, traced, by_name, loss) or {}
  compile.host = class.copy(step._host)
  compile.host.weight_layouts, compile.host.packed = false, false
  local _, program = core.compile(traced, compile)
  self.exec = program:executor()
  local vars = self.exec:step():vars()
  bind_state(self, vars, state)
  sort_training(self, vars)
  sort_streams(self, vars)
  self.draws = self.exec:stats().draws
  self.losses, self.how = {}, {}
  for i, output in ipairs(losses) do
    self.losses[i] = self.outputs[output]
    self.how[self.losses[i]] = { mode = "all", guard = step._guard }
  end
  self.seconds = core.host.clock() - started
end

--- Computes where another one does: of all that do one runs at a time.
---@param other lupine.training_step.Program
function Program:share(other)
  self.exec:share(other.exec)
end

-- ---- before a run --------------------------------------------------------------------

--- Whether all tensors of the host are still of the types that were compiled.
---@return boolean
function Program:fits()
  return self.exec:bound()
end

--- The optimizer's states as it has them now, which may be others than before. Those
--- that it has not yet it gets before the first update.
---@param updates boolean
---@return boolean ok false: of another type than compiled
function Program:bind_states(updates)
  local view = self.view
  for _, s in ipairs(self.states) do
    local own = rawget(view.optimizer.state, s.rule.tensor)
    local t = own and own[s.name]
    if t == nil or not rawequal(t, s.bound) then
      t = view:attach(s, updates)
      if t.dtype ~= s.dtype or table.concat(t.shape, " ") ~= s.shape then
        return false
      end
      self.exec:bind(s.index, t)
      s.bound, s.tensor = t, t
    end
  end
  return true
end

--- The optimizer's hyper-parameters as they are now.
function Program:write_hypers()
  for _, h in ipairs(self.hypers) do
    local value = self.view:value(h.group, h.name)
    if value ~= h.written or type(value) ~= "number" then
      self.exec:write(h.index, (self.view:hyper(h.group, h.name)))
      h.written = value
    end
  end
end

--- Gradients gather in tensors of `grads`, by the parameter's name; missing ones are
--- made.
---@param grads table<string, torch.Tensor>
function Program:bind_gradients(grads)
  local torch = require("torch")
  for _, a in ipairs(self.accumulators) do
    local t = grads[a.name]
    if not t then
      t = torch.zeros(a.shape, { dtype = a.dtype })
      grads[a.name] = t
    end
    if not rawequal(t, a.bound) then
      self.exec:bind(a.index, t)
      a.bound = t
    end
  end
end

--- Whether the next runs end with the update, and over how many calls it takes the
--- mean.
---@param updates boolean
---@param calls integer
function Program:set_update(updates, calls)
  self.exec:gathers(not updates)
  if updates then
    self.exec:write(self.gathered, core.tensor(calls, { dtype = core.dtypes.float32 }))
  end
end

-- ---- a run -----------------------------------------------------------------------------

-- Random numbers begin at one of torch's generator.
local function seed(self)
  if self.draws then
    self.exec:rng(require("torch").randint(math.maxinteger, {}):item(), 0)
  end
end

local function copy_back(self, tensors, got)
  for i, output in pairs(self.written) do
    require("torch").no_grad(function()
      tensors[i].tensor:copy_(got[output])
    end)
  end
end

local NO_BACKWARD = { class = "RuntimeError", message = "backward() on a result of a compiled "
  .. "training step: a call of the step is the backward pass and the update, too; take the "
  .. "backward() and optimizer:step() calls out" }

--- Runs it once; what the model returned, as a packed list.
---@param tensors {tensor: torch.Tensor, path: string}[] the inputs
---@return {n: integer} results
---@return boolean held a loss is not finite and stopped what a training step changes
---@return torch.Tensor[] losses whose sum is minimised
function Program:run(tensors)
  local feed = {}
  if next(self.written) then
    local list = {}
    for i, t in ipairs(tensors) do
      list[i] = t.tensor
    end
    memory.check_apart(list, #list, self.written, function(i)
      return tensors[i].path
    end)
  end
  for i, t in ipairs(tensors) do
    feed[self.inputs[i]] = t.tensor
  end
  seed(self)
  local got, held = self.exec:run(feed, self.how)
  local at, losses = 0, {}
  copy_back(self, tensors, got)
  for i, output in ipairs(self.losses) do
    losses[i] = got[output]
  end
  local function next_output()
    at = at + 1
    returned.mark(got[self.outputs[at]], NO_BACKWARD)
    return got[self.outputs[at]]
  end
  local out = { n = self.results.n }
  for i = 1, out.n do
    out[i] = arguments.rebuild(self.results[i], next_output)
  end
  return out, held > 0, losses
end

--- Frees the program's memory.
function Program:close()
  self.exec:close()
end

return Program
