--- torch.utils.checkpoint: what a function computes is not kept for its
--- gradient but computed again when that is asked for.
---
--- Eagerly the function runs without a record; its backward draws the same
--- random numbers, runs it again on detached arguments and differentiates
--- that. In a traced model the arguments and results are marked as values to
--- be stored (poptorch.recomputationCheckpoint): what lies between is computed
--- again where the device recomputes.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")

local M = {}

local function each_tensor(values, fn)
  local out = { n = values.n }
  for i = 1, values.n do
    out[i] = core.is_tensor(values[i]) and fn(values[i]) or values[i]
  end
  return out
end

-- fn(args) with the random numbers of `state`; afterwards they go on as before.
local function run_again(fn, args, state)
  local torch = require("torch")
  local now = state and torch.get_rng_state()
  if state then
    torch.set_rng_state(state)
  end
  local results = torch.enable_grad(function()
    return table.pack(fn(table.unpack(args, 1, args.n)))
  end)
  if state then
    torch.set_rng_state(now)
  end
  return results
end

-- apply(anchor, call, …): the anchor requires a gradient, so that backward is
-- called for the sake of parameters alone too.
local Checkpoint = require("torch.autograd.function").Function:extend("Checkpoint")

function Checkpoint.forward(ctx, _, call, ...)
  ctx.call, ctx.args = call, table.pack(...)
  return call.fn(...)
end

function Checkpoint.backward(ctx, ...)
  local args = each_tensor(ctx.args, function(t)
    return t:detach():requires_grad_(t.requires_grad)
  end)
  local results = run_again(ctx.call.fn, args, ctx.call.state)
  local outputs, grads, given = {}, {}, { ... }
  for i = 1, results.n do
    if core.is_tensor(results[i]) and results[i].requires_grad and given[i] then
      outputs[#outputs + 1], grads[#grads + 1] = results[i], given[i]
    end
  end
  core.backward(outputs, grads)
  local out = each_tensor(args, function(t)
    return t.grad or core.none
  end)
  for i = 1, out.n do
    out[i] = core.is_tensor(out[i]) and out[i] or nil
  end
  return nil, nil, table.unpack(out, 1, out.n)
end

local parsed = signature("checkpoint(use_reentrant=None, preserve_rng_state=True, "
  .. "determinism_check='default', debug=False)")

--- fn(…), whose intermediate values are computed again in backward. A last
--- table may hold use_reentrant (there is one way here) and preserve_rng_state
--- = true, the same random numbers again.
---@param fn function
---@param ... any its arguments; tensors may stand in them by position only
---@return any what fn returns
function M.checkpoint(fn, ...)
  errors.check(type(fn) == "function" or type(fn) == "table", "TypeError",
    "checkpoint: expected a function or a module, got %s", check.describe(fn))
  local args, keywords = table.pack(...), {}
  if args.n > 0 and check.is_keywords(args[args.n]) then
    keywords = args[args.n]
    args[args.n], args.n = nil, args.n - 1
  end
  local options = parsed(keywords)
  if core.is_tracing() then
    local mark = core.forms.internal.recomputation_checkpoint
    args = each_tensor(args, mark)
    local results = each_tensor(table.pack(fn(table.unpack(args, 1, args.n))), mark)
    return table.unpack(results, 1, results.n)
  elseif not core.is_grad_enabled() then
    return fn(table.unpack(args, 1, args.n))
  end
  local torch = require("torch")
  local call = { fn = fn, state = options.preserve_rng_state and torch.get_rng_state() or nil }
  local anchor = torch.zeros({}, { requires_grad = true })
  return Checkpoint.apply(anchor, call, table.unpack(args, 1, args.n))
end

return require("lupine.base.namespace").close(M, "torch.utils.checkpoint")
