-- The loss of connectionist temporal classification against the sum over all
-- alignments, written out.
local differences = require("spec.support.differences")
local helper = require("spec.helper")
local lupine_compile = require("lupine.compile")
local torch = require("torch")

local raises = helper.raises

local F, nn = torch.nn.functional, torch.nn

describe("ctc_loss", function()
  local p = { { 0.2, 0.5, 0.3 }, { 0.6, 0.3, 0.1 }, { 0.1, 0.1, 0.8 } } -- step, class; blank 0

  local function logits(steps)
    local rows = {}
    for t = 1, steps do
      rows[t] = { p[t] }
    end
    return torch.tensor(rows):log()
  end

  it("adds up all alignments", function()
    -- "1" in two steps: 11, 10, 01
    local one = 0.5 * 0.3 + 0.5 * 0.6 + 0.2 * 0.3
    helper.near(F.ctc_loss(logits(2), torch.tensor({ { 1 } }), { 2 }, { 1 }), -math.log(one))
    -- "1 2" in three steps: 112, 122, 102, 120, 012
    local two = 0.5 * 0.3 * 0.8 + 0.5 * 0.1 * 0.8 + 0.5 * 0.6 * 0.8 + 0.5 * 0.1 * 0.1
      + 0.2 * 0.3 * 0.8
    helper.near(F.ctc_loss(logits(3), torch.tensor({ 1, 2 }), { 3 }, { 2 },
      { reduction = "sum" }), -math.log(two))
    -- the mean is per label
    helper.near(nn.CTCLoss()(logits(3), torch.tensor({ 1, 2 }), { 3 }, { 2 }),
      -math.log(two) / 2)
  end)

  it("has no gradient where no alignment fits, and a finite one beside it", function()
    local x = torch.cat({ logits(2), logits(2) }, 1):requires_grad_(true)
    local target = torch.tensor({ { 1, 1 }, { 1, 2 } })
    F.ctc_loss(x, target, { 2, 2 }, { 2, 2 }, { reduction = "none" }):sum():backward()
    local g = x.grad
    assert.is_true(g:select(1, 0):isnan():all():item())
    assert.is_true(g:select(1, 1):isfinite():all():item())
  end)

  it("needs a blank between equal labels", function()
    local target = torch.tensor({ { 1, 1 } })
    helper.near(F.ctc_loss(logits(3), target, { 3 }, { 2 }, { reduction = "sum" }),
      -math.log(0.5 * 0.6 * 0.1))
    helper.near(F.ctc_loss(logits(2), target, { 2 }, { 2 }), math.huge)
    helper.near(F.ctc_loss(logits(2), target, { 2 }, { 2 }, { zero_infinity = true }), 0)
  end)

  it("gives logits the gradient of finite differences", function()
    local x = torch.tensor({ { { 0.3, -0.2, 0.5 } }, { { 0.1, 0.4, -0.6 } } },
      { dtype = torch.float64 })
    differences.check(function(v)
      return F.ctc_loss(v:log_softmax(2), torch.tensor({ { 2 } }), { 2 }, { 1 })
    end, { x }, true, 1e-8)
  end)

  it("names lengths that do not fit", function()
    local function refuses(pattern, ...)
      local args = { ... }
      helper.raises("RuntimeError", pattern, function()
        F.ctc_loss(table.unpack(args))
      end)
    end
    refuses("input_lengths must be from 0 to 2, got 3", logits(2), torch.tensor({ { 1 } }), { 3 },
      { 1 })
    refuses("target_lengths must be from 0 to 1, .* got 2", logits(2), torch.tensor({ { 1 } }),
      { 2 }, { 2 })
    refuses("has 2 labels, the sum of target_lengths is 1", logits(2), torch.tensor({ 1, 2 }),
      { 2 }, { 1 })
    refuses("has 2 labels, the sum", logits(2)[":, 0"], torch.tensor({ 1, -1 }), { 2 }, { 1 })
  end)
end)

-- The values are PyTorch 2.15's.
describe("ctc_loss of a batch", function()
  local function batch()
    return torch.tensor({ { { 0.1, 0.2, 0.3 }, { 0.5, 0.1, -0.2 } },
      { { 0.4, -0.2, 0.1 }, { 0.3, 0.3, 0.1 } }, { { -0.1, 0.6, 0.2 }, { 0, 0.2, 0.4 } } })
      :log_softmax(2):requires_grad_()
  end
  local close = { 1e-6, 1e-6 }

  it("does not look at labels behind a row's length", function()
    for _, pad in ipairs({ -1, 99 }) do
      local x = batch()
      local loss = F.ctc_loss(x, torch.tensor({ { 1, 2 }, { 2, pad } }), { 3, 2 }, { 2, 1 },
        { reduction = "none" })
      helper.near(loss, { 1.899152398109436, 1.2661668062210083 }, close)
      loss:sum():backward()
      helper.near(x.grad[0], { { 0.1517096757888794, -0.5188748836517334, 0.3671653866767883 },
        { -0.013997286558151245, 0.3093444108963013, -0.2953472137451172 } }, close)
    end
    helper.near(F.ctc_loss(batch(), torch.tensor({ { 1, -1, -1 }, { 2, 1, -1 } }), { 3, 2 },
      { 1, 2 }), 1.435614824295044, close)
  end)

  it("takes no labels and no steps", function()
    local nothing = torch.zeros({ 2, 0 }, { dtype = torch.int64 })
    helper.near(F.ctc_loss(batch(), nothing, { 3, 3 }, { 0, 0 }, { reduction = "none" }),
      { 3.5036330223083496, 3.121488094329834 }, close)
    helper.near(F.ctc_loss(batch(), torch.tensor({ { 1, 1 }, { 1, 1 } }), { 3, 0 }, { 2, 0 },
      { reduction = "none" }), { 2.7036333084106445, 0 }, close)
  end)

  it("compiles targets in one row, if they and their lengths are constants", function()
    torch.manual_seed(4)
    local logp = torch.randn({ 6, 2, 5 }):log_softmax(2)
    local targets, lengths = torch.tensor({ 1, 2, 3, 4, 1 }), torch.tensor({ 2, 3 })
    local function loss(p)
      return F.ctc_loss(p, targets, torch.tensor({ 6, 5 }), lengths)
    end
    local rows = torch.tensor({ { 1, 2, 0 }, { 3, 4, 1 } })
    local want = F.ctc_loss(logp, rows, torch.tensor({ 6, 5 }), lengths):item()
    assert.near(want, lupine_compile(loss, { logp })(logp):item(), 1e-5)
  end)
end)

describe("ctc_loss of many steps", function()
  local function of(dtype)
    torch.manual_seed(6)
    local x = (torch.randn({ 600, 2, 9 }, { dtype = torch.float64 }) * 3):to(dtype)
      :requires_grad_()
    local targets = torch.randint(1, 9, { 2, 70 })
    local loss = F.ctc_loss(x:log_softmax(2), targets, { 600, 450 }, { 70, 31 },
      { reduction = "none" })
    loss:sum():backward()
    return loss, x.grad
  end

  it("is as exact in float32 as of a few", function()
    local loss, grad = of(torch.float32)
    local want, want_grad = of(torch.float64)
    assert.is_true(want:min():item() > 300)
    helper.near(loss:double() / want, { 1, 1 }, { 0, 1e-6 })
    assert.is_true((grad:double() - want_grad):abs():max():item() < 5e-5)
  end)

  it("counts no step behind a sample's own", function()
    local _, grad = of(torch.float64)
    assert.equal(0, grad["450:, 1"]:abs():sum():item())
    assert.is_true(grad["449, 1"]:abs():sum():item() > 1e-3)
  end)
end)

describe("ctc_loss where no alignment fits", function()
  it("has a gradient of NaN, or of 0 with zero_infinity", function()
    for _, zero in ipairs({ false, true }) do
      local x = torch.zeros(3, 2, 3):requires_grad_()
      F.ctc_loss(x, torch.tensor({ { 1, 1 }, { 1, 2 } }), { 2, 2 }, { 2, 2 },
        { reduction = "sum", zero_infinity = zero }):backward()
      local of_first = x.grad[":2, 0"]
      assert.is_true(zero and of_first:eq(0):all():item() or of_first:isnan():all():item())
      assert.equal(0, x.grad["2"]:abs():sum():item())
      assert.is_true(x.grad[":2, 1"]:abs():sum():item() > 0.1)
    end
  end)
end)

describe("a label", function()
  it("beyond the classes is named with what is allowed", function()
    local logp = torch.randn(5, 1, 3):log_softmax(2)
    raises("RuntimeError", "ctc_loss: targets: label 1 of sample 0 is 3, allowed are 0 to 2",
      function() F.ctc_loss(logp, torch.tensor({ { 1, 3 } }), { 5 }, { 2 }) end)
  end)
end)
