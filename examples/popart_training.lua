-- A model built node by node with popart: trained in one session, written with its
-- weights, and read by another that infers. Points of two classes lie inside and
-- outside of a circle.
local popart = require("popart")
local torch = require("torch")

local BATCH, BATCHES, HIDDEN = 32, 16, 16

-- x -> logits of two classes.
local function network(builder, x)
  local function layer(h, inputs, outputs, name)
    local w = builder:addInitializedInputTensor(
      torch.randn(inputs, outputs) * math.sqrt(2 / inputs), name .. "/weight")
    local b = builder:addInitializedInputTensor(torch.zeros(outputs), name .. "/bias")
    return builder.aiOnnx:gemm({ h, w, b })
  end
  local h = builder.aiOnnx:relu({ layer(x, 2, HIDDEN, "hidden") })
  return layer(h, HIDDEN, 2, "output")
end

torch.manual_seed(0)
local points = torch.rand(BATCHES * BATCH, 2) * 2 - 1
local inside = (points ^ 2):sum(1):lt(0.6):to(torch.int32)

local builder = popart.Builder()
local x = builder:addInputTensor(popart.TensorInfo("FLOAT", { BATCH, 2 }), "points")
local label = builder:addInputTensor(popart.TensorInfo("INT32", { BATCH }), "label")
local probabilities = builder.aiOnnx:softmax({ network(builder, x) }, 1)
local loss = builder.aiGraphcore:nllloss({ probabilities, label })
builder:addOutputTensor(probabilities)

local device = popart.DeviceManager():createIpuModelDevice({ numIPUs = 1, tilesPerIPU = 1472 })
local training = popart.TrainingSession({ fnModel = builder:getModelProto(), loss = loss,
  dataFlow = popart.DataFlow(BATCHES, { [loss] = popart.AnchorReturnType("ALL") }),
  optimizer = popart.Adam({ defaultLearningRate = { 0.02, false } }), deviceInfo = device })
training:prepareDevice()
training:weightsFromHost()

local anchors = training:initAnchorArrays()
local stepio = popart.PyStepIO({ [x] = points, [label] = inside }, anchors)
for epoch = 1, 60 do
  training:run(stepio)
  if epoch % 20 == 0 then
    print(("epoch %d  loss %.4f"):format(epoch, anchors[loss]:mean():item()))
  end
end

local file = os.tmpname()
training:modelToHost(file)
local inference = popart.InferenceSession({ fnModel = file,
  dataFlow = popart.DataFlow(BATCHES, { [probabilities] = popart.AnchorReturnType("ALL") }),
  deviceInfo = device })
os.remove(file)
inference:prepareDevice()
local results = inference:initAnchorArrays()
inference:run(popart.PyStepIO({ [x] = points, [label] = inside }, results))

local class = results[probabilities]:reshape(-1, 2):argmax(1)
local share = class:eq(inside):to(torch.float32):mean():item()
print(share > 0.95 and "the trained model tells inside from outside"
  or ("only %.2f are right"):format(share))
