--- interpolate: arguments.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("interpolate", function()
  it("names the shape that has nothing to resize", function()
    raises("NotImplementedError", "3, 4 or 5 dimensions", function()
      nn.functional.interpolate(torch.ones(2, 3), { scale_factor = 2 })
    end)
  end)
end)
