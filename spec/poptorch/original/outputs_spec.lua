--- PopTorch's tests/outputs_test.py: nested tuples are lists.
describe("outputs_test", function()
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn
  local x, y = torch.ones(2), torch.zeros(2)

  -- The results of both, as lists.
  local function compare(forward)
    local Net = nn.Module:extend("Net")
    Net.forward = forward
    local net = Net()
    local model = poptorch.inferenceModel(net)
    local function same(got, want)
      assert.equal(type(want), type(got))
      if type(want) == "table" then
        assert.equal(#want, #got)
        for key, value in pairs(want) do
          same(got[key], value)
        end
      else
        torch.testing.assert_close(got, want)
      end
    end
    for _ = 1, 2 do
      local got, want = { model(x, y) }, { net(x, y) }
      same(got, want)
    end
  end

  it("test_multiple_tensors", function()
    compare(function(_, a, b)
      local t1 = a + b
      return t1, b - a, a * b + t1
    end)
  end)

  it("test_simple_list", function()
    compare(function(_, a, b)
      local t1 = a + b
      return { t1, b - a, a * b + t1 }
    end)
  end)

  it("test_simple_tuple", function()
    compare(function(_, a, b)
      local t1 = a + b
      local t2 = { t1, a * b }
      return { t2[1], b - a, t2[2] + t1 }
    end)
  end)

  it("test_nested_tuples", function()
    compare(function(_, a, b)
      local t1 = a + b
      local t2 = { t1, a * b }
      return a, { t2, b - a, t2[2] + t1 }, { b, t1 * 2.0 }
    end)
  end)

  it("test_same_tensor", function()
    compare(function(_, a, b)
      local t1 = a + b
      return t1, { t1, { t1, a * b }, t1 }
    end)
  end)

  it("test_dict", function()
    compare(function(_, a, b)
      return { b = a + b, a = a * b }
    end)
  end)
end)
