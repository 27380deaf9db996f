--- PopTorch's type_support_test.py, by the names of its functions: operands and
--- results of many types.
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near
local half, float, double = torch.float16, torch.float32, torch.float64
local int, long = torch.int32, torch.int64
local MANY = { half, float, double, int, long }
local DEMOTED = { [double] = true, [long] = true }

-- Values in a type, as PyTorch's constructor makes them.
local function tensor(values, dtype)
  return torch.tensor(values):to(dtype)
end

local function run(forward, ...)
  return models.infer(function(_, ...)
    return forward(...)
  end)(...)
end

local function close(y, want)
  near(y:double(), want, { 0.5, 0 })
end

local function each(fn)
  for _, dtype in ipairs(MANY) do
    fn(dtype)
  end
end

local function each_pair(fn)
  each(function(first)
    each(function(second)
      fn(first, second)
    end)
  end)
end

local A, B = { 1.0, 25, -1.0, 83 }, { 2.0, 35, 1.0, 32.4 }
local SUM = { 3, 60, 0, 115.4 }

-- A comparison of x with 1, of every type.
local function with_one(compare, want)
  each(function(dtype)
    assert.same(want, run(compare, tensor({ 2.5, 1, 2.0, 550.4 }, dtype)):tolist())
  end)
end

describe("type_support_test.py", function()
  local level
  setup(function()
    level = core.host.log_level()
    poptorch.setLogLevel("ERR")
  end)
  teardown(function()
    core.host.log_level(level)
  end)

  it("test_many_input_output_types", function()
    each_pair(function(input, output)
      local y = run(function(x, z)
        return (x + z):type(output)
      end, tensor(A, input), tensor(B, input))
      assert.is_true(DEMOTED[output] or y.dtype == output)
      close(y, SUM)
    end)
  end)

  it("test_many_implicit_cast", function()
    each_pair(function(first, second)
      each(function(output)
        close(run(function(x, z)
          return (x + z):type(output)
        end, tensor(A, first), tensor(B, second)), SUM)
      end)
    end)
  end)

  it("test_clamp_many_types", function()
    each(function(dtype)
      local x = tensor({ { -2, -1, 0, 1, 2 }, { 0, 0, 0, 0, 0 } }, dtype)
      near(run(function(v)
        return v[0]:clamp(-1, 1)
      end, x):double(), { -1, -1, 0, 1, 1 })
    end)
  end)

  it("test_add_two_many_types", function()
    each(function(dtype)
      close(run(function(x)
        return x + 2
      end, tensor(A, dtype)), { 3, 27, 1, 85 })
    end)
  end)

  it("test_many_constant_implicit_cast", function()
    each_pair(function(input, constant)
      each(function(output)
        close(run(function(x)
          return (x + torch.tensor(1, { dtype = constant })):type(output)
        end, tensor(A, input)), { 2, 26, 0, 84 })
      end)
    end)
  end)

  it("test_many_implicit_cast_greater_than", function()
    each_pair(function(first, second)
      assert.same({ false, false, true, true }, run(torch.gt,
        tensor({ 1, -1, 2.0, 550.4 }, first), tensor({ 2.4, 2, 1.0, 32.4 }, second)):tolist())
    end)
  end)

  it("test_many_implicit_cast_greater_than_one", function()
    with_one(function(x)
      return x:gt(1)
    end, { true, false, true, true })
  end)

  it("test_many_implicit_cast_equals", function()
    local kind = { [half] = 1, [float] = 2, [double] = 2, [int] = 3, [long] = 3 }
    each_pair(function(first, second)
      assert.same({ false, false, true, kind[first] == kind[second] }, run(torch.eq,
        tensor({ 1, -1, 2.0, 550.4 }, first), tensor({ 2.4, 2, 2.0, 550.4 }, second)):tolist())
    end)
  end)

  it("test_many_implicit_cast_equals_one", function()
    with_one(function(x)
      return x:eq(1)
    end, { false, true, false, false })
  end)

  it("test_many_implicit_cast_less_than", function()
    each_pair(function(first, second)
      assert.same({ true, true, false, false }, run(torch.lt,
        tensor({ 1, -1, 2.0, 550.4 }, first), tensor({ 2.4, 2, 1.0, 32.4 }, second)):tolist())
    end)
  end)

  it("test_many_implicit_cast_less_than_one", function()
    with_one(function(x)
      return x:lt(1)
    end, { false, false, false, false })
    each(function(dtype)
      assert.same({ false, true, false, false }, run(function(x)
        return x:lt(1)
      end, tensor({ 2.5, -1, 2.0, 550.4 }, dtype)):tolist())
    end)
  end)

  it("test_many_implicit_cast_one_less_than", function()
    with_one(function(x)
      return torch.tensor(1):lt(x)
    end, { true, false, true, true })
  end)

  local SMALL = { torch.int8, torch.uint8, torch.int16 }

  it("test_small_int", function()
    for _, dtype in ipairs(SMALL) do
      local x = torch.arange(100):to(dtype)
      local y = run(function(v)
        return v:float()
      end, x)
      assert.equal(float, y.dtype)
      assert.same(x:float():tolist(), y:tolist())
    end
  end)

  it("test_small_int_return", function()
    for _, dtype in ipairs(SMALL) do
      local x = torch.arange(100):to(dtype)
      local y = run(function(v)
        return v, v:float() + v:float()
      end, x)
      assert.equal(dtype, y.dtype)
      assert.same(x:tolist(), y:tolist())
    end
  end)

  it("test_tuple_and_list_constant", function()
    local one, sum, list = run(function()
      local a, b = torch.tensor({ 1.0, 2 }), torch.tensor({ 3.0, 4 })
      return torch.tensor(1), a + b, { a, b }
    end)
    assert.equal(1, one:item())
    near(sum, { 4, 6 })
    near(list[1], { 1, 2 })
    near(list[2], { 3, 4 })
  end)

  it("test_tuple_and_list_constant_double_nested", function()
    local one, sum, lists, last = run(function()
      local a, b = torch.tensor({ 1.0, 2 }), torch.tensor({ 3.0, 4 })
      return { torch.tensor(1) }, a + b, { { a, b }, { a, b } }, b
    end)
    assert.equal(1, one[1]:item())
    near(sum, { 4, 6 })
    near(last, { 3, 4 })
    for i = 1, 2 do
      near(lists[i][1], { 1, 2 })
      near(lists[i][2], { 3, 4 })
    end
  end)
end)
