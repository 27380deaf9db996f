--- torch.nn.init: starting values, written in place without a gradient. All
--- return the tensor. Tensors of the device 'meta' have nothing to fill.
---
--- source: PyTorch documentation, torch.nn.init; Glorot & Bengio 2010, He et
--- al. 2015, Saxe et al. 2013, Martens 2010 as quoted there.
local errors = require("lupine.base.errors")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")

local M = {}

local function torch()
  return require("torch")
end

-- name(tensor, …) with fn(tensor, arguments)
local function define(sig, fn)
  local parsed = signature(sig)
  M[parsed.name] = function(...)
    local a = parsed(...)
    errors.check(torch().is_tensor(a.tensor), "TypeError",
      "%s(tensor): expected a Tensor, got %s", parsed.name, type(a.tensor))
    if not a.tensor.is_meta then
      torch().no_grad(function()
        fn(a.tensor, a)
      end)
    end
    return a.tensor
  end
  signatures.note(M[parsed.name], sig)
end

local GAIN = { linear = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4 }
for _, d in ipairs({ "1d", "2d", "3d" }) do
  GAIN["conv" .. d] = 1
  GAIN["conv_transpose" .. d] = 1
end

--- The recommended gain of an activation; param is leaky_relu's slope (0.01).
---@param nonlinearity string
---@param param? number
---@return number
function M.calculate_gain(nonlinearity, param)
  if nonlinearity == "leaky_relu" then
    return math.sqrt(2 / (1 + (param or 0.01) ^ 2))
  end
  return errors.check(GAIN[nonlinearity], "ValueError", "Unsupported nonlinearity %s",
    tostring(nonlinearity))
end

local function fans(t)
  errors.check(t:dim() >= 2, "ValueError",
    "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
  local field = 1
  for i = 3, t:dim() do
    field = field * t.shape[i]
  end
  return t.shape[2] * field, t.shape[1] * field
end
M._calculate_fan_in_and_fan_out = fans

local function fan(t, mode)
  local fan_in, fan_out = fans(t)
  mode = tostring(mode):lower()
  errors.check(mode == "fan_in" or mode == "fan_out", "ValueError",
    "Mode %s not supported, please use one of ['fan_in', 'fan_out']", mode)
  return mode == "fan_in" and fan_in or fan_out
end

local function uniform(t, low, high, generator)
  return t:uniform_({ from = low, to = high, generator = generator })
end

local function normal(t, mean, std, generator)
  return t:normal_({ mean = mean, std = std, generator = generator })
end

define("uniform_(tensor, a=0.0, b=1.0, generator=None)", function(t, o)
  uniform(t, o.a, o.b, o.generator)
end)
define("normal_(tensor, mean=0.0, std=1.0, generator=None)", function(t, o)
  normal(t, o.mean, o.std, o.generator)
end)
define("constant_(tensor, val)", function(t, o)
  t:fill_(o.val)
end)
define("ones_(tensor)", function(t)
  t:fill_(1)
end)
define("zeros_(tensor)", function(t)
  t:zero_()
end)

define("eye_(tensor)", function(t)
  errors.check(t:dim() == 2, "ValueError", "Only tensors with 2 dimensions are supported")
  t:copy_(torch().eye(t.shape[1], t.shape[2]))
end)

-- The middle of each kernel is 1 from input channel i to output channel i.
define("dirac_(tensor, groups=1)", function(t, o)
  local n = t:dim()
  errors.check(n >= 3 and n <= 5, "ValueError",
    "Only tensors with 3, 4, or 5 dimensions are supported")
  errors.check(t.shape[1] % o.groups == 0, "ValueError", "dim 0 must be divisible by groups")
  local per_group = t.shape[1] // o.groups
  t:zero_()
  for g = 0, o.groups - 1 do
    for d = 0, math.min(per_group, t.shape[2]) - 1 do
      local at = t[g * per_group + d][d]
      for k = 3, n - 1 do
        at = at[t.shape[k] // 2]
      end
      at[t.shape[n] // 2] = 1
    end
  end
end)

define("xavier_uniform_(tensor, gain=1.0, generator=None)", function(t, o)
  local fan_in, fan_out = fans(t)
  local bound = o.gain * math.sqrt(6 / (fan_in + fan_out))
  uniform(t, -bound, bound, o.generator)
end)
define("xavier_normal_(tensor, gain=1.0, generator=None)", function(t, o)
  local fan_in, fan_out = fans(t)
  normal(t, 0, o.gain * math.sqrt(2 / (fan_in + fan_out)), o.generator)
end)

local function kaiming_std(t, o)
  return M.calculate_gain(o.nonlinearity, o.a) / math.sqrt(fan(t, o.mode))
end
local KAIMING = "(tensor, a=0, mode='fan_in', nonlinearity='leaky_relu', generator=None)"
define("kaiming_uniform_" .. KAIMING, function(t, o)
  if t:numel() > 0 then
    local bound = math.sqrt(3) * kaiming_std(t, o)
    uniform(t, -bound, bound, o.generator)
  end
end)
define("kaiming_normal_" .. KAIMING, function(t, o)
  if t:numel() > 0 then
    normal(t, 0, kaiming_std(t, o), o.generator)
  end
end)

-- The distribution function of the standard normal distribution.
local function below(x)
  return (1 + torch().tensor(x / math.sqrt(2), { dtype = torch().float64 }):erf():item()) / 2
end

-- By the inverse of the distribution function, as PyTorch does.
define("trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None)", function(t, o)
  local low, high = below((o.a - o.mean) / o.std), below((o.b - o.mean) / o.std)
  uniform(t, 2 * low - 1, 2 * high - 1, o.generator)
  t:copy_(t:erfinv():mul(o.std * math.sqrt(2)):add(o.mean):clamp(o.a, o.b))
end)

-- Rows made orthonormal one after the other, each projected twice (Gram and
-- Schmidt): the distribution is that of the Q of a QR with positive diagonal.
local function orthonormal(rows, cols, generator)
  local q = normal(torch().empty({ rows, cols }, { dtype = torch().float64 }), 0, 1, generator)
  for i = 0, rows - 1 do
    local row = q[i]
    local before = q:narrow(0, 0, i)
    for _ = 1, i > 0 and 2 or 0 do
      row = row - before:t():mv(before:mv(row))
    end
    q[i] = row / row:norm()
  end
  return q
end

define("orthogonal_(tensor, gain=1, generator=None)", function(t, o)
  errors.check(t:dim() >= 2, "ValueError", "Only tensors with 2 or more dimensions are supported")
  if t:numel() == 0 then
    return
  end
  local rows = t.shape[1]
  local cols = t:numel() // rows
  local g = o.generator
  local q = rows < cols and orthonormal(rows, cols, g) or orthonormal(cols, rows, g):t()
  t:copy_(q:reshape(t.shape):mul(o.gain))
end)

define("sparse_(tensor, sparsity, std=0.01, generator=None)", function(t, o)
  errors.check(t:dim() == 2, "ValueError", "Only tensors with 2 dimensions are supported")
  local rows, cols = t.shape[1], t.shape[2]
  local zeros = math.ceil(o.sparsity * rows)
  normal(t, 0, o.std, o.generator)
  for col = 0, cols - 1 do
    local order = torch().randperm(rows, { generator = o.generator })
    t[{ order:narrow(0, 0, zeros), col }] = 0
  end
end)

for _, name in ipairs({ "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform",
  "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse" }) do
  M[name] = M[name .. "_"]
end

return require("lupine.base.namespace").close(M, "torch.nn.init")
