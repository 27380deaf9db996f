-- dropout: what it keeps, how much, and that its gradient drops the same.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local raises = helper.raises

describe("dropout", function()
  it("zeroes about p of the elements and scales the others", function()
    torch.manual_seed(3)
    local y, zeros = F.dropout(torch.ones({ 10000 }), 0.25):tolist(), 0
    for _, v in ipairs(y) do
      if v == 0 then
        zeros = zeros + 1
      else
        assert.near(1 / 0.75, v, 1e-6)
      end
    end
    -- five standard deviations of a binomial of 10,000 at 1/4
    assert.is_true(math.abs(zeros - 2500) < 5 * math.sqrt(10000 * 0.25 * 0.75))
  end)

  it("draws anew at each call, and the same after the same seed", function()
    local x = torch.ones({ 64 })
    torch.manual_seed(5)
    local a, b = F.dropout(x):tolist(), F.dropout(x):tolist()
    torch.manual_seed(5)
    assert.same(a, F.dropout(x):tolist())
    assert.are_not.same(a, b)
  end)

  it("drops the same in every dtype, layout and width", function()
    local x = torch.ones({ 40, 1000 })
    local function draw(y)
      torch.manual_seed(9)
      return F.dropout(y, 0.5):float():tolist()
    end
    local want = draw(x)
    assert.same(want, draw(x:double()))
    assert.same(want, draw(x:half()))
    assert.same(want, draw(torch.ones({ 1000, 40 }):t()))
    local n = torch.get_num_threads()
    torch.set_num_threads(1)
    local one = draw(x)
    torch.set_num_threads(n)
    assert.same(want, one)
  end)

  it("is the identity outside training and at p = 0, zero at p = 1", function()
    local x = torch.tensor({ 1.0, 2, 3 })
    assert.same({ 1, 2, 3 }, F.dropout(x, 0.5, false):tolist())
    assert.same({ 1, 2, 3 }, F.dropout(x, 0.0):tolist())
    assert.same({ 0, 0, 0 }, F.dropout(x, 1.0):tolist())
  end)

  it("has a gradient that drops what the forward dropped, and so on", function()
    local x = torch.ones({ 100 }):requires_grad_(true)
    local y = F.dropout(x, 0.5)
    local g = torch.autograd.grad({ (y * y):sum() }, { x }, nil, { create_graph = true })[1]
    local gg = torch.autograd.grad({ g:sum() }, { x })[1]
    for i, v in ipairs(y:tolist()) do
      -- y = k x with k 0 or 2: gradients 2 k^2 x and 2 k^2
      assert.equal(2 * v * v, g:tolist()[i])
      assert.equal(2 * v * v, gg:tolist()[i])
    end
  end)

  it("drops whole channels", function()
    torch.manual_seed(1)
    local kinds = {}
    for _, sample in ipairs(F.dropout2d(torch.ones({ 4, 8, 3, 2 }), 0.5):tolist()) do
      for _, channel in ipairs(sample) do
        for _, row in ipairs(channel) do
          for _, v in ipairs(row) do
            assert.equal(channel[1][1], v)
          end
        end
        kinds[channel[1][1]] = true
      end
    end
    assert.same({ [0.0] = true, [2.0] = true }, kinds)
  end)

  it("drops whole channels without a batch, of lines and of volumes", function()
    torch.manual_seed(2)
    for _, case in ipairs({ { "dropout1d", { 64, 5 }, 1 }, { "dropout1d", { 8, 8, 5 }, 2 },
      { "dropout3d", { 64, 3, 2, 2 }, 1 }, { "dropout3d", { 8, 8, 3, 2, 2 }, 2 } }) do
      local y = F[case[1]](torch.ones(case[2]), 0.5):flatten(0, case[3] - 1)
      y = y:flatten(1)
      assert.is_true(torch.equal(y:amin(1), y:amax(1)))
      local kept = y:select(1, 0):ne(0):sum():item()
      assert.is_true(kept > 12 and kept < 52, kept) -- 64 draws: 5 standard deviations
    end
    raises("RuntimeError", "dropout1d: Expected 2D or 3D input, but received a 4D input", function()
      F.dropout1d(torch.ones({ 1, 1, 1, 1 }))
    end)
  end)

  it("refuses probabilities outside 0 … 1", function()
    raises("ValueError", "between 0 and 1, but got 1.5", function()
      F.dropout(torch.ones({ 2 }), 1.5)
    end)
  end)
end)
