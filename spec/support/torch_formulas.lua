--- Updates of PyTorch's optimizers by the formulas of their documentation, on plain
--- numbers: a weight is a list `s.w`, which a step with the gradient `g` (a list) and its
--- number t changes. o are the options.
local M = {}

-- Applies f(w, g, i) to each element.
local function each(s, g, f)
  for i = 1, #s.w do
    s.w[i] = f(s.w[i], g[i], i)
  end
end

-- A list of states, one an element, that start at `first`.
local function state(s, name, first)
  if not s[name] then
    s[name] = {}
    for i = 1, #s.w do
      s[name][i] = first or 0
    end
  end
  return s[name]
end

local function sign(x)
  return x > 0 and 1 or x < 0 and -1 or 0
end

-- The gradient with L2 decay and sign.
local function plain(o, w, g)
  return (o.maximize and -g or g) + (o.weight_decay or 0) * w
end

--- The first buffer is the bare gradient.
function M.SGD(s, o, g, t)
  local b = state(s, "b")
  each(s, g, function(w, x, i)
    x = plain(o, w, x)
    if (o.momentum or 0) ~= 0 then
      b[i] = t == 1 and x or o.momentum * b[i] + (1 - (o.dampening or 0)) * x
      x = o.nesterov and x + o.momentum * b[i] or b[i]
    end
    return w - o.lr * x
  end)
end

function M.Adam(s, o, g, t, decoupled)
  local m, v, top = state(s, "m"), state(s, "v"), state(s, "top")
  local b1, b2 = table.unpack(o.betas)
  each(s, g, function(w, x, i)
    x = decoupled and (o.maximize and -x or x) or plain(o, w, x)
    if decoupled then
      w = w - o.lr * o.weight_decay * w
    end
    m[i], v[i] = b1 * m[i] + (1 - b1) * x, b2 * v[i] + (1 - b2) * x * x
    top[i] = math.max(top[i], v[i])
    local root = math.sqrt((o.amsgrad and top[i] or v[i]) / (1 - b2 ^ t)) + o.eps
    return w - o.lr * (m[i] / (1 - b1 ^ t)) / root
  end)
end

function M.AdamW(s, o, g, t)
  M.Adam(s, o, g, t, true)
end

function M.NAdam(s, o, g, t)
  local m, v = state(s, "m"), state(s, "v")
  local b1, b2 = table.unpack(o.betas)
  local function mu(k)
    return b1 * (1 - 0.5 * 0.96 ^ (k * o.momentum_decay))
  end
  s.product = (s.product or 1) * mu(t)
  each(s, g, function(w, x, i)
    x = plain({ weight_decay = o.decoupled_weight_decay and 0 or o.weight_decay }, w, x)
    if o.decoupled_weight_decay then
      w = w - o.lr * o.weight_decay * w
    end
    m[i], v[i] = b1 * m[i] + (1 - b1) * x, b2 * v[i] + (1 - b2) * x * x
    local hat = mu(t + 1) * m[i] / (1 - s.product * mu(t + 1)) + (1 - mu(t)) * x / (1 - s.product)
    return w - o.lr * hat / (math.sqrt(v[i] / (1 - b2 ^ t)) + o.eps)
  end)
end

function M.RAdam(s, o, g, t)
  local m, v = state(s, "m"), state(s, "v")
  local b1, b2 = table.unpack(o.betas)
  local most = 2 / (1 - b2) - 1
  local rho = most - 2 * t * b2 ^ t / (1 - b2 ^ t)
  each(s, g, function(w, x, i)
    x = plain(o, w, x)
    m[i], v[i] = b1 * m[i] + (1 - b1) * x, b2 * v[i] + (1 - b2) * x * x
    local hat = m[i] / (1 - b1 ^ t)
    if rho <= 5 then
      return w - o.lr * hat
    end
    local rect = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
    return w - o.lr * hat * rect * math.sqrt(1 - b2 ^ t) / (math.sqrt(v[i]) + o.eps)
  end)
end

function M.Adamax(s, o, g, t)
  local m, u = state(s, "m"), state(s, "u")
  local b1, b2 = table.unpack(o.betas)
  each(s, g, function(w, x, i)
    x = plain(o, w, x)
    m[i], u[i] = b1 * m[i] + (1 - b1) * x, math.max(b2 * u[i], math.abs(x) + o.eps)
    return w - o.lr * m[i] / ((1 - b1 ^ t) * u[i])
  end)
end

function M.RMSprop(s, o, g)
  local v, mean, b = state(s, "v"), state(s, "mean"), state(s, "b")
  each(s, g, function(w, x, i)
    x = plain(o, w, x)
    v[i] = o.alpha * v[i] + (1 - o.alpha) * x * x
    local square = v[i]
    if o.centered then
      mean[i] = o.alpha * mean[i] + (1 - o.alpha) * x
      square = square - mean[i] ^ 2
    end
    b[i] = (o.momentum or 0) * b[i] + x / (math.sqrt(square) + o.eps)
    return w - o.lr * b[i]
  end)
end

function M.Adagrad(s, o, g, t)
  local sum = state(s, "sum", o.initial_accumulator_value)
  each(s, g, function(w, x, i)
    x = plain(o, w, x)
    sum[i] = sum[i] + x * x
    return w - o.lr / (1 + (t - 1) * o.lr_decay) * x / (math.sqrt(sum[i]) + o.eps)
  end)
end

function M.Adadelta(s, o, g)
  local v, d = state(s, "v"), state(s, "d")
  each(s, g, function(w, x, i)
    x = plain(o, w, x)
    v[i] = o.rho * v[i] + (1 - o.rho) * x * x
    local delta = math.sqrt(d[i] + o.eps) / math.sqrt(v[i] + o.eps) * x
    d[i] = o.rho * d[i] + (1 - o.rho) * delta * delta
    return w - o.lr * delta
  end)
end

function M.ASGD(s, o, g, t)
  s.eta = s.eta or o.lr
  each(s, g, function(w, x)
    return w - o.lambd * s.eta * w - s.eta * plain(o, w, x)
  end)
  s.eta = o.lr / (1 + o.lambd * o.lr * t) ^ o.alpha
end

function M.Rprop(s, o, g)
  local before, size = state(s, "before"), state(s, "size", o.lr)
  each(s, g, function(w, x, i)
    local agree = x * before[i]
    local factor = agree > 0 and o.etas[2] or agree < 0 and o.etas[1] or 1
    size[i] = math.min(math.max(size[i] * factor, o.step_sizes[1]), o.step_sizes[2])
    x = agree < 0 and 0 or x
    before[i] = x
    return w - sign(x) * size[i]
  end)
end

--- Of a vector.
function M.Adafactor(s, o, g, t)
  local v, n, u = state(s, "v"), #s.w, {}
  local share, norm, unorm = t ^ o.beta2_decay, 0, 0
  for i = 1, n do
    norm = norm + s.w[i] ^ 2
    v[i] = (1 - share) * v[i] + share * g[i] ^ 2
    u[i] = g[i] / math.sqrt(math.max(v[i], o.eps[1] ^ 2))
    unorm = unorm + u[i] ^ 2
  end
  local alpha = math.max(o.eps[2], math.sqrt(norm / n)) * math.min(o.lr, 1 / math.sqrt(t))
  local most = math.max(1, math.sqrt(unorm / n) / o.d)
  each(s, u, function(w, x)
    return w * (1 - o.lr * o.weight_decay) - alpha * x / most
  end)
end

return M
