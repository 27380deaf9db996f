-- A session that goes on from a checkpoint has the bits of the training that was not
-- interrupted. Values: the run without checkpoints.
local checkpoint = require("lupine.checkpoint")
local popart = require("popart")
local program = require("spec.support.program")
local torch = require("torch")

local folder

setup(function()
  folder = program.shell("mktemp -d"):gsub("\n", "")
end)
teardown(function()
  program.shell("rm -rf " .. folder)
end)

local OPTIMIZERS = {
  adam = function()
    return popart.Adam({ defaultLearningRate = { 0.02, false } })
  end,
  momentum = function()
    return popart.SGD({ defaultLearningRate = { 0.05, false }, defaultMomentum = { 0.9, true } })
  end,
}

local function make(optimizer, replicas)
  torch.manual_seed(0)
  local builder = popart.Builder()
  local x = builder:addInputTensor(popart.TensorInfo("FLOAT", { 4, 3 }))
  local w = builder:addInitializedInputTensor(torch.randn(3, 2))
  local h = builder.aiOnnx:dropout({ builder.aiOnnx:matmul({ x, w }) }, 1, 0.3)
  h = type(h) == "table" and h[1] or h
  local loss = builder.aiGraphcore:l1loss({ h }, 0.1)
  local options = popart.SessionOptions()
  options.enableGradientAccumulation, options.accumulationFactor = true, 2
  options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
  local session = popart.TrainingSession({ fnModel = builder:getModelProto(), loss = loss,
    dataFlow = popart.DataFlow(1, { [loss] = popart.AnchorReturnType("ALL") }),
    optimizer = OPTIMIZERS[optimizer](), userOptions = options,
    deviceInfo = popart.DeviceManager():createIpuModelDevice({ numIPUs = replicas,
      tilesPerIPU = 1472 }) })
  session:prepareDevice()
  local anchors = session:initAnchorArrays()
  local data = torch.rand({ replicas * 2, 4, 3 }, { generator = torch.Generator() })
  return session, function()
    session:run(popart.PyStepIO({ [x] = data }, anchors))
    return anchors[loss]:tobytes()
  end
end

describe("going on with a session", function()
  for optimizer in pairs(OPTIMIZERS) do
    for _, replicas in ipairs({ 1, 2 }) do
      it(("has the same bits: %s, %d replicas"):format(optimizer, replicas), function()
        local session, step = make(optimizer, replicas)
        session:weightsFromHost()
        local losses = {}
        for n = 1, 6 do
          losses[n] = step()
          if n == 3 then
            checkpoint.save(folder .. "/c", { session = session })
          end
        end
        local other, other_step = make(optimizer, replicas)
        for _, again in ipairs({ { other, other_step }, { session, step } }) do
          checkpoint.restore(folder .. "/c", { session = again[1] })
          for n = 4, 6 do
            assert.equal(losses[n], again[2]())
          end
        end
        assert.same(session:checksums(), other:checksums())
      end)
    end
  end

  it("refuses the state of another model, and a session that is not prepared", function()
    local session = make("adam", 1)
    local state = session:checkpoint_state()
    for name, t in pairs(state.values) do
      state.values[name] = t:reshape(-1):narrow(0, 0, 0)
    end
    assert.has_error(function()
      session:load_checkpoint_state(state)
    end)
    for _, bad in ipairs({ 1, {}, { values = {} } }) do
      assert.has_error(function()
        session:load_checkpoint_state(bad)
      end)
    end
  end)
end)
