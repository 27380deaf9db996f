-- PopTorch's tests of indexing (tests/index_ops_test.py). Where it compares
-- with weights of a step of AdamW the step here is SGD's.
local device = require("spec.support.on_device")
local poptorch = require("poptorch")
local torch = require("torch")

local ALL = torch.slice()

-- Positions of the index among those of t[{…}].
local OPS = { { 1 }, { 1, 2 }, { 2 }, { 1, 3 }, { 3 }, { 2, 3 }, { 1, 2, 3, 4 }, { 4 }, { 2, 4 } }
local INDICES = { { 0 }, { { 1 } }, { 0, 1 }, { { 1, 0 } }, { { 0, 1 }, { 1, 0 } } }

local function places(op, idx)
  local out = {}
  for i = 1, op[#op] do
    out[i] = ALL
  end
  for _, at in ipairs(op) do
    out[at] = idx
  end
  return out
end

local function put(op)
  return function(t, idx, v)
    t[places(op, idx)] = v
    return t
  end
end

local function first(t, idx, v)
  t[idx] = v
  return t
end

local function big()
  return torch.randn(2, 3, 4, 5)
end

local function mask(size, dtype)
  return torch.rand({ table.unpack({ 2, 3, 4, 5 }, 1, size) }):gt(0.5):to(dtype)
end

local MASKS = { { 1, torch.bool }, { 2, torch.uint8 }, { 3, torch.bool }, { 4, torch.uint8 } }

describe("index_ops", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  it("test_index", function()
    for _, op in ipairs(OPS) do
      for _, idx in ipairs(INDICES) do
        device.trains(function(t, i)
          return t[places(op, i)]
        end, { big(), torch.tensor(idx) })
      end
    end
  end)

  it("test_index_bool_mask_failure", function()
    local ok, e = pcall(device.infer(function(t, m)
      return t[m]
    end), big(), torch.tensor({ true, false }))
    assert.is_false(ok)
    assert.matches("shape depends on its data", tostring(e))
  end)

  it("test_index_on_max_indices", function()
    device.trains(function(x)
      local _, at = torch.max(x, 1)
      return x[{ ALL, at }], at
    end, { torch.rand(1, 10, 2) })
  end)

  it("test_index_put", function()
    for _, op in ipairs(OPS) do
      for _, idx in ipairs(INDICES) do
        local t, i = big(), torch.tensor(idx)
        device.trains(put(op), { t, i, torch.zeros_like(t[places(op, i)]) })
        device.trains(put(op), { t, i, torch.randn(1) })
      end
    end
  end)

  it("test_index_put_scalar", function()
    device.trains(function(t, i)
      t[{ i, i }] = 0
      return t
    end, { big(), torch.tensor({ { 0 } }) })
  end)

  it("test_index_put_broadcastable", function()
    device.trains(put({ 1, 2 }), { big(), torch.tensor({ { 0 } }), torch.zeros(5) })
  end)

  it("test_index_put_masked_fill", function()
    for _, case in ipairs(MASKS) do
      device.trains(first, { big(), mask(table.unpack(case)), torch.tensor({ 0.5 }) })
    end
  end)

  it("test_index_put_masked_assign", function()
    for _, case in ipairs(MASKS) do
      local size = case[1]
      local rest = { table.unpack({ 2, 3, 4, 5 }, size + 1) }
      local v = torch.randn(size == 4 and { 1 } or rest)
      device.trains(first, { big(), mask(size, case[2]), v })
    end
  end)

  it("test_index_fill", function()
    for dim = 1, 3 do
      for _, value in ipairs({ -1, torch.tensor(-1.0) }) do
        device.trains(function(t, i)
          return t:index_fill_(dim, i, value)
        end, { big(), torch.tensor({ 0, 2 }) })
      end
    end
  end)

  it("test_index_select", function()
    for dim = -3, 2 do
      local x = torch.randn(2, 4, 8)
      local n = x:size(dim)
      device.trains(function(src, i)
        return src:index_select(dim, i)
      end, { x, torch.randint(0, n, { n }) })
    end
  end)

  it("test_vectorized_scatter", function()
    for dim = 0, 1 do
      local out = torch.randn(20, 30)
      local n = out:size(dim) - 2
      -- of equal indices the last row stays, on both sides
      local i = torch.randint(0, n, { n })
      local src = dim == 0 and torch.randn(n, 30) or torch.randn(20, n)
      device.trains(function(t, at, v)
        t[dim == 0 and { at, ALL } or { ALL, at }] = v
        return t
      end, { out, i, src })
    end
  end)
end)

describe("an assignment by a mask", function()
  it("broadcasts its values to what the mask leaves of the shape", function()
    local x, m = torch.arange(6.0):reshape(2, 3), torch.tensor({ true, false })
    device.same(first, { x, m, torch.tensor({ 7.0, 8, 9 }) })
    local model = device.infer(function(t, at, v)
      t = t + 0
      t[at] = v
      return t
    end)
    assert.same({ { 7, 8, 9 }, { 3, 4, 5 } }, model(x, m, torch.tensor({ 7.0, 8, 9 })):tolist())
  end)

  it("writes as many values as the mask has trues, in their order", function()
    local x, m = torch.zeros(2, 3), torch.tensor({ { true, false, true }, { false, true, false } })
    local function f(t, at, v)
      t = t + 0
      t[at] = v
      return t
    end
    device.same(f, { x, m, torch.tensor({ 1.0, 2, 3 }) })
    assert.same({ { 1, 0, 2 }, { 0, 3, 0 } }, device.infer(f)(x, m, torch.tensor({ 1.0, 2, 3 }))
      :tolist())
    device.trains(f, { torch.randn(2, 3), m, torch.tensor({ 1.0, 2, 3 }) })
    device.trains(function(t, at, v)
      return t:masked_scatter(at, v)
    end, { torch.randn(2, 3), m, torch.randn(2, 3) })
  end)

  it("is index_put's, too", function()
    local x, m = torch.randn(4, 3), torch.tensor({ true, false, true, true })
    device.trains(function(t, at, v)
      return t:index_put({ at }, v)
    end, { x, m, torch.randn(3) })
    device.trains(function(t, at, v)
      return t:index_put({ at }, v, { accumulate = true })
    end, { x, torch.tensor({ 0, 1, 1 }), torch.randn(3, 3) })
  end)

  it("keeps a buffer's value", function()
    local net = device.module(function(self, at, v)
      self.kept[at] = v
      return self.kept + 0
    end, function(self)
      self:register_buffer("kept", torch.zeros(3))
    end)
    local model = poptorch.inferenceModel(net)
    model(torch.tensor({ true, false, false }), torch.tensor({ 5.0 }))
    assert.same({ 5, 0, 7 }, model(torch.tensor({ false, false, true }), torch.tensor({ 7.0 }))
      :tolist())
  end)
end)
