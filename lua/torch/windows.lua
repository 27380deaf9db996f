--- Windows of signal processing, by their definitions: bartlett, blackman,
--- hamming, hann, kaiser. A periodic window of n points is the symmetric one of
--- n + 1 without its last. Source: PyTorch documentation, torch.hann_window and
--- neighbours.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- `shape(n, …)` maps the places 0 … n-1 of a symmetric window of n points.
local function define(name, extra, shape)
  local names = { "window_length", "periodic", table.unpack(extra) }
  for _, common in ipairs({ "dtype", "layout", "device", "requires_grad" }) do
    names[#names + 1] = common
  end
  M[name] = function(...)
    local torch = require("torch")
    local v = check.arguments(name .. "()", names, nil, ...)
    local length = check.int(v[1], name .. "(): window_length", { min = 0, error = "RuntimeError" })
    local periodic = v[2] == nil or check.bool(v[2], name .. "(): periodic")
    local at = 2 + #extra
    local dtype = v[at + 1] or core.get_default_dtype()
    errors.check(dtype.is_floating_point, "RuntimeError",
      "%s() expects floating point dtypes, got %s", name, tostring(dtype))
    local out
    if length <= 1 then
      out = torch.ones({ length }, { dtype = dtype })
    else
      local n = periodic and length + 1 or length
      local places = torch.arange(length, { dtype = torch.float64 })
      out = shape(places, n, table.unpack(v, 3, at)):to(dtype)
    end
    return v[at + 4] and out:requires_grad_(true) or out
  end
end

local function cosine(places, n, factor)
  return (places * (factor * math.pi / (n - 1))):cos()
end

define("bartlett_window", {}, function(places, n)
  return 1 - (places * (2 / (n - 1)) - 1):abs()
end)

define("blackman_window", {}, function(places, n)
  return 0.42 - 0.5 * cosine(places, n, 2) + 0.08 * cosine(places, n, 4)
end)

define("hamming_window", { "alpha", "beta" }, function(places, n, alpha, beta)
  alpha = check.number(alpha or 0.54, "hamming_window(): alpha")
  return alpha - check.number(beta or 0.46, "hamming_window(): beta") * cosine(places, n, 2)
end)

define("hann_window", {}, function(places, n)
  return 0.5 - 0.5 * cosine(places, n, 2)
end)

define("kaiser_window", { "beta" }, function(places, n, beta)
  local torch = require("torch")
  beta = check.number(beta or 12.0, "kaiser_window(): beta")
  local x = places * (2 / (n - 1)) - 1
  return (beta * (1 - x * x):clamp_min(0):sqrt()):i0() / torch.tensor(beta,
    { dtype = torch.float64 }):i0()
end)

return M
