--- A model that does not fit: the error says where, what and which option helps, and
--- with that option it does fit.
local helper = require("spec.poptorch.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

-- Of weights whose pages nobody touches, which is quick.
local Layer = nn.Module:extend("Layer")

function Layer:init(n)
  self.weight = nn.Parameter(torch.empty(n, n))
end

function Layer:forward(x)
  return x:matmul(self.weight)
end

local Net = nn.Module:extend("Net")

function Net:init(n)
  self.encoder = nn.Sequential(Layer(n), Layer(n))
end

function Net:forward(x, target)
  local y = self.encoder(x)
  return y, nn.functional.mse_loss(y, target)
end

-- Compiles a training model of two layers of n x n for one IPU that is not here.
local function compile(n, optimizer, change)
  local net, options = Net(n), poptorch.Options():useOfflineIpuTarget()
  if change then
    change(options)
  end
  local model = poptorch.trainingModel(net, options, optimizer(net:parameters(), { lr = 0.1 }))
  model:compile(torch.zeros(1, n), torch.zeros(1, n))
  return model
end

local function message(...)
  return helper.raises("Error", compile, ...).message
end

local function off_chip()
  return poptorch.TensorLocationSettings():useOnChipStorage(false)
end

describe("a program that is too large for its tiles", function()
  it("is an error with stage, fullest tiles, and the biggest tensors of which layer", function()
    local text = message(5500, torch.optim.Adam)
    assert.matches("tile %d+ of IPU 0 %(stage 0%)", text)
    assert.matches("Fullest tiles: %d+ %(%d+ bytes%), %d+ %(%d+ bytes%)", text)
    assert.matches("1472 of 1472 overflow", text, 1, true)
    -- 5500 * 5500 * 4 bytes
    assert.matches("encoder.0.weight 121.0 MB", text, 1, true)
    assert.matches("exp_avg___encoder.0.weight 121.0 MB", text, 1, true)
  end)

  it("names the option with which it fits, and fits with it", function()
    local text = message(5500, torch.optim.Adam)
    assert.matches("It fits with optimizer state off chip", text, 1, true)
    assert.matches("options.TensorLocations:setOptimizerLocation", text, 1, true)
    local percent = tonumber(text:match("the fullest tile at (%d+) %%"))
    local model = compile(5500, torch.optim.Adam, function(options)
      options.TensorLocations:setOptimizerLocation(off_chip())
    end)
    local memory = model:report().memory[0]
    assert.near(percent, 100 * memory.max_tile_including_gaps / memory.tile_bytes, 0.51)
  end)

  it("names several options where one is not enough, and no more than it takes", function()
    local text = message(7000, torch.optim.Adam)
    assert.matches("It fits with optimizer state off chip, accumulators off chip, "
      .. "weights off chip,", text, 1, true)
    local function with(...)
      local names = { ... }
      return pcall(compile, 7000, torch.optim.Adam, function(options)
        for _, name in ipairs(names) do
          options.TensorLocations[name](options.TensorLocations, off_chip())
        end
      end)
    end
    local O, A, W = "setOptimizerLocation", "setAccumulatorLocation", "setWeightLocation"
    assert.is_true((with(O, A, W)))
    assert.is_false((with(O, A)))
    assert.is_false((with(O, W)))
    assert.is_false((with(A, W)))
  end)

  it("says so where none of them helps", function()
    assert.matches("On these IPUs it does not fit with all of", message(12000, torch.optim.SGD),
      1, true)
  end)
end)
