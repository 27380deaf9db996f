--- Activations that are made of others: glu, rrelu, in-place forms,
--- gumbel_softmax.
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")

return function(F)
  local M = {}

  define(M, "glu(input, dim=-1)", function(input, dim)
    errors.check(input:is_floating_point(), "NotImplementedError",
      "glu: `input` must be a floating point tensor, got %s", tostring(input.dtype))
    errors.check(input:dim() > 0, "RuntimeError", "glu does not support 0-dimensional tensors")
    local size = input:size(dim)
    errors.check(size % 2 == 0, "RuntimeError",
      "glu: the halving dimension must be even, but dimension %d is size %d", dim, size)
    local half = size // 2
    return input:narrow(dim, 0, half) * input:narrow(dim, half, half):sigmoid()
  end)

  -- The slope is drawn per element in training, else the middle of its range.
  define(M, "rrelu(input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False)",
    function(input, lower, upper, training, inplace)
      errors.check(lower <= upper, "RuntimeError",
        "rrelu: lower bound %s must not be larger than upper bound %s", lower, upper)
      local out
      if training then
        local slope = require("torch").rand_like(input:detach()) * (upper - lower) + lower
        out = (input * slope):where(input:le(0), input)
      else
        out = F.leaky_relu(input, (lower + upper) / 2)
      end
      return inplace and input:copy_(out) or out
    end)

  for _, name in ipairs({ "elu", "leaky_relu", "hardtanh" }) do
    local with = F[name]
    M[name .. "_"] = function(input, ...)
      local args = table.pack(...)
      local last = args[args.n]
      local keywords = type(last) == "table" and last or {}
      local n = type(last) == "table" and args.n - 1 or args.n
      local copy = { inplace = true }
      for key, value in pairs(keywords) do
        copy[key] = value
      end
      args[n + 1] = copy
      return with(input, table.unpack(args, 1, n + 1))
    end
  end
  for _, name in ipairs({ "relu", "celu", "selu", "threshold" }) do
    M[name .. "_"] = core.methods[name .. "_"]
  end

  define(M, "gumbel_softmax(logits, tau=1.0, hard=False, eps=1e-10, dim=-1)",
    function(logits, tau, hard, _, dim)
      local noise = require("torch").empty_like(logits):exponential_():log():neg()
      local soft = F.softmax((logits + noise) / tau, dim)
      if not hard then
        return soft
      end
      local index = soft:argmax(dim, { keepdim = true })
      local one = require("torch").zeros_like(logits):scatter(dim, index, 1.0)
      return one - soft:detach() + soft
    end)

  return M
end
