-- Tensors without elements: what an operator makes of them, and where it
-- refuses them. The results and error classes are PyTorch 2.15's.
local helper = require("spec.helper")
local lupine = require("lupine")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local F = torch.nn.functional
local nan, inf = 0 / 0, math.huge

local function zeros(...)
  return torch.zeros({ ... })
end

local function shape(want, result)
  assert.same(want, { table.unpack(result.shape) })
end

describe("layers of places", function()
  it("take an empty batch", function()
    shape({ 0, 3, 7 }, F.conv_transpose1d(zeros(0, 4, 5), zeros(4, 3, 3)))
    shape({ 0, 2, 5, 5 }, F.conv2d(zeros(0, 4, 3, 3), zeros(2, 4, 1, 1), { padding = 1 }))
    shape({ 0, 1, 6, 3 }, F.avg_pool2d(zeros(0, 1, 6, 3), 1))
    shape({ 0, 4, 12 }, F.unfold(zeros(0, 1, 5, 4), 2))
    shape({ 0, 1, 3, 3 }, F.fold(zeros(0, 4, 4), { 3, 3 }, 2))
    shape({ 0, 3, 5 }, F.pad(zeros(0, 3, 3), { 1, 1 }, "reflect"))
    shape({ 0, 2, 3, 5 }, F.pad(zeros(0, 2, 3, 3), { 1, 1, 0, 0 }, "replicate"))
    shape({ 2, 0, 5 }, F.pad(zeros(2, 0, 3), { 1, 1 }, "circular"))
    shape({ 0, 2, 4 }, F.interpolate(zeros(0, 2, 3), 4))
    shape({ 0, 1, 2, 3, 2 }, F.fractional_max_pool3d(zeros(0, 1, 4, 5, 4), { 2, 2, 1 },
      { output_size = { 2, 3, 2 } }))
    shape({ 1, 2, 0 }, F.adaptive_avg_pool1d(zeros(1, 2, 4), 0))
    shape({ 1, 0, 3 }, F.adaptive_avg_pool1d(zeros(1, 0, 4), 3))
    shape({ 1, 2, 0 }, F.local_response_norm(zeros(1, 2, 0), 2))
    assert.equal(torch.int64, F.local_response_norm(zeros(0, 6, 3):long(), 2).dtype)
  end)

  it("are means of nothing where adaptive pooling leaves one place", function()
    near(F.adaptive_avg_pool1d(zeros(3, 0), 1), { { nan }, { nan }, { nan } })
    near(F.adaptive_avg_pool2d(zeros(1, 2, 0, 4), 1), { { { { nan } }, { { nan } } } })
    near(F.adaptive_avg_pool3d(zeros(1, 4, 4, 0), 1), { { { { nan } } } })
    shape({ 2, 0, 1, 1, 1 }, F.adaptive_avg_pool3d(zeros(2, 0, 4, 4, 4), 1))
    shape({ 2, 0, 2 }, F.adaptive_avg_pool1d(zeros(2, 0, 4), 2))
    shape({ 0, 3, 2 }, F.adaptive_max_pool1d(zeros(0, 3, 4), 2))
  end)

  it("refuse empty places, channels of windows, and an empty weight", function()
    for name, call in pairs({
      conv1d = function() F.conv1d(zeros(1, 4, 0), zeros(4, 4, 1), { padding = 1 }) end,
      conv_transpose1d = function() F.conv_transpose1d(zeros(1, 4, 0), zeros(4, 3, 3)) end,
      conv_transpose2d = function() F.conv_transpose2d(zeros(1, 4, 0, 3), zeros(4, 3, 3, 3)) end,
      avg_pool1d = function() F.avg_pool1d(zeros(1, 0, 3), 1) end,
      avg_pool2d = function() F.avg_pool2d(zeros(1, 2, 6, 0), 2, { padding = 1 }) end,
      avg_pool2d_row = function() F.avg_pool2d(zeros(0, 6, 3), 1) end,
      avg_pool3d = function() F.avg_pool3d(zeros(1, 0, 4, 4, 3), 1) end,
      adaptive = function() F.adaptive_avg_pool1d(zeros(1, 2, 0), 3) end,
      reflect = function() F.pad(zeros(2, 0, 3), { 1, 1 }, "reflect") end,
      replicate = function() F.pad(zeros(0, 3, 3), { 1, 1, 0, 0 }, "replicate") end,
      crop = function() F.pad(zeros(6, 2, 4, 0), { -1, 1, 0, 0 }, "replicate") end,
      unfold = function() F.unfold(zeros(1, 1, 0, 4), 2, { padding = 1 }) end,
      fold = function() F.fold(zeros(1, 0, 4), { 3, 3 }, 2) end,
      interpolate = function() F.interpolate(zeros(1, 2, 0), 4) end,
      interpolate_channels = function() F.interpolate(zeros(1, 0, 3), 4) end,
    }) do
      raises("RuntimeError", "empty", call, name)
    end
    for name, sizes in pairs({
      adaptive_max_pool1d = { 2, 0, 4 }, adaptive_max_pool2d = { 2, 0, 4, 4 },
      adaptive_max_pool3d = { 3, 4, 4, 0 }, adaptive_avg_pool1d = { 3, 0 },
      adaptive_avg_pool2d = { 3, 0, 4 }, adaptive_avg_pool3d = { 2, 0, 4, 4, 4 },
    }) do
      raises("RuntimeError", "empty", function() F[name](torch.zeros(sizes), 2) end)
    end
    raises("RuntimeError", "empty", function() F.adaptive_max_pool1d(zeros(3, 0), 1) end)
    raises("RuntimeError", "expected weight to be at least 1 at dimension 0", function()
      F.conv2d(zeros(2, 4, 3, 3), zeros(0, 4, 1, 1))
    end)
  end)
end)

describe("a loss of nothing", function()
  it("has no mean", function()
    for _, r in ipairs({
      F.cross_entropy(zeros(2, 0), zeros(2, 0)),
      F.cross_entropy(zeros(2, 0, 3), zeros(2, 0, 3)),
      F.cross_entropy(zeros(0, 3), zeros(0):long()),
      F.cross_entropy(zeros(0, 3), zeros(0, 3), { label_smoothing = 0.1 }),
      F.kl_div(zeros(0, 3), zeros(0, 3), { reduction = "batchmean" }),
      F.mse_loss(zeros(0, 3), zeros(0, 3)),
    }) do
      near(r, nan)
    end
    near(F.cross_entropy(zeros(2, 0), zeros(2, 0), { reduction = "none" }), { 0, 0 })
    near(F.cross_entropy(zeros(0, 3), zeros(0, 3), { reduction = "sum" }), 0)
  end)

  it("by margins needs a class", function()
    for _, call in ipairs({
      function() F.multilabel_margin_loss(zeros(10, 0), zeros(10, 0):long()) end,
      function() F.multilabel_margin_loss(zeros(0), zeros(0):long()) end,
      function() F.multi_margin_loss(zeros(2, 0), zeros(2):long()) end,
    }) do
      raises("RuntimeError", "one class or more", call)
    end
  end)
end)

describe("statistics", function()
  it("of nothing are NaN, and of as many as the correction", function()
    near(torch.std(zeros(0), { correction = -5 }), nan)
    near(torch.var(zeros(0, 3), 0), { nan, nan, nan })
    near(torch.std(torch.tensor({ 1.0, 2, 4 }), { correction = 4 }), inf)
    local function slope(n, correction)
      local x = torch.zeros({ n }, { requires_grad = true })
      torch.std(x, { correction = correction }):backward()
      return x.grad
    end
    near(slope(1, 1), { nan })
    near(slope(3, 4), { nan, nan, nan })
    near(slope(1, 0), { 0 })
    near(slope(3, 1), { 0, 0, 0 })
  end)

  it("over an expanded dimension has a gradient of nothing", function()
    local x = zeros(3, 0, 2):requires_grad_(true)
    local s, m = torch.std_mean(x, 0)
    torch.autograd.backward({ s, m }, { zeros(0, 2), zeros(0, 2) })
    shape({ 3, 0, 2 }, x.grad)
    shape({ 4, 0 }, zeros(1, 0):expand(4, 0):add_(1))
  end)

  it("median of nothing has a gradient of nothing", function()
    for _, name in ipairs({ "median", "nanmedian" }) do
      local x = torch.zeros({ 0, 2 }, { requires_grad = true })
      local m = torch[name](x)
      near(m, nan)
      m:backward()
      shape({ 0, 2 }, x.grad)
    end
  end)
end)

describe("a norm of nothing", function()
  it("is 0 unless it is an extreme", function()
    near(torch.norm(zeros(0), 2), 0)
    near(torch.linalg.norm(zeros(0), 0.5), 0)
    near(torch.linalg.norm(zeros(0, 3), inf), 0) -- of a matrix
    near(torch.cdist(zeros(2, 0), zeros(1, 0), inf), { { 0 }, { 0 } })
    shape({ 0 }, torch.norm(zeros(0, 3), -3, 1))
    for _, p in ipairs({ inf, -inf, -1 }) do
      raises("RuntimeError", "has size 0", function() torch.norm(zeros(0), p) end)
      raises("RuntimeError", "has size 0", function() torch.norm(zeros(0, 3), p, 0) end)
      raises("RuntimeError", "has size 0", function() torch.dist(zeros(0), zeros(0), p) end)
    end
  end)
end)

describe("an extreme of nothing", function()
  it("is an IndexError of a dimension, a RuntimeError of all elements", function()
    for _, name in ipairs({ "amax", "amin", "aminmax", "max", "min" }) do
      raises("RuntimeError", "has size 0", function() torch[name](zeros(0, 2)) end)
      raises("IndexError", "has size 0", function() torch[name](zeros(0, 2), { dim = 0 }) end)
    end
    shape({ 0 }, torch.amax(zeros(0, 2), 1))
  end)
end)

describe("diff", function()
  it("takes what stands before and after in the shape of the input", function()
    shape({ 1, 3 }, torch.diff(zeros(0, 3), { dim = 0, prepend = zeros(2, 3) }))
    shape({ 2, 3 }, torch.diff(zeros(2, 3), { append = zeros(2, 2), n = 2 }))
    for _, side in ipairs({ zeros(1, 1), zeros(3, 1), zeros(2), zeros(2, 2, 1) }) do
      raises("RuntimeError", "must have input's shape", function()
        torch.diff(zeros(2, 3), { prepend = side })
      end)
      raises("RuntimeError", "must have input's shape", function()
        torch.diff(zeros(0, 3), { append = side })
      end)
    end
  end)
end)

describe("transposing a tensor without dimensions", function()
  it("leaves it as it is", function()
    local x = torch.tensor(2.5)
    for _, name in ipairs({ "T", "mT", "H", "mH" }) do
      near(x[name], 2.5)
    end
    raises("RuntimeError", "two dimensions or none", function() return zeros(3).mT end)
  end)
end)

describe("a tensor without dimensions", function()
  local x = torch.tensor(2.5)
  it("has no dimension to name, no channels, no list", function()
    raises("IndexError", "no dimensions", function() torch.unique(x, { dim = 0 }) end)
    raises("IndexError", "no dimensions", function() torch.unique_consecutive(x, { dim = 0 }) end)
    raises("IndexError", "no dimensions", function()
      torch.take_along_dim(x, torch.tensor(0), 0)
    end)
    raises("IndexError", "at least a 1%-dimensional", function() torch.unbind(x) end)
    raises("RuntimeError", "more than 2 dimensions, got 0", function()
      F.channel_shuffle(x, 2)
    end)
    raises("RuntimeError", "boundaries", function() torch.searchsorted(x, 1.0) end)
    raises("RuntimeError", "boundaries", function() torch.searchsorted(zeros(2, 3), 1.0) end)
    near(torch.unique(x), { 2.5 })
    near(torch.linalg.vander(x, { N = 3 }), { { 1, 2.5, 6.25 } })
  end)
end)

describe("an empty list of tensors", function()
  it("is a ValueError of cat, a RuntimeError of the others", function()
    raises("ValueError", "non%-empty", function() torch.cat({}) end)
    for _, name in ipairs({ "stack", "hstack", "vstack", "dstack", "column_stack" }) do
      raises("RuntimeError", name .. ".*non%-empty", function() torch[name]({}) end)
    end
  end)
end)

describe("what must fit the input", function()
  it("is a loss's weight and target", function()
    local x, w = zeros(3), torch.ones({ 2, 3 })
    for _, k in ipairs({ { weight = w }, { pos_weight = w } }) do
      raises("RuntimeError", "does not broadcast to the input's", function()
        F.binary_cross_entropy_with_logits(x, x, k)
      end)
    end
    raises("RuntimeError", "does not broadcast to the input's", function()
      F.binary_cross_entropy(x + 0.5, x, { weight = w })
    end)
    raises("ValueError", "nll_loss", function() F.nll_loss(zeros(2, 3), zeros(3):long()) end)
    raises("RuntimeError", "nll_loss", function() F.nll_loss(zeros(2, 3), zeros(2, 3):long()) end)
    local none = { reduction = "none" }
    shape({ 1 }, F.multi_margin_loss(zeros(3), torch.tensor({ 1 }), none))
    shape({}, F.multi_margin_loss(zeros(3), torch.tensor(1), none))
  end)
  it("is a norm's weight, a list of sizes, an index of padding", function()
    for _, w in ipairs({ zeros(1), torch.tensor(1.0), zeros(3) }) do
      raises("RuntimeError", "rms_norm: weight has the shape", function()
        F.rms_norm(zeros(2, 3), { 2, 3 }, w)
      end)
    end
    shape({ 1, 2, 0 }, F.instance_norm(zeros(1, 2, 0)))
    raises("ValueError", "size has 2 numbers", function()
      F.interpolate(zeros(1, 2, 3), { 2, 2 })
    end)
    raises("ValueError", "scale_factor has 2 numbers", function()
      F.interpolate(zeros(1, 2, 3), { scale_factor = { 2, 2 } })
    end)
    for _, n in ipairs({ 0, 3 }) do
      raises("RuntimeError", "padding_idx must be from", function()
        F.embedding_bag(zeros(1):long(), zeros(n, 2), zeros(1):long(), { padding_idx = n })
      end)
    end
    raises("RuntimeError", "groups must be positive", function()
      F.channel_shuffle(zeros(2, 4, 1), 0)
    end)
  end)
end)

describe("the gradient of threshold", function()
  it("passes where a NaN is not at or below it", function()
    local x = torch.tensor({ nan, 1, 0.5, 0 }, { requires_grad = true })
    F.threshold(x, 0.5, -9):sum():backward()
    near(x.grad, { 1, 1, 0, 0 })
  end)
end)

describe("an index without elements", function()
  local none = torch.ones(0):long()

  it("gathers nothing and writes nothing, eager and compiled", function()
    local w = torch.ones({ 4, 3 }, { requires_grad = true })
    local rows = w:index_select(0, none)
    shape({ 0, 3 }, rows)
    rows:sum():backward()
    near(w.grad, { { 0.0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } })
    shape({ 0, 3 }, F.embedding(none, torch.ones(4, 3)))
    near(torch.ones(2, 1):index_add(0, none, zeros(0, 1)), { { 1.0 }, { 1 } })
    local run = lupine.compile(function(a, i)
      return a:index_select(0, i)
    end, { torch.ones(4, 3), none })
    shape({ 0, 3 }, run(torch.ones(4, 3), none))
  end)

  it("may be the first that a process reads, when no operator has had scratch yet", function()
    local out, err, code = program.run({ "-l", "torch", "-e",
      "print(#torch.ones(4, 3):index_select(0, torch.zeros(0):long()))" })
    assert.same({ "0\n", "", 0 }, { out, err, code })
  end)
end)

describe("a parameter without elements", function()
  it("is trained, and read back from the device", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.none, self.some = nn.Parameter(torch.ones(0)), nn.Parameter(torch.ones(2))
      self:register_buffer("seen", torch.ones(0, 2))
    end
    function Net:forward(x)
      self.seen:add_(1)
      return poptorch.identity_loss((self.none * 2):sum() + (self.some * x):sum(), "sum")
    end
    local net = Net()
    local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.5, momentum = 0.9 })
    local model = poptorch.trainingModel(net, poptorch.Options(), optimizer)
    near(model(torch.ones(2)), 2.0)
    model:copyWeightsToHost()
    model:destroy()
    shape({ 0 }, net.none)
    shape({ 0, 2 }, net.seen)
    near(net.some:detach(), { 0.5, 0.5 })
  end)
end)
