-- PopTorch's own test of how the type of inputs and outputs tells in cycles, by
-- name. The original prints the ratios; here shorter elements must cost less, at
-- most in proportion to their bytes, as some cost does not depend on them.
local poptorch = require("poptorch")
local torch = require("torch")

local Images = torch.utils.data.Dataset:extend("Images")

function Images:init(dtype)
  self.dtype = dtype
end

function Images.__len__()
  return 32
end

function Images:__getitem__()
  return torch.randint(0, 256, { 3, 64, 64 }):to(self.dtype)
end

local function mean_cycles(dtype)
  local Model = torch.nn.Module:extend("Model")
  function Model:forward(x)
    return (x:to(torch.float32) * 2):to(dtype)
  end
  local opts = poptorch.Options():logCycleCount(true)
  local loader = poptorch.DataLoader(opts, Images(dtype), 16, { shuffle = false, drop_last = true })
  local model = poptorch.inferenceModel(Model(), opts)
  local sum, n = 0, 0
  for x in loader do
    assert.equal(dtype, model(x).dtype)
    sum, n = sum + model:cycleCount(), n + 1
  end
  loader:terminate()
  assert.equal(2, n)
  return sum / n
end

it("test_compare_io_performance", function()
  local float = mean_cycles(torch.float32)
  for dtype, factor in pairs({ [torch.int8] = 4, [torch.uint8] = 4, [torch.float16] = 2 }) do
    local ratio = float / mean_cycles(dtype)
    assert.is_true(ratio > 1 and ratio <= factor, ("%s: %g"):format(dtype, ratio))
  end
end)
