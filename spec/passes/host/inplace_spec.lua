-- Results written over operands that die: the values stay those of eager calls.
local helper = require("spec.helper")
local lupine = require("lupine")
local torch = require("torch")

local function same_as_eager(fn, inputs)
  local want = fn(table.unpack(inputs))
  local got = lupine.compile(fn, inputs)(table.unpack(inputs))
  helper.near(got, want:tolist(), helper.exact)
end

describe("an operator that may write over its first operand", function()
  local x, index = torch.arange(6.0):reshape({ 2, 3 }), torch.tensor({ { 2, 0, 0 }, { 1, 1, 2 } })

  it("does not write over another one of the same shape", function()
    same_as_eager(function(t, at)
      return torch.zeros({ 2, 3 }):scatter_add(1, at, t * 2)
    end, { x, index })
    same_as_eager(function(t, at)
      local zeros = torch.zeros({ 2, 3 })
      return zeros:scatter_add(1, at, t * 2) + zeros:scatter_add(1, at, t * 3)
    end, { x, index })
    same_as_eager(function(t)
      return torch.zeros({ 2, 3 }):slice_scatter(t * 2, 1, 0, 3)
    end, { x })
  end)

  it("does not when it reads it as another operand, too", function()
    same_as_eager(function(t, at)
      local y = t * 2
      return y:scatter_add(1, at, y)
    end, { x, index })
  end)
end)
