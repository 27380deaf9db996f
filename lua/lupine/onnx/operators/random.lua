--- Random numbers of ONNX. They follow torch.manual_seed; a node with the attribute
--- `seed` has a sequence of its own in eager calls.
local core = require("lupine.core")
local torch = require("torch")
local operands = require("lupine.onnx.operands")
local tensors = require("lupine.onnx.tensors")

-- The generator of a node: nil for the common one.
local function generator(n)
  local seed = n.attr.seed
  if not seed then
    return nil
  end
  n:check(not core.is_tracing(), "attribute 'seed': a compiled program has one sequence of "
    .. "random numbers. Leave it out and call torch.manual_seed, or session:setRandomSeed")
  if not n.plan.generator then
    n.plan.generator = torch.Generator():manual_seed((("<I4"):unpack(("<f"):pack(seed))))
  end
  return n.plan.generator
end

local function floating_type(n, otherwise)
  local dtype = n.attr.dtype and tensors.dtype(n.attr.dtype) or otherwise
  n:check(dtype.is_floating_point, "attribute 'dtype' is %s. Allowed: floating point",
    tostring(dtype))
  return dtype
end

local function normal(n, shape, dtype, device)
  return torch.randn(shape, { dtype = dtype, device = device, generator = generator(n) })
    * n.attr.scale + n.attr.mean
end

local function uniform(n, shape, dtype, device)
  local low, high = n.attr.low, n.attr.high
  return torch.rand(shape, { dtype = dtype, device = device, generator = generator(n) })
    * (high - low) + low
end

local function of_shape(fill)
  return function(n)
    for _, size in ipairs(n.attr.shape) do
      n:check(size >= 0, "attribute 'shape' has a size %d", size)
    end
    return fill(n, n.attr.shape, floating_type(n))
  end
end

local function like(fill)
  return function(n, x)
    return fill(n, x.shape, floating_type(n, x.dtype), x.device)
  end
end

local function bernoulli(n)
  local x = operands.floating(n, 1)
  return torch.bernoulli(x, { generator = generator(n) })
    :to(n.attr.dtype and tensors.dtype(n.attr.dtype) or x.dtype)
end

local function multinomial(n)
  local x, count = operands.floating(n, 1), n.attr.sample_size
  local dtype = tensors.dtype(n.attr.dtype)
  n:check(x:dim() == 2, "input 'input' has the shape %s. Allowed: [batch, classes]",
    operands.shown(x))
  n:check(count > 0, "attribute 'sample_size' is %d. Allowed: 1 or more", count)
  n:check(dtype == torch.int32 or dtype == torch.int64, "attribute 'dtype' is %s. Allowed: "
    .. "int32, int64", tostring(dtype))
  return torch.multinomial(torch.softmax(x, 1), count, true, { generator = generator(n) }):to(dtype)
end

return function(op)
  local flags = { random = true }
  op("RandomNormal(; shape: ints!, dtype: dtype = 1, mean: float = 0.0, scale: float = 1.0,"
    .. " seed: float) -> (output)", 1, of_shape(normal), flags)
  op("RandomNormalLike(input; dtype: dtype, mean: float = 0.0, scale: float = 1.0,"
    .. " seed: float) -> (output)", 1, like(normal), flags)
  op("RandomUniform(; shape: ints!, dtype: dtype = 1, high: float = 1.0, low: float = 0.0,"
    .. " seed: float) -> (output)", 1, of_shape(uniform), flags)
  op("RandomUniformLike(input; dtype: dtype, high: float = 1.0, low: float = 0.0,"
    .. " seed: float) -> (output)", 1, like(uniform), flags)
  op("Bernoulli(input; dtype: dtype, seed: float) -> (output)", 15, bernoulli, flags)
  op("Multinomial(input; dtype: dtype = 6, sample_size: int = 1, seed: float) -> (output)", 7,
    multinomial, flags)
end
