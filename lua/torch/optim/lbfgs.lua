--- L-BFGS: steps of a closure, along minus an approximate inverse Hessian
--- times the gradient.
---
--- source: Nocedal & Wright, Numerical Optimization, algorithms 7.4, 7.5 and,
--- for the strong Wolfe conditions, 3.5 and 3.6; PyTorch documentation, LBFGS
local define = require("torch.optim.define")
local errors = require("lupine.base.errors")
local Optimizer = require("torch.optim.optimizer")
local search = require("torch.optim.line_search")

---@class torch.optim.LBFGS: torch.optim.Optimizer
local LBFGS = define("LBFGS(params, lr=1, max_iter=20, max_eval=None, "
  .. "tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100, line_search_fn=None, "
  .. "maximize=False)", {
    check = function(numbers, group)
      group.max_eval = group.max_eval or numbers.max_iter * 5 // 4
      local search_fn = group.line_search_fn
      errors.check(search_fn == nil or search_fn == "strong_wolfe", "RuntimeError",
        "only 'strong_wolfe' is supported for line_search_fn, got '%s'", tostring(search_fn))
    end,
  })

local init = LBFGS.init
function LBFGS:init(...)
  init(self, ...)
  errors.check(#self.param_groups == 1, "ValueError",
    "LBFGS doesn't support per-parameter options (parameter groups)")
end

-- The gradient of what is minimised, in one row.
local function flat_grad(group)
  local list = {}
  for i, p in ipairs(group.params) do
    list[i] = p.grad and p.grad:reshape({ -1 }) or require("torch").zeros({ p:numel() },
      { dtype = p.dtype })
  end
  local grad = require("torch").cat(list)
  return group.maximize and -grad or grad
end

local function move(params, t, direction)
  local at = 0
  for _, p in ipairs(params) do
    p:add_(direction:narrow(0, at, p:numel()):reshape(p.shape) * t)
    at = at + p:numel()
  end
end

-- Minus the gradient times the inverse Hessian of the remembered pairs.
local function direction_of(s, grad)
  local n, weight = #s.old_steps, {}
  local q = -grad
  for i = n, 1, -1 do
    weight[i] = s.old_steps[i]:dot(q):item() * s.ro[i]
    q = q - s.old_changes[i] * weight[i]
  end
  local d = q * s.scale
  for i = 1, n do
    local back = s.old_changes[i]:dot(d):item() * s.ro[i]
    d = d + s.old_steps[i] * (weight[i] - back)
  end
  return d
end

-- Remembers the pair of the last step, if its curvature is positive.
local function remember(s, grad, history)
  local change, moved = grad - s.prev_grad, s.d * s.t
  local curvature = change:dot(moved):item()
  if curvature <= 1e-10 then
    return
  end
  if #s.old_steps == history then
    table.remove(s.old_steps, 1)
    table.remove(s.old_changes, 1)
    table.remove(s.ro, 1)
  end
  s.old_steps[#s.old_steps + 1] = moved
  s.old_changes[#s.old_changes + 1] = change
  s.ro[#s.ro + 1] = 1 / curvature
  s.scale = curvature / change:dot(change):item()
end

local function largest(x)
  return x:abs():max():item()
end

local function restore(params, values)
  for i, p in ipairs(params) do
    p:copy_(values[i])
  end
end

-- One move along s.d: new loss, new gradient, evaluations of the closure.
local function advance(s, group, evaluate, loss, grad, slope, last, evals)
  local params = group.params
  if group.line_search_fn then
    local before = {}
    for i, p in ipairs(params) do
      before[i] = p:clone()
    end
    local new_loss, new_grad, t, more = search(function(t)
      move(params, t, s.d)
      local f = evaluate()
      local g = flat_grad(group)
      restore(params, before)
      return f, g
    end, s.t, s.d, loss, grad, slope, group.max_eval - evals)
    s.t = t
    move(params, t, s.d)
    return new_loss, new_grad, more
  end
  move(params, s.t, s.d)
  if last then
    return loss, grad, 0
  end
  local f = evaluate()
  return f, flat_grad(group), 1
end

-- Iterates until a tolerance or a limit is met.
local function iterate(s, group, evaluate, loss, grad)
  local n, evals, lr = 0, 1, Optimizer.number(group.lr)
  while n < group.max_iter do
    n = n + 1
    s.n_iter = s.n_iter + 1
    if s.n_iter == 1 then
      s.d, s.scale, s.old_steps, s.old_changes, s.ro = -grad, 1, {}, {}, {}
    else
      remember(s, grad, group.history_size)
      s.d = direction_of(s, grad)
    end
    s.prev_grad = grad:clone()
    local before = loss
    s.t = s.n_iter == 1 and math.min(1, 1 / grad:abs():sum():item()) * lr or lr
    local slope = grad:dot(s.d):item()
    if slope > -group.tolerance_change then
      break
    end
    local more
    loss, grad, more = advance(s, group, evaluate, loss, grad, slope,
      n == group.max_iter, evals)
    evals = evals + more
    if n == group.max_iter or evals >= group.max_eval
      or largest(grad) <= group.tolerance_grad or largest(s.d * s.t) <= group.tolerance_change
      or math.abs(loss - before) < group.tolerance_change then
      break
    end
  end
  s.func_evals = (s.func_evals or 0) + evals
end

--- closure() zeroes the gradients, computes the loss, calls backward and
--- returns the loss; it runs several times. Returns the first loss.
function LBFGS:step(closure)
  errors.check(type(closure) == "function", "TypeError", "LBFGS:step(closure): a closure that "
    .. "computes the loss again is needed")
  local torch = require("torch")
  local group = self.param_groups[1]
  local first
  local function evaluate()
    local value = torch.enable_grad(closure)
    first = first or value
    local number = type(value) == "number" and value or value:item()
    return group.maximize and -number or number
  end
  torch.no_grad(function()
    local loss = evaluate()
    local grad = flat_grad(group)
    if largest(grad) > group.tolerance_grad then
      local key = group.params[1]
      self.state[key].n_iter = self.state[key].n_iter or 0
      iterate(self.state[key], group, evaluate, loss, grad)
    end
  end)
  return first
end

return { LBFGS = LBFGS }
