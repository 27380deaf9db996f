-- PopTorch's tests of comparisons that are reduced (tests/bool_support_test.py).
local device = require("spec.support.on_device")
local torch = require("torch")

local TENSORS = { { 1.0, 2.0, 3.1 }, { 1.1, 2.0, 3.0 }, { 0.0, 0.0, 0.0 } }

describe("bool_support", function()
  it("test_reduce_two_bool_types", function()
    for _, op in ipairs({ torch.sum, torch.prod }) do
      for _, a in ipairs(TENSORS) do
        for _, b in ipairs(TENSORS) do
          local x, y = torch.tensor(a), torch.tensor(b)
          local function f(u, v)
            return op(u:eq(v))
          end
          assert.equal(torch.int64, f(x, y).dtype)
          assert.equal(torch.int32, device.same(f, { x, y })[1].dtype)
        end
      end
    end
  end)

  it("test_logits", function()
    local function accuracy(logits, y)
      return torch.sum(torch.argmax(logits, -1):eq(y)) / y:size(0)
    end
    device.same(accuracy, { torch.tensor({ { 1.0, 2, 3 }, { 3.0, 1, 2 }, { 2.0, 3, 1 } }),
      torch.tensor({ { 0 }, { 2 }, { 1 } }) })
  end)
end)
