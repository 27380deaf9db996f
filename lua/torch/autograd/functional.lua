--- torch.autograd.functional: jacobian, hessian, vjp, jvp, hvp, vhp.
---
--- `inputs` and `v` are a tensor or a list; the function takes the inputs as
--- separate arguments and returns one or several tensors. What has the form of
--- the inputs or outputs comes as a tensor or a list likewise. Options:
--- create_graph (false), the result can be differentiated; strict (false), an
--- input that the outputs do not depend on is an error, else its derivatives
--- are 0.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local grad_mode = require("torch.grad_mode")

local M = {}
local op = core.forms.functions

-- ---- inputs and outputs ------------------------------------------------------

local function tensor_list(where, what, value)
  local list = core.is_tensor(value) and { value } or value
  errors.check(type(list) == "table" and #list > 0, "TypeError",
    "%s: %s must be a Tensor or a list of Tensors, not %s", where, what, check.describe(value))
  for i, t in ipairs(list) do
    errors.check(core.is_tensor(t), "TypeError", "%s: %s[%d] must be a Tensor, not %s", where, what,
      i, check.describe(t))
  end
  return { table.unpack(list) }
end

-- Inputs that the function is differentiated by; with create_graph they keep
-- their history.
local function leaves(list, create_graph)
  local out = {}
  for i, t in ipairs(list) do
    if create_graph and t.requires_grad then
      out[i] = t:view_as(t)
    else
      out[i] = t:detach():requires_grad_(true)
    end
  end
  return out
end

-- The function's results as a list, and whether it returned a single tensor.
local function call(where, fn, inputs)
  errors.check(type(fn) == "function" or getmetatable(fn), "TypeError",
    "%s: func must be a function, not %s", where, check.describe(fn))
  local got = table.pack(fn(table.unpack(inputs)))
  local single = got.n == 1 and core.is_tensor(got[1])
  local value = got.n == 1 and got[1] or { table.unpack(got, 1, got.n) }
  return tensor_list(where, "what the function returned", value), single
end

local function like(list)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = op.zeros_like(t:detach())
  end
  return out
end

-- Gradients with zeros where nothing depends. `roots` that have no history
-- contribute nothing.
local function gradients(where, roots, inputs, v, o, create_graph)
  local live, weights = {}, {}
  for i, r in ipairs(roots) do
    if r.requires_grad then
      live[#live + 1] = r
      weights[#weights + 1] = v and v[i] or op.ones_like(r:detach())
    end
  end
  local got = #live > 0 and core.grad(live, inputs, weights,
    { retain_graph = true, create_graph = create_graph, allow_unused = true }) or {}
  local out = {}
  for i, x in ipairs(inputs) do
    local g = got[i]
    if not core.is_tensor(g) then
      errors.check(not o.strict, "RuntimeError",
        "%s: the output of the function is independent of input %d; this is not allowed when "
        .. "strict = true", where, i)
      g = op.zeros_like(x:detach())
    end
    out[i] = g
  end
  return out
end

-- The results as the caller sees them.
local function finish(list, single, create_graph)
  if not create_graph then
    for i, t in ipairs(list) do
      list[i] = t:detach()
    end
  end
  return single and list[1] or list
end

local function vectors(where, v, of, what)
  if check.is_none(v) then
    errors.check(#of == 1 and of[1]:numel() == 1, "RuntimeError",
      "%s: v can only be left out if the %s is a single element", where, what)
    return { op.ones_like(of[1]:detach()) }
  end
  local list = tensor_list(where, "v", v)
  errors.check(#list == #of, "RuntimeError", "%s: v has %d tensors, the %s %d", where, #list, what,
    #of)
  for i, t in ipairs(list) do
    errors.check(t.shape == of[i].shape, "RuntimeError",
      "%s: v[%d] has the shape %s, expected %s", where, i, tostring(t.shape),
      tostring(of[i].shape))
  end
  return list
end

-- Defines M.NAME(func, inputs, v?, options) as body(func, inputs, v, options)
-- with gradients enabled.
local function define(name, params, body)
  M[name] = function(...)
    local a = check.arguments(name, params, { inputs = true, v = true }, ...)
    local o = {}
    for i, param in ipairs(params) do
      o[param] = a[i]
    end
    o.list = tensor_list(name, "inputs", o.inputs)
    o.single = core.is_tensor(o.inputs)
    return grad_mode.enable_grad(function()
      return body(o, o.func, o.v)
    end)
  end
end

local WITH_V = { "func", "inputs", "v", "create_graph", "strict" }

-- ---- first order -----------------------------------------------------------

--- vjp(func, inputs, v): the outputs, and v times the Jacobian.
define("vjp", WITH_V, function(o, fn, v)
  local inputs = leaves(o.list, o.create_graph)
  local outs, single = call("vjp", fn, inputs)
  v = vectors("vjp", v, outs, "output")
  local got = gradients("vjp", outs, inputs, v, o, o.create_graph)
  return finish(outs, single, o.create_graph), finish(got, o.single, o.create_graph)
end)

--- jvp(func, inputs, v): the outputs, and the Jacobian times v.
define("jvp", WITH_V, function(o, fn, v)
  local inputs = leaves(o.list, o.create_graph)
  v = vectors("jvp", v, inputs, "input")
  local outs, single = call("jvp", fn, inputs)
  local weights = like(outs)
  for _, w in ipairs(weights) do
    w:requires_grad_(true)
  end
  local back = gradients("jvp", outs, inputs, weights, o, true)
  local got = gradients("jvp", back, weights, v, { strict = false }, o.create_graph)
  return finish(outs, single, o.create_graph), finish(got, single, o.create_graph)
end)

local function joined(a, b)
  local out = {}
  for _, shape in ipairs({ a, b }) do
    for i = 1, #shape do
      out[#out + 1] = shape[i]
    end
  end
  return out
end

-- One output by every input: a list of tensors of shape output + input.
local function rows(where, y, inputs, o)
  local parts, flat = {}, y:reshape({ -1 })
  for i in ipairs(inputs) do
    parts[i] = {}
  end
  for j = 0, y:numel() - 1 do
    for i, g in ipairs(gradients(where, { flat[j] }, inputs, nil, o, o.create_graph)) do
      parts[i][j + 1] = g
    end
  end
  local out = {}
  for i, x in ipairs(inputs) do
    local shape = joined(y.shape, x.shape)
    out[i] = parts[i][1] and op.stack(parts[i]):reshape(shape)
      or op.zeros(shape, { dtype = x.dtype })
  end
  return out
end

local JACOBIAN = { "func", "inputs", "create_graph", "strict", "vectorize", "strategy" }

local function check_strategy(where, o)
  errors.check(o.strategy == nil or o.strategy == "reverse-mode", "NotImplementedError",
    "%s: strategy '%s' is not supported; 'reverse-mode' is", where, tostring(o.strategy))
  errors.check(not (o.vectorize and o.strict), "RuntimeError",
    "%s: strict and vectorize cannot be true together", where)
end

local function jacobian(where, o, fn, inputs)
  local outs, single = call(where, fn, inputs)
  local all = {}
  for i, y in ipairs(outs) do
    all[i] = finish(rows(where, y, inputs, o), o.single, o.create_graph)
  end
  return single and all[1] or all
end

--- jacobian(func, inputs): of shape output + input; for lists of inputs or
--- several outputs a list of each. vectorize gives the same numbers.
define("jacobian", JACOBIAN, function(o, fn)
  check_strategy("jacobian", o)
  return jacobian("jacobian", o, fn, leaves(o.list, o.create_graph))
end)

-- ---- second order ------------------------------------------------------------

local function scalar(where, fn, inputs)
  local outs, single = call(where, fn, inputs)
  errors.check(single and outs[1]:numel() == 1, "RuntimeError",
    "%s: the function must return a single tensor of a single element", where)
  return outs
end

local HESSIAN = { "func", "inputs", "create_graph", "strict", "vectorize",
  "outer_jacobian_strategy" }

--- hessian(func, inputs) of a function with a single element: of shape input +
--- input; for a list of inputs a list of lists.
define("hessian", HESSIAN, function(o, fn)
  o.strategy = o.outer_jacobian_strategy
  check_strategy("hessian", o)
  local inputs = leaves(o.list, o.create_graph)
  local all = {}
  local first = gradients("hessian", scalar("hessian", fn, inputs), inputs, nil, o, true)
  for i, g in ipairs(first) do
    all[i] = finish(rows("hessian", g, inputs, o), o.single, o.create_graph)
  end
  return o.single and all[1] or all
end)

--- vhp(func, inputs, v): the value, and v times the Hessian.
define("vhp", WITH_V, function(o, fn, v)
  local inputs = leaves(o.list, o.create_graph)
  v = vectors("vhp", v, inputs, "input")
  local outs = scalar("vhp", fn, inputs)
  local first = gradients("vhp", outs, inputs, nil, o, true)
  local got = gradients("vhp", first, inputs, v, o, o.create_graph)
  return finish(outs, true, o.create_graph), finish(got, o.single, o.create_graph)
end)

--- hvp(func, inputs, v): the value, and the Hessian times v.
define("hvp", WITH_V, function(o, fn, v)
  local inputs = leaves(o.list, o.create_graph)
  v = vectors("hvp", v, inputs, "input")
  local outs = scalar("hvp", fn, inputs)
  local first = gradients("hvp", outs, inputs, nil, o, true)
  local weights = like(inputs)
  for _, w in ipairs(weights) do
    w:requires_grad_(true)
  end
  local back = gradients("hvp", first, inputs, weights, o, true)
  local got = gradients("hvp", back, weights, v, { strict = false }, o.create_graph)
  return finish(outs, true, o.create_graph), finish(got, o.single, o.create_graph)
end)

return M
