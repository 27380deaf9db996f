-- Functions of torch that are made of operators. Values by hand or from
-- PyTorch's documented definitions.
local helper = require("spec.helper")
local torch = require("torch")
local near, raises = helper.near, helper.raises

describe("comparison", function()
  local a = torch.tensor({ 1.0, 2, 0 / 0, 1 / 0 })

  it("equal wants the same shape and elements", function()
    assert.is_true(torch.equal(torch.tensor({ 1, 2 }), torch.tensor({ 1, 2 })))
    assert.is_false(torch.equal(torch.tensor({ 1, 2 }), torch.tensor({ { 1, 2 } })))
    assert.is_false(a:equal(a))
    assert.is_true(torch.equal(torch.tensor({}), torch.tensor({})))
  end)

  it("isclose and allclose allow atol + rtol |other|", function()
    local b = torch.tensor({ 1.0 + 5e-6, 2.1, 0 / 0, 1 / 0 })
    assert.same({ true, false, false, true }, a:isclose(b):tolist())
    assert.same({ true, true, true, true },
      torch.isclose(a, b, { rtol = 0.1, equal_nan = true }):tolist())
    assert.is_true(torch.allclose(a[0], b[0]))
    raises("RuntimeError", "dtypes", function()
      torch.allclose(a, torch.tensor({ 1 }))
    end)
    raises("TypeError", "rtol", function()
      torch.allclose(a, a, { rtoll = 1 })
    end)
  end)

  it("isin looks elements up", function()
    local x = torch.tensor({ { 1, 2 }, { 3, 4 } })
    local found = torch.isin(x, torch.tensor({ 2, 3 }))
    assert.same({ { false, true }, { true, false } }, found:tolist())
    assert.same({ { true, false }, { true, true } }, torch.isin(x, 2, { invert = true }):tolist())
  end)

  it("isin looks up among many as among few", function()
    local nan, inf = 0 / 0, math.huge
    local x = torch.tensor({ { -0.0, 2.5, nan }, { inf, -inf, 1e9 } })
    for _, test in ipairs({
      torch.cat({ torch.arange(40) / 2, torch.tensor({ nan, 0, inf }) }),
      torch.arange(40),
      torch.arange(40):double():neg(),
      torch.full({ 20 }, nan),
    }) do
      local whole, one = x:nan_to_num(7):to(torch.int64), x:select(0, 0):select(0, 1)
      for _, at in ipairs({ x, x:half(), whole, one }) do
        local want = at:unsqueeze(-1):eq(test):any({ dim = -1 })
        assert.same(want:tolist(), torch.isin(at, test):tolist())
        local none = torch.isin(at, test, { invert = true })
        assert.same(want:logical_not():tolist(), none:tolist())
      end
    end
  end)
end)

describe("results that depend on the arguments", function()
  it("where and nonzero", function()
    local x = torch.tensor({ { 0, 5 }, { 6, 0 } })
    local index = torch.where(x:gt(0))
    assert.same({ 0, 1 }, index[1]:tolist())
    assert.same({ 1, 0 }, index[2]:tolist())
    assert.same({ { 0, 1 }, { 1, 0 } }, x:nonzero():tolist())
    assert.equal(2, #torch.nonzero(x, { as_tuple = true }))
    near(torch.where(x:gt(0), x, -1), { { -1, 5 }, { 6, -1 } })
  end)

  it("merge equal neighbours of every type, with what is asked for", function()
    for name in ("int64 int32 uint8 int16 float32 float64 float16"):gmatch("%S+") do
      local x = torch.tensor({ { 3, 3, 1 }, { 1, 3, 0 }, { 0, 0, 0 } }, { dtype = torch[name] })
      for _, y in ipairs({ x, x:t():contiguous():t() }) do
        local values, inverse, counts = torch.unique_consecutive(y,
          { return_inverse = true, return_counts = true })
        assert.same({ 3, 1, 3, 0 }, values:tolist())
        assert.same({ { 0, 0, 1 }, { 1, 2, 3 }, { 3, 3, 3 } }, inverse:tolist())
        assert.same({ 2, 2, 1, 4 }, counts:tolist())
        assert.same({ 3, 1, 3, 0 }, torch.unique_consecutive(y):tolist())
        values, inverse = torch.unique_consecutive(y, { return_inverse = true })
        assert.same({ 4, 8 }, { values:numel(), inverse:max():item() + 5 })
      end
    end
    local signs = torch.unique_consecutive(torch.tensor({ -0.0, 0.0, 0 / 0, 0 / 0 })):tolist()
    assert.same({ 2, -1 / 0 }, { #signs, 1 / signs[1] })
    assert.same({}, torch.unique_consecutive(torch.tensor({})):tolist())
  end)

  it("unique gives what is asked for", function()
    local x = torch.tensor({ 3, 1, 3, 3 })
    assert.same({ 1, 3 }, torch.unique(x):tolist())
    local values, inverse, counts = x:unique({ return_inverse = true, return_counts = true })
    assert.same({ 1, 3 }, values:tolist())
    assert.same({ 1, 0, 1, 1 }, inverse:tolist())
    assert.same({ 1, 3 }, counts:tolist())
    values, counts = torch.unique_consecutive(x, { return_counts = true })
    assert.same({ 3, 1, 3 }, values:tolist())
    assert.same({ 1, 1, 2 }, counts:tolist())
  end)

  it("repeat_interleave by numbers of a tensor", function()
    local x = torch.arange(6):reshape(3, 2)
    for _, dtype in ipairs({ torch.int64, torch.int32 }) do
      local counts = torch.tensor({ 2, 0, 1 }, { dtype = dtype })
      assert.same({ { 0, 1 }, { 0, 1 }, { 4, 5 } }, x:repeat_interleave(counts, 0):tolist())
      assert.same({ 0, 0, 2 }, torch.repeat_interleave(counts):tolist())
      local net = torch.nn.Module()
      function net.forward(_, y)
        return y:repeat_interleave(counts, 0)
      end
      near(require("poptorch").inferenceModel(net)(x:float()), { { 0, 1 }, { 0, 1 }, { 4, 5 } })
    end
    assert.same({ 1, 3 },
      x:t():contiguous()[1]:repeat_interleave(torch.tensor({ 1, 1, 0 })):tolist())
    assert.same({}, x:repeat_interleave(torch.zeros(6):long()):tolist())
    raises("RuntimeError", "^repeat_interleave%(%): repeats can not be negative", function()
      x:repeat_interleave(torch.tensor({ 2, -1, 1 }), 0)
    end)
    raises("RuntimeError", "output_size is 4, the repeats sum to 3", function()
      x:repeat_interleave(torch.tensor({ 2, 0, 1 }), 0, { output_size = 4 })
    end)
  end)

  it("arange of floats counts from the start, in every block", function()
    for _, step in ipairs({ 0.1, -0.75, 1e-3 }) do
      local x = torch.arange(0.25, 0.25 + step * 5000.5, step)
      assert.equal(5001, x:numel())
      for i = 0, 5000, 129 do
        assert.equal(string.unpack("f", string.pack("f", 0.25 + step * i)), x[i]:item())
      end
    end
  end)

  it("broadcast_shapes", function()
    assert.is_true(torch.broadcast_shapes({ 3, 1 }, { 2 }, 1) == { 3, 2 })
    raises("RuntimeError", "sizes 3 and 2", function()
      torch.broadcast_shapes({ 3 }, { 2 })
    end)
  end)
end)

describe("small methods", function()
  it("work in place and by function", function()
    local x = torch.tensor({ { 1.0, 2 }, { 3, 4 } })
    near(x:clone():apply_(function(v)
      return v * v
    end), { { 1, 4 }, { 9, 16 } })
    near(x:clone():fill_diagonal_(0), { { 0, 2 }, { 3, 0 } })
    near(torch.neg_(x), { { -1, -2 }, { -3, -4 } })
    near(x, { { -1, -2 }, { -3, -4 } })
    assert.equal(torch.float32, x:new_tensor({ 1, 2 }).dtype)
    assert.is_true(torch.tensor(3):is_nonzero())
    assert.is_false(torch.is_floating_point(torch.tensor(3)))
  end)
end)

it("interpolate with antialias averages as PyTorch's does", function()
  -- values by PyTorch 2.15
  local F = torch.nn.functional
  local x = torch.arange(30):float():reshape({ 1, 1, 5, 6 }) ^ 1.5
  local cases = {
    { { size = { 2, 3 }, mode = "bilinear" }, { 21.4081, 28.2802, 36.1012, 83.3503, 95.1155,
      107.3808 } },
    { { size = { 2, 3 }, mode = "bicubic" }, { 16.3069, 23.3713, 31.665, 86.5142, 99.7671,
      113.5981 } },
    { { scale_factor = 0.4, mode = "bilinear" }, { 22.4654, 31.4696, 85.2125, 100.1686 } },
  }
  for _, c in ipairs(cases) do
    c[1].antialias = true
    helper.near(F.interpolate(x, c[1]):flatten(), c[2], { 1e-4, 1e-6 })
  end
  helper.raises("ValueError", "restricted to bilinear and bicubic", function()
    F.interpolate(x, { size = { 2, 3 }, antialias = true })
  end)
end)

describe("functions made of operators", function()
  it("gives LU factors with what went wrong, on demand", function()
    local LU, pivots, info = torch.lu(torch.tensor({ { 4.0, 1 }, { 2, 3 } }), true, true)
    near(LU, { { 4, 1 }, { 0.5, 2.5 } })
    near(pivots, { 1, 2 })
    near(info, 0)
    info = select(3, torch.zeros(2, 2):lu({ get_infos = true }))
    near(info, 1) -- the first pivot that is 0
    raises("LinAlgError", "U%[1,1%] is zero", function()
      torch.lu(torch.zeros(2, 2))
    end)
    assert.equal(2, select("#", torch.lu(torch.eye(2))))
  end)

  it("takes NumPy's names of parameters", function()
    near(torch.repeat_interleave(torch.tensor({ { 1, 2 } }), 2, { axis = 0 }),
      { { 1, 2 }, { 1, 2 } })
    near(torch.pairwise_distance(torch.zeros(1, 2), torch.tensor({ { 3.0, 4 } }),
      { keepdims = true }), { { 5 } }, { 1e-5, 0 })
    raises("TypeError", "given twice", function()
      torch.gradient(torch.ones(3), { dim = 0, axis = 0 })
    end)
  end)
end)

describe("positions", function()
  it("nonzero_static cuts and fills, values by PyTorch", function()
    local x = torch.tensor({ { 0, 2 }, { 3, 0 } })
    assert.same({ { 0, 1 }, { 1, 0 }, { 9, 9 } },
      torch.nonzero_static(x, { size = 3, fill_value = 9 }):tolist())
    assert.same({ { 0, 1 } }, x:nonzero_static({ size = 1 }):tolist())
    assert.same({ 0, 2 }, { table.unpack(x:nonzero_static({ size = 0 }).shape) })
    raises("RuntimeError", "size", function()
      torch.nonzero_static(x, { size = -1 })
    end)
  end)

  it("unravel_index is the reverse of flattening, values by PyTorch", function()
    local at = torch.unravel_index(torch.tensor({ { 5, 3 }, { 1, 0 } }), { 2, 3 })
    assert.same({ { 1, 1 }, { 0, 0 } }, at[1]:tolist())
    assert.same({ { 2, 0 }, { 1, 0 } }, at[2]:tolist())
    assert.equal(0, torch.unravel_index(torch.tensor({ 6 }), torch.zeros(2, 3).shape)[1]:item())
    assert.equal(5, torch.unravel_index(torch.tensor(5), 8)[1]:item())
    local byte = torch.tensor({ 5 }, { dtype = torch.uint8 })
    assert.equal(torch.int64, torch.unravel_index(byte, 300)[1].dtype)
    raises("TypeError", "integer dtype", function()
      torch.unravel_index(torch.tensor({ 1.0 }), { 2, 3 })
    end)
    raises("TypeError", "sequence of ints", function()
      torch.unravel_index(torch.tensor({ 1 }))
    end)
  end)
end)

describe("range", function()
  it("has its end in it, values by PyTorch", function()
    assert.same({ 1, 1.5, 2 }, torch.range(1, 2.25, 0.5):tolist())
    assert.same({ 3, 2, 1 }, torch.range(3, 1, -1):tolist())
    assert.equal(11, torch.range(0, 1, 0.1):numel())
    assert.same({ 1, 2 }, torch.range({ ["end"] = 2, start = 1 }):tolist())
    assert.equal(torch.int64, torch.range(0, 3, { dtype = torch.int64 }).dtype)
    assert.is_true(torch.range(0, 3, { requires_grad = true }).requires_grad)
  end)

  it("names what it cannot take", function()
    raises("TypeError", "end: expected a number, got nil", function()
      torch.range(3)
    end)
    raises("RuntimeError", "inconsistent", function()
      torch.range(1, 0, 1)
    end)
    raises("TypeError", "has no parameter 'dtpe'", function()
      torch.range(0, 1, { dtpe = torch.int64 })
    end)
  end)
end)

describe("defaults", function()
  it("are the processor and Python's constants", function()
    torch.set_default_device("cpu")
    assert.equal("cpu", tostring(torch.get_default_device().type))
    raises("RuntimeError", "there is no device 'cuda' here; allowed are 'cpu', 'meta'", function()
      torch.set_default_device("cuda")
    end)
    raises("RuntimeError", "expected 'cpu' or 'meta', got 'ipu'", function()
      torch.set_default_device("ipu")
    end)
    torch.set_default_device("meta")
    local made = { torch.ones(2), torch.rand(3), torch.full({ 2 }, 1), torch.arange(3),
      torch.nn.Linear(2, 3).weight }
    local apart = { torch.tensor({ 1 }), torch.ones(2, { device = "cpu" }) }
    apart[3] = torch.zeros_like(apart[1])
    assert.equal("meta", torch.get_default_device().type)
    torch.set_default_device(nil)
    for _, t in ipairs(made) do
      assert.is_true(t.is_meta)
    end
    for _, t in ipairs(apart) do
      assert.is_false(t.is_meta)
    end
    assert.is_false(torch.ones(2).is_meta)
    assert.equal(math.acos(-1), torch.pi)
    assert.equal(math.exp(1), torch.e)
    assert.equal(math.huge, torch.inf)
    assert.is_true(torch.nan ~= torch.nan)
    assert.equal(torch.none, torch.newaxis)
    local x = torch.ones(2)
    assert.equal(x, x:pin_memory())
    assert.is_false(x:is_shared())
  end)

  it("know whether inference_mode is open", function()
    assert.is_false(torch.is_inference_mode_enabled())
    torch.no_grad(function()
      assert.is_false(torch.is_inference_mode_enabled())
    end)
    torch.inference_mode(function()
      assert.is_true(torch.enable_grad(torch.is_inference_mode_enabled))
    end)
    assert.is_false(torch.is_inference_mode_enabled())
  end)
end)
