-- softmax and log_softmax: formula, large values, axes, types, gradients.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local differences = require("spec.support.differences")
local near, raises, numbers = helper.near, helper.raises, differences.numbers

local function softmax(row)
  local s, out = 0, {}
  for _, v in ipairs(row) do
    s = s + math.exp(v)
  end
  for i, v in ipairs(row) do
    out[i] = math.exp(v) / s
  end
  return out
end

local function map(list, f)
  local out = {}
  for i, v in ipairs(list) do
    out[i] = f(v)
  end
  return out
end

describe("softmax", function()
  it("is exp over the sum of exp, for rows of any length", function()
    for _, n in ipairs({ 1, 3, 16, 77 }) do
      local x = numbers({ 4, n }, n)
      local want = map(x:tolist(), softmax)
      near(F.softmax(x, 1), want)
      near(x:float():softmax(-1), want)
      near(x:half():softmax(-1), want)
      near(F.log_softmax(x, 1), map(want, function(row)
        return map(row, math.log)
      end))
    end
  end)

  it("runs along any dimension", function()
    local x = numbers({ 3, 5, 70 }, 1)
    for dim = 0, 2 do
      local moved = x:transpose(dim, 2):contiguous()
      near(F.softmax(x, dim), F.softmax(moved, 2):transpose(dim, 2))
      near(F.log_softmax(x, dim), F.log_softmax(moved, 2):transpose(dim, 2))
    end
  end)

  it("neither overflows nor loses -inf", function()
    near(F.softmax(torch.tensor({ 1000.0, 1000 }), 0), { 0.5, 0.5 })
    near(F.softmax(torch.tensor({ 0.0, -math.huge }), 0), { 1, 0 })
    near(F.log_softmax(torch.tensor({ -1000.0, 0 }), 0), { -1000, 0 })
  end)

  it("computes in the dtype that is asked for", function()
    local y = F.softmax(torch.tensor({ 1, 2, 3 }), 0, { dtype = torch.float32 })
    assert.equal(torch.float32, y.dtype)
    near(y, softmax({ 1, 2, 3 }))
  end)

  it("has first and second gradients", function()
    for _, name in ipairs({ "softmax", "log_softmax", "softmin" }) do
      differences.check(function(x)
        return F[name](x, 1)
      end, { numbers({ 2, 3 }, 1) })
      differences.check(function(x)
        return F[name](x, 0)
      end, { numbers({ 3, 2 }, 1) })
    end
  end)

  it("names a dimension that is not there and integers", function()
    raises("IndexError", "%[%-2, 1%]", function()
      F.softmax(torch.zeros({ 2, 2 }), 2)
    end)
    raises("RuntimeError", "floating point tensor, got int64", function()
      F.softmax(torch.tensor({ 1, 2 }), 0)
    end)
  end)

  it("chooses a dimension in torch.nn.functional alone", function()
    local x = torch.zeros({ 2, 4 })
    near(F.softmax(x), { { 0.25, 0.25, 0.25, 0.25 }, { 0.25, 0.25, 0.25, 0.25 } })
    near(F.log_softmax(torch.zeros({ 1, 1 })), { { 0 } })
    for _, name in ipairs({ "softmax", "log_softmax" }) do
      raises("TypeError", "'dim' %(an int%) is missing", function()
        torch[name](x)
      end)
      raises("TypeError", "'dim' %(an int%) is missing", function()
        x[name](x)
      end)
    end
  end)
end)
