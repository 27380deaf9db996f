--- Weights of cubic convolution, for interpolate.
---
--- source: R. Keys, Cubic Convolution Interpolation for Digital Image
--- Processing, 1981; a = -0.75 as in PyTorch
local A = -0.75

local function near(x)
  return ((A + 2) * x - (A + 3)) * x * x + 1
end

local function far(x)
  return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A
end

--- Of the four places around one that is `t` (a number or a tensor) behind the
--- second.
return function(t)
  return { far(t + 1), near(t), near(1 - t), far(2 - t) }
end
