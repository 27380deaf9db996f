--- PopTorch's tests/non_contiguous_tensors_test.py.
describe("non_contiguous_tensors_test", function()
  local poptorch = require("poptorch")
  local torch = require("torch")

  it("test_non_contiguous", function()
    torch.manual_seed(23148)
    local FiveAdder = torch.nn.Module:extend("FiveAdder")
    function FiveAdder.forward(_, a, b, c, d, e)
      return a + b + c + d + e
    end
    local outer, inner = 1000, 40
    local nc1 = torch.randn({ outer, inner + 1 })[":, 0:40"]
    local nc2 = torch.randn({ inner, outer }):transpose(0, 1)
    local nc3 = torch.tensor({ 1.0 }):expand({ outer, inner })
    local c1 = torch.randn({ outer, inner })
    local c2 = torch.randn({ 2, outer, inner })[0]
    for _, x in ipairs({ nc1, nc2, nc3 }) do
      assert.is_false(x:is_contiguous())
    end
    assert.is_true(c1:is_contiguous() and c2:is_contiguous())
    local model = FiveAdder()
    local want = model(nc1, c1, nc2, c2, nc3)
    assert.same({ outer, inner }, { table.unpack(want.shape) })
    torch.testing.assert_close(poptorch.inferenceModel(model)(nc1, c1, nc2, c2, nc3), want)
  end)
end)
