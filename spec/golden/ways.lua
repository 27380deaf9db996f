--- The further ways in which a golden case of a function runs: traced and
--- compiled, compiled with its gradient, and, in float64, the gradient of its
--- gradient against central differences.
---
--- Each function raises when the case fails that way, or a table: {refused =
--- what} when tracing refuses it because a shape or a Lua value depends on
--- data, {beside = why} when the way does not apply to the case. See README.md.
local areas = require("spec.golden.areas")
local compile = require("lupine.compile")
local core = require("lupine.core")
local read = require("spec.golden.read")
local torch = require("torch")
local values = require("spec.golden.values")

local M = {}

local function beside(why)
  error({ beside = why }, 0)
end

-- ---- a case as a function of its tensors ----------------------------------
-- A copy of `v` with swap(t) for each tensor t in it.
local function exchange(v, swap)
  if torch.is_tensor(v) then
    return swap(v)
  elseif type(v) ~= "table" or getmetatable(v) ~= nil then
    return v
  end
  local out = {}
  for key, e in pairs(v) do
    out[key] = exchange(e, swap)
  end
  return out
end

-- Arguments whose elements lie apart in memory, so that each can be moved.
local function apart(args, leaves)
  return exchange(args, function(t)
    if t:is_contiguous() then
      return t
    end
    local own = t:detach():contiguous():requires_grad_(t.requires_grad)
    for path, leaf in pairs(leaves) do
      leaves[path] = leaf == t and own or leaf
    end
    return own
  end)
end

-- fn(tensors) -> results as a list, and the list of tensors it is called with;
-- `hold(t)` tells which tensors fn holds itself; `arrange` may replace them.
local function program(c, load, hold, arrange)
  local leaves = {}
  local fn, args = (c.module and areas.module_call or values.call)(c, load, leaves)
  args = arrange and arrange(args, leaves) or args
  local inputs, place = {}, {}
  exchange(args, function(t)
    if not hold(t) then
      inputs[#inputs + 1] = t
      place[t] = #inputs
    end
  end)
  local function run(...)
    local given = { ... }
    local mine = exchange(args, function(t) return place[t] and given[place[t]] or t end)
    local packed = fn(mine)
    return values.leaves_of({ values.results(packed, c.out) }, {})
  end
  return run, inputs, leaves, args
end

-- ---- compiled -------------------------------------------------------------
local DYNAMIC = {}
for _, op in ipairs(core.ops()) do -- messages have the names that scripts call
  local name = op.name:gsub("_any$", ""):gsub("_all$", "")
  DYNAMIC[name] = DYNAMIC[name] or op.flags.dynamic
end

-- What tracing refuses by design, nil for any other error.
local function refusal(e)
  local text = tostring(e)
  local name = text:match("([%w_]+) has a result whose shape depends on its data")
  if name and DYNAMIC[name] then
    return name
  end
  return text:find("a traced tensor has no value", 1, true) and "values read while tracing" or nil
end

local function is_integral(t)
  return not t.dtype.is_floating_point
end

-- Compiles the case with all its tensors as inputs; if it reads the values of
-- some while tracing, with the integers among them as constants.
local function compiled(c, load, build)
  local last
  for _, hold in ipairs({ function() return false end, is_integral }) do
    local fn, inputs, leaves, args = program(c, load, hold)
    local ok, f = pcall(build, fn, inputs, leaves)
    if ok then
      return f, inputs, leaves, args
    end
    last = f
  end
  local why = refusal(last)
  error(why and { refused = why } or last, 0)
end

-- The OUT records of tensors, in the order of the flat results.
local function tensor_records(out, list)
  if type(out) == "table" and out.list then
    for _, o in ipairs(out.list) do
      tensor_records(o, list)
    end
  elseif type(out) == "table" and (out.tensor or out.shape) then
    list[#list + 1] = out
  end
  return list
end

function M.forward(c, load)
  local wants = tensor_records(c.out, {})
  if #wants == 0 then
    beside("results that are no tensors")
  end
  local f, inputs, _, args = compiled(c, load, function(fn, inputs)
    return compile(function(...)
      return table.unpack(fn(...))
    end, inputs)
  end)
  local got = { f(table.unpack(inputs)) }
  for i, want in ipairs(wants) do
    values.check(got[i], want, c, load, "result " .. i - 1)
  end
  for path, key in pairs(c.args_after or {}) do
    values.near(values.at(args, path), load(key), c.after_rtol, c.after_atol, "argument " .. path)
  end
  for name, key in pairs(c.state_after or {}) do
    values.near(args.state[name], load(key), c.rtol, c.atol, "state " .. name)
  end
end

-- The results that have a cotangent, and the cotangents.
local function seeds(c, load)
  local at, list = {}, {}
  for i, key in ipairs(c.cotangent) do
    if key ~= read.null then
      at[#at + 1] = i
      list[#list + 1] = load(key)
    end
  end
  return at, list
end

local function pick(list, at)
  local out = {}
  for i, k in ipairs(at) do
    out[i] = list[k]
  end
  return out
end

local function leaf_list(leaves, grads)
  local paths = {}
  for path in pairs(grads) do
    paths[#paths + 1] = path
  end
  table.sort(paths)
  local list = {}
  for i, path in ipairs(paths) do
    list[i] = leaves[path] or error("no argument at " .. path, 0)
  end
  return list, paths
end

function M.gradient(c, load)
  if not c.cotangent or next(c.grads) == nil then
    beside("no gradient")
  end
  local at, cotangents = seeds(c, load)
  local names
  local f, inputs = compiled(c, load, function(fn, inputs, leaves)
    local list, paths = leaf_list(leaves, c.grads)
    local wrt = {}
    for i, leaf in ipairs(list) do
      for k, x in ipairs(inputs) do
        wrt[i] = x == leaf and k or wrt[i]
      end
    end
    names = paths
    return compile(function(...)
      return table.unpack(pick(fn(...), at))
    end, inputs, { cotangents = cotangents, wrt = wrt })
  end)
  local given = table.move(inputs, 1, #inputs, 1, {})
  given[#given + 1] = cotangents
  local got = table.pack(f(table.unpack(given)))
  for i, path in ipairs(names) do
    values.near(got[got.n][i], load(c.grads[path]), c.grad_rtol, c.grad_atol,
      "gradient of " .. path)
  end
end

-- ---- gradients of gradients -----------------------------------------------
local ELEMENTS = 3 -- of each tensor are moved
local STEP = 1e-6

-- Distinct numbers in (-1, 1).
local function weights(t, k)
  local v = {}
  for i = 1, t:numel() do
    v[i] = math.sin(12.9898 * i + 1.3 + k)
  end
  return torch.tensor(v, { dtype = torch.float64 }):reshape(t.shape)
end

local function names_dtype(v)
  if type(v) ~= "table" then
    return false
  elseif v.dtype then
    return true
  end
  for _, e in pairs(v) do
    if names_dtype(e) then
      return true
    end
  end
  return false
end

-- Tensors of one element over some elements of t.
local function some_of(t)
  local n, out = t:numel(), {}
  for i = 0, math.min(n, ELEMENTS) - 1 do
    local k = n <= ELEMENTS and i or i * 7919 % n
    local cell, at, rest = t:detach(), {}, k
    for d = t:dim(), 1, -1 do
      at[d] = rest % t.shape[d]
      rest = rest // t.shape[d]
    end
    for d = 1, t:dim() do
      cell = cell:select(0, at[d])
    end
    out[i + 1] = { k = k, cell = cell }
  end
  return out
end

-- Whether differences over h and over h / 10 grow as they do over a jump.
local function is_jump(slope, finer)
  return math.abs(finer) > 5 * math.abs(slope)
end

-- Gradient at one element against differences; elements where the slopes to
-- both sides differ lie on a kink and are passed over, and so are jumps (a
-- subgradient's own gradient).
local function compare_element(value, at_k, got, what)
  local k, cell = at_k.k, at_k.cell
  local x = cell:item()
  local h = STEP * math.max(1, math.abs(x))
  local function at(moved)
    cell:fill_(moved)
    local y = value()
    return y and y:item() or 0
  end
  local function both(step)
    local ok, high, low = pcall(function() return at(x + step), at(x - step) end)
    if not ok then
      at(x)
      error(high, 0)
    end
    return high, low
  end
  local high, low = both(h)
  local middle = at(x)
  local d, right, left = (high - low) / (2 * h), (high - middle) / h, (middle - low) / h
  local noise = 1e-5 + 1e-8 * math.abs(middle)
  if d ~= d or math.abs(d) == math.huge or math.abs(right - left) > 0.01 * math.abs(d) + 10 * noise
  then
    return
  end
  if got ~= got or math.abs(got - d) > noise + 1e-3 * math.abs(d) then
    local near_high, near_low = both(h / 10)
    at(x)
    if got == got and is_jump(d, (near_high - near_low) / (h / 5)) then
      return
    end
    error(("second gradient by %s, element %d: %.9g, differences give %.9g"):format(what, k, got,
      d), 0)
  end
end

-- The sum over the first gradients times fixed numbers, as a function of
-- everything that it depends on.
local function second_program(c, load)
  local function in_double(key)
    local t = load(key)
    return t.dtype == torch.float32 and t:double() or t
  end
  c = setmetatable({ dtype = "float64" }, { __index = c })
  local at, cotangents = seeds(c, in_double)
  local run, inputs, leaves = program(c, in_double, function() return false end, apart)
  local list = leaf_list(leaves, c.grads)
  for i, t in ipairs(cotangents) do
    cotangents[i] = t:requires_grad_(true)
  end
  local function value()
    local ys, cs = {}, {}
    for i, y in ipairs(pick(run(table.unpack(inputs)), at)) do
      if y.dtype ~= torch.float64 then
        beside("a narrow type")
      elseif y.requires_grad then
        ys[#ys + 1], cs[#cs + 1] = y, cotangents[i]
      end
    end
    local grads = torch.autograd.grad(ys, list, cs, { create_graph = true, allow_unused = true })
    local sum = nil
    for i = 1, #list do
      if torch.is_tensor(grads[i]) then
        local term = (grads[i] * weights(grads[i], i)):sum()
        sum = sum and sum + term or term
      end
    end
    return sum
  end
  return value, list, cotangents
end

-- A gradient by all elements of a matrix of which a triangle is read is no
-- slope; spec/ops/linalg/linalg_spec.lua differentiates symmetric arguments.
local TRIANGLE = { ["linalg.cholesky"] = true, cholesky_inverse = true,
  ["Tensor.cholesky_inverse"] = true, cholesky_solve = true, ["Tensor.cholesky_solve"] = true,
  ["linalg.cholesky_ex"] = true, ["linalg.eigh"] = true, ["linalg.eigvalsh"] = true }

function M.second(c, load)
  if TRIANGLE[c.op] or (c.kwargs or {}).hermitian then
    beside("one triangle is read")
  elseif not c.cotangent or next(c.grads) == nil then
    beside("no gradient")
  elseif c.dtype ~= "float32" and c.dtype ~= "float64" then
    beside("a narrow type")
  elseif names_dtype(c.args or {}) or names_dtype(c.kwargs or {}) then
    beside("a dtype among the arguments")
  end
  local value, list, cotangents = second_program(c, load)
  local sum = value()
  for _, t in ipairs(cotangents) do
    list[#list + 1] = t
  end
  local grads = sum and sum.requires_grad
    and torch.autograd.grad({ sum }, list, nil, { allow_unused = true }) or {}
  for i, t in ipairs(list) do
    local flat = torch.is_tensor(grads[i]) and grads[i]:reshape({ -1 })
    for _, e in ipairs(some_of(t)) do
      compare_element(value, e, flat and flat[e.k]:item() or 0,
        i <= #list - #cotangents and "argument " .. i - 1 or "cotangent")
    end
  end
end

return M
