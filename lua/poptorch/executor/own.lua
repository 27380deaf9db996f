--- Where an executor keeps what is its own: its methods and its state. What it
--- has else is the user's model's.
local advice = require("poptorch.advice")
local errors = require("lupine.base.errors")
local memory = require("lupine.session.memory")

local KEY = {}

local M = { KEY = KEY }

-- error: TypeError for what is no executor, as a call with a point gives it
local function state_of(executor, what)
  local state = type(executor) == "table" and rawget(executor, KEY)
  errors.check(state, "TypeError",
    "%s is a method of a wrapped model: call it with a colon, model:%s(...)", what, what)
  return state
end

--- The state of an executor: options, training, optimizer, model, and, once it is
--- compiled, session and what running.lua and compiled_optimizer.lua note.
--- error: TypeError for what is none
---@param executor poptorch.PoplarExecutor
---@return table
function M.state(executor)
  return type(executor) == "table" and rawget(executor, KEY)
    or state_of(executor, debug.getinfo(2, "n").name or "this")
end

--- The state of one whose program is not being run: a CPU op, which sees one that
--- is, may change nothing in it.
--- error: poptorch.Error
---@param executor poptorch.PoplarExecutor
---@param what string the method that asks
---@return table
function M.idle(executor, what)
  local s = state_of(executor, what)
  errors.check(not (s.session and s.session.exec:running()), "Error",
    "%s: the model is running: a CPU op may not change the executor that runs it", what)
  return s
end

--- The state of a compiled one.
--- error: poptorch.Error
---@param executor poptorch.PoplarExecutor
---@param what string the method that asks
---@return table
function M.compiled(executor, what)
  local s = state_of(executor, what)
  errors.check(s.session, "Error", "%s: the model is not compiled (or was destroyed)", what)
  return s
end

--- The state of a compiled one that has its device and is idle.
--- error: poptorch.Error
---@param executor poptorch.PoplarExecutor
---@param what string the method that asks
---@return table
function M.attached(executor, what)
  M.idle(executor, what)
  local s = M.compiled(executor, what)
  errors.check(s.session.attached, "Error", "%s: the model is not attached to a device", what)
  return s
end

--- The host's tensors that the device has copies of, by role and name.
--- error: poptorch.Error for an updatable buffer that is not there
---@param s table the executor's state
---@return {parameter: table<string, torch.Tensor>, buffer: table<string, torch.Tensor>}
function M.tensors_of(s)
  local of = { parameter = {}, buffer = {} }
  for name, p in s.model:named_parameters() do
    of.parameter[name] = p
  end
  for name, b in s.model:named_buffers() do
    of.buffer[name] = b
  end
  for _, name in ipairs(s.options.updatable_named_buffers or {}) do
    errors.check(of.buffer[name], "Error", "updatableNamedBuffers: the model has no buffer '%s'",
      tostring(name))
  end
  return of
end

--- Where the user put other tensors in place of those that the device has copies
--- of, these are mirrored from now on.
--- error: poptorch.Error for one of another shape or dtype than compiled
---@param s table the executor's state
function M.follow(s)
  memory.separate(s.model)
  advice.call(s.session.retarget, s.session, M.tensors_of(s))
end

return M
