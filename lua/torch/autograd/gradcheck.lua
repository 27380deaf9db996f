--- torch.autograd.gradcheck, gradgradcheck: gradients against central
--- differences.
---
--- The whole Jacobian is compared, element by element: a column of differences
--- for each element of an input that requires a gradient, a row of gradients
--- for each element of a result. Everything runs on copies of the inputs. The
--- defaults (PyTorch's) are meant for float64; narrower types need their own.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local DEFAULTS = { eps = 1e-6, atol = 1e-5, rtol = 1e-3, raise_exception = true }

local function settings(name, opts)
  opts = opts or {}
  errors.check(type(opts) == "table", "TypeError", "%s(options): expected a table, got %s", name,
    check.describe(opts))
  for key in pairs(opts) do
    errors.check(DEFAULTS[key] ~= nil, "TypeError",
      "%s: unknown option '%s'; allowed are eps, atol, rtol, raise_exception", name, tostring(key))
  end
  local out = {}
  for key, value in pairs(DEFAULTS) do
    local given = opts[key]
    errors.check(given == nil or type(given) == type(value), "TypeError",
      "%s(%s): expected a %s, got %s", name, key, type(value), check.describe(given))
    out[key] = given == nil and value or given
  end
  errors.check(out.eps > 0, "ValueError", "%s(eps): %g given; it must be positive", name, out.eps)
  return out
end

-- Copies whose elements can be moved; other values stay themselves.
local function copies(name, fn, inputs)
  errors.check(type(fn) == "function", "TypeError", "%s(fn): expected a function, got %s", name,
    check.describe(fn))
  if core.is_tensor(inputs) then
    inputs = { inputs }
  end
  errors.check(type(inputs) == "table", "TypeError",
    "%s(inputs): expected a tensor or a list, got %s", name, check.describe(inputs))
  local out, any = { n = inputs.n or #inputs }, false
  for i = 1, out.n do
    local x = inputs[i]
    out[i] = x
    if core.is_tensor(x) then
      out[i] = x:detach():clone():requires_grad_(x.requires_grad)
      any = any or x.requires_grad
    end
  end
  errors.check(any, "ValueError", "%s(inputs): no input requires a gradient", name)
  return out
end

-- The tensors of floats among what fn returns, in order.
local function results(fn, inputs)
  local got, tensors, out = table.pack(fn(table.unpack(inputs, 1, inputs.n))), {}, {}
  for i = 1, got.n do
    arguments.flatten(got[i], "result", tensors)
  end
  for _, t in ipairs(tensors) do
    if t.tensor.dtype.is_floating_point then
      out[#out + 1] = t.tensor
    end
  end
  return out
end

local function flat(x)
  return x:detach():reshape({ -1 }):tolist()
end

-- [result][element of it]: differences for one element of an input.
local function column(fn, inputs, cells, k, eps)
  local value = cells[k]:item()
  local function at(moved)
    cells[k] = moved
    local out = {}
    for i, y in ipairs(results(fn, inputs)) do
      out[i] = flat(y)
    end
    return out
  end
  local ok, high = pcall(at, value + eps)
  local low
  if ok then
    ok, low = pcall(at, value - eps)
  end
  cells[k] = value
  if not ok then
    error(low or high, 0)
  end
  for i, row in ipairs(high) do
    for j, v in ipairs(row) do
      row[j] = (v - low[i][j]) / (2 * eps)
    end
  end
  return high
end

-- [result][element of it][input][element of it]: gradients; nil where a
-- result does not depend on an input.
local function rows(outs, inputs, wrt)
  local leaves, all = {}, {}
  for i, at in ipairs(wrt) do
    leaves[i] = inputs[at]
  end
  for o, y in ipairs(outs) do
    all[o] = {}
    for j = 1, y.requires_grad and y:numel() or 0 do
      local hot = core.forms.functions.zeros_like(y:detach()):reshape({ -1 })
      hot[j - 1] = 1
      local got = core.grad({ y }, leaves, { hot:reshape(y.shape) },
        { retain_graph = true, allow_unused = true })
      local row = {}
      for i, at in ipairs(wrt) do
        row[at] = core.is_tensor(got[i]) and flat(got[i]) or nil
      end
      all[o][j] = row
    end
  end
  return all
end

-- What differs, as text; nil if nothing does.
local function difference(fn, inputs, s)
  local wrt = {}
  for i = 1, inputs.n do
    if core.is_tensor(inputs[i]) and inputs[i].requires_grad then
      wrt[#wrt + 1] = i
    end
  end
  local all = rows(results(fn, inputs), inputs, wrt)
  for _, at in ipairs(wrt) do
    local cells = inputs[at]:detach():view({ -1 })
    for k = 0, cells:numel() - 1 do
      for o, want in ipairs(column(fn, inputs, cells, k, s.eps)) do
        for j, d in ipairs(want) do
          local row = all[o][j] and all[o][j][at]
          local g = row and row[k + 1] or 0
          local close = math.abs(g - d) <= s.atol + s.rtol * math.abs(d) or g == d
          if not close then -- also if either is NaN
            return ("d(output %d, element %d) / d(input %d, element %d): the gradient is %.9g, "
              .. "differences give %.9g"):format(o - 1, j - 1, at - 1, k, g, d)
          end
        end
      end
    end
  end
  return nil
end

local function verdict(name, fn, inputs, s)
  local text = difference(fn, inputs, s)
  if text and s.raise_exception then
    errors.raise("RuntimeError", "%s: %s", name, text)
  end
  return text == nil
end

--- Compares the gradients of `fn` with central differences, for all inputs
--- that require a gradient. Outputs and inputs are counted from 0.
--- error: RuntimeError naming output, input, element and both numbers
---@param fn fun(...): ... tensors, or lists of tensors
---@param inputs torch.Tensor | any[]
---@param opts? {eps: number, atol: number, rtol: number, raise_exception: boolean}
---@return boolean true; false if they differ and raise_exception is false
function M.gradcheck(fn, inputs, opts)
  local s = settings("gradcheck", opts)
  return verdict("gradcheck", fn, copies("gradcheck", fn, inputs), s)
end

-- Distinct numbers in (-1, 1) of y's type and shape.
local function cotangent(y)
  local v = {}
  for i = 1, y:numel() do
    v[i] = math.sin(12.9898 * i + 1.3)
  end
  return core.tensor(v, { dtype = y.dtype }):reshape(y.shape):requires_grad_(true)
end

--- The same of the gradients of `fn`: of the sum over its results times
--- `grad_outputs` (a list; none: fixed numbers), which count as inputs too.
---@param fn fun(...): ...
---@param inputs torch.Tensor | any[]
---@param grad_outputs? torch.Tensor[]
---@param opts? table as for gradcheck
---@return boolean
function M.gradgradcheck(fn, inputs, grad_outputs, opts)
  if opts == nil and type(grad_outputs) == "table" and not grad_outputs[1] then
    grad_outputs, opts = nil, grad_outputs
  end
  local s = settings("gradgradcheck", opts)
  local all = copies("gradgradcheck", fn, inputs)
  local n, kept = all.n, {}
  for i, y in ipairs(results(fn, all)) do
    if y.requires_grad then
      kept[#kept + 1] = i
    end
  end
  errors.check(not grad_outputs or #grad_outputs == #kept, "ValueError",
    "gradgradcheck(grad_outputs): %d given, %d results require a gradient",
    grad_outputs and #grad_outputs or 0, #kept)
  local outs = results(fn, all)
  for i, o in ipairs(kept) do
    all[n + i] = grad_outputs and grad_outputs[i]:detach():clone():requires_grad_(true)
      or cotangent(outs[o])
  end
  all.n = n + #kept
  local function gradients(...)
    local args = table.pack(...)
    local ys, leaves = {}, {}
    local got = results(fn, { n = n, table.unpack(args, 1, n) })
    for i, o in ipairs(kept) do
      ys[i] = got[o]
    end
    for i = 1, n do
      if core.is_tensor(args[i]) and args[i].requires_grad then
        leaves[#leaves + 1] = args[i]
      end
    end
    local grads, out = core.grad(ys, leaves, { table.unpack(args, n + 1, args.n) },
      { create_graph = true, allow_unused = true }), {}
    for i, x in ipairs(leaves) do
      out[i] = core.is_tensor(grads[i]) and grads[i] or x * 0
    end
    return out
  end
  return verdict("gradgradcheck", gradients, all, s)
end

return M
