--- torch.autograd.Function: operations with a gradient of one's own.
---
---     local Square = torch.autograd.Function:extend("Square")
---     function Square.forward(ctx, x)
---       ctx:save_for_backward(x)
---       return x * x
---     end
---     function Square.backward(ctx, grad)
---       local x = table.unpack(ctx.saved_tensors)
---       return 2 * x * grad
---     end
---     local y = Square.apply(x)
---
--- backward returns a gradient, or nil, for each argument of forward. With a
--- `setup_context(ctx, inputs, output)` forward takes no ctx. The same class
--- works eagerly, also under create_graph, and in a traced model, where
--- backward is called once, while the model is compiled.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local grad_mode = require("torch.grad_mode")

-- ---- ctx -------------------------------------------------------------------

---@class torch.autograd.Context
---@field saved_tensors torch.Tensor[] what save_for_backward was given
---@field needs_input_grad boolean[] for each argument of forward
local Context = { __name = "torch.autograd.Context" }
local methods = {}

-- The saved tensors as a list; torch.none stays in its place.
local function saved_tensors(ctx)
  local state, out = ctx._state, {}
  for i, entry in ipairs(state.saved) do
    local t = entry
    if type(entry) == "table" then
      local now = state.now and state.now[entry.list][entry.at]
      t = now or entry.tensor
      if not now and entry.version and t._version ~= entry.version then
        errors.raise("RuntimeError", "%s: saved tensor %d has been modified by an in-place "
          .. "operation (it is at version %d, expected %d)", state.name, i, t._version,
          entry.version)
      end
    end
    out[i] = t
  end
  return core.list(out)
end

function Context.__index(ctx, key)
  if key == "saved_tensors" then
    return saved_tensors(ctx)
  end
  return methods[key]
end

local function tensors_of(where, ...)
  local list = { ... }
  for i = 1, select("#", ...) do
    errors.check(core.is_tensor(list[i]) or list[i] == nil or check.is_none(list[i]), "TypeError",
      "%s can only take tensors, argument %d is %s", where, i, check.describe(list[i]))
    if list[i] == nil then
      list[i] = core.none
    end
  end
  return list
end

--- Keeps tensors for backward: inputs, results, or others. A second call
--- replaces the first.
function methods.save_for_backward(ctx, ...)
  ctx._state.saved = tensors_of("save_for_backward", ...)
end

--- Inputs that forward changes in place; it must return them.
function methods.mark_dirty(ctx, ...)
  for _, t in ipairs(tensors_of("mark_dirty", ...)) do
    ctx._state.dirty[t] = true
  end
end

--- Results that have no gradient.
function methods.mark_non_differentiable(ctx, ...)
  for _, t in ipairs(tensors_of("mark_non_differentiable", ...)) do
    ctx._state.plain[t] = true
  end
end

--- false: backward gets nil, not zeros, for results that were not used.
function methods.set_materialize_grads(ctx, value)
  ctx._state.materialize = check.bool(value, "set_materialize_grads(value)")
end

local function new_context(name)
  return setmetatable({
    _state = { name = name, saved = {}, dirty = {}, plain = {}, materialize = true },
    needs_input_grad = core.list({}),
  }, Context)
end

-- ---- the forward half --------------------------------------------------------

-- Positions of tensors among the arguments, and whether each wants a gradient.
local function inputs_of(args, ctx, tracing)
  local list, place, any = {}, {}, false
  for i = 1, args.n do
    local x = args[i]
    local tensor = core.is_tensor(x)
    local wants = tensor and x:is_floating_point() and (tracing or x.requires_grad)
    ctx.needs_input_grad[i] = wants
    any = any or wants
    if tensor then
      list[#list + 1] = x
      place[i] = #list
    end
  end
  return list, place, any and core.is_grad_enabled()
end

local function run_forward(cls, ctx, args)
  local setup = cls.setup_context
  return table.pack(grad_mode.no_grad(function()
    if not setup then
      return cls.forward(ctx, table.unpack(args, 1, args.n))
    end
    local out = table.pack(cls.forward(table.unpack(args, 1, args.n)))
    setup(ctx, args, out.n > 1 and out or out[1])
    return table.unpack(out, 1, out.n)
  end))
end

local function position(list, t)
  for i, x in ipairs(list) do
    if rawequal(x, t) then
      return i
    end
  end
  return nil
end

-- A result as a tensor without history that nobody else has.
local function fresh(t, inputs, seen, dirty)
  if dirty or t.requires_grad or position(inputs, t) or seen[t] then
    return t:detach()
  end
  seen[t] = true
  return t
end

-- Which results take part: {list, at = {number of result -> number in list},
-- dirty = {number in list -> number of input}}.
local function results_of(state, out, inputs, tracing)
  local r, seen = { list = {}, raw = {}, at = {}, dirty = {} }, {}
  for i = 1, out.n do
    local t = out[i]
    if core.is_tensor(t) then
      local dirty = state.dirty[t] and position(inputs, t)
      errors.check(not dirty or not (t.requires_grad and t.is_leaf), "RuntimeError",
        "%s: a leaf tensor that requires grad has been used in an in-place operation", state.name)
      if t:is_floating_point() and not state.plain[t] then
        local n = #r.list + 1
        r.list[n] = tracing and t or fresh(t, inputs, seen, dirty)
        r.raw[n], r.at[i], r.dirty[n] = t, n, dirty or false
      end
    end
  end
  return r
end

-- What save_for_backward was given becomes {list, at} (an input, or a result,
-- which the node keeps) or {tensor}.
local function settle_saved(state, inputs, results, tracing)
  local keep = { inputs = {}, outputs = {} }
  for i, t in ipairs(state.saved) do
    if core.is_tensor(t) then
      local o, at = position(results.raw, t), position(inputs, t)
      if o then
        keep.outputs[o] = true
        state.saved[i] = { list = "outputs", at = o }
      elseif at then
        keep.inputs[at] = true
        state.saved[i] = { list = "inputs", at = at }
      else
        state.saved[i] = { list = "others", at = i, tensor = tracing and t:clone() or t,
          version = not tracing and t._version }
      end
    end
  end
  return keep
end

-- ---- the rule ------------------------------------------------------------------

local function gradients_of(results, out, grads, materialize)
  local list = {}
  for i = 1, out.n do
    local at = results.at[i]
    local shape = out[i]
    if at then
      list[i] = grads[at] or nil
    elseif shape and materialize then
      list[i] = require("torch").zeros(shape.shape, { dtype = shape.dtype })
    end
  end
  return list
end

local function check_count(name, args, got, place, needs)
  for i = args.n + 1, got.n do
    errors.check(got[i] == nil, "RuntimeError",
      "%s.backward returned an incorrect number of gradients (expected %d, got %d)", name, args.n,
      got.n)
  end
  for i = 1, args.n do
    local g = got[i]
    if check.is_none(g) then
      errors.check(i <= got.n or not needs[place[i]], "RuntimeError",
        "%s.backward returned an incorrect number of gradients (expected %d, got %d)", name,
        args.n, got.n)
    else
      errors.check(place[i], "RuntimeError",
        "%s.backward returned a gradient other than nil for argument %d, which is no Tensor",
        name, i)
      errors.check(core.is_tensor(g), "TypeError",
        "%s.backward: gradient %d must be a Tensor or nil, not %s", name, i, check.describe(g))
    end
  end
end

-- Shapes and types of results, not the results: these refer to the rule.
local function outlines(out)
  local list = { n = out.n }
  for i = 1, out.n do
    if core.is_tensor(out[i]) then
      list[i] = { shape = out[i].shape, dtype = out[i].dtype }
    end
  end
  return list
end

local function rule_of(cls, ctx, args, place, results, out)
  local state, name, at = ctx._state, cls.__name, results.at
  local shapes, count = outlines(out), { n = args.n }
  local slim = { at = at }
  return function(grads, inputs, outputs, needs)
    state.now = { inputs = inputs, outputs = outputs, others = {} }
    for i = 1, count.n do
      ctx.needs_input_grad[i] = place[i] and needs[place[i]] or false
    end
    errors.check(cls.backward, "NotImplementedError",
      "%s: you must implement the backward method to use it with autograd", name)
    local list = gradients_of(slim, shapes, grads, state.materialize)
    local got = table.pack(cls.backward(ctx, table.unpack(list, 1, shapes.n)))
    state.now = nil
    check_count(name, count, got, place, needs)
    local answer = {}
    for i = 1, count.n do
      if place[i] then
        answer[place[i]] = not check.is_none(got[i]) and got[i] or false
      end
    end
    return answer
  end
end

local function record(state, rule, inputs, results, keep)
  core.function_record(rule, inputs, results.list, keep.inputs, keep.outputs, results.dirty,
    state.materialize)
  return results.list
end

local function apply(cls, ...)
  local args, tracing = table.pack(...), core.is_tracing()
  local ctx = new_context(cls.__name)
  local inputs, place, wanted = inputs_of(args, ctx, tracing)
  local before = {}
  for i, x in ipairs(tracing and inputs or {}) do
    before[i] = x:clone() -- what forward may write over
  end
  errors.check(cls.forward, "NotImplementedError", "%s: you must implement the forward method",
    cls.__name)
  local out = run_forward(cls, ctx, args)
  local results = results_of(ctx._state, out, inputs, tracing)
  if not wanted or #results.list == 0 then
    for i = 1, out.n do
      out[i] = core.is_tensor(out[i]) and out[i].requires_grad and not ctx._state.dirty[out[i]]
        and out[i]:detach() or out[i]
    end
    return table.unpack(out, 1, out.n)
  end
  local keep = settle_saved(ctx._state, inputs, results, tracing)
  local rule = rule_of(cls, ctx, args, place, results, out)
  local made
  if tracing then
    made = core.function_trace(rule, before, results.list, ctx._state.materialize)
  else
    made = record(ctx._state, rule, inputs, results, keep)
  end
  for i = 1, out.n do
    local at = results.at[i]
    if at and results.dirty[at] then
      if tracing then
        out[i]:copy_(made[at])
      end
    elseif at then
      out[i] = made[at]
    elseif core.is_tensor(out[i]) and (tracing or out[i].requires_grad) then
      out[i] = out[i]:detach()
    end
  end
  ctx._state.dirty, ctx._state.plain = {}, {}
  return table.unpack(out, 1, out.n)
end

-- ---- the class -----------------------------------------------------------------

---@class torch.autograd.Function
---@field apply fun(...): ... runs forward on the arguments
local Function = class.new("Function")

local function with_apply(cls)
  --- Also as a method: X:apply(x).
  function cls.apply(first, ...)
    if rawequal(first, cls) then
      return apply(cls, ...)
    end
    return apply(cls, first, ...)
  end
  return cls
end

local extend = Function.extend

function Function:extend(name)
  return with_apply(extend(self, name))
end

function Function.new(cls)
  errors.raise("RuntimeError", "%s: a Function is not instantiated; call %s.apply(...)",
    cls.__name, cls.__name)
end

-- ---- once_differentiable ----------------------------------------------------------

local Once

--- Wraps a backward whose result cannot be differentiated: a second backward
--- through it is an error.
---@param backward fun(ctx, ...): ...
---@return fun(ctx, ...): ...
local function once_differentiable(backward)
  errors.check(type(backward) == "function", "TypeError",
    "once_differentiable: expected a function, got %s", check.describe(backward))
  Once = Once or Function:extend("OnceDifferentiable")
  function Once.forward(_, x)
    return x
  end
  function Once.backward()
    errors.raise("RuntimeError",
      "trying to differentiate twice a function that was marked with once_differentiable")
  end
  return function(ctx, ...)
    local grads = table.pack(...)
    local got = table.pack(grad_mode.no_grad(function()
      return backward(ctx, table.unpack(grads, 1, grads.n))
    end))
    local wanted = false
    for i = 1, grads.n do
      wanted = wanted or core.is_tensor(grads[i]) and grads[i].requires_grad
    end
    if not core.is_grad_enabled() or not wanted or core.is_tracing() then
      return table.unpack(got, 1, got.n)
    end
    for i = 1, got.n do
      local g = got[i]
      if core.is_tensor(g) then
        got[i] = Once.apply(g:detach():requires_grad_(true))
      end
    end
    return table.unpack(got, 1, got.n)
  end
end

return { Function = Function, once_differentiable = once_differentiable }
