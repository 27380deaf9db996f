-- A run that goes on from a checkpoint has the bits of one that was not interrupted: losses,
-- rows of metrics, validations, weights, states, averages and random numbers.
local poptorch = require("poptorch")
local torch = require("torch")
local trainings = require("spec.support.trainings")
poptorch.setLogLevel("ERR")

local MODES = { "eager", "compiled", "poptorch" }

describe("a Trainer that is resumed", function()
  for _, mode in ipairs(MODES) do
    it("has the same bits: " .. mode, function()
      assert.same({}, trainings.faults(mode, { [2] = true, [6] = true, [10] = true,
        [12] = true }))
    end)

    it("has the same bits in another process: " .. mode, function()
      local here, there = trainings.elsewhere(mode, 14)
      assert.equal(here, there)
    end)

    it("has the same bits with any number of workers: " .. mode, function()
      assert.same({}, trainings.faults(mode, { [4] = true }, nil, { 2, 1 }))
    end)
  end

  it("has the same bits with buffers that state_dict leaves out", function()
    local plain = trainings.model
    local _ <close> = setmetatable({}, { __close = function()
      trainings.model = plain
    end })
    local Centred = torch.nn.Module:extend("Centred")
    function Centred:init()
      self.inner = plain()
      self:register_buffer("mean", torch.zeros({ 3 }), { persistent = false })
    end
    function Centred:forward(x)
      if self.training then
        self.mean:mul_(0.9):add_(x:mean(0), { alpha = 0.1 })
      end
      return self.inner(x - self.mean)
    end
    trainings.model = Centred
    for _, mode in ipairs(MODES) do
      assert.same({}, trainings.faults(mode, { [6] = true }))
    end
  end)

  it("has the same order of validation, of a generator of its own", function()
    assert.same({}, trainings.faults("eager", { [8] = true }, { validation = function()
      local generator = torch.Generator()
      generator:manual_seed(4)
      return torch.utils.data.DataLoader(trainings.Points(20), { batch_size = 3, shuffle = true,
        generator = generator })
    end }))
  end)

  it("has the same bits with replicas and batches that are read ahead", function()
    local options = poptorch.Options():deviceIterations(2):replicationFactor(2)
    options.Training:gradientAccumulation(2)
    options:broadcastBuffers(false)
    assert.same({}, trainings.faults("poptorch", { [4] = true }, { options = options,
      epochs = 3, metrics = torch.none,
      train = function(o)
        return poptorch.DataLoader(o, trainings.Points(46), { batch_size = 2, shuffle = true,
          mode = poptorch.DataLoaderMode.Async })
      end }))
  end)
end)
