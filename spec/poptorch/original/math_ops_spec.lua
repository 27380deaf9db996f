--- PopTorch's own tests of elementwise and comparing operators (math_ops_test),
--- on the device against the host.
local device = require("spec.support.on_device")
local torch = require("torch")

local both, infer = device.both, device.same

describe("math_ops_test", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  local TOL = { rtol = 1e-3, atol = 1e-3 }

  it("test_unary_ops_float", function()
    for name in ("abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp expm1 floor frac "
      .. "log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan "
      .. "tanh trunc"):gmatch("%S+") do
      both(torch[name], { torch.randn({ 1, 2, 4, 4 }) }, { tol = TOL, weights = TOL, lr = 1e-6 })
    end
  end)

  it("test_binary_pow", function()
    for _, exponent in ipairs({ 4.0, 3, 2.5 }) do
      local x = torch.randn({ 1, 2, 10, 20 })
      infer(function(y)
        return torch.pow(y, exponent)
      end, { x })
      infer(function(y)
        y = y + 0
        return y:pow_(exponent)
      end, { x })
    end
  end)

  it("test_unary_ops_int", function()
    infer(torch.bitwise_not, { torch.randint(-1000, 1000, { 1, 2, 10, 20 }) })
  end)

  it("test_unary_ops_bool", function()
    infer(torch.bitwise_not, { torch.randint(2, { 1, 2, 10, 20 }):gt(0) })
  end)

  local CLAMPS = { { min = 0.2, max = 0.8 }, { min = 0.2 }, { max = 0.8 },
    { min = 0.8, max = 0.2 } }

  it("test_clamp", function()
    for _, args in ipairs(CLAMPS) do
      both(function(x)
        return x:clamp(args)
      end, { torch.randn({ 1, 2, 5, 5 }) })
    end
  end)

  it("test_clamp_", function()
    for _, args in ipairs(CLAMPS) do
      both(function(x)
        return (x * 1):clamp_(args)
      end, { torch.randn({ 1, 2, 5, 5 }) })
    end
  end)

  it("test_clamp_mul_exp", function()
    for _, args in ipairs(CLAMPS) do
      infer(function(x)
        return torch.exp(x:clamp(args) * 0.5)
      end, { torch.randn({ 1, 2, 10, 10 }):half() })
    end
  end)

  local function min_max(bound)
    for _, name in ipairs({ "clamp_min", "clamp_min_", "clamp_max", "clamp_max_" }) do
      both(function(x)
        x = x * 1
        return x[name](x, bound)
      end, { torch.randn({ 1, 2, 5, 5 }) })
    end
  end

  it("test_clamp_min_max", function()
    min_max(0.75)
  end)

  it("test_clamp_min_max_tensor", function()
    min_max(torch.tensor(0.75))
  end)

  it("test_clamp_int", function()
    for _, args in ipairs({ { min = -4.5, max = 5.5 }, { min = -4.5 }, { max = 5.5 },
      { min = -5, max = 5 }, { min = -5 }, { max = 5 } }) do
      infer(function(x)
        return torch.clamp(x, args)
      end, { torch.randint(-100, 100, { 100 }) })
    end
  end)

  it("test_binary_ops_float", function()
    for _, name in ipairs({ "add", "atan2", "div", "sub", "fmod", "floor_divide", "mul",
      "remainder", "true_divide" }) do
      local x, y = torch.randn({ 1, 2, 5, 1 }) * 100, torch.randn({ 1, 2, 5, 1 }) * 10
      infer(torch[name], { x, y })
      if name ~= "floor_divide" and name ~= "remainder" and name ~= "fmod" then
        device.trains(torch[name], { x, y }, { lr = 1e-8 })
      end
    end
  end)

  it("test_binary_ops_elementwise_edgecases", function()
    for _, name in ipairs({ "add", "div", "sub", "mul" }) do
      local op = torch[name]
      for _, number in ipairs({ 4.0, 4, 134 }) do
        both(function(x)
          return op(x, number)
        end, { torch.randn({ 1, 2, 5, 5 }) }, { lr = 1e-6 })
        both(function(x)
          return name == "add" and number + x or name == "sub" and number - x
            or name == "mul" and number * x or number / x
        end, { torch.randn({ 1, 2, 5, 5 }) }, { lr = 1e-10 })
      end
    end
  end)

  it("test_binary_ops_elementwise_bools", function()
    local x = torch.tensor({ false, true, false, true })
    local y = torch.tensor({ false, false, true, true })
    for _, name in ipairs({ "add", "mul" }) do
      local op = torch[name]
      infer(op, { x, y })
      for _, dtype in ipairs({ torch.float, torch.int }) do
        infer(function(a, b)
          return op(a:to(dtype) + 1, b)
        end, { x, y })
        infer(function(a, b)
          return op(a, b:to(dtype) + 1)
        end, { x, y })
      end
    end
  end)

  it("test_modulo_mixed_sign", function()
    for _, name in ipairs({ "fmod", "remainder" }) do
      infer(torch[name], { torch.tensor({ -4.3, 7.2, 5.0, 4.3, -7.2, 8.0 }),
        torch.tensor({ 2.1, -3.4, 8.0, -2.1, 3.4, 5.0 }) })
    end
  end)

  local function ints(dtype)
    return { torch.tensor({ -4, 7, 5, 4, -7, 8 }, { dtype = dtype }),
      torch.tensor({ 2, -3, 8, -2, 3, 5 }, { dtype = dtype }) }
  end

  it("test_binary_int_ops", function()
    for _, name in ipairs({ "bitwise_and", "bitwise_or", "bitwise_xor" }) do
      infer(torch[name], ints(torch.int))
    end
    infer(function(x, y)
      return x & y
    end, ints(torch.int))
    infer(function(x, y)
      return x | y
    end, ints(torch.int))
    infer(function(x, y)
      return x ~ y
    end, ints(torch.int))
  end)

  it("test_binary_int_op_types", function()
    for _, dtype in ipairs({ torch.int16, torch.int32, torch.int64 }) do
      infer(torch.bitwise_and, ints(dtype))
    end
  end)

  it("test_binary_bool_ops", function()
    local pair = ints(torch.int)
    for _, name in ipairs({ "bitwise_and", "bitwise_or", "logical_and", "logical_or" }) do
      infer(torch[name], { pair[1]:gt(0), pair[2]:gt(0) })
    end
  end)

  local INDICES = { argmax = true, argmin = true }

  it("test_reduction_ops_float", function()
    for _, name in ipairs({ "max", "min", "amax", "amin", "argmax", "argmin", "mean", "median",
      "prod", "sum" }) do
      local check = INDICES[name] and infer or both
      check(torch[name], { torch.randn({ 1, 2, 4, 4 }) })
    end
    both(torch.linalg.norm, { torch.randn({ 1, 2, 4, 4 }) })
  end)

  it("test_reduction_ops_float_api2", function()
    for _, name in ipairs({ "max", "min", "amax", "amin", "argmax", "argmin", "mean", "median",
      "norm", "prod", "logsumexp", "sum" }) do
      local op = name == "norm" and torch.linalg.norm or torch[name]
      local check = INDICES[name] and infer or both
      for dim = 0, 3 do
        for _, keepdim in ipairs({ false, true }) do
          check(function(x)
            return op(x, { dim = dim, keepdim = keepdim })
          end, { torch.randn({ 1, 2, 4, 5 }) })
        end
      end
    end
  end)

  it("test_minmax_tuple_out", function()
    for _, name in ipairs({ "min", "max" }) do
      for dim = 0, 2 do
        local results = infer(function(x)
          return torch[name](x, { dim = dim, keepdim = true })
        end, { torch.randn({ 1, 2, 5, 5 }) })
        assert.equal(torch.int32, results[2].dtype)
      end
    end
  end)

  it("test_norm_p_values", function()
    for _, p in ipairs({ "fro", math.huge, -math.huge, 1, 1.0, -1 }) do
      both(function(x)
        return torch.linalg.norm(x, { ord = p })
      end, { torch.randn({ 2, 10 }) })
    end
  end)

  it("test_norm_dtype", function()
    both(function(x)
      return torch.linalg.norm(x, { dtype = torch.float, ord = "fro" })
    end, { torch.randn({ 2, 10 }) })
  end)

  it("test_compare_operations", function()
    for _, name in ipairs({ "eq", "ge", "gt", "le", "lt", "max", "min", "ne" }) do
      local x, y = torch.randn({ 1, 2, 10, 20 }), torch.randn({ 1, 2, 10, 20 })
      for _ = 1, 10 do
        local i = math.random(0, 19)
        x["0, 0, 0, " .. i] = y["0, 0, 0, " .. i]
      end
      infer(torch[name], { x, y })
      if name ~= "min" and name ~= "max" then
        infer(function(a)
          return torch[name](a, 0.34)
        end, { x })
      end
    end
  end)

  it("test_compare_unity_nan_inf_ops", function()
    infer(torch.isnan, { torch.tensor({ 1.0, math.huge, 2.0, -math.huge, 0 / 0, -(0 / 0), 13.0 }) })
  end)

  it("test_compare_unity_operations", function()
    both(torch.max, { torch.randn({ 1, 2, 5, 5 }) })
    both(torch.min, { torch.randn({ 1, 2, 5, 5 }) })
  end)

  it("test_topk", function()
    for _, largest in ipairs({ true, false }) do
      both(function(x)
        return torch.topk(x, { k = 5, dim = -1, largest = largest })
      end, { torch.randn({ 1, 2, 5, 5 }) })
    end
  end)

  it("test_sort", function()
    for _, shape in ipairs({ { 17, 4 }, { 6, 7, 5 } }) do
      for _, descending in ipairs({ true, false }) do
        both(function(x)
          return torch.sort(x, { descending = descending })
        end, { torch.randn(shape) })
      end
    end
  end)

  it("test_sort_stable", function()
    for _, descending in ipairs({ true, false }) do
      infer(function(x)
        return torch.sort(x, { descending = descending, stable = true })
      end, { torch.tensor({ { 2.0, 2.0, 1.0, 10.0, 11.0 }, { 2.0, 15.0, 15.0, 10.0, 11.0 } }) })
    end
  end)

  it("test_bincount", function()
    infer(function(x)
      return torch.bincount(x, { minlength = 8 })
    end, { torch.randint(0, 8, { 7 }) })
  end)

  it("test_bincount_weights", function()
    infer(function(x)
      return torch.bincount(x, torch.linspace(0, 1, 7), { minlength = 8 })
    end, { torch.randint(0, 8, { 7 }) })
  end)

  it("test_constant_arrays", function()
    for _, dtype in ipairs({ torch.float32, torch.int32 }) do
      infer(function(x)
        return torch.sub(x, torch.tensor({ 1, -2, -3, 4, 5, 6, 7, -8, 9, -10 },
          { dtype = dtype }))
      end, { (torch.randn(10) * 5):to(dtype) })
    end
  end)

  it("test_bincount_error", function()
    local model = device.infer(torch.bincount)
    local _, e = pcall(model, torch.randint(0, 8, { 7 }))
    assert.matches("minlength", e.message, 1, true)
  end)

  it("test_big_constant_arrays_sliced", function()
    for _, dtype in ipairs({ torch.float32, torch.int32 }) do
      infer(function(x)
        local rows = {}
        for row = 1, 3 do
          rows[row] = {}
          for i = 1, 49 do
            rows[row][i] = (i * i * 6421 + row * 977) % 245232 - 2425
          end
        end
        return x * torch.tensor(rows, { dtype = dtype })[0]
      end, { (torch.randn(1) * 3):to(dtype) })
    end
  end)

  it("test_addcdiv", function()
    for _, shapes in ipairs({ { { 3, 1 }, { 3, 1 }, { 3, 1 } }, { { 1, 3 }, { 3, 1 }, { 1, 3 } },
      { { 5, 3 }, { 5, 1 }, { 1, 3 } }, { { 1 }, { 3, 1 }, { 2 } } }) do
      for _, scale in ipairs({ 0.35, 4.91, 12.0, -0.53, -3.45, -9.0, 0.0 }) do
        infer(function(a, b, c)
          return torch.addcdiv(a, b, c, { value = scale })
        end, { torch.randn(shapes[1]), torch.randn(shapes[2]), torch.randn(shapes[3]) })
      end
    end
  end)

  it("test_cross_shape", function()
    for _, shape in ipairs({ { 3, 4, 5, 6 }, { 4, 3, 5, 6 }, { 4, 5, 3, 6 }, { 4, 5, 6, 3 },
      { 6, 3, 3, 5 } }) do
      both(torch.cross, { torch.randn(shape), torch.randn(shape) })
    end
  end)

  it("test_cross_axis", function()
    for axis = 0, 3 do
      both(function(x, y)
        return torch.cross(x, y, axis)
      end, { torch.randn(3, 3, 3, 3), torch.randn(3, 3, 3, 3) })
    end
  end)

  it("test_var_std", function()
    for _, name in ipairs({ "var", "var_mean", "std", "std_mean" }) do
      for _, params in ipairs({ { false }, { { 0, 1, -1 }, true } }) do
        infer(function(x)
          return torch[name](x, table.unpack(params))
        end, { torch.randn(3, 4, 5) })
      end
    end
  end)

  it("test_argsort", function()
    for axis = 0, 3 do
      for _, descending in ipairs({ true, false }) do
        infer(function(x)
          return torch.argsort(x, { dim = axis, descending = descending })
        end, { torch.randn(3, 4, 5, 5) })
      end
    end
  end)

  it("test_reciprocal_intergral_input", function()
    infer(function(sizes)
      local ratio = 896 / torch.amax(sizes):unsqueeze(-1)
      return ratio, ratio * sizes
    end, { torch.randint(256, { 640, 480 }) })
  end)
end)
