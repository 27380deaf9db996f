--- Products with parameters of which inference keeps packed copies.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

describe("a Linear of an inference", function()
  it("is its formula, of few rows and of many, whatever divides its sizes", function()
    torch.manual_seed(12)
    for _, rows in ipairs({ 1, 2, 5, 7, 97, 192, 193 }) do
      for _, sizes in ipairs({ { 64, 64 }, { 65, 79 }, { 300, 200 }, { 1537, 80 } }) do
        local net = nn.Linear(sizes[1], sizes[2]):eval()
        local x = torch.randn(rows, sizes[1])
        local want = x:double():mm(net.weight:double():t()) + net.bias:double()
        helper.near(poptorch.inferenceModel(net)(x):double(), want:detach(), { 1e-5, 1e-6 })
      end
    end
  end)

  it("follows its weight, and gives it back", function()
    torch.manual_seed(13)
    local net = nn.Linear(96, 130, { bias = false }):eval()
    local model, x = poptorch.inferenceModel(net), torch.randn(6, 96)
    model(x)
    for _ = 1, 3 do
      local weight = torch.randn(130, 96)
      net.weight:detach():copy_(weight)
      model:copyWeightsToDevice()
      helper.near(model(x):double(), x:double():mm(weight:double():t()), { 1e-5, 1e-6 })
      model:copyWeightsToHost()
      assert.is_true(torch.equal(net.weight:detach(), weight))
    end
  end)
end)
