-- Convolutions, pools, normalisations, dropout, embeddings, padding: printing
-- as in PyTorch 2, running statistics, values that follow from the definition.
local helper = require("spec.helper")
local torch = require("torch")

local nn, F = torch.nn, torch.nn.functional

describe("layers", function()
  it("print as in PyTorch", function()
    local shown = {
      { nn.Conv2d(3, 4, 3, { padding = 1, stride = { 1, 2 }, bias = false }),
        "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 2), padding=(1, 1), bias=False)" },
      { nn.Conv1d(2, 4, 3, { groups = 2, dilation = 2, padding = "same",
        padding_mode = "reflect" }),
        "Conv1d(2, 4, kernel_size=(3,), stride=(1,), padding=same, dilation=(2,), groups=2, "
        .. "padding_mode=reflect)" },
      { nn.ConvTranspose2d(2, 4, 3, { output_padding = 1, stride = 2 }),
        "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1))" },
      { nn.MaxPool2d(2),
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)" },
      { nn.AvgPool1d(2), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))" },
      { nn.BatchNorm2d(3),
        "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, "
          .. "track_running_stats=True)" },
      { nn.InstanceNorm1d(3, { affine = true, bias = false }),
        "InstanceNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=False, "
          .. "track_running_stats=False)" },
      { nn.RNNCell(3, 4, { nonlinearity = "relu" }), "RNNCell(3, 4, nonlinearity=relu)" },
      { nn.LayerNorm({ 2, 3 }), "LayerNorm((2, 3), eps=1e-05, elementwise_affine=True, "
        .. "bias=True)" },
      { nn.LayerNorm(3, { bias = false }), "LayerNorm((3,), eps=1e-05, elementwise_affine=True, "
        .. "bias=False)" },
      { nn.GroupNorm(2, 4), "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)" },
      { nn.Dropout(), "Dropout(p=0.5, inplace=False)" },
      { nn.Embedding(3, 4, { padding_idx = 0, max_norm = 1.0 }),
        "Embedding(3, 4, padding_idx=0, max_norm=1.0)" },
      { nn.ZeroPad2d(1), "ZeroPad2d((1, 1, 1, 1))" },
      { nn.ConstantPad1d(1, 2.0), "ConstantPad1d(padding=(1, 1), value=2.0)" },
      { nn.Upsample({ scale_factor = 2 }), "Upsample(scale_factor=2.0, mode='nearest')" },
      { nn.MaxUnpool2d(2), "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))" },
    }
    for _, pair in ipairs(shown) do
      assert.equal(pair[2], tostring(pair[1]))
    end
  end)

  it("refuse settings that cannot be", function()
    helper.raises("ValueError", "divisible by groups", function()
      nn.Conv2d(3, 4, 1, { groups = 2 })
    end)
    helper.raises("ValueError", "not supported for strided", function()
      nn.Conv1d(1, 1, 3, { padding = "same", stride = 2 })
    end)
    helper.raises("ValueError", "between 0 and 1", function()
      nn.Dropout(1.5)
    end)
    helper.raises("ValueError", "expected 4D input", function()
      nn.BatchNorm2d(3)(torch.ones({ 2, 3 }))
    end)
  end)

  it("pad at the borders as named", function()
    local x = torch.tensor({ { { 1.0, 2, 3 } } })
    helper.near(nn.ReflectionPad1d(2)(x), { { { 3, 2, 1, 2, 3, 2, 1 } } })
    helper.near(nn.CircularPad1d(1)(x), { { { 3, 1, 2, 3, 1 } } })
    helper.near(nn.ReplicationPad1d({ 1, 0 })(x), { { { 1, 1, 2, 3 } } })
    local conv = nn.Conv1d(1, 1, 3, { padding = 1, padding_mode = "circular", bias = false })
    nn.init.ones_(conv.weight)
    helper.near(conv(x), { { { 6, 6, 6 } } })
  end)

  it("undo a pool of volumes with strides that move", function()
    local at = torch.zeros(1, 1, 1, 1, 1, { dtype = torch.int64 })
    helper.raises("RuntimeError", "strides should be greater than zero.*%[1, 0, 1%]", function()
      nn.functional.max_unpool3d(torch.ones(1, 1, 1, 1, 1), at, 2, { 1, 0, 1 })
    end)
  end)

  it("undo a pool with its indices", function()
    local pool = nn.MaxPool1d(2, { return_indices = true })
    local y, at = pool(torch.tensor({ { { 1.0, 4, 3, 2 } } }))
    helper.near(nn.MaxUnpool1d(2)(y, at), { { { 0, 4, 3, 0 } } })
  end)
end)

describe("InstanceNorm", function()
  it("moves its running statistics and counts no batches, as in PyTorch", function()
    local m = nn.InstanceNorm1d(2, { track_running_stats = true })
    m(torch.arange(12):float():reshape(2, 2, 3))
    helper.near(m.running_mean, { 0.4, 0.7 })
    helper.near(m.running_var, { 1, 1 })
    assert.equal(0, m.num_batches_tracked:item())
  end)
end)

describe("BatchNorm", function()
  local x = torch.tensor({ { 1.0, 10 }, { 3, 30 } })

  it("moves its running statistics by momentum and counts batches", function()
    local m = nn.BatchNorm1d(2, { momentum = 0.5 })
    helper.near(m(x), { { -1, -1 }, { 1, 1 } }, { 1e-4, 0 })
    helper.near(m.running_mean, { 1, 10 })
    helper.near(m.running_var, { 0.5 + 0.5 * 2, 0.5 + 0.5 * 200 })
    assert.equal(1, m.num_batches_tracked:item())
    m:eval()
    helper.near(m(x)[0], { 0, 0 })
    assert.equal(1, m.num_batches_tracked:item())
  end)

  it("averages over all batches without a momentum", function()
    local m = nn.BatchNorm1d(2, { momentum = torch.none, affine = false })
    m(x)
    m(x * 3)
    helper.near(m.running_mean, { 4, 40 })
    helper.near(m.running_var, { (2 + 18) / 2, (200 + 1800) / 2 })
  end)

  it("needs more than one value per channel in training", function()
    helper.raises("ValueError", "more than 1 value per channel", function()
      nn.BatchNorm1d(2)(torch.ones({ 1, 2 }))
    end)
  end)
end)

describe("Embedding", function()
  it("starts normal, with zeros for the padding row, which gets no gradient", function()
    torch.manual_seed(3)
    local m = nn.Embedding(1000, 20, { padding_idx = 1 })
    helper.near(m.weight[1], torch.zeros({ 20 }))
    assert.is_true(math.abs(m.weight:std():item() - 1) < 0.02)
    m(torch.tensor({ 1, 2 })):sum():backward()
    helper.near(m.weight.grad[1]:sum(), 0)
    helper.near(m.weight.grad[2]:sum(), 20)
  end)

  it("takes given rows", function()
    local m = nn.Embedding.from_pretrained(torch.tensor({ { 1.0, 2 }, { 3, 4 } }))
    helper.near(m(torch.tensor({ 1 })), { { 3, 4 } })
    assert.is_false(m.weight.requires_grad)
    helper.near(nn.EmbeddingBag.from_pretrained(m.weight, { mode = "sum" })(
      torch.tensor({ 0, 1, 1 }), torch.tensor({ 0, 2 })), { { 4, 6 }, { 3, 4 } })
  end)
end)

describe("torch.nn.functional", function()
  it("differentiates activations that write over their argument", function()
    local x = torch.tensor({ -1.0, 2 }, { requires_grad = true })
    F.silu(x * 1, { inplace = true }):sum():backward()
    local function slope(v)
      local s = 1 / (1 + math.exp(-v))
      return s + v * s * (1 - s)
    end
    helper.near(x.grad, { slope(-1), slope(2) })
  end)

  it("interpolates as PyTorch", function()
    local x = torch.tensor({ { { 1.0, 3 } } })
    helper.near(F.interpolate(x, { scale_factor = 2 }), { { { 1, 1, 3, 3 } } })
    helper.near(F.interpolate(x, { size = 4, mode = "linear" }), { { { 1, 1.5, 2.5, 3 } } })
    helper.near(F.interpolate(x, { size = 3, mode = "linear", align_corners = true }),
      { { { 1, 2, 3 } } })
  end)

  it("folds what it unfolded, counting overlaps", function()
    local x = torch.arange(9):float():reshape({ 1, 1, 3, 3 })
    local y = F.unfold(x, 2)
    assert.same({ 1, 4, 4 }, { table.unpack(y.shape) })
    helper.near(F.fold(torch.ones_like(y), 3, 2), { { { { 1, 2, 1 }, { 2, 4, 2 }, { 1, 2, 1 } } } })
  end)
end)

describe("torch.nn.init", function()
  it("draws with the bounds that the fans give", function()
    torch.manual_seed(1)
    local w = torch.empty({ 300, 200 })
    local bound = math.sqrt(6 / 500)
    nn.init.xavier_uniform_(w)
    assert.is_true(w:abs():max():item() <= bound and w:abs():max():item() > 0.99 * bound)
    nn.init.kaiming_normal_(w, { mode = "fan_out", nonlinearity = "relu" })
    assert.is_true(math.abs(w:std():item() - math.sqrt(2 / 300)) < 0.001)
    nn.init.trunc_normal_(w, { a = -0.5, b = 0.5 })
    assert.is_true(w:abs():max():item() <= 0.5)
    nn.init.sparse_(w, 0.1)
    helper.near(w:eq(0):sum(0), torch.full({ 200 }, 30))
  end)

  it("makes rows or columns orthogonal", function()
    local w = nn.init.orthogonal_(torch.empty({ 3, 8 }), 2)
    helper.near(w:matmul(w:t()), torch.eye(3) * 4)
    w = nn.init.orthogonal_(torch.empty({ 8, 3 }))
    helper.near(w:t():matmul(w), torch.eye(3))
  end)

  it("makes identities", function()
    helper.near(nn.init.eye_(torch.empty({ 2, 3 })), { { 1, 0, 0 }, { 0, 1, 0 } })
    local w = nn.init.dirac_(torch.empty({ 2, 2, 3 }))
    local x = torch.tensor({ { { 1.0, 2, 3 }, { 4, 5, 6 } } })
    helper.near(F.conv1d(x, w, { padding = 1 }), x)
  end)
end)

describe("torch.nn.utils", function()
  it("clips gradients by their common norm and by value", function()
    local p, q = nn.Parameter(torch.zeros({ 1 })), nn.Parameter(torch.zeros({ 1 }))
    p.grad, q.grad = torch.tensor({ 3.0 }), torch.tensor({ 4.0 })
    helper.near(nn.utils.clip_grad_norm_({ p, q }, 1), 5)
    helper.near(p.grad, { 0.6 }, { 1e-5, 0 })
    nn.utils.clip_grad_value_({ p, q }, 0.7)
    helper.near(q.grad, { 0.7 })
    helper.near(nn.utils.parameters_to_vector({ p, q }), { 0, 0 })
  end)
end)
