--- The user guide's listings of replica groups, custom operators and automatic
--- casting, ported line by line.
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")
local nn = torch.nn

local close = torch.testing.assert_close

describe("listing", function()
  it("4.14: weights that are split over groups of replicas", function()
    local ModelWithLoss = nn.Module:extend("ModelWithLoss")
    function ModelWithLoss:init(W_init)
      self.W = torch.nn.Parameter(W_init)
    end
    function ModelWithLoss:forward(X)
      local Z = X:matmul(self.W)
      return Z, poptorch.identity_loss(Z ^ 2, { reduction = "mean" })
    end

    local tensor_shards = 4
    local data_shards = 2
    torch.manual_seed(100)
    local prob_X = torch.randn({ 24, 40 })
    local prob_W_init = torch.randn({ 40, 56 }) * (5 * 8) ^ -0.5
    local prob_steps = 4

    local X = prob_X
    local W_init = prob_W_init:reshape(prob_W_init.shape[1], tensor_shards,
      prob_W_init.shape[2] // tensor_shards):permute(1, 0, 2):contiguous()
    local m = ModelWithLoss(W_init)
    local optim = torch.optim.SGD(m:parameters(), { lr = 0.01 })

    local pt_opts = poptorch.Options()
    pt_opts:replicationFactor(data_shards * tensor_shards)
    pt_opts:inputReplicaGrouping(tensor_shards, poptorch.enums.CommGroupType.Consecutive)
    pt_opts:outputMode(poptorch.OutputMode.All)
    local pt_m = poptorch.trainingModel(m, { optimizer = optim, options = pt_opts })
    pt_m.W:replicaGrouping(poptorch.enums.CommGroupType.Orthogonal, data_shards,
      poptorch.enums.VariableRetrievalMode.OnePerGroup)
    local pt_losses = {}
    X = X:reshape(data_shards, X.shape[1] // data_shards, X.shape[2])
    for step = 1, prob_steps do
      local _, loss = pt_m(X)
      pt_losses[step] = torch.sum(loss:detach()):item() / (data_shards * tensor_shards)
    end
    local pt_W_final = m.W:detach():permute(1, 0, 2):reshape(prob_W_init.shape)

    -- the same problem unsplit on the host
    local whole = ModelWithLoss(prob_W_init)
    local sgd = torch.optim.SGD(whole:parameters(), { lr = 0.01 })
    for step = 1, prob_steps do
      sgd:zero_grad()
      local loss = (prob_X:matmul(whole.W) ^ 2):mean()
      assert.near(loss:item(), pt_losses[step], 1e-5 * loss:item())
      loss:backward()
      sgd:step()
    end
    close(pt_W_final, whole.W:detach(), { rtol = 1e-4, atol = 1e-6 })
  end)

  it("4.23: the library of a custom operator is loaded", function()
    local library, folder = custom_ops.compile("examples/custom_op/cube.c")
    local script = program.temporary([[
      local core = require("lupine.core")
      print(#core.custom_ops())
      require("torch").ops.load_library(arg[1])
      print(core.custom_ops()[1].domain, core.custom_ops()[1].name)
    ]])
    local out, err, code = program.run({ script, library })
    os.remove(script)
    custom_ops.remove(folder)
    assert.equal(0, code, err)
    assert.equal("0\ncom.acme\tCube\n", out)
  end)

  it("4.24: it is called in an inference model", function()
    custom_ops.load("cube")
    local BasicNetwork = nn.Module:extend("BasicNetwork")
    function BasicNetwork.forward(_, x, bias)
      local y
      x, y = table.unpack(poptorch.custom_op({ x, bias },
        "Cube",
        "com.acme",
        1,
        { example_outputs = { x, x } }))
      return x, y
    end
    local inference_model = poptorch.inferenceModel(BasicNetwork())
    local first, second = inference_model(torch.full({ 1, 8 }, 2.0), torch.full({ 1, 8 }, 4.0))
    close(first, torch.full({ 1, 8 }, 12.0))
    close(second, torch.full({ 1, 8 }, 8.0))
  end)

  it("4.25: with an attribute", function()
    custom_ops.load("leaky_relu")
    local Model = nn.Module:extend("Model")
    function Model.forward(_, x)
      x = poptorch.custom_op({ x },
        "LeakyRelu",
        "com.acme",
        1,
        { example_outputs = { x }, attributes = { alpha = 0.02 } })
      return x[1]
    end
    local x = torch.tensor({ -1.0, -0.5, 0.0, 0.5, 1.0 })
    helper.near(poptorch.inferenceModel(Model())(x), { -0.02, -0.01, 0, 0.5, 1 })
  end)

  it("4.26: with attributes of every type", function()
    custom_ops.load("many_attributes")
    local attributes = {
      float_one = 1.0,
      float_minus_two = -2.0,
      int_zero = 0,
      int_minus_five = -5,
      floats_one_two_three = { 1.0, 2.0, 3.0 },
      floats_minus_one_two_three = { -1.0, -2.0, -3.0 },
      ints_one_two_three = { 1, 2, 3 },
      ints_minus_one_two_three = { -1, -2, -3 },
      a_string = "string with quotes and slash \" ' \\ end",
      strs = { "abc", "def", "ghi" },
    }
    local Model = nn.Module:extend("Model")
    function Model.forward(_, x)
      x = poptorch.custom_op({ x },
        "ManyAttributeOp",
        "test.poptorch",
        1,
        { example_outputs = { x }, attributes = attributes })
      return x[1]
    end
    -- the operator adds 1 if every one arrives as it wants them: of these all but
    -- the last
    helper.near(poptorch.inferenceModel(Model())(torch.zeros(1)), { 0 })
    attributes.strs = { "\x01", "\x02", "\x03" }
    helper.near(poptorch.inferenceModel(Model())(torch.zeros(1)), { 1 })
  end)
end)

describe("automatic casting", function()
  local f16, f32 = torch.float16, torch.float32

  -- Two convolutions with an activation each, and the types that come out of
  -- them on the device.
  local function layers()
    local model = nn.Sequential()
    model:add_module("conv1", nn.Conv2d(1, 20, 5))
    model:add_module("relu1", nn.ReLU())
    model:add_module("conv2", nn.Conv2d(20, 64, 5))
    model:add_module("relu2", nn.ReLU())
    return model
  end

  local function types(model, opts)
    local seen = {}
    for name, layer in model:named_children() do
      layer:register_forward_hook(function(_, _, y)
        seen[name] = y.dtype
      end)
    end
    poptorch.inferenceModel(model, opts)(torch.randn(1, 1, 12, 12))
    return seen
  end

  it("AC1: of a model", function()
    local model = layers()
    model:autocast()
    assert.same({ conv1 = f16, relu1 = f16, conv2 = f16, relu2 = f16 }, types(model))
    assert.equal(f16, model.conv2.weight.dtype)
  end)

  it("AC2: of layers", function()
    local model = layers()
    model:autocast()
    model.relu1:autocast(false)
    model.conv2:autocast(false)
    types(model)
    assert.equal(f16, model.conv1.weight.dtype)
    assert.equal(f32, model.conv2.weight.dtype) -- left as it is
  end)

  local x, y = torch.randn(1, 4, 4), torch.randn(1, 4, 4)

  it("AC3: by a decorator of forward", function()
    local MyModel = nn.Module:extend("MyModel")
    function MyModel.forward(_, a, b)
      return torch.bmm(a, b)
    end
    MyModel.forward = poptorch.autocast()(MyModel.forward)
    assert.equal(f16, poptorch.inferenceModel(MyModel())(x, y).dtype)
  end)

  it("AC4: of a block of code", function()
    local MyModel = nn.Module:extend("MyModel")
    function MyModel.forward(_, a, b)
      local inside
      do
        local _ <close> = poptorch.autocast()
        inside = torch.bmm(a, b)
      end
      return inside, torch.bmm(a, b)
    end
    local inside, outside = poptorch.inferenceModel(MyModel())(x, y)
    assert.equal(f16, inside.dtype)
    assert.equal(f32, outside.dtype)
  end)

  it("AC5: switched off", function()
    local model = layers()
    model:autocast()
    local opts = poptorch.Options()
    opts.Precision:autocastEnabled(false)
    assert.same({ conv1 = f32, relu1 = f32, conv2 = f32, relu2 = f32 }, types(model, opts))
  end)

  it("AC6: by a policy", function()
    local fp16 = { torch.nn.Conv2d, torch.relu }
    local fp32 = { torch.bmm }
    local promote = { torch.dot }
    local demote = {}
    local policy = poptorch.autocasting.Policy(fp16, fp32, promote, demote)
    local opts = poptorch.Options()
    opts.Precision:autocastPolicy(policy)
    local model = layers()
    model:autocast()
    assert.same({ conv1 = f16, relu1 = f16, conv2 = f16, relu2 = f16 }, types(model, opts))
    local Products = nn.Module:extend("Products")
    function Products.forward(_, a, b)
      return torch.bmm(a:half(), b:half()), torch.dot(a:flatten():half(), b:flatten())
    end
    local products = Products()
    products:autocast()
    local bmm, dot = poptorch.inferenceModel(products, opts)(x, y)
    assert.equal(f32, bmm.dtype)
    assert.equal(f32, dot.dtype)
  end)
end)
