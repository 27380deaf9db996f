--- Updates of optimizers as operators (ai.onnx.preview.training). Inputs behind the
--- rate and the count of updates are lists, one behind the other: tensors, their
--- gradients, their states; outputs are the new tensors and states.
local torch = require("torch")
local operands = require("lupine.onnx.operands")

-- update(x, g, states…) -> new x, new states, for each tensor.
local function updates(states, update)
  return function(n, rate, count, ...)
    local list, fields = { ... }, states + 2
    local tensors = #list // fields
    n:check(tensors > 0 and #list % fields == 0, "input 'inputs' has %d tensors. Allowed: "
      .. "multiples of %d", #list, fields)
    local out = {}
    for i = 1, tensors do
      local of_one = {}
      for f = 0, fields - 1 do
        of_one[f + 1] = list[f * tensors + i]
      end
      local new = { update(n, rate, count, table.unpack(of_one)) }
      for f, t in ipairs(new) do
        out[(f - 1) * tensors + i] = t
      end
    end
    return table.unpack(out)
  end
end

local function regularised(n, x, g)
  local factor = n.attr.norm_coefficient
  return factor ~= 0 and g + x * factor or g
end

local function adagrad(n, rate, count, x, g, squares)
  local r = rate / (count * n.attr.decay_factor + 1)
  g = regularised(n, x, g)
  squares = squares + g * g
  return x - r * g / (squares:sqrt() + n.attr.epsilon), squares
end

local function adam(n, rate, count, x, g, average, squares)
  local alpha, beta = n.attr.alpha, n.attr.beta
  g = regularised(n, x, g)
  average = average * alpha + g * (1 - alpha)
  squares = squares * beta + g * g * (1 - beta)
  local t = count:to(rate.dtype)
  local corrected = rate * (1 - beta ^ t):sqrt() / (1 - alpha ^ t)
  local r = torch.where(count:gt(0), corrected, rate)
  x = x - r * average / (squares:sqrt() + n.attr.epsilon)
  return x * (1 - n.attr.norm_coefficient_post), average, squares
end

local function momentum(n, rate, count, x, g, velocity)
  local alpha, mode = n.attr.alpha, operands.word(n, "mode", "standard", "nesterov")
  g = regularised(n, x, g)
  local beta = torch.where(count:gt(0), torch.full_like(rate, n.attr.beta),
    torch.ones_like(rate))
  velocity = velocity * alpha + g * beta
  return x - rate * (mode == "nesterov" and g + velocity * alpha or velocity), velocity
end

return function(op)
  op("Adagrad(R, T, inputs...; decay_factor: float = 0.0, epsilon: float = 0.0,"
    .. " norm_coefficient: float = 0.0) -> (outputs...)", 1, updates(1, adagrad))
  op("Adam(R, T, inputs...; alpha: float = 0.9, beta: float = 0.999, epsilon: float = 0.0,"
    .. " norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0) -> (outputs...)", 1,
    updates(2, adam))
  op("Momentum(R, T, inputs...; alpha: float!, beta: float!, mode: string!,"
    .. " norm_coefficient: float!) -> (outputs...)", 1, updates(1, momentum))
end
