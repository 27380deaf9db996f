-- PopTorch's tests of convolutions and running sums (tests/convs_test.py); its
-- skipped paddings ("reflect", "replicate", "circular") among them.
local device = require("spec.support.on_device")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local LOOSE = { rtol = 1e-3, atol = 1e-4 }

-- A linear layer of the input's size, then op; the loss is the mean of the
-- result's absolute values. Trained for five steps here and there, or run once.
local function check(op, input, training)
  local n = input:numel()
  local net = device.module(function(self, x)
    local y = self.op(self.lin(x:flatten()):reshape(input.shape))
    return y, self.loss(y, torch.zeros_like(y))
  end, function(self)
    self.lin, self.op, self.loss = nn.Linear(n, n), op, nn.L1Loss()
  end)
  if not training then
    device.close(poptorch.inferenceModel(net)(input), (net(input)):detach(), LOOSE)
    return
  end
  local native, x = net:deepcopy(), torch.ones_like(input)
  local optimizer = torch.optim.SGD(native:parameters(), 0.01)
  local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), 0.01))
  local got, want, loss
  for _ = 1, 5 do
    got = model(x)
    optimizer:zero_grad()
    want, loss = native(x)
    loss:backward()
    optimizer:step()
  end
  device.close(got, want:detach(), LOOSE)
  model:copyWeightsToHost()
  local weights = {}
  for name, p in native:named_parameters() do
    weights[name] = p:detach()
  end
  for name, p in net:named_parameters() do
    device.close(p:detach(), weights[name], LOOSE)
  end
end

local MODES = { "zeros", "reflect", "replicate", "circular" }

-- Layers made by f(Layer, mode), convolutions with every padding.
local function every(dims, input, f)
  for _, training in ipairs({ false, true }) do
    for _, mode in ipairs(MODES) do
      for _, layer in ipairs(f(nn["Conv" .. dims], mode, false)) do
        check(layer, input, training)
      end
    end
    for _, layer in ipairs(f(nn["ConvTranspose" .. dims], "zeros", true)) do
      check(layer, input, training)
    end
  end
end

local function named(values, mode)
  values.padding_mode = mode
  return values
end

local function sums(op)
  for dim = -3, 2 do
    for _, training in ipairs({ false, true }) do
      check(device.module(function(x)
        return op(x, dim)
      end), torch.randn(1, 5, 6), training)
    end
  end
end

-- f(input, dim, dtype of the result), for every pair of types.
local function types(f)
  for dim = -1, 0 do
    for _, from in ipairs({ torch.float, torch.int }) do
      for _, to in ipairs({ torch.float, torch.int }) do
        device.same(function(x)
          return f(x, dim, to)
        end, { (torch.randn(1, 5, 6) * 3):to(from) })
      end
    end
  end
end

describe("convs", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  it("test_conv1D", function()
    every("1d", torch.randn(1, 4, 10), function(Layer, mode, transposed)
      return { Layer(4, 8, 3, named({ stride = 2 }, mode)),
        -- reflected padding must be smaller than the input
        Layer(4, 8, 3, named({ stride = 2, padding = 4, dilation = transposed and 1 or 3 }, mode)) }
    end)
  end)

  it("test_conv2D", function()
    every("2d", torch.randn(1, 4, 8, 10), function(Layer, mode, transposed)
      local list = { Layer(4, 2, 3, named({ stride = 2 }, mode)),
        Layer(4, 2, { 3, 5 }, named({ stride = 2, groups = 2 }, mode)) }
      if not transposed then
        list[3] = Layer(4, 2, { 3, 5 }, { stride = { 2, 1 }, padding = { 4, 2 } })
        list[4] = Layer(4, 2, { 3, 5 }, named({ stride = { 2, 1 }, padding = { 4, 2 },
          dilation = 3 }, mode))
      end
      return list
    end)
  end)

  it("test_conv3D", function()
    every("3d", torch.randn(1, 4, 3, 5, 8), function(Layer, mode, transposed)
      local list = { Layer(4, 2, 3, named({ stride = 2 }, mode)),
        Layer(4, 2, 3, named({ stride = 2, groups = 2 }, mode)) }
      if transposed then
        list[3] = Layer(4, 2, { 3, 2, 2 }, { stride = { 2, 1, 1 }, groups = 2,
          output_padding = { 1, 0, 0 } })
      elseif mode == "zeros" or mode == "replicate" then -- more than the input has
        list[3] = Layer(4, 2, { 3, 2, 2 }, named({ stride = { 2, 1, 1 }, padding = { 4, 2, 0 } },
          mode))
        list[4] = Layer(4, 2, { 3, 4, 2 }, { stride = { 2, 1, 1 }, padding = { 4, 2, 0 },
          dilation = { 3, 1, 1 } })
      end
      return list
    end)
  end)

  it("test_available_memory", function()
    local x = torch.randn(1, 64, 64, 64)
    local function cycles(proportion)
      local conv = nn.Conv2d(64, 256, 10)
      if proportion then
        conv:register_forward_hook(function(_, _, out)
          return poptorch.set_available_memory(out, proportion)
        end)
      end
      local model = poptorch.inferenceModel(conv)
      model:compile(x)
      for _, node in ipairs(model:report():nodes()) do
        if node.operator == "convolution" then
          return node.cycles
        end
      end
    end
    assert.equal(cycles(nil), cycles(0.6)) -- PopLibs' own proportion
    assert(cycles(0.02) > cycles(nil))
  end)

  it("test_matmul_serialization", function()
    local Mode = poptorch.MatMulSerializationMode
    local factors = { [Mode.Disabled] = 0, [Mode.InputChannels] = 2, [Mode.ReducingDim] = 2,
      [Mode.OutputChannels] = 4 }
    for mode, factor in pairs(factors) do
      local x, y = torch.randn(6, 2), torch.randn(2, 4)
      local got = device.infer(function(a, b)
        return poptorch.serializedMatMul(a, b, mode, factor, { keep_precision = true })
      end)(x, y)
      device.close(got, torch.matmul(x, y))
    end
  end)

  it("test_available_memory_automatic", function()
    local net = nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
      nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(320, 256),
      nn.ReLU(), nn.Linear(256, 10), nn.LogSoftmax(1))
    local x = torch.randn(2, 1, 28, 28)
    local options = poptorch.Options():setAvailableMemoryProportion({ IPU0 = 0.7, IPU1 = 0.2 })
    device.close(poptorch.inferenceModel(net, options)(x), net(x):detach())
  end)

  it("test_cumsum", function()
    sums(torch.cumsum)
  end)

  it("test_cumprod", function()
    sums(torch.cumprod)
  end)

  it("test_cumsum_changing_types", function()
    types(function(x, dim, to)
      return x:cumsum(dim, { dtype = to })
    end)
  end)

  it("test_cumsum_changing_types_out", function()
    types(function(x, dim, to)
      return torch.cumsum(x, dim, { out = torch.empty(x.shape):to(to) })
    end)
  end)

  it("test_cumsum_can_pass_on", function()
    types(function(x, dim, to)
      return x:cumsum(dim, { dtype = to })[":, -1"]
    end)
  end)
end)
