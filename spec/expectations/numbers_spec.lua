--- Numbers on either side of every operator, and the two ways to give arguments.
--- Values: Lua's own arithmetic of the elements, which floors as Python's does.
local lupine = require("lupine")
local near = require("spec.helper").near
local nn = require("torch.nn")
local torch = require("torch")
local F = nn.functional

local VALUES = { -3.5, -2.0, 0.5, 1.0, 7.25 }
local WHOLE = { -7, -2, 1, 3, 5 }

local OPERATORS = {
  ["+"] = function(a, b) return a + b end,
  ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b) return a * b end,
  ["/"] = function(a, b) return a / b end,
  ["//"] = function(a, b) return a // b end,
  ["%"] = function(a, b) return a % b end,
}

local function each(list, f)
  local out = {}
  for i, v in ipairs(list) do
    out[i] = f(v)
  end
  return out
end

describe("a number stands on either side of", function()
  for name, op in pairs(OPERATORS) do
    it(name, function()
      for _, number in ipairs({ 2, -3, 2.5, -0.75 }) do
        local x = torch.tensor(VALUES, { dtype = torch.float64 })
        near(op(x, number), each(VALUES, function(v) return op(v, number) end))
        near(op(number, x), each(VALUES, function(v) return op(number, v) end))
      end
    end)

    it(name .. " of integers, in compiled functions too", function()
      local x = torch.tensor(WHOLE)
      local want = { each(WHOLE, function(v) return op(v, 4) end),
        each(WHOLE, function(v) return op(4, v) end) }
      near(op(x, 4), want[1])
      near(op(4, x), want[2])
      local left, right = lupine.compile(function(t)
        return op(t, 4), op(4, t)
      end, { x })(x)
      near(left, want[1])
      near(right, want[2])
    end)
  end

  it("^, whose base may be a number", function()
    local x = torch.tensor({ 0.5, 1.0, 2.0, 3.0 }, { dtype = torch.float64 })
    near(x ^ 2, { 0.25, 1, 4, 9 })
    near(2 ^ x, { 2 ^ 0.5, 2, 4, 8 })
    near(-x ^ 2, { -0.25, -1, -4, -9 })
    assert.same({ 1, 4, 9 }, (torch.tensor({ 1, 2, 3 }) ^ 2):tolist())
  end)

  it("all of them, with gradients", function()
    local x = torch.tensor({ 2.0, 4.0 }, { requires_grad = true })
    local y = (3 - x) * 2 + 8 / x + 2 ^ x + x % 3
    y:sum():backward()
    -- -2 - 8 / x^2 + 2^x ln 2 + 1
    near(x.grad, { -1 - 2 + 4 * math.log(2), -1 - 0.5 + 16 * math.log(2) })
  end)

  it("nothing that is text", function()
    assert.has_error(function() return torch.ones(2) + "1" end)
    assert.has_error(function() return "1" * torch.ones(2) end)
  end)
end)

-- {by position, by name} of one call each.
local x, w = torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3)
local CALLS = {
  sum = { function() return x:sum(1, true) end,
    function() return x:sum({ dim = 1, keepdim = true }) end },
  softmax = { function() return F.softmax(x, 1) end,
    function() return F.softmax(x, { dim = 1 }) end },
  conv2d = { function() return F.conv2d(x, w, nil, 2, 1) end,
    function() return F.conv2d({ input = x, weight = w, stride = 2, padding = 1 }) end },
  max_pool2d = { function() return F.max_pool2d(x, 2, 2) end,
    function() return F.max_pool2d(x, { kernel_size = 2, stride = 2 }) end },
  transpose = { function() return x:transpose(1, 2) end,
    function() return x:transpose({ dim0 = 1, dim1 = 2 }) end },
  clamp = { function() return x:clamp(0.2, 0.8) end,
    function() return x:clamp({ min = 0.2, max = 0.8 }) end },
  topk = { function() return (x:topk(2, 1)) end,
    function() return (x:topk({ k = 2, dim = 1 })) end },
  cumsum = { function() return x:cumsum(2) end, function() return x:cumsum({ dim = 2 }) end },
  arange = { function() return torch.arange(1, 9, 2) end,
    function() return torch.arange({ start = 1, ["end"] = 9, step = 2 }) end },
  full = { function() return torch.full({ 2, 3 }, 5) end,
    function() return torch.full({ size = { 2, 3 }, fill_value = 5 }) end },
  leaky_relu = { function() return F.leaky_relu(x, 0.3) end,
    function() return F.leaky_relu(x, { negative_slope = 0.3 }) end },
  mse_loss = { function() return F.mse_loss(x, x * 2, nil, nil, "sum") end,
    function() return F.mse_loss(x, x * 2, { reduction = "sum" }) end },
  avg_pool = { function() return nn.AvgPool2d(2, 1, 1)(x) end,
    function() return nn.AvgPool2d({ kernel_size = 2, stride = 1, padding = 1 })(x) end },
  group_norm = { function() return nn.GroupNorm(3, 3, 1e-3, false)(x) end,
    function()
      return nn.GroupNorm({ num_groups = 3, num_channels = 3, eps = 1e-3, affine = false })(x)
    end },
}

describe("positions and names give the same result of", function()
  for name, both in pairs(CALLS) do
    it(name, function()
      local a, b = both[1](), both[2]()
      assert.equal(a.dtype, b.dtype)
      assert.is_true(torch.equal(a, b))
    end)
  end

  it("an optimizer", function()
    local a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    b:load_state_dict(a:state_dict())
    for net, optimizer in pairs({ [a] = torch.optim.SGD(a:parameters(), 0.1, 0.9),
      [b] = torch.optim.SGD({ params = b:parameters(), lr = 0.1, momentum = 0.9 }) }) do
      for _ = 1, 2 do
        net(torch.ones(1, 2)):sum():backward()
        optimizer:step()
      end
    end
    assert.is_true(torch.equal(a.weight, b.weight))
  end)
end)
