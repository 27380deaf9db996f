-- A model that is trained by poptorch, exported, and trained on by popart, and the other
-- way: as if it had not moved.
local helper = require("spec.popart.helper")
local nn = require("torch.nn")
local F = require("torch.nn.functional")
local onnx = require("lupine.onnx")
local popart = require("popart")
local poptorch = require("poptorch")
local torch = require("torch")

local Net = nn.Module:extend("Net")

function Net:init()
  nn.Module.init(self)
  self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
  self.fc = nn.Linear(4 * 6 * 6, 5)
end

function Net:forward(x, y)
  local h = torch.relu(self.norm(self.conv(x))):flatten(1)
  local out = self.fc(h)
  return out, F.cross_entropy(out, y)
end

local function data()
  local list = {}
  torch.manual_seed(3)
  for i = 1, 6 do
    list[i] = { torch.randn(4, 1, 8, 8), torch.randint(0, 5, { 4 }) }
  end
  return list
end

local function export(net, sample, states)
  return onnx.export(net, sample, nil, { training = true, input_names = { "x", "y" },
    output_names = { "out", "loss" }, initializers = states })
end

local function on_popart(model, optimizer, batches)
  local path = os.tmpname()
  onnx.write(model, path)
  local s = helper.training(nil, popart.DataFlow(1, { "loss" }), "loss", optimizer,
    { model = path })
  os.remove(path)
  local losses = {}
  for i, batch in ipairs(batches) do
    losses[i] = helper.run(s, { x = batch[1], y = batch[2] }).loss:item()
  end
  return losses, s
end

-- Three batches, the rest of both, and the losses of the rest.
local function compare(ours, theirs)
  local batches, want = data(), {}
  torch.manual_seed(5)
  local net = Net()
  local optimizer = ours(net:parameters())
  local trainer = poptorch.trainingModel(net, poptorch.Options(), optimizer)
  for i = 1, 3 do
    trainer(table.unpack(batches[i]))
  end
  trainer:copyWeightsToHost()
  local model = export(net, batches[1], optimizer:state_dict().ipu_state)
  for i = 4, 6 do
    want[i - 3] = select(2, trainer(table.unpack(batches[i]))):item()
  end
  trainer:destroy()
  local got, session = on_popart(model, theirs, { table.unpack(batches, 4) })
  assert.same(want, got)
  return net, session
end

describe("a model that moves from poptorch to popart", function()
  before_each(function()
    poptorch.setLogLevel("ERR")
  end)

  it("trains on by SGD", function()
    compare(function(parameters)
      return poptorch.optim.SGD(parameters, { lr = 0.1 })
    end, popart.ConstSGD(0.1))
  end)

  it("trains on with its momentum", function()
    compare(function(parameters)
      return poptorch.optim.SGD(parameters, { lr = 0.1, momentum = 0.9,
        use_combined_accum = false })
    end, popart.SGD({ defaultLearningRate = { 0.1, false }, defaultMomentum = { 0.9, false } },
      { accumulatorAndMomentum = popart.SGDAccumulatorAndMomentum.Separate }))
  end)

  it("trains on by Adam, with its moments and count of steps", function()
    compare(function(parameters)
      return poptorch.optim.Adam(parameters, { lr = 0.01, betas = { 0.9, 0.999 }, eps = 1e-8 })
    end, popart.Adam({ defaultLearningRate = { 0.01, false }, defaultBeta1 = { 0.9, false },
      defaultBeta2 = { 0.999, false }, defaultEps = { 1e-8, false } }))
  end)

  it("comes back with the weights that popart gave it", function()
    local net, session = compare(function(parameters)
      return poptorch.optim.SGD(parameters, { lr = 0.1 })
    end, popart.ConstSGD(0.1))
    local path = os.tmpname()
    session:modelToHost(path)
    local back = onnx.load(path)
    os.remove(path)
    local model = poptorch.inferenceModel(back:eval())
    local x, y = torch.randn(4, 1, 8, 8), torch.zeros(4, { dtype = torch.int64 })
    local result = net:load_state_dict(back:state_dict(), { strict = false })
    assert.same({}, { table.unpack(result.missing_keys) }) -- a count of batches may be
    assert.same({}, { table.unpack(result.unexpected_keys) })
    local want = torch.no_grad(function() -- exported for training, it is always in training
      return (net:train()(x, y))
    end)
    assert.is_true(torch.allclose(want, (model(x, y)), { atol = 1e-5 }))
    model:destroy()
  end)
end)
