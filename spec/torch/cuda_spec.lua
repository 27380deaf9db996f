--- What scripts ask of torch.cuda.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("torch.cuda", function()
  it("has what scripts ask without a device", function()
    assert.is_false(torch.cuda.is_available())
    assert.equal(0, torch.cuda.device_count())
    for _, fn in ipairs({
      function() return torch.ones(1):cuda() end,
      function() return nn.ReLU():cuda() end,
      function() return torch.cuda.synchronize() end,
    }) do
      raises("RuntimeError", "there is no CUDA device here", fn)
    end
  end)
end)
