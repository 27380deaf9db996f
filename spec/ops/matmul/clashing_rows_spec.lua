-- Rows of the right operand that lie a multiple of 2 KiB apart are copied apart for some
-- numbers of rows of the left one, and packed apart for compiled products.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local function check(a, b)
  local want = torch.matmul(a:double(), b:double())
  local error = (torch.matmul(a, b):double() - want):abs():max():item()
  assert.is_true(error <= 1e-6 * (a:size(1) + 10), ("%s x %s: %g"):format(tostring(a:size()),
    tostring(b:size()), error))
end

describe("rows that lie on top of each other", function()
  it("are multiplied as others are", function()
    for _, m in ipairs({ 1, 31, 32, 65, 511, 512 }) do
      for _, k in ipairs({ 1, 7, 130 }) do
        local a = torch.rand(m, k)
        for _, n in ipairs({ 512, 1024, 1536 }) do
          check(a, torch.rand(k, n))
          check(a, torch.rand(n, k):t())
          check(torch.rand(k, m):t(), torch.rand(k, n))
        end
        check(a, torch.rand(k, 1024):narrow(1, 3, 600))
        check(a, torch.rand(k, 520):narrow(1, 0, 512))
      end
    end
  end)

  it("by compiled layers", function()
    for _, rows in ipairs({ 1, 64, 600 }) do
      local net = nn.Sequential(nn.Linear(70, 1024), nn.Linear(1024, 512))
      local x = torch.rand(rows, 70)
      local want = net:double()(x:double())
      local got = poptorch.inferenceModel(net:float())(x)
      assert.is_true((got:double() - want):abs():max():item() < 1e-5)
    end
  end)
end)
