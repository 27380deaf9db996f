--- What specs of PopART's sessions share: small models, sessions of them, runs.
local M = require("spec.helper")
local popart = require("popart")
local torch = require("torch")

--- A device without IPUs of the machine.
---@param ipus? integer
---@return popart.DeviceInfo
function M.device(ipus)
  return popart.DeviceManager():createIpuModelDevice({ numIPUs = ipus or 1, tilesPerIPU = 64 })
end

--- Session options with these fields.
---@param fields? table<string, any>
---@return popart.SessionOptions
function M.options(fields)
  local o = popart.SessionOptions()
  for name, value in pairs(fields or {}) do
    o[name] = value
  end
  return o
end

--- Fields of options for so many micro-batches of a batch and replicas.
---@param accumulation integer
---@param replicas? integer
---@param more? table<string, any>
---@return table<string, any>
function M.loops(accumulation, replicas, more)
  local out = { enableGradientAccumulation = accumulation > 1, accumulationFactor = accumulation,
    enableReplicatedGraphs = (replicas or 1) > 1, replicatedGraphCount = replicas or 1 }
  for name, value in pairs(more or {}) do
    out[name] = value
  end
  return out
end

--- An inference session that is prepared.
---@param builder popart.Builder
---@param flow popart.DataFlow
---@param given? table options (fields), device, and other arguments of the session
---@return popart.InferenceSession
function M.inference(builder, flow, given)
  given = given or {}
  local s = popart.InferenceSession({ fnModel = builder:getModelProto(), dataFlow = flow,
    deviceInfo = given.device or M.device(), userOptions = M.options(given.options),
    inputShapeInfo = given.shapes })
  if given.prepare ~= false then
    s:prepareDevice()
  end
  return s
end

--- A training session that is prepared and has its weights.
---@param builder popart.Builder
---@param flow popart.DataFlow
---@param loss string
---@param optimizer popart.Optimizer
---@param given? table as of inference
---@return popart.TrainingSession
function M.training(builder, flow, loss, optimizer, given)
  given = given or {}
  local s = popart.TrainingSession({ fnModel = given.model or builder:getModelProto(),
    dataFlow = flow, loss = loss, optimizer = optimizer, deviceInfo = given.device or M.device(),
    userOptions = M.options(given.options) })
  if given.prepare ~= false then
    s:prepareDevice()
    s:weightsFromHost()
  end
  return s
end

--- Runs a session once on these inputs; the anchors.
---@param session popart.Session
---@param inputs table<string, torch.Tensor>
---@return table<string, torch.Tensor>
function M.run(session, inputs)
  local anchors = session:initAnchorArrays()
  session:run(popart.PyStepIO(inputs, anchors))
  return anchors
end

--- The weights that a session's device has.
---@param session popart.Session
---@param ids string[]
---@return table<string, torch.Tensor>
function M.weights(session, ids)
  local out = {}
  for _, id in ipairs(ids) do
    local info = session:getInfo(id)
    out[id] = torch.zeros(info:shape(), { dtype = info:dataType() })
  end
  session:weightsToHost()
  session:readWeights(popart.PyWeightsIO(out))
  return out
end

--- A model of one input that goes through an operator that does nothing.
---@param shape integer[]
---@return popart.Builder builder
---@return string input
---@return string output
function M.identity(shape)
  local b = popart.Builder()
  local x = b:addInputTensor("FLOAT", shape)
  local y = b.aiOnnx:identity({ x })
  b:addOutputTensor(y)
  return b, x, y
end

--- The sum of a tensor's absolute values, times a number.
---@param builder popart.Builder
---@param id string
---@param times number
---@return string id
function M.l1(builder, id, times)
  local scaled = builder.aiGraphcore:scale({ builder.aiOnnx:abs({ id }) }, times)
  return builder.aiOnnx:reducesum({ scaled }, { keepdims = 0 })
end

--- What f writes to io.stderr.
---@param f function
---@return string
function M.stderr_of(f)
  local stderr, out = io.stderr, {}
  io.stderr = { -- luacheck: ignore 122
    write = function(_, ...)
      out[#out + 1] = table.concat({ ... })
    end,
    flush = function() end,
  }
  local ok, e = pcall(f)
  io.stderr = stderr -- luacheck: ignore 122
  assert(ok, e)
  return table.concat(out)
end

--- Layers of products with a ReLU behind each, all of the same width, and the sum of
--- the last one's absolute values times 0.1 as loss; layer i is in place(i).
---@param layers integer
---@param rows integer
---@param place? fun(builder: popart.Builder, i: integer, add: fun())
---@return popart.Builder builder
---@return {x: string, loss: string, weights: string[], hidden: string[]} ids
function M.layers(layers, rows, place)
  local b, ids = popart.Builder(), { weights = {}, hidden = {} }
  torch.manual_seed(7)
  ids.x = b:addInputTensor("FLOAT", { rows, 4 })
  local h = ids.x
  for i = 0, layers - 1 do
    ids.weights[i + 1] = b:addInitializedInputTensor(torch.randn(4, 4))
    local function add()
      h = b.aiOnnx:relu({ b.aiOnnx:matmul({ h, ids.weights[i + 1] }) })
      ids.hidden[i + 1] = h
      if i == layers - 1 then
        ids.loss = M.l1(b, h, 0.1)
      end
    end
    if place then
      place(b, i, add)
    else
      add()
    end
  end
  return b, ids
end

return M
