--- Where an executor keeps what is its own: its methods and its state. What it
--- has else is the user's model's.
local advice = require("poptorch.advice")
local errors = require("lupine.base.errors")

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

-- The addresses of a tensor's first element and behind its last.
local function extent(t)
  local first, last = t:data_ptr(), 0
  for i, size in ipairs(t.shape) do
    last = last + (size - 1) * t:stride(i - 1)
  end
  return first, t:numel() > 0 and first + (last + 1) * t:element_size() or first
end

local function extents(tensors)
  local out = {}
  for i, t in ipairs(tensors) do
    local first, after = extent(t)
    out[i] = { t = t, first = first, after = after }
  end
  return out
end

local function is_alone(t, list)
  local first, after = extent(t)
  for _, other in ipairs(list) do
    if other.first < after and first < other.after and not rawequal(other.t, t) then
      return false
    end
  end
  return true
end

--- Is it no part of a larger tensor?
---@param t torch.Tensor
---@return boolean
function M.is_whole(t)
  return not t._base or t._base:numel() == t:numel()
end

--- Parameters that are views of something else, and buffers that show all of it in
--- another form, get memory of their own, as the device's copies of them have it.
--- Those that lie over another one stay as they are, and so does a buffer that is a
--- part of a larger tensor: it is read and written there.
---@param model torch.nn.Module
function M.separate(model)
  local all, views = {}, {}
  local function add(t, may)
    all[#all + 1] = t
    views[#views + 1] = may and (t._base or not t:is_contiguous()) and t or nil
  end
  for _, p in ipairs(model:parameters()) do
    add(p, true)
  end
  for _, b in ipairs(model:buffers()) do
    add(b, M.is_whole(b))
  end
  local list = #views > 0 and extents(all)
  for _, t in ipairs(views) do
    if is_alone(t, list) then
      require("torch").no_grad(function()
        t:set_(t:is_contiguous() and t:clone() or t:contiguous())
      end)
    end
  end
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
  M.separate(s.model)
  advice.call(s.session.retarget, s.session, M.tensors_of(s))
end

return M
