-- poptorch.serializedMatMul: the values and gradients of a product, its price
-- on the device, what it refuses.
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Mode = poptorch.MatMulSerializationMode
local CUT = { Mode.InputChannels, Mode.ReducingDim, Mode.OutputChannels }
local LOOSE = { rtol = 1e-4, atol = 1e-4 }

local function product(mode, factor, keep)
  return function(x, y)
    return poptorch.serializedMatMul(x, y, mode, factor, keep)
  end
end

local function largest_tile(model)
  local _, memory = next(model:report().memory)
  return memory.max_tile_including_gaps
end

describe("serializedMatMul", function()
  it("is the product, for every rank", function()
    for _, shapes in ipairs({ { { 4, 6 }, { 6, 8 } }, { { 3, 4, 6 }, { 6, 8 } },
      { { 3, 4, 6 }, { 3, 6, 8 } }, { { 2, 1, 4, 6 }, { 3, 6, 8 } } }) do
      local x, y = torch.randn(shapes[1]), torch.randn(shapes[2])
      for _, mode in ipairs(CUT) do
        local got = device.infer(product(mode, 2))(x, y)
        device.close(got, torch.matmul(x, y), LOOSE)
        device.close(product(mode, 2)(x, y), torch.matmul(x, y), LOOSE)
      end
      device.close(device.infer(product(Mode.Disabled))(x, y), torch.matmul(x, y), LOOSE)
    end
    local v, m = torch.randn(6), torch.randn(6, 8)
    device.close(device.infer(product(Mode.ReducingDim, 3))(v, m), torch.matmul(v, m), LOOSE)
    device.close(device.infer(product(Mode.OutputChannels, 4))(v, m), torch.matmul(v, m), LOOSE)
    local first = m["0"]
    device.close(device.infer(product(Mode.InputChannels, 3))(m, first), torch.mv(m, first), LOOSE)
    device.close(device.infer(product(Mode.ReducingDim, 2))(v, v), torch.dot(v, v), LOOSE)
  end)

  it("has the product's gradients", function()
    for _, mode in ipairs(CUT) do
      device.trains(product(mode, 2, true), { torch.randn(4, 6), torch.randn(6, 8) },
        { tol = LOOSE })
    end
  end)

  it("sums halves as float32 if it keeps precision", function()
    -- two parts beyond the halves' largest number, 65504, with a sum of 0
    local x = torch.tensor({ { 300.0, 300, -300, -300 } }):half()
    local y = torch.full({ 4, 1 }, 150.0):half()
    local kept = device.infer(product(Mode.ReducingDim, 2, true))(x, y)
    assert.equal(torch.float16, kept.dtype)
    assert.equal(0, kept:item())
    assert.not_equal(0, device.infer(product(Mode.ReducingDim, 2, false))(x, y):item())
  end)

  it("sums halves of its gradients so, too", function()
    for keep, good in pairs({ [true] = true, [false] = false }) do
      local x = torch.tensor({ { 300.0 }, { 300 }, { -300 }, { -300 } }):half()
      local y = torch.ones(1, 1):half():requires_grad_(true)
      local out = poptorch.serializedMatMul(x, y, Mode.InputChannels, 2, keep)
      out:backward(torch.full({ 4, 1 }, 150.0):half())
      assert.equal(torch.float16, y.grad.dtype)
      assert.equal(good, y.grad:item() == 0)
    end
  end)

  it("takes memory from the fullest tile, and cycles", function()
    local x = torch.randn(512, 1024)
    local function made(mode, factor)
      local model = poptorch.inferenceModel(device.module(function(self, v)
        return poptorch.serializedMatMul(v, self.w, mode, factor)
      end, function(self)
        self.w = nn.Parameter(torch.randn(1024, 4096))
      end))
      model:compile(x)
      return largest_tile(model), model:report().cycles
    end
    local bytes, cycles = made(Mode.Disabled, 0)
    for _, mode in ipairs({ Mode.ReducingDim, Mode.OutputChannels }) do
      local less, more = made(mode, 4)
      assert(less < bytes, ("%s: %d bytes, %d at once"):format(tostring(mode), less, bytes))
      assert(more > cycles, ("%s: %d cycles, %d at once"):format(tostring(mode), more, cycles))
    end
  end)

  it("refuses other arguments", function()
    local x, y = torch.randn(4, 6), torch.randn(6, 8)
    for _, args in ipairs({ { x, y, "input_channels", 2 }, { x, y, 0, 2 }, { x, y },
      { x, y, Mode.InputChannels, 2.0 }, { x, y, Mode.InputChannels, 2, 1 } }) do
      raises("AssertionError", poptorch.serializedMatMul, table.unpack(args, 1, 5))
    end
    for _, factor in ipairs({ 0, -1, 5, 12 }) do
      for _, mode in ipairs(CUT) do
        local e = raises("Error", poptorch.serializedMatMul, x, y, mode, factor)
        assert.matches("factor of the serialized dimension's size, got " .. factor, e.message, 1,
          true)
      end
    end
    raises("Error", poptorch.serializedMatMul, x, y, Mode.ReducingDim)
    local none = torch.zeros(0, 6)
    raises("Error", poptorch.serializedMatMul, none, y, Mode.InputChannels, 2 ^ 32 + 4 | 0)
    assert.same({ 0, 8 }, { poptorch.serializedMatMul(none, y, Mode.InputChannels, 1):size(0),
      poptorch.serializedMatMul(none, y, Mode.InputChannels, 1):size(1) })
    raises("TypeError", poptorch.serializedMatMul, 3, y, Mode.ReducingDim, 2)
    raises("RuntimeError", poptorch.serializedMatMul, x, x, Mode.InputChannels, 2)
  end)
end)
