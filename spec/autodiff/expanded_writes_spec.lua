-- Writes to parts of views that show elements several times: PyTorch refuses those to
-- the view itself, and a part in which no element comes twice it writes.
describe("a write through an expanded tensor", function()
  local helper = require("spec.helper")
  local lupine = require("lupine")
  local poptorch = require("poptorch")
  local torch = require("torch")

  -- f writes to its argument, which shows [1, 2] three times.
  local function shown(f)
    return function(x)
      local y = (x * 2):expand(3, 2)
      f(y)
      return y
    end
  end

  local function on_device(f, x)
    local Model = torch.nn.Module:extend("Model")
    function Model:forward(v)
      return f(v)
    end
    return poptorch.inferenceModel(Model())(x)
  end

  local WRITTEN = {
    [function(y)
      y[1] = 5
    end] = { { 5, 5 }, { 5, 5 }, { 5, 5 } },
    [function(y)
      y[0]:add_(torch.tensor({ 1.0, 2 }))
    end] = { { 3, 6 }, { 3, 6 }, { 3, 6 } },
    [function(y)
      y["2:, 1:"] = 9
      y[0][0]:mul_(4)
    end] = { { 8, 9 }, { 8, 9 }, { 8, 9 } },
    [function(y)
      y:diagonal():sub_(1)
    end] = { { 1, 3 }, { 1, 3 }, { 1, 3 } },
    [function(y)
      y:t()["1:"]:select(1, 2):zero_()
    end] = { { 2, 0 }, { 2, 0 }, { 2, 0 } },
  }

  it("is seen in all rows, eager and compiled", function()
    for f, want in pairs(WRITTEN) do
      local x = torch.tensor({ { 1.0, 2 } })
      helper.near(shown(f)(x), torch.tensor(want):float())
      helper.near(on_device(shown(f), x), torch.tensor(want):float())
    end
  end)

  it("is refused where an element would be written twice", function()
    for _, f in ipairs({
      function(y)
        y:add_(1)
      end, function(y)
        y[":, 0"] = 1
      end, function(y)
        y["0:2"] = 1
      end, function(y)
        y:narrow(1, 0, 1):mul_(2)
      end,
    }) do
      local x = torch.tensor({ { 1.0, 2 } })
      helper.refuses("RuntimeError", "several elements in one place", shown(f), x)
      helper.refuses("RuntimeError", "several elements in one place", on_device, shown(f), x)
    end
  end)

  -- PyTorch 2.15: loss 369, gradients {{0, 0}} and {36, 27}.
  it("has PyTorch's gradients", function()
    local function loss(x, v)
      local y = (x * 2):expand(3, 2)
      y[1] = v * 3
      y["0, :1"]:mul_(2)
      return (y * torch.arange(6.0):reshape(3, 2)):sum()
    end
    local x = torch.tensor({ { 1.0, 2 } }, { requires_grad = true })
    local v = torch.tensor({ 5.0, 7 }, { requires_grad = true })
    local result = loss(x, v)
    result:backward()
    local one = torch.ones({})
    local gradients = select(2, lupine.compile(loss, { x, v }, { cotangents = { one } })(x, v,
      { one }))
    for _, g in ipairs({ { x.grad, v.grad }, gradients }) do
      assert.equal(369, result:item())
      assert.same({ { 0, 0 } }, g[1]:tolist())
      assert.same({ 36, 27 }, g[2]:tolist())
    end
  end)
end)
