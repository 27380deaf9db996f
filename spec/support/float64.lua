-- Values in float64 against lists of numbers.
local assert = require("luassert")
local torch = require("torch")

local M = {}

-- A tensor of a list or a number.
function M.tensor(v)
  return torch.tensor(v, { dtype = torch.float64 })
end

-- loose: for values that are right to 1e-7, as of Bessel functions by polynomials.
function M.close(got, want, what, loose)
  want = M.tensor(want)
  assert.same({ table.unpack(want.shape) }, { table.unpack(got.shape) }, what)
  local rtol, atol = loose and 1e-6 or 2e-8, loose and 1e-6 or 1e-9
  assert.is_true(torch.allclose(got:double(), want, rtol, atol, true),
    ("%s: %s, expected %s"):format(what, tostring(got), tostring(want)))
end

-- Keywords: lists and numbers as tensors, integers as they are.
function M.parameters(given)
  local out = {}
  for name, v in pairs(given) do
    out[name] = math.type(v) == "integer" and v or M.tensor(v)
  end
  return out
end

return M
