-- Four layers on two IPUs with popart: virtual graphs and pipeline stages, gradients
-- accumulated over micro-batches, and what the simulated system says of it. The same
-- model on one IPU has the same weights afterwards.
local popart = require("popart")
local torch = require("torch")

local WIDTH, ROWS, LAYERS, ACCUMULATION = 64, 8, 4, 8

-- The model; layer i is in place(i).
local function build(place)
  torch.manual_seed(0)
  local builder = popart.Builder()
  local x = builder:addInputTensor("FLOAT", { ROWS, WIDTH }, "x")
  local weights, h, loss = {}, x, nil
  for i = 0, LAYERS - 1 do
    weights[i + 1] = builder:addInitializedInputTensor(torch.randn(WIDTH, WIDTH) * 0.1, "w" .. i)
    place(builder, i, function()
      h = builder.aiOnnx:relu({ builder.aiOnnx:matmul({ h, weights[i + 1] }) })
      if i == LAYERS - 1 then
        loss = builder.aiGraphcore:l1loss({ h }, 0.1, popart.ReductionType.Sum)
      end
    end)
  end
  return builder:getModelProto(), x, loss, weights
end

-- Trains three steps of a model; the weights, and the report.
local function train(place, ipus, options)
  local model, x, loss, weights = build(place)
  local opts = popart.SessionOptions()
  opts.enableGradientAccumulation, opts.accumulationFactor = true, ACCUMULATION
  for name, value in pairs(options) do
    opts[name] = value
  end
  local device = popart.DeviceManager():createIpuModelDevice({ numIPUs = ipus, tilesPerIPU = 1472 })
  local session = popart.TrainingSession({ fnModel = model, loss = loss, userOptions = opts,
    dataFlow = popart.DataFlow(1, { [loss] = popart.AnchorReturnType("SUM") }),
    optimizer = popart.SGD({ defaultLearningRate = { 1e-3, true },
      defaultMomentum = { 0.9, true } }), deviceInfo = device })
  session:prepareDevice()
  session:weightsFromHost()
  torch.manual_seed(1)
  local anchors = session:initAnchorArrays()
  for step = 1, 3 do
    session:run(popart.PyStepIO({ [x] = torch.randn(ACCUMULATION, ROWS, WIDTH) }, anchors))
    print(("%d IPUs, step %d: loss %.2f"):format(ipus, step, anchors[loss]:item()))
  end
  local trained = {}
  for _, w in ipairs(weights) do
    trained[w] = torch.zeros(WIDTH, WIDTH)
  end
  session:weightsToHost()
  session:readWeights(popart.PyWeightsIO(trained))
  return trained, session:getReport()
end

local piped, report = train(function(builder, i, layer)
  local stage = i // 2
  builder:virtualGraph(stage, function()
    builder:pipelineStage(stage, layer)
  end)
end, 2, { enablePipelining = true, virtualGraphMode = popart.VirtualGraphMode.Manual })

local plain, alone = train(function(_, _, layer)
  layer()
end, 1, {})

print(("%d cycles on one IPU, %d on two:"):format(alone.cycles, report.cycles))
for i, stage in ipairs(report.stages) do
  print(("  stage %d on IPU %d, %d micro-batches kept"):format(i - 1, stage.ipu, stage.stash_depth))
end
local worst = 0
for name, w in pairs(piped) do
  worst = math.max(worst, (w - plain[name]):abs():max():item())
end
print(worst < 1e-5 and "pipelined and plain: the same weights"
  or ("the weights differ by %g"):format(worst))
