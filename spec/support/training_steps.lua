--- Two equal models, one of which a plain script trains and the other a compiled step.
local compile = require("lupine.compile")
local torch = require("torch")

local M = {}

--- A step of a plain script: step(x, …) of the model's arguments and last the target.
---@param model torch.nn.Module
---@param optimizer torch.optim.Optimizer
---@param loss any as in lupine.compile; nil: forward returns it, last
---@param opts? table accumulation, clip_grad_norm
---@return fun(...: any): any
function M.eager(model, optimizer, loss, opts)
  opts = opts or {}
  local k, calls = opts.accumulation or 1, 0
  local function update()
    if opts.clip_grad_norm then
      torch.nn.utils.clip_grad_norm_(model:parameters(), opts.clip_grad_norm)
    end
    optimizer:step()
    calls = 0
  end
  return function(...)
    local args = table.pack(...)
    if calls == 0 then
      optimizer:zero_grad()
    end
    local out
    if loss then
      out = table.pack(model(table.unpack(args, 1, args.n - 1)))
      out.n = out.n + 1
      out[out.n] = loss(out[1], args[args.n])
    else
      out = table.pack(model(...))
    end
    (out[out.n] / k):backward()
    calls = calls + 1
    if calls == k then
      update()
    end
    return table.unpack(out, 1, out.n)
  end
end

--- Both forms of a step, over models that make() makes alike.
---@param make fun(): torch.nn.Module
---@param optimizer fun(params: table, model: torch.nn.Module): torch.optim.Optimizer
---@param opts? table of lupine.compile
---@return table {eager, compiled: {step, model, optimizer}}
function M.twins(make, optimizer, opts)
  local out = {}
  for _, form in ipairs({ "eager", "compiled" }) do
    torch.manual_seed(11)
    local model = make()
    local side = { model = model, optimizer = optimizer(model:parameters(), model) }
    local given = { optimizer = side.optimizer }
    for name, value in pairs(opts or {}) do
      given[name] = value
    end
    side.step = form == "eager" and M.eager(model, side.optimizer, given.loss, given)
      or compile(model, given)
    out[form] = side
  end
  return out
end

local function difference(a, b)
  if a.dtype ~= b.dtype or tostring(a.shape) ~= tostring(b.shape) then
    return math.huge
  end
  local d = a:numel() > 0 and (a:double() - b:double()):abs():max():item() or 0
  return d == d and d or math.huge
end
M.difference = difference

--- The largest difference of two models' and optimizers' tensors, infinite where they
--- are of other types or one has a tensor that the other lacks; and its name.
---@param twins table
---@return number, string?
function M.apart(twins)
  local most, where = 0, nil
  local function compare(a, b, name)
    local d = a ~= nil and b ~= nil and difference(a, b) or math.huge
    if d > most then
      most, where = d, name
    end
  end
  local a, b = twins.eager.model:state_dict(), twins.compiled.model:state_dict()
  for name, t in pairs(a) do
    compare(t, b[name], name)
  end
  local x, y = twins.eager.optimizer:state_dict().state, twins.compiled.optimizer:state_dict().state
  for _, pair in ipairs({ { x, y }, { y, x } }) do
    for i, states in pairs(pair[1]) do
      for name, t in pairs(states) do
        compare(t, pair[2][i] and pair[2][i][name], name .. " of parameter " .. i)
      end
    end
  end
  return most, where
end

--- Calls both with the same arguments and compares what they return.
---@param twins table
---@param ... any
---@return number difference the largest of their results
function M.call(twins, ...)
  local a = table.pack(twins.eager.step(...))
  local b = table.pack(twins.compiled.step(...))
  local most = a.n == b.n and 0 or math.huge
  for i = 1, a.n do
    most = math.max(most, difference(a[i], b[i]))
  end
  return most
end

return M
