--- Gradients against central differences in float64, first and second order.
---
--- A function takes tensors and returns one tensor; its loss is the weighted
--- sum of the result, with weights that differ from element to element.
local torch = require("torch")
local M = {}

local f64 = { dtype = torch.float64 }

--- `n` values spread over the interval, none of them at its ends or equal.
function M.spread(low, high, n)
  local v = {}
  for i = 1, n do
    -- multiples of the golden section fill an interval evenly, out of order
    v[i] = low + (high - low) * (0.05 + 0.9 * ((i * 0.6180339887498949 + low * 0.1) % 1))
  end
  return v
end

local function leaf(values, shape)
  return torch.tensor(values, f64):reshape(shape)
end

local function weighted(y, phase)
  local n = y:numel()
  local w = {}
  for i = 1, n do
    w[i] = math.cos(1.3 * i + phase)
  end
  return (y * torch.tensor(w, f64):reshape(y.shape)):sum()
end

local function copy(list)
  return table.move(list, 1, #list, 1, {})
end

--- Gradient of the loss of f at `inputs` ({values, shape}, …), as lists, in
--- order `n`: 1 of the loss, 2 of the weighted sum of the first gradients.
local function analytic(f, inputs, order)
  local xs = {}
  for i, input in ipairs(inputs) do
    xs[i] = leaf(input[1], input[2]):clone():requires_grad_()
  end
  local loss = weighted(f(table.unpack(xs)), 0)
  local keywords = { create_graph = order == 2, allow_unused = true }
  local grads = torch.autograd.grad(loss, xs, nil, keywords)
  if order == 2 then
    local second
    for i = 1, #xs do
      if grads[i] and grads[i] ~= torch.none and grads[i].requires_grad then
        local part = weighted(grads[i], i)
        second = second and second + part or part
      end
    end
    if not second then
      return nil
    end
    grads = torch.autograd.grad(second, xs, nil, { allow_unused = true })
  end
  local lists = {}
  for i, input in ipairs(inputs) do
    local g = grads[i]
    if g and g ~= torch.none then
      lists[i] = g:reshape(-1):tolist()
    else
      lists[i] = {}
      for j = 1, #input[1] do
        lists[i][j] = 0
      end
    end
  end
  return lists
end

local function first_loss(f, inputs)
  local xs = {}
  for i, input in ipairs(inputs) do
    xs[i] = leaf(input[1], input[2])
  end
  return weighted(f(table.unpack(xs)), 0):item()
end

local function second_loss(f, inputs)
  local grads = analytic(f, inputs, 1)
  local total = 0
  for i, g in ipairs(grads) do
    for j, v in ipairs(g) do
      total = total + v * math.cos(1.3 * j + i)
    end
  end
  return total
end

local function check(f, inputs, order, tolerance)
  local got = analytic(f, inputs, order)
  local loss = order == 1 and first_loss or second_loss
  local h = 1e-5
  for i, input in ipairs(inputs) do
    for j = 1, #input[1] do
      local moved = copy(inputs)
      local function at(d)
        local values = copy(input[1])
        values[j] = values[j] + d
        moved[i] = { values, input[2] }
        return loss(f, moved)
      end
      local want = (at(h) - at(-h)) / (2 * h)
      local have = got and got[i][j] or 0
      local close = math.abs(want - have) <= tolerance * (1 + math.abs(want))
      if not close then -- also if either is NaN
        return ("order %d, input %d, element %d: gradient %.9g, differences give %.9g"):format(
          order, i, j - 1, have, want)
      end
    end
  end
end

--- Nil, or what differs. `inputs`: {values, shape} each; `orders` 1 or 2.
function M.check(f, inputs, orders, tolerance)
  for order = 1, orders or 2 do
    local wrong = check(f, inputs, order, tolerance or 1e-6)
    if wrong then
      return wrong
    end
  end
end

return M
