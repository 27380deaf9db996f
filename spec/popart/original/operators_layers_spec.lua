-- PopART's own tests of layers (tests/integration/operators_test): convolutions, poolings,
-- normalisations, dropout, recurrent layers, splines. Of the many shapes of the originals
-- one of each kind; spec/lupine/onnx/operators has more.
local graphs = require("spec.lupine.onnx.graphs")
local F = require("torch.nn.functional")
local node = require("spec.lupine.onnx.node")
local spline = require("torch_spline_conv")
local torch = require("torch")
local wave = require("spec.lupine.onnx.recorded").wave

local LOOSE = { 1e-5, 1e-4 }

local function agrees(reference, op, inputs, values, options)
  options = options or {}
  options.tolerance = options.tolerance or LOOSE
  node.agrees(reference, op, inputs, values, options)
end

local function gc(options)
  options = options or {}
  options.domain = "ai.graphcore"
  return options
end

describe("operators_test", function()
  local x, w, b = wave({ 1, 2, 4, 4 }, 1), wave({ 3, 2, 3, 3 }, 2), wave({ 3 }, 3)

  it("test_convolution … test_convolution_7, _default_infer, _default_train", function()
    for _, version in ipairs({ 1, 11 }) do
      agrees(function(v, k)
        return F.conv2d(v, k, nil, 1, 1)
      end, "Conv", { x, w }, { dilations = { 1, 1 }, pads = { 1, 1, 1, 1 }, strides = { 1, 1 } },
        { version = version })
      agrees(F.conv2d, "Conv", { x, w, b }, {}, { version = version })
    end
    agrees(function(v, k)
      return F.conv2d(v, k, nil, 1, 1, 1, 2)
    end, "Conv", { wave({ 1, 4, 4, 4 }, 1), wave({ 4, 2, 3, 3 }, 2) },
      { pads = { 1, 1, 1, 1 }, group = 2 })
  end)

  it("test_convolution_3d, test_convolution_3d_2, test_convolution_with_bias_1d", function()
    agrees(function(v, k)
      return F.conv3d(v, k, nil, 2, 1)
    end, "Conv", { wave({ 1, 2, 4, 4, 3 }, 1), wave({ 3, 2, 3, 3, 3 }, 2) },
      { pads = { 1, 1, 1, 1, 1, 1 }, strides = { 2, 2, 2 } })
    agrees(function(v, k, c)
      return F.conv1d(v, k, c, 1, 2, 2)
    end, "Conv", { wave({ 2, 2, 8 }, 1), wave({ 3, 2, 3 }, 2), b }, { pads = { 2, 2 },
      dilations = { 2 } })
  end)

  it("test_convtranspose, _grad, _1d, _3d, _pytorch, _pytorch_attributes", function()
    for dims = 1, 3 do
      local f = F[("conv_transpose%dd"):format(dims)]
      local size, kernel, two, pads, more = { 1, 2 }, { 2, 2 }, {}, {}, {}
      for i = 1, dims do
        size[i + 2], kernel[i + 2], two[i], more[i] = 3, 3, 2, 1
        pads[i], pads[dims + i] = 1, 1
      end
      local function reference(v, k, c)
        return f(v, k, c, 2, 1, 1)
      end
      agrees(reference, "ConvTranspose", { wave(size, 1), wave(kernel, 2), wave({ 2 }, 3) },
        { strides = two, pads = pads, output_padding = more })
    end
  end)

  it("test_convtranspose_auto_pad, test_convtranspose_auto_pad_same_upper", function()
    local t, k = wave({ 1, 1, 3, 3 }, 1), wave({ 1, 2, 4, 4 }, 2)
    local first = { SAME_LOWER = 1, SAME_UPPER = 0 } -- of 8 + … places 6 are wanted: 1 and 1
    for mode in pairs(first) do
      agrees(function(v, q)
        return F.conv_transpose2d(v, q, nil, 2)[":, :, 1:7, 1:7"]
      end, "ConvTranspose", { t, k }, { strides = { 2, 2 }, auto_pad = mode })
    end
    local odd = wave({ 1, 2, 3, 3 }, 2)
    for mode, from in pairs({ SAME_LOWER = "1:7", SAME_UPPER = "0:6" }) do
      agrees(function(v, q)
        return F.conv_transpose2d(v, q, nil, 2)[(":, :, %s, %s"):format(from, from)]
      end, "ConvTranspose", { t, odd }, { strides = { 2, 2 }, auto_pad = mode })
    end
  end)

  it("test_instancenorm_grad, test_instancenorm_grad_5D_input", function()
    for _, size in ipairs({ { 2, 3, 4, 2 }, { 2, 3, 2, 2, 3 } }) do
      agrees(function(v, s, c)
        return F.instance_norm(v, nil, nil, s, c, true, 0.1, 1e-3)
      end, "InstanceNormalization", { wave(size, 1), b, wave({ 3 }, 5) }, { epsilon = 1e-3 })
    end
  end)
end)

describe("pooling_test and auto_pad_test", function()
  local x = wave({ 2, 3, 8, 8 }, 1)

  it("test_average_pool_1 … test_average_pool_4, _with_count_include_pad", function()
    agrees(function(v)
      return F.avg_pool2d(v, 3, 2)
    end, "AveragePool", { x }, { kernel_shape = { 3, 3 }, strides = { 2, 2 } })
    for include = 0, 1 do
      agrees(function(v)
        return F.avg_pool2d(v, 3, 2, 1, false, include == 1)
      end, "AveragePool", { x }, { kernel_shape = { 3, 3 }, strides = { 2, 2 },
        pads = { 1, 1, 1, 1 }, count_include_pad = include })
    end
  end)

  it("test_average_pool_fp16", function()
    agrees(function(v)
      return F.avg_pool2d(v, 3, 2)
    end, "AveragePool", { x:half() }, { kernel_shape = { 3, 3 }, strides = { 2, 2 } },
      { tolerance = { 1e-2, 1e-2 } })
  end)

  it("test_maxpool_1 … test_maxpool_5, _grad, 10_dilations, 10_ceil_mode, 10_ceil_mode_grad",
    function()
      agrees(function(v)
        return F.max_pool2d(v, 2, 2, 1)
      end, "MaxPool", { x }, { kernel_shape = { 2, 2 }, strides = { 2, 2 }, pads = { 1, 1, 1, 1 } })
      agrees(function(v)
        return F.max_pool2d(v, 3, 2, 1, 2)
      end, "MaxPool", { x }, { kernel_shape = { 3, 3 }, strides = { 2, 2 }, pads = { 1, 1, 1, 1 },
        dilations = { 2, 2 } })
      agrees(function(v)
        return F.max_pool2d(v, 3, 2, 0, 1, true)
      end, "MaxPool", { x }, { kernel_shape = { 3, 3 }, strides = { 2, 2 }, ceil_mode = 1 })
    end)

  it("test_average_pool_1_auto_pad …, test_max_pool_1_auto_pad …", function()
    for mode, pads in pairs({ SAME_UPPER = { 0, 1, 0, 1 }, SAME_LOWER = { 1, 0, 1, 0 } }) do
      agrees(function(v)
        return F.max_pool2d(F.pad(v, pads, "constant", -math.huge), 3, 2)
      end, "MaxPool", { x }, { kernel_shape = { 3, 3 }, strides = { 2, 2 }, auto_pad = mode })
      agrees(function(v)
        return F.avg_pool2d(F.pad(v, pads), 3, 2) * 9
          / (F.avg_pool2d(F.pad(torch.ones_like(v), pads), 3, 2) * 9)
      end, "AveragePool", { x }, { kernel_shape = { 3, 3 }, strides = { 2, 2 }, auto_pad = mode })
    end
  end)

  it("test_globalmaxpool_2d, _grad_2d, _3d, test_globalaveragepool_2d, _grad_2d", function()
    for _, size in ipairs({ { 2, 3, 4, 2 }, { 1, 2, 3, 2, 2 } }) do
      local dims = { table.unpack({ 2, 3, 4 }, 1, #size - 2) }
      agrees(function(v)
        return v:amax(dims, true)
      end, "GlobalMaxPool", { wave(size, 1) })
      agrees(function(v)
        return v:mean(dims, true)
      end, "GlobalAveragePool", { wave(size, 1) })
    end
  end)
end)

describe("batchnorm_test", function()
  local scale, b, mean = wave({ 2 }, 2), wave({ 2 }, 3), torch.tensor({ 5.0, 5.0 })
  local var = torch.tensor({ 7.0, 7.0 })

  -- PyTorch's layer, its momentum counted the other way
  local function trained(sample, keeps, eps)
    return function(v, s, c, m, q)
      local running = { m:detach():clone(), q:detach():clone() }
      local y = F.batch_norm(v, running[1], running[2], s, c, true, 1 - keeps, eps)
      local dims = { 0, table.unpack({ 2, 3, 4 }, 1, v:dim() - 2) }
      local own = v:detach():var(dims, { correction = sample and 1 or 0 })
      return y, running[1], q:detach() * keeps + own * (1 - keeps), v:detach():mean(dims), own
    end
  end

  it("test_batchnorm_train_0_errorcases", function()
    local function refuses(text, ...)
      node.refuses(text, "BatchNormalization", { ... }, {}, { version = 9 })
    end
    local x, one = torch.ones(2, 2, 2, 2), torch.ones(1)
    refuses("expected shape of scale to be torch.Size([2])", x, one, b, mean, var)
    refuses("expected shape of B to be torch.Size([2])", x, scale, one, mean, var)
    refuses("expected shape of mean to be torch.Size([2])", x, scale, b, one, var)
    refuses("expected shape of var to be torch.Size([2])", x, scale, b, mean, one)
    local each = torch.ones(2, 2, 2)
    node.refuses("expected shape of var to be torch.Size([2, 2, 2])", "BatchNormalization",
      { x, each, each, each, torch.ones(2, 2, 4) }, { spatial = 0 }, { version = 7 })
  end)

  it("test_batchnorm_train_0 … test_batchnorm_train_4", function()
    for _, size in ipairs({ { 2, 2, 2, 2 }, { 2, 2, 3 }, { 2, 2, 2, 1, 3 } }) do
      for _, version in ipairs({ 6, 9 }) do
        agrees(trained(false, 0.1, 1e-5), "BatchNormalization", { wave(size, 1), scale, b, mean,
          var }, { epsilon = 1e-5, momentum = 0.1 }, { version = version })
      end
    end
  end)

  it("test_batchnorm_train_nonspatial", function()
    local x, each = wave({ 3, 2, 2 }, 1), { wave({ 2, 2 }, 2), wave({ 2, 2 }, 3), wave({ 2, 2 }, 4),
      wave({ 2, 2 }, 5) }
    agrees(function(v, s, c)
      local m, q = v:mean(0), v:var(0, { correction = 0 })
      return (v - m) / (q + 1e-5):sqrt() * s + c
    end, "BatchNormalization", { x, table.unpack(each) }, { spatial = 0 }, { version = 7,
      outputs = 5 })
  end)

  it("test_batchnorm_test_0 … test_batchnorm_test_3", function()
    agrees(function(v, s, c, m, q)
      return F.batch_norm(v, m, q, s, c, false, 0.1, 1e-3)
    end, "BatchNormalization", { wave({ 2, 2, 2, 2 }, 1), scale, b, mean, var },
      { epsilon = 1e-3 }, { version = 9, tolerance = LOOSE })
  end)

  it("test_batchnorm_train_half_fp32var, test_batchnorm_inference_half_fp32var", function()
    for outputs = 1, 5, 4 do
      local y = node("BatchNormalization", { wave({ 2, 2, 4 }, 1):half(), scale:half(), b:half(),
        mean, var }, {}, { version = 15, outputs = { "y", outputs > 1 and "m" or "",
          outputs > 1 and "v" or "" } })
      assert.equal(torch.float16, y.dtype)
    end
  end)

  it("test_batchnorm_train_fp32var_torch_version: ai.graphcore has a sample's variance", function()
    agrees(trained(true, 0.7, 1e-5), "BatchNormalization", { wave({ 2, 2, 2, 2 }, 1), scale, b,
      mean, var }, { momentum = 0.7 }, gc())
  end)
end)

describe("groupnorm_test", function()
  it("test_groupnorm_0 … test_groupnorm_5", function()
    for _, groups in ipairs({ 1, 2, 4 }) do
      agrees(function(v, s, c)
        local lines = v:detach():reshape(2 * groups, -1)
        return F.group_norm(v, groups, s, c, 1e-3), lines:mean(-1),
          1 / (lines:var(-1, { correction = 0 }) + 1e-3):sqrt()
      end, "GroupNormalization", { wave({ 2, 4, 2, 2 }, 1), wave({ 4 }, 2), wave({ 4 }, 3) },
        { num_groups = groups, epsilon = 1e-3 }, gc())
    end
    node.refuses("4 channels have no 3 groups of one size", "GroupNormalization",
      { torch.ones(1, 4, 2), torch.ones(4), torch.ones(4) }, { num_groups = 3 }, gc())
  end)
end)

describe("lrn_test", function()
  it("test_lrn, test_lrn_training", function()
    agrees(function(v)
      return F.local_response_norm(v, 3, 0.1, 0.6, 1.5)
    end, "LRN", { wave({ 2, 5, 2, 2 }, 1) }, { size = 3, alpha = 0.1, beta = 0.6, bias = 1.5 })
  end)
end)

describe("dropout_test and shapeddropout_test", function()
  it("test_dropout_testing, test_dropout_ratio0_testing, test_shapeddropout_inference", function()
    local x = wave({ 4, 5 }, 1)
    agrees(function(v)
      return v * 1
    end, "Dropout", { x }, { ratio = 0.3 }, { version = 10 })
    assert.same(x:tolist(), node("Dropout", { x }, { ratio = 0.0 }, { version = 10,
      training = true }):tolist())
    agrees(function(v)
      return v * 1
    end, "ShapedDropout", { x }, { shape = { 4, 1 } }, gc())
  end)

  it("test_shapeddropout_scaling, _droprows, _fwd_mask_eq_bwd", function()
    torch.manual_seed(0)
    local x = torch.ones(64, 8):requires_grad_(true)
    local y = node("ShapedDropout", { x }, { shape = { 64, 1 }, ratio = 0.25 },
      gc({ training = true }))
    y:sum():backward()
    assert.same(y:tolist(), x.grad:tolist())
    local rows = y:select(1, 0)
    assert.same(rows:unsqueeze(1):expand(64, 8):tolist(), y:tolist())
    local kept = rows:ne(0)
    assert.is_true(torch.allclose(rows, kept:float() * (1 / 0.75)))
    local count = kept:sum():item()
    assert.is_true(count > 32 and count < 62)
  end)

  it("test_shapeddropout_independent_rng_runs, test_shapeddropout_multiple", function()
    local model = graphs.model("x -> y, z", {
      { "y = gc.ShapedDropout(x)", { shape = { 64, 1 } } },
      { "z = gc.ShapedDropout(x)", { shape = { 64, 1 } } } }):train()
    local x = torch.ones(64, 2)
    local y, z = model(x)
    assert.is_false(torch.equal(y, z))
    assert.is_false(torch.equal(y, (model(x))))
  end)

  it("test_shapeddropout_invalid_ratio, test_shapeddropout_invalid_shape", function()
    local x = torch.ones(4, 5)
    for _, ratio in ipairs({ -0.1, 1.0, 10.0 }) do
      node.refuses("attribute 'ratio'", "ShapedDropout", { x }, { shape = { 4, 1 }, ratio = ratio },
        gc())
    end
    node.refuses("is not broadcastable to the input's", "ShapedDropout", { x },
      { shape = { 3, 1 } }, gc())
  end)
end)

describe("lstm_test", function()
  it("test_lstm_popart, test_lstm_onnx_vs_popart, test_lstm_training_onnx_vs_popart", function()
    local x, w, r = wave({ 3, 2, 4 }, 1), wave({ 1, 12, 4 }, 2), wave({ 1, 12, 3 }, 3)
    local b, h, c = wave({ 1, 24 }, 4), wave({ 1, 2, 3 }, 5), wave({ 1, 2, 3 }, 6)
    -- i o f c in ONNX are f i c o here, weights of input and state on top of each other
    local function gates(t)
      local i, o, f, g = table.unpack(t:chunk(4, 0))
      return torch.stack({ f, i, g, o }, 0)
    end
    local weights = torch.cat({ gates(w[0]):transpose(1, 2), gates(r[0]):transpose(1, 2) }, 1)
    local bias = gates(b[0]:narrow(0, 0, 12)) + gates(b[0]:narrow(0, 12, 12))
    local y, y_h, y_c = node("LSTM", { x, w, r, b, false, h, c }, {}, { outputs = 3 })
    for full = 0, 1 do
      local out, cell = node("LSTM", { x, weights, bias, torch.cat({ h, c }, 0) },
        { outputFullSequence = full }, gc({ outputs = 2 }))
      assert.is_true(torch.allclose(full == 1 and y:squeeze(1) or y_h:squeeze(0), out, 1e-5, 1e-6))
      assert.is_true(torch.allclose(y_c:squeeze(0), cell, 1e-5, 1e-6))
    end
    assert.is_true(torch.autograd.gradcheck(function(...)
      return (node("LSTM", { ... }, {}, gc({ outputs = 2 })))
    end, { x:double():requires_grad_(true), weights:double():requires_grad_(true),
      bias:double():requires_grad_(true) }))
  end)
end)

-- Steps by PyTorch's equations of its layers, gates in the order of ONNX: of the input's
-- and the state's shares of the gates, and the state.
local STEPS = {
  RNN = function(x, h)
    return (x + h):tanh()
  end,
  GRU = function(x, h, state)
    local xz, xr, xn = table.unpack(x:chunk(3, 1))
    local hz, hr, hn = table.unpack(h:chunk(3, 1))
    local z = (xz + hz):sigmoid()
    local new = (xn + (xr + hr):sigmoid() * hn):tanh()
    return new + z * (state - new)
  end,
  LSTM = function(x, h, _, c)
    local i, o, f, g = table.unpack((x + h):chunk(4, 1))
    c = f:sigmoid() * c + i:sigmoid() * g:tanh()
    return o:sigmoid() * c:tanh(), c
  end,
}

local function by_equations(kind)
  return function(x, w, r, b, _, first, cell)
    local bias, ys = b[0]:chunk(2, 0), {}
    local h, c = first[0], cell and cell[0]
    for t = 0, x:size(0) - 1 do
      h, c = STEPS[kind](F.linear(x[t], w[0], bias[1]), F.linear(h, r[0], bias[2]), h, c)
      ys[t + 1] = h
    end
    return torch.stack(ys):unsqueeze(1), h:unsqueeze(0), c and c:unsqueeze(0)
  end
end

describe("lstm_test, gru_test, rnn_test", function()
  it("test_lstm_torch_grad, test_gru_torch_grad_all_inputs, test_rnn_torch_grad_all_inputs",
    function()
      for kind, gates in pairs({ LSTM = 4, GRU = 3, RNN = 1 }) do
        local rows = gates * 3
        local inputs = { wave({ 4, 2, 5 }, 1), wave({ 1, rows, 5 }, 2), wave({ 1, rows, 3 }, 3),
          wave({ 1, 2 * rows }, 4), false, wave({ 1, 2, 3 }, 5) }
        inputs[7] = kind == "LSTM" and wave({ 1, 2, 3 }, 6) or nil
        agrees(by_equations(kind), kind, inputs,
          { linear_before_reset = kind == "GRU" and 1 or nil }, { tolerance = { 1e-5, 1e-4 } })
      end
    end)

  it("test_rnn_nondefault_activation, test_rnn_wrong_hidden_size, _correct_hidden_size, "
    .. "test_rnn_direction_error", function()
    local inputs = { wave({ 2, 1, 2 }, 1), wave({ 1, 3, 2 }, 2), torch.zeros(1, 3, 3) }
    for name, f in pairs({ Relu = F.relu, Sigmoid = torch.sigmoid, Affine = function(v)
      return v
    end }) do
      agrees(function(x, w)
        return f(F.linear(x, w[0])):unsqueeze(1)
      end, "RNN", inputs, { activations = { name }, hidden_size = 3 })
    end
    node.refuses("attribute 'hidden_size' is 4, R has 3", "RNN", inputs, { hidden_size = 4 })
    node.refuses("attribute 'direction'", "RNN", inputs, { direction = "sideways" })
    node.refuses("attribute 'activations': expected 1, got 2", "RNN", inputs,
      { activations = { "Tanh", "Tanh" } })
  end)
end)

describe("multiconv_test", function()
  it("test_multiconv_infer, test_multiconv_infer_default, _train_default_parameters", function()
    local inputs = { wave({ 1, 6, 4 }, 1), wave({ 9, 6, 3 }, 2), false, wave({ 2, 3, 5, 5 }, 3),
      wave({ 4, 3, 2, 2 }, 4), wave({ 4 }, 5) }
    agrees(function(a, v, _, c, w, b)
      return F.conv1d(a, v, nil, 1, 2), F.conv2d(c, w, b, 1, 0, 2)
    end, "MultiConv", inputs, { numConvs = 2, pads = { 2, 2, 0, 0, 0, 0 },
      dilations = { 1, 2, 2 }, strides = { 1, 1, 1 } }, gc())
    agrees(function(a, v, _, c, w, b)
      return F.conv1d(a, v), F.conv2d(c, w, b)
    end, "MultiConv", inputs, { numConvs = 2 }, gc())
  end)

  it("inputs may be stretched and results padded", function()
    agrees(function(a, v)
      local spread = torch.zeros(1, 2, 7)
      spread = spread:index_copy(2, torch.tensor({ 0, 2, 4, 6 }), a)
      return F.pad(F.conv1d(spread, v, nil, 1, 1), { 1, -2 })
    end, "MultiConv", { wave({ 1, 2, 4 }, 1), wave({ 3, 2, 3 }, 2), false }, { numConvs = 1,
      inDilations = { 2 }, pads = { 1, 1 }, outPads = { 1, -2 } }, gc())
  end)
end)

describe("normalize_image_test", function()
  it("test_normalize_image", function()
    for _, dtype in ipairs({ torch.float32, torch.float16, torch.uint8 }) do
      local image = (wave({ 2, 2, 2, 3 }, 1):abs() * 255):to(dtype)
      local out = dtype == torch.uint8 and torch.float16 or dtype
      local offsets, scales = torch.tensor({ 1, 2, 3 }):to(out), torch.tensor({ 4, 5, 6 }):to(out)
      agrees(function(v, o, s)
        local y = (v:float() * (1 / 255) - o:float()) * s:float()
        return F.pad(y, { 0, 1 }):to(out)
      end, "NormalizeImage", { image, offsets, scales }, { scale = 1 / 255 }, gc({ infer = true,
        tolerance = dtype ~= torch.float32 and { 1e-2, 1e-2 } or LOOSE }))
    end
    node.refuses("the inner dimension must be 3", "NormalizeImage",
      { torch.ones(2, 4), torch.ones(4), torch.ones(4) }, {}, gc())
  end)
end)

describe("splinebasis_test, splineweighting_test", function()
  local sizes, open = torch.tensor({ 4, 3 }), torch.tensor({ 1, 0 }):to(torch.uint8)
  local pseudo = wave({ 5, 2 }, 1):abs()

  it("test_basis", function()
    for degree = 1, 3 do
      agrees(function(p, s, o)
        local basis, at = spline.spline_basis(p, s:long(), o, degree)
        return basis, at:int()
      end, "SplineBasis", { pseudo, sizes:int(), open }, { degree = degree }, gc())
    end
    local basis, at = node("SplineBasis", { pseudo, sizes:int(), open }, { degree = 0 },
      gc({ outputs = 2 }))
    assert.same(torch.ones(5, 1):tolist(), basis:tolist())
    local want = (pseudo * sizes):floor():int()
    assert.same((want:select(1, 0) + want:select(1, 1) * 4):tolist(), at:squeeze(1):tolist())
    node.refuses("degree = 4 is not valid", "SplineBasis", { pseudo, sizes:int(), open },
      { degree = 4 }, gc())
  end)

  it("test_basis of weighting", function()
    local basis, at = spline.spline_basis(pseudo, sizes, open, 1)
    agrees(function(x, w, v)
      local out = {}
      for e = 0, 4 do
        local sum = 0
        for s = 0, 3 do
          sum = sum + v[{ e, s }] * x[e]:matmul(w[at[{ e, s }]:item()])
        end
        out[e + 1] = sum
      end
      return torch.stack(out)
    end, "SplineWeighting", { wave({ 5, 2 }, 2), wave({ 12, 2, 3 }, 3), basis:detach(), at:int() },
      {}, gc())
  end)
end)
