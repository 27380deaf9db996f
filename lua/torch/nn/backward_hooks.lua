--- Hooks of a module's gradients: its tensor arguments and its results pass
--- through an identity whose backward calls them.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")

local M = {}

local Tap

-- fn({gradients, n}) -> {gradients, n}
local function make_tap()
  Tap = require("torch.autograd").Function:extend("BackwardHook")
  function Tap.forward(ctx, fn, ...)
    ctx.fn = fn
    ctx:set_materialize_grads(false)
    return ...
  end
  function Tap.backward(ctx, ...)
    local grads = ctx.fn(table.pack(...))
    return nil, table.unpack(grads, 1, grads.n)
  end
end

local function wants(x)
  return core.is_tensor(x) and x:is_floating_point() and (x.requires_grad or core.is_tracing())
end

-- Sends the tensors of a packed list that want a gradient through a tap.
-- fn(list): gradients in the places of the values, torch.none for the others;
-- gives the list to go on with.
local function tapped(values, fn)
  local places, list = {}, {}
  for i = 1, values.n do
    if wants(values[i]) then
      places[#places + 1] = i
      list[#list + 1] = values[i]
    end
  end
  if #places == 0 or not core.is_grad_enabled() then
    return values, false
  end
  local made = { Tap.apply(function(grads)
    local full = {}
    for i = 1, values.n do
      full[i] = core.none
    end
    for k, at in ipairs(places) do
      full[at] = grads[k] == nil and core.none or grads[k]
    end
    full = fn(full)
    local out = { n = #places }
    for k, at in ipairs(places) do
      local g = full[at]
      out[k] = core.is_tensor(g) and g or nil
    end
    return out
  end, table.unpack(list)) }
  local out = { n = values.n, table.unpack(values, 1, values.n) }
  for k, at in ipairs(places) do
    out[at] = made[k]
  end
  return out, true
end

local function replaced(new, old, what)
  if new == nil then
    return old
  end
  local list = hooks.packed(new)
  errors.check(list.n == #old, "RuntimeError",
    "a backward hook returned %d gradients for %s, expected %d", list.n, what, #old)
  return { table.unpack(list, 1, list.n) }
end

--- Runs forward between the taps. `taps` is {pre = hooks, full = hooks},
--- `run(args)` the call itself, which gives its packed results.
---@param module torch.nn.Module
---@param taps {pre: table[], full: table[]}
---@param args table packed
---@param run fun(args: table): table
---@return table packed results
function M.run(module, taps, args, run)
  if not Tap then
    make_tap()
  end
  local grad_output
  local tapped_args, any = tapped(args, function(grad_input)
    for _, entry in ipairs({ table.unpack(taps.full) }) do
      grad_input = replaced(entry.fn(module, grad_input, grad_output), grad_input, "the arguments")
    end
    return grad_input
  end)
  return (tapped(run(tapped_args), function(grads)
    for _, entry in ipairs({ table.unpack(taps.pre) }) do
      grads = replaced(entry.fn(module, grads), grads, "the results")
    end
    grad_output = grads
    for _, entry in ipairs(any and {} or { table.unpack(taps.full) }) do
      local holes = {}
      for i = 1, args.n do
        holes[i] = core.none
      end
      errors.check(entry.fn(module, holes, grads) == nil, "RuntimeError",
        "a backward hook of a module none of whose arguments requires a gradient must return nil")
    end
    return grads
  end))
end

return M
