-- F.pad where a side is cropped: PyTorch's values. Reflection and replication
-- crop what was padded, a circle is padded after it is cropped.
local compile = require("lupine.compile")
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")

local near, raises = helper.near, helper.raises

describe("pad", function()
  it("crops a side in each mode", function()
    local x = torch.arange(8):float():reshape(1, 2, 4)
    local up = torch.arange(1, 9):float():reshape(1, 2, 4)
    for mode, want in pairs({
      reflect = { { { { 2, 1, 0, 1 }, { 6, 5, 4, 5 } } }, { { { 3, 6, 1, 0 }, { 7, 14, 5, 0 } } } },
      replicate = { { { { 0, 0, 0, 1 }, { 4, 4, 4, 5 } } },
        { { { 6, 4, 0, 0 }, { 18, 8, 0, 0 } } } },
      circular = { { { { 0, 1, 0, 1 }, { 4, 5, 4, 5 } } },
        { { { 4, 6, 0, 0 }, { 12, 14, 0, 0 } } } },
    }) do
      local leaf = x:clone():requires_grad_()
      local function fn(t) return F.pad(t, { 2, -2 }, { mode = mode }) end
      local y = fn(leaf);
      (y * up):sum():backward()
      near(y, want[1])
      near(leaf.grad, want[2])
      local got, g = compile(fn, { x }, { cotangents = { up } })(x, { up })
      near(got, want[1])
      near(g[1], want[2])
    end
  end)

  it("reads beyond what is cropped where PyTorch does", function()
    local x = torch.arange(3):float():reshape(1, 3)
    local plane = torch.arange(6):float():reshape(1, 2, 3)
    for _, c in ipairs({
      { x, { 2, -1 }, "reflect", { { 2, 1, 0, 1 } } },
      { x, { -1, 2 }, "reflect", { { 1, 2, 1, 0 } } },
      { x, { 2, -1 }, "circular", { { 0, 1, 0, 1 } } },
      { x, { -1, 2 }, "circular", { { 1, 2, 1, 2 } } },
      { x, { -4, 2 }, "replicate", { { 2 } } },
      { x, { 2, -4 }, "replicate", { { 0 } } },
      { plane, { -1, 2, 1, -1 }, "reflect", { { { 4, 5, 4, 3 }, { 1, 2, 1, 0 } } } },
    }) do
      near(F.pad(c[1], c[2], { mode = c[3] }), c[4])
    end
  end)

  it("of negative widths alone is a new tensor", function()
    for _, mode in ipairs({ "constant", "reflect", "replicate", "circular" }) do
      local x = torch.arange(1, 4):float():reshape(1, 3)
      local p = F.pad(x, { -1, 0 }, { mode = mode })
      near(p, { { 2, 3 } })
      p:zero_()
      near(x, { { 1, 2, 3 } })
    end
  end)

  it("refuses to leave nothing, and a circle of more than there is", function()
    local x = torch.ones(1, 3)
    local function refuses(message, pad, mode)
      raises("RuntimeError", message, function() F.pad(x, pad, { mode = mode }) end)
    end
    refuses("nothing is left of dimension 1 of size 3", { -2, -1 }, "reflect")
    refuses("nothing is left of dimension 1 of size 3", { -5, 2 }, "replicate")
    refuses("nothing is left of dimension 1 of size 3", { -2, -2 }, "circular")
    refuses("at most 2 for dimension 1 of size 3, got 3", { 3, -1 }, "reflect")
    refuses("at most 1 for dimension 1 of size 1, got 2", { -2, 2 }, "circular")
    assert.same({ 1, 0 }, { table.unpack(F.pad(x, { -2, -1 }, { mode = "circular" }).shape) })
  end)

  -- A place beyond an edge, and the element that it has.
  local function element(mode, o, n)
    if mode == "replicate" then
      return math.max(0, math.min(n - 1, o))
    elseif mode == "circular" then
      return o % n
    end
    return o < 0 and -o or o >= n and 2 * (n - 1) - o or o
  end

  it("takes and gives back elements by their places, in planes and volumes", function()
    local sizes, pad = { 3, 4, 5 }, { 2, 1, 1, 2, 0, 2 }
    local x = torch.arange(120):float():reshape(2, 3, 4, 5)
    for _, mode in ipairs({ "reflect", "replicate", "circular" }) do
      local leaf = x:clone():requires_grad_()
      local y = F.pad(leaf:unsqueeze(0), pad, { mode = mode }):squeeze(0)
      local up = (torch.arange(y:numel()) % 11):float():view_as(y)
      y:backward(up)
      local want, grad, index = {}, {}, {}
      local wide = { 3 + 2, 4 + 3, 5 + 3 }
      for at = 0, y:numel() - 1 do
        local rest, from, step = at, 0, 1
        for d = 3, 1, -1 do
          local o = rest % wide[d] - pad[7 - 2 * d]
          rest, from, step = rest // wide[d], from + element(mode, o, sizes[d]) * step,
            step * sizes[d]
        end
        index[at + 1] = from + rest * step
        want[at + 1] = index[at + 1]
      end
      for i = 1, 120 do
        grad[i] = 0
      end
      for i, from in ipairs(index) do
        grad[from + 1] = grad[from + 1] + (i - 1) % 11
      end
      near(y:flatten(), want)
      near(leaf.grad:flatten(), grad)
    end
  end)

  it("fills only the sides of a large result", function()
    for _, shape in ipairs({ { 3, 5, 300, 40 }, { 400, 300 }, { 90000 }, { 300, 1, 400 } }) do
      local x, last = torch.randn(shape), #shape
      for d = 1, last do
        local widths, n = {}, shape[d]
        for i = 1, 2 * last do
          widths[i] = (i + d) % 3
        end
        local want = {}
        for i = 1, last do
          want[i] = shape[i] + widths[2 * (last - i) + 1] + widths[2 * (last - i) + 2]
        end
        local whole = torch.full(want, 2.5)
        local inside = whole
        for i = 1, last do
          inside = inside:narrow(i - 1, widths[2 * (last - i) + 1], shape[i])
        end
        inside:copy_(x)
        assert.is_true(torch.equal(F.pad(x, widths, "constant", 2.5), whole))
        -- A slice's gradient is zero around it.
        for _, part in ipairs({ { 0, n }, { 0, n // 2 }, { n // 2, n }, { n // 3, n // 2 } }) do
          local leaf, from, size = x:clone():requires_grad_(), part[1], part[2] - part[1]
          local up = torch.randn(leaf:narrow(d - 1, from, size):size())
          leaf:narrow(d - 1, from, size):backward(up)
          local grad = torch.zeros(shape)
          grad:narrow(d - 1, from, size):copy_(up)
          assert.is_true(torch.equal(leaf.grad, grad))
        end
      end
    end
    -- The strides of the whole, but not a box of it: it begins within a row.
    local leaf, up = torch.zeros({ 400, 300 }):requires_grad_(), torch.randn({ 399, 300 })
    leaf:as_strided({ 399, 300 }, { 300, 1 }, 7):backward(up)
    assert.is_true(torch.equal(leaf.grad:flatten():narrow(0, 7, 399 * 300), up:flatten()))
    near(leaf.grad:flatten():narrow(0, 0, 7), torch.zeros(7))
    near(leaf.grad:flatten():narrow(0, 399 * 300 + 7, 293), torch.zeros(293))
  end)

  it("refuses sides that its operator does not have", function()
    local op, x = require("lupine.core").forms.internal.pad_edges, torch.ones({ 1, 2, 3 })
    for _, c in ipairs({ { { 1 }, "reflect" }, { { 3, 0 }, "reflect" }, { { -1, 0 }, "circular" },
      { { 1, 1 }, "zeros" } }) do
      raises("RuntimeError", "pad_edges", function() op(x, c[1], c[2]) end)
    end
  end)
end)
