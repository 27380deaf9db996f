--- torch.testing: assert_close.
---
--- source: PyTorch's documented tolerances (torch.testing.assert_close)
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- dtype -> rtol, atol; exact for all others
local tolerances = {
  [core.dtypes.float16] = { 1e-3, 1e-5 },
  [core.dtypes.bfloat16] = { 1.6e-2, 1e-5 },
  [core.dtypes.float32] = { 1.3e-6, 1e-5 },
  [core.dtypes.float64] = { 1e-7, 1e-7 },
}

local function fail(msg, fmt, ...)
  errors.raise("AssertionError", "%s", msg or fmt:format(...))
end

local function pair(v)
  return core.is_tensor(v) and v or core.tensor(v)
end

local lists = { actual = "list", expected = "list" }
local parameters = { "actual", "expected", "rtol", "atol", "equal_nan", "check_dtype", "msg" }

--- Raises AssertionError unless |actual - expected| <= atol + rtol *
--- |expected| for all elements. actual and expected are tensors, numbers or
--- lists; rtol and atol are given together or come from the dtype.
---@param ... any  actual, expected, rtol, atol, equal_nan, check_dtype, msg
function M.assert_close(...)
  local a = check.arguments("assert_close()", parameters, lists, ...)
  local actual, expected = pair(a[1]), pair(a[2])
  local rtol, atol, msg = a[3], a[4], a[7]
  errors.check((rtol == nil) == (atol == nil), "ValueError",
    "assert_close(): rtol and atol must be given together")
  if actual.shape ~= expected.shape then
    fail(msg, "shapes differ: %s and %s", tostring(actual.shape), tostring(expected.shape))
  end
  if a[6] ~= false and actual.dtype ~= expected.dtype then
    fail(msg, "dtypes differ: %s and %s", tostring(actual.dtype), tostring(expected.dtype))
  end
  if rtol == nil then
    local t = tolerances[actual.dtype] or { 0, 0 }
    local u = tolerances[expected.dtype] or { 0, 0 }
    rtol, atol = math.max(t[1], u[1]), math.max(t[2], u[2])
  end
  local x, y = actual:double(), expected:double()
  local close = x:isclose(y, rtol, atol, a[5] or false)
  local wrong = close:logical_not():reshape(-1):nonzero()
  local n = wrong:size(0)
  if n > 0 then
    local worst = (x - y):abs():reshape(-1)
    local at = wrong[0]:item()
    fail(msg, "%d of %d elements differ (rtol %g, atol %g); the first is element %d: %.9g and "
      .. "%.9g, difference %.3g", n, x:numel(), rtol, atol, at, x:reshape(-1)[at]:item(),
      y:reshape(-1)[at]:item(), worst[at]:item())
  end
end

return require("lupine.base.namespace").close(M, "torch.testing")
