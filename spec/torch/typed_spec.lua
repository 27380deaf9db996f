--- torch.Tensor, torch.FloatTensor and so on as constructors.
local helper = require("spec.helper")
local torch = require("torch")

local raises = helper.raises

describe("constructors by type", function()
  local x = torch.ones(2)

  it("take sizes or values", function()
    assert.equal(torch.float32, torch.FloatTensor({ 1, 2 }).dtype)
    assert.equal(torch.int64, torch.LongTensor({ 1, 2 }).dtype)
    assert.same({ 2, 3 }, { table.unpack(torch.Tensor(2, 3).shape) })
    helper.near(torch.Tensor({ 1, 2 }), { 1, 2 })
    assert.is_true(torch.Tensor:is(x))
    raises("TypeError", "values are given as one list", function()
      torch.LongTensor(1.5)
    end)
  end)
end)
