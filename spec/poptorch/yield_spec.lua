--- A forward that yields: its coroutine might never go on.
local helper = require("spec.helper")
local lupine = require("lupine")
local poptorch = require("poptorch")
local torch = require("torch")

describe("coroutine.yield while a forward is traced", function()
  local Yields = torch.nn.Module:extend("Yields")
  function Yields:forward(x)
    coroutine.yield("yielded")
    return x * 2
  end

  local function works_again()
    assert.equal(4.0, (torch.ones(2) + 1):sum():item())
    helper.near(lupine.compile(function(x) return x + 1 end, { torch.ones(2) })(torch.ones(2)),
      { 2.0, 2.0 })
  end

  it("is an error of lupine.compile, and nothing stays behind", function()
    helper.raises("RuntimeError", "may not yield", coroutine.wrap(function()
      lupine.compile(Yields(), { torch.ones(3) })
    end))
    works_again()
  end)

  it("is an error of a wrapped model, and nothing stays behind", function()
    local model = poptorch.inferenceModel(Yields())
    helper.raises("RuntimeError", "may not yield", coroutine.wrap(function()
      model(torch.ones(3))
    end))
    works_again()
    helper.near(poptorch.inferenceModel(torch.nn.ReLU())(torch.ones(2)), { 1.0, 1.0 })
  end)
end)
