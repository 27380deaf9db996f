--- Every optimizer, compiled and on the host, against the formulas of PyTorch's
--- and PopART's documentation worked out in float64: types of parameters,
--- accumulators and states, loss scales and options in all combinations.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local float16, float32 = torch.float16, torch.float32
local near = helper.near

local Net = nn.Module:extend("Net")

-- Elements that float16 has; the norm of `b` is 0 at first.
function Net:init()
  self.w = nn.Parameter(torch.tensor({ 1, -0.5, 2.25 }, { dtype = float32 }))
  self.b = nn.Parameter(torch.zeros(2))
end

-- The gradients are the columns of x, summed over the batch.
function Net:forward(x)
  return poptorch.identity_loss((self.w * x[":, :3"]):sum() + (self.b * x[":, 3:"]):sum(), "sum")
end

-- Two micro-batches for each of three steps: their mean differs every time.
local X = {
  torch.tensor({ { 1, 0.5, -0.25, 0.75, -1 }, { 0.5, 1, -0.75, 0.25, 1.5 } }),
  torch.tensor({ { -0.5, 1, 0.5, 0.5, 0.25 }, { 1, 0.5, 0.25, 0.75, 0.5 } }),
  torch.tensor({ { 0.25, -1, 1, -0.5, 1 }, { 0.75, 0.5, 0.5, 1, -0.5 } }),
}

-- ---- formulas: w after a step; s keeps states, each rounded by s.keep ---------

local function sgd(o, s, w, g)
  g = g + w * o.weight_decay
  if o.momentum == 0 then
    return w - g * (o.lr * (1 - o.dampening))
  end
  local v = s.v * o.momentum + g * (1 - o.dampening)
  s.v = s.keep(v)
  return w - (o.nesterov and g + v * o.momentum or v) * o.lr
end

local function torch_sgd(o, s, w, g, t)
  g = g + w * o.weight_decay
  local v = t == 1 and g or s.v * o.momentum + g * (1 - o.dampening)
  s.v = s.keep(v)
  v = o.momentum == 0 and g or v
  return w - (o.nesterov and g + v * o.momentum or v) * o.lr
end

local function combined(o, s, w, g, t)
  local decay = (1 - o.dampening) * o.weight_decay * o.velocity_scaling
  local v = t == 1 and s.keep(w * decay) or s.v
  v = s.keep(v + g * ((1 - o.dampening) * o.velocity_scaling))
  w = w - v * (o.lr / o.velocity_scaling)
  s.v = s.keep(v * o.momentum + w * decay)
  return w
end

local function direction(o, s, g, t)
  local corrected = o.bias_correction ~= false
  local m = s.m * o.betas[1] + g * (1 - o.betas[1])
  local v = s.v * o.betas[2] + g * g * (1 - o.betas[2])
  s.m, s.v = s.keep(m), s.keep(v)
  if corrected then
    m, v = m / (1 - o.betas[1] ^ t), v / (1 - o.betas[2] ^ t)
  end
  return m / (v:sqrt() + o.eps)
end

local function adam(o, s, w, g, t)
  return w - direction(o, s, g + w * o.weight_decay, t) * o.lr
end

local function adamw(o, s, w, g, t)
  return w - (direction(o, s, g, t) + w * o.weight_decay) * o.lr
end

local function lamb(o, s, w, g, t)
  local x = direction(o, s, g, t) + w * o.weight_decay
  local r1, r2, most = w:norm():item(), x:norm():item(), o.max_weight_norm or math.huge
  local ratio = (r1 == 0 or r2 == 0 or most == 0) and 1 or math.min(r1, most) / r2
  return w - x * (o.lr * ratio)
end

local function rmsprop(o, s, w, g, t)
  if t == 1 and o.use_tf_variant then
    s.v = s.v + 1
  end
  g = g + w * o.weight_decay
  local v = s.v * o.alpha + g * g * (1 - o.alpha)
  s.v = s.keep(v)
  if o.centered then
    local mean = s.mean * o.alpha + g * (1 - o.alpha)
    s.mean = s.keep(mean)
    v = v - mean * mean
  end
  local tf = o.use_tf_variant
  local x = tf and g / (v + o.eps):sqrt() * o.lr or g / (v:sqrt() + o.eps)
  local buffer = s.m * o.momentum + x
  s.m = s.keep(buffer)
  return w - buffer * (tf and 1 or o.lr)
end

-- ---- the table: name, formula, options, and what all of that name have -------

local SGD = { lr = 0.05, momentum = 0, dampening = 0, weight_decay = 0, velocity_scaling = 1 }
local ADAM = { lr = 0.05, betas = { 0.75, 0.875 }, eps = 1e-3, weight_decay = 0 }
local RMS = { lr = 0.05, alpha = 0.75, eps = 1e-3, weight_decay = 0, momentum = 0 }

local cases = {
  { "SGD", sgd, SGD, {} },
  { "SGD", sgd, SGD, { dampening = 0.25, weight_decay = 0.125 } },
  { "SGD", sgd, SGD, { momentum = 0.5, dampening = 0.25, weight_decay = 0.125 } },
  { "SGD", sgd, SGD, { momentum = 0.5, nesterov = true, weight_decay = 0.125 } },
  { "SGD", combined, SGD, { momentum = 0.5, dampening = 0.25, weight_decay = 0.125,
    use_combined_accum = true, velocity_scaling = 4 } },
  { "Adam", adam, ADAM, {} },
  { "Adam", adam, ADAM, { weight_decay = 0.125 } },
  { "AdamW", adamw, ADAM, { weight_decay = 0.125 } },
  { "AdamW", adamw, ADAM, { weight_decay = 0.125, bias_correction = false } },
  { "RMSprop", rmsprop, RMS, {} },
  { "RMSprop", rmsprop, RMS, { centered = true, weight_decay = 0.125 } },
  { "RMSprop", rmsprop, RMS, { centered = true, momentum = 0.5 } },
  { "RMSprop", rmsprop, RMS, { use_tf_variant = true, momentum = 0.5, weight_decay = 0.125 } },
  { "LAMB", lamb, ADAM, {} },
  { "LAMB", lamb, ADAM, { max_weight_norm = torch.none, weight_decay = 0.125 } },
  { "LAMB", lamb, ADAM, { bias_correction = false, weight_decay = 0.125 } },
  { "LAMB", lamb, ADAM, { max_weight_norm = 0.5, weight_decay = 0.125 } },
  { "LAMB", lamb, ADAM, { max_weight_norm = 0 } },
}

-- `device`: the formula there, where it is another one
local native = {
  { "SGD", torch_sgd, SGD, {} },
  { "SGD", torch_sgd, SGD, { momentum = 0.5, dampening = 0.25, weight_decay = 0.125 },
    device = sgd },
  { "SGD", torch_sgd, SGD, { momentum = 0.5, nesterov = true, weight_decay = 0.125 } },
  { "Adam", adam, ADAM, { weight_decay = 0.125 } },
  { "AdamW", adamw, ADAM, { weight_decay = 0.125 } },
  { "RMSprop", rmsprop, RMS, { centered = true, momentum = 0.5, weight_decay = 0.125 } },
}

-- ---- running them ---------------------------------------------------------------

-- The options of a case with defaults, and with what the constructor takes.
local function joined(case, more)
  local all, given = {}, {}
  for _, t in ipairs({ case[3], case[4], more }) do
    for k, v in pairs(t) do
      all[k] = not rawequal(v, torch.none) and v or nil
      given[k] = (k ~= "velocity_scaling" or case[2] == combined) and v or nil
    end
  end
  return all, given
end

local function rounded(dtype)
  return function(t)
    return t:to(dtype):double()
  end
end

-- Both parameters after three steps by the formula.
local function expected(formula, o, dtype, state_dtype)
  local net, out = Net(), {}
  for i, p in ipairs({ net.w, net.b }) do
    local keep, w = rounded(dtype), p:detach():double()
    local zero = torch.zeros_like(w)
    local s = { keep = rounded(state_dtype), v = zero, m = zero, mean = zero }
    for t, x in ipairs(X) do
      local g = x:double():mean(0)[i == 1 and ":3" or "3:"]
      w = keep(formula(o, s, w, g, t))
    end
    out[i] = w
  end
  return out
end

local function on_device(make, dtype, batches)
  local net, o = Net():to(dtype), poptorch.Options()
  o.Training:gradientAccumulation(2)
  local model = poptorch.trainingModel(net, o, make(net:parameters()))
  for _, x in ipairs(batches or X) do
    model(x:to(dtype))
  end
  return net
end

local function on_host(make, dtype)
  local net = Net():to(dtype)
  local optimizer = make(net:parameters())
  for _, x in ipairs(X) do
    optimizer:zero_grad()
    ;(net(x:to(dtype)) / 2):backward()
    optimizer:step()
  end
  return net
end

-- One unit of float16 at 2 a step; a state rounded to a neighbour moves a
-- weight by less.
local function tolerance(dtype, state_dtype)
  return dtype == float16 and { 4e-3, 0 } or state_dtype == float16 and { 1e-3, 0 }
    or { 2e-6, 2e-6 }
end

local function check(case, make, o, dtype, state_dtype, host_state_dtype)
  local want = expected(case.device or case[2], o, dtype, state_dtype)
  local tol = tolerance(dtype, state_dtype)
  local got = on_device(make, dtype)
  near(got.w:double(), want[1], tol)
  near(got.b:double(), want[2], tol)
  want = expected(case[2], o, dtype, state_dtype)
  got, tol = on_host(make, dtype), tolerance(dtype, host_state_dtype)
  near(got.w:double(), want[1], tol)
  near(got.b:double(), want[2], tol)
end

local function each_type(f)
  for _, dtype in ipairs({ float32, float16 }) do
    for _, state in ipairs({ float32, float16 }) do
      f(dtype, state)
    end
  end
end

-- The types that the class takes.
local function types(name, accum, state)
  if name == "SGD" then
    return { accum_type = accum, velocity_accum_type = state }
  end
  return { accum_type = accum, first_order_momentum_accum_type = state,
    second_order_momentum_accum_type = state }
end

local function title(case)
  local words = {}
  for k, v in pairs(case[4]) do
    words[#words + 1] = k .. " " .. tostring(v)
  end
  table.sort(words)
  return ("%s %s"):format(case[1], table.concat(words, ", "))
end

describe("poptorch.optim's formula of", function()
  for _, case in ipairs(cases) do
    it(title(case), function()
      each_type(function(dtype, state)
        for _, accum in ipairs({ float32, float16 }) do
          for _, scale in ipairs({ 1, 64 }) do
            local o, given = joined(case, types(case[1], accum, state))
            given.loss_scaling = scale
            check(case, function(params)
              return poptorch.optim[case[1]](params, given)
            end, o, dtype, state, state)
          end
        end
      end)
    end)
  end
end)

describe("torch.optim's formula of", function()
  for _, case in ipairs(native) do
    it(title(case), function()
      for _, dtype in ipairs({ float32, float16 }) do
        local o, given = joined(case, {})
        -- states are float32 on the device, of the parameter's type on the host
        check(case, function(params)
          return torch.optim[case[1]](params, given)
        end, o, dtype, float32, dtype)
      end
    end)
  end
end)

describe("LAMB", function()
  it("leaves weights without a direction alone", function()
    local net = on_device(function(params)
      return poptorch.optim.LAMB(params, { lr = 0.5, weight_decay = 0 })
    end, float32, { torch.zeros(2, 5) })
    near(net.w:double(), Net().w:double(), helper.exact)
  end)
end)

describe("RMSprop", function()
  it("has a buffer of the first moment's type, and a square of that as well", function()
    local net = Net()
    local optimizer = poptorch.optim.RMSprop(net:parameters(), { momentum = 0.5, centered = true,
      first_order_momentum_accum_type = float16 })
    poptorch.trainingModel(net, nil, optimizer)(X[1])
    local state = optimizer:state_dict().ipu_state
    assert.same({ float16, float32, float16 },
      { state.Accl1___w.dtype, state.Accl2___w.dtype, state.Accl3___w.dtype })
  end)
end)

describe("a learning rate of 0 leaves every weight of", function()
  for _, case in ipairs(cases) do
    it(title(case), function()
      each_type(function(dtype, state)
        local _, given = joined(case, types(case[1], float32, state))
        given.lr = 0
        local net = on_device(function(params)
          return poptorch.optim[case[1]](params, given)
        end, dtype)
        near(net.w:double(), Net().w:double(), helper.exact)
        near(net.b:double(), Net().b:double(), helper.exact)
      end)
    end)
  end
end)
