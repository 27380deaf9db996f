-- PopTorch's tests of slices (tests/slice_test.py): dynamic_slice and
-- dynamic_update against slices of PyTorch's rule, on the host and the device.
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local poptorch = require("poptorch")
local torch = require("torch")

local EIGHT = { 2.0, 2, 3, 4, 5, 6, 7, 8 }
local ROWS = { { 2.0, 2, 3, 4, 5, 6, 7, 8 }, { 8.0, 7, 6, 5, 4, 3, 2, 1 } }

-- The model is compiled with other values, or these might be part of it.
local function run(f, ...)
  local inputs = { ... }
  local others = {}
  for i, t in ipairs(inputs) do
    others[i] = t:is_floating_point() and torch.randn_like(t) or t + 20
  end
  local model = device.infer(f)
  model:compile(table.unpack(others))
  local got = model(table.unpack(inputs))
  device.close(f(table.unpack(inputs)), got)
  return got
end

local function sliced(t, start, size, step, index)
  return run(function(x, e)
    return poptorch.dynamic_slice(x, 0, start(e), size, step)
  end, torch.tensor(t), torch.tensor({ index }))
end

local function same(x) return x end

describe("slice", function()
  it("test_slice_idx_size_of", function()
    for step = 1, 3 do
      device.trains(function(x, y)
        local n = x.shape[1]
        return x[("%d:%d:%d"):format(n // 2, n - 1, step)] + y
      end, { torch.tensor({ 1.0, 2, 3, 4, 5, 6, 7, 8 }), torch.tensor({ 3.0 }) })
    end
  end)

  it("test_dynamic_slice_one_dim_add", function()
    local want = { { 2, 3, 4, 5 }, { 2, 4 }, { 2, 5 } }
    for step = 1, 3 do
      assert.same(want[step], sliced(EIGHT, same, 4, step, 1):tolist())
    end
  end)

  it("test_dynamic_slice_one_dim_subtract", function()
    for step = 1, 3 do
      local got = sliced(EIGHT, function(e) return e - 4 end, 4, step, 5)
      assert(torch.equal(got, torch.tensor(EIGHT)["1:5:" .. step]))
    end
  end)

  it("test_dynamic_slice_one_dim_mix_up", function()
    for step = 1, 3 do
      local got = sliced(EIGHT, function(e) return e + 3 - 10 + 3 end, 2, step, 5)
      assert(torch.equal(got, torch.tensor(EIGHT)["1:3:" .. step]))
    end
  end)

  it("test_dynamic_slice_two_dims", function()
    for step = 1, 3 do
      local got = sliced(ROWS, function(e) return e:to(torch.int32) end, 1, step, 0)
      assert.same({ ROWS[1] }, got:tolist())
    end
  end)

  it("test_dynamic_slice_two_dims_twice_sliced", function()
    local t = torch.tensor({ ROWS[1], ROWS[2], ROWS[1], ROWS[2] })
    -- tensors that are not the model's: their sums are made outside of it
    local one, two = torch.tensor({ 1 }), torch.tensor({ 0 })
    local one_end, two_end = one + 2, two + 4
    for step = 1, 3 do
      device.trains(function(x)
        return x[{ torch.slice(one, one_end, step), torch.slice(two, two_end, step) }]
      end, { t })
    end
  end)

  it("test_dynamic_slice_one_dim_equal", function()
    assert.matches("must be different", raises("Error", sliced, EIGHT, same, 0, 1, 5).message)
  end)

  it("test_dynamic_slice_one_dim_less_than", function()
    raises("Error", sliced, EIGHT, same, -2, 2, 5)
  end)

  it("test_dynamic_slice_one_dim_add_non_factor", function()
    assert.matches("%(7%) must be a factor of the dimension's size %(8%)",
      raises("Error", sliced, EIGHT, same, 7, 1, 1).message)
  end)

  it("test_unbind", function()
    local x = torch.randn(2, 3, 4)
    for dim = 0, 2 do
      device.trains(function(v) return torch.unbind(v, dim) end, { x })
    end
    local function op(v)
      local parts = torch.unbind(v, 0)
      return parts[1] + 2.0, parts[2]
    end
    local half = device.infer(op)
    local first, second = half(x:half())
    assert.equal(torch.float16, first.dtype)
    device.close({ first, second }, { op(x:half()) })
  end)

  it("test_scalarslice", function()
    assert.same({ 1 }, device.infer(function(x) return (x / 2)[":"] end)(torch.tensor({ 2 }))
      :tolist())
  end)

  it("test_select_negative_dim", function()
    device.same(function(x) return x:select(-1, 1) end, { torch.rand(2, 4) })
  end)

  it("test_slice_negative_dim", function()
    device.same(function(x) return x:narrow(-1, 0, 2) end, { torch.rand(2, 4) })
  end)
end)

local function updated(t, src, start, size, index, dim)
  return run(function(x, s, e)
    return poptorch.dynamic_update(x, s, dim or 0, start(e), size)
  end, t, src, torch.tensor({ index }))
end

local function expected(t, src, first, dim)
  local want = t:clone()
  want:narrow(dim, first, src.shape[dim + 1]):copy_(src)
  return want
end

describe("slice", function()
  it("test_dynamic_update_single_update", function()
    assert.same({ 2, -1, 3, 4, 5, 6, 7, 8 },
      updated(torch.tensor(EIGHT), torch.tensor({ -1.0 }), same, 1, 1):tolist())
  end)

  it("test_dynamic_update_one_dim_add", function()
    assert.same({ 2, -1, -1, -1, -1, 6, 7, 8 },
      updated(torch.tensor(EIGHT), -torch.ones(4), same, 4, 1):tolist())
  end)

  it("test_dynamic_update_one_dim_subtract", function()
    local t = torch.tensor(EIGHT)
    local got = updated(t, -torch.ones(4), function(e) return e - 4 end, 4, 5)
    assert(torch.equal(got, expected(t, -torch.ones(4), 1, 0)))
  end)

  it("test_dynamic_update_one_dim_equal", function()
    assert.matches("must be different", raises("Error", updated, torch.tensor(EIGHT),
      torch.tensor({ -1.0 }), same, 0, 1).message)
  end)

  it("test_dynamic_update_one_dim_add_non_factor", function()
    assert.same({ 2, -1, -1 },
      updated(torch.tensor({ 2.0, 2, 3 }), -torch.ones(2), same, 2, 1):tolist())
  end)

  it("test_dynamic_update_one_dim_less_than", function()
    raises("Error", updated, torch.tensor(EIGHT), torch.tensor({ 7.0, 8 }), same, -2, 5)
  end)

  it("test_dynamic_update_two_dims", function()
    local t, src = torch.tensor(ROWS), -torch.ones(1, 8)
    assert(torch.equal(updated(t, src, function(e) return e:to(torch.int32) end, 1, 0),
      expected(t, src, 0, 0)))
  end)

  it("test_dynamic_update_wrong_dim", function()
    assert.matches("%(2%) vs %(1%)",
      raises("Error", updated, torch.tensor(ROWS), -torch.ones(8), same, 1, 0).message)
  end)

  it("test_dynamic_update_two_dims_dim1", function()
    local t, src = torch.tensor(ROWS), -torch.ones(2, 1)
    assert(torch.equal(updated(t, src, same, 1, 4, 1), expected(t, src, 4, 1)))
  end)

  it("test_dynamic_update_3_dims_dim0", function()
    local t, src = torch.ones(3, 4, 5), -torch.ones(2, 4, 5)
    assert(torch.equal(updated(t, src, same, 2, 1, 0), expected(t, src, 1, 0)))
  end)

  it("test_dynamic_update_3_dims_dim1", function()
    local t, src = torch.ones(3, 4, 5), -torch.ones(3, 2, 5)
    assert(torch.equal(updated(t, src, same, 2, 1, 1), expected(t, src, 1, 1)))
  end)

  it("test_dynamic_update_3_dims_dim2", function()
    local t, src = torch.ones(3, 4, 5), -torch.ones(3, 4, 3)
    assert(torch.equal(updated(t, src, same, 3, 2, 2), expected(t, src, 2, 2)))
  end)

  it("test_dynamic_update_wrong_dtype", function()
    local e = raises("Error", updated, torch.tensor(EIGHT), torch.tensor({ -1 }), same, 1, 1)
    assert.matches("float32 and int32", e.message)
  end)
end)

describe("a slice that starts where a tensor says", function()
  local t = torch.tensor(EIGHT)

  it("goes on at the beginning", function()
    assert.same({ 7, 8, 2, 2 }, sliced(EIGHT, same, 4, 1, 6):tolist())
    assert.same({ 8, 2 }, sliced(EIGHT, same, 4, 2, 7):tolist())
    assert.same({ 2, 2, 3, 4 }, sliced(EIGHT, same, 4, 1, 16):tolist())
    assert.same({ -1, 2, 3, 4, 5, 6, 7, -1 }, updated(t, -torch.ones(2), same, 2, 7):tolist())
  end)

  it("takes no other kind of argument", function()
    local at = torch.tensor({ 1 })
    for _, args in ipairs({ { 3, 0, at, 4, 1 }, { t, "0", at, 4, 1 }, { t, 0, 1, 4, 1 },
      { t, 0, torch.tensor({ 1.0 }), 4, 1 }, { t, 0, at, 4.5, 1 }, { t, 0, at, 4, "1" },
      { t, 0, at, 4, 0 }, { t, 0, torch.tensor({ 1, 2 }), 4, 1 } }) do
      raises("Error", poptorch.dynamic_slice, table.unpack(args))
    end
    for _, args in ipairs({ { 3, t, 0, at, 4 }, { t, 3, 0, at, 4 }, { t, t, 0.5, at, 8 },
      { t, t, 0, 1, 8 }, { t, t, 0, at, "8" }, { t, t, 0, at, 4 }, { t, t, 0, at, 9 } }) do
      raises("Error", poptorch.dynamic_update, table.unpack(args))
    end
  end)

  it("is what a slice from a tensor of the model is told to be", function()
    local model = device.infer(function(x, s)
      return x[torch.slice(s, s + 2)]
    end)
    assert.matches("poptorch.dynamic_slice(x, dim, start, size, step)",
      raises("Error", model, torch.ones(6), torch.tensor({ 3 })).message, 1, true)
  end)

  it("is for inference", function()
    for _, f in ipairs({
      function(x, e) return poptorch.dynamic_slice(x, 0, e, 4, 1) end,
      function(x, e) return poptorch.dynamic_update(x, x["0:2"], 0, e, 2) end }) do
      local model = poptorch.trainingModel(device.module(function(self, x, e)
        return poptorch.identity_loss(f(x * self.w, e), "sum")
      end, function(self)
        self.w = torch.nn.Parameter(torch.ones(1))
      end))
      assert.matches("only supported in inference", raises("Error", model, t, torch.tensor({ 1 }))
        .message)
    end
  end)
end)
