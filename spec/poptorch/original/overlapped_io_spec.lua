--- PopTorch's tests of overlapped I/O.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local raises = require("spec.helper").raises
local near = require("spec.helper").near
local models = require("spec.support.models")
local torch = require("torch")

local Mode = poptorch.OverlapMode
local ALONG, FAR = Mode.OverlapAccumulationLoop, Mode.OverlapDeviceIterationLoop
local SIZE = 16

local Model = nn.Module:extend("Model")

function Model:init(products, modes)
  self.products, self.modes = products, modes
  for i = 1, products do
    self:register_parameter("a" .. i, nn.Parameter(torch.randn(1, SIZE, SIZE)))
    self:register_parameter("b" .. i, nn.Parameter(torch.randn(1, SIZE, SIZE)))
  end
  self.loss = nn.CrossEntropyLoss()
end

function Model:forward(a, b, labels)
  local _ <close> = poptorch.Block({ ipu_id = 0 })
  local modes = self.modes
  a = poptorch.set_overlap_for_input(a, modes.a or Mode.NoOverlap):squeeze()
  b = poptorch.set_overlap_for_input(b, modes.b or Mode.NoOverlap):squeeze()
  local list = {}
  for i = 1, self.products do
    list[#list + 1] = self:get_parameter("a" .. i):matmul(a)
    list[#list + 1] = self:get_parameter("b" .. i):matmul(b)
  end
  local all = torch.stack(list, 0):sum(0)
  local loss = self.loss(all:unsqueeze(0), labels)
  return poptorch.set_overlap_for_output(loss, modes.loss or Mode.NoOverlap),
    poptorch.set_overlap_for_output(all, modes.all or Mode.NoOverlap)
end

-- Results and weights of a call with these modes.
local function trained(modes)
  torch.manual_seed(1)
  local model = Model(3, modes)
  local opts = poptorch.Options():outputMode(poptorch.OutputMode.All):deviceIterations(4)
    :setExecutionStrategy(poptorch.ShardedExecution())
  opts.TensorLocations:numIOTiles(32)
  opts.Training:gradientAccumulation(5)
  local trainer = poptorch.trainingModel(model, opts, torch.optim.SGD(model:parameters(),
    { lr = 0.01 }))
  local n = 20
  local loss, all = trainer(torch.randn(n, SIZE), torch.randn(n, SIZE),
    torch.randint(0, 1, { n, SIZE }))
  return { loss, all, model.a1, model.b3 }
end

local function with_options(io_tiles)
  local opts = poptorch.Options():setExecutionStrategy(poptorch.ShardedExecution())
  if io_tiles then
    opts.TensorLocations:numIOTiles(io_tiles)
  end
  return opts
end

local function call(forward, opts)
  return poptorch.inferenceModel(models.of(forward), opts)(torch.tensor({ 1.0 }))
end

local function refused(message, forward, opts)
  raises("Error", message, function()
    call(forward, opts)
  end)
end

describe("overlapped_io_test", function()
  local plain = trained({})

  it("test_io_input", function()
    for i, value in ipairs(trained({ a = ALONG, b = ALONG })) do
      near(value, plain[i]:detach())
    end
  end)

  it("test_input_error_messages", function()
    refused("set_overlap_for_input must be the only op applied to an input.*for input 'x' to",
      function(_, x)
        local y = x + 1
        return y, poptorch.set_overlap_for_input(x, ALONG)
      end)
    refused("set_overlap_for_input applied on a node which is not a tensor input to the model",
      function(_, x)
        local y = x + 1
        return y, poptorch.set_overlap_for_input(y, ALONG)
      end)
    local function normal(_, x)
      return poptorch.set_overlap_for_input(x, ALONG) + 1
    end
    refused("Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using "
      .. "only one IPU, please switch to poptorch.ShardedExecution.", normal)
    refused("No IO tiles allocated. You must allocate at least 32 IO tiles", normal,
      with_options())
    near(call(normal, with_options(32)), { 2 })
  end)

  it("test_overlap_host_io_output", function()
    for i, value in ipairs(trained({ loss = ALONG, all = ALONG })) do
      near(value, plain[i]:detach())
    end
  end)

  it("test_output_error_messages", function()
    refused("set_overlap_for_output cannot be used with a tensor that is returned twice",
      function(_, x)
        local y = x + 1
        return y, poptorch.set_overlap_for_output(y, ALONG)
      end)
    local y, z = call(function(_, x)
      local a = x + 1
      local b = a + 1
      return poptorch.set_overlap_for_output(a, ALONG), b
    end, with_options(32))
    near(y, { 2 })
    near(z, { 3 })
    y, z = call(function(_, x)
      local a = poptorch.set_overlap_for_output(x + 1, ALONG)
      return a, a + 1
    end, with_options(32))
    near(y, { 2 })
    near(z, { 3 })
    refused("set_overlap_for_output applied on a node which is not a tensor output to the model",
      function(_, x)
        return poptorch.set_overlap_for_output(x, ALONG) + 1
      end, with_options(32))
  end)

  it("test_overlap_both_non_input_marked", function()
    refused("set_overlap_for_input applied on a node which is not a tensor input to the model",
      function(_, x)
        local y = poptorch.set_overlap_for_input(x, ALONG) + 1
        return y, poptorch.set_overlap_for_input(y, ALONG)
      end, with_options(32))
  end)

  it("test_overlap_both_non_output_marked", function()
    refused("set_overlap_for_output applied on a node which is not a tensor output to the model",
      function(_, x)
        x = poptorch.set_overlap_for_input(x, ALONG)
        x = poptorch.set_overlap_for_output(x + torch.ones_like(x), ALONG)
        return x:mean()
      end, with_options(32))
  end)

  it("test_overlap_tuple", function()
    local model = poptorch.inferenceModel(models.of(function(_, xs)
      xs = poptorch.set_overlap_for_input(xs, FAR)
      return poptorch.set_overlap_for_output((torch.cat(xs) + 1):chunk(2), ALONG)
    end), with_options(32))
    local ys = model(torch.arange(8):float():reshape(4, 2):chunk(2))
    near(ys[1], { { 1, 2 }, { 3, 4 } })
    near(ys[2], { { 5, 6 }, { 7, 8 } })
  end)
end)
