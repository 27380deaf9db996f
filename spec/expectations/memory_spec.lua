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
local function compile(n, optimizer, change, rows)
  local net, options = Net(n), poptorch.Options():useOfflineIpuTarget()
  if change then
    change(options, net)
  end
  local model = poptorch.trainingModel(net, options, optimizer(net:parameters(), { lr = 0.1 }))
  model:compile(torch.zeros(rows or 1, n), torch.zeros(rows or 1, n))
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

  -- What the message says of a remedy.
  local function line(text, name)
    for l in text:gmatch("[^\n]+") do
      if l:find("  " .. name, 1, true) == 1 then
        local saved, verdict, percent, rate = l:match(
          ": (%d+) bytes less on the fullest tile, ([%a ]-) %((%d+) %% of it, (%S+) samples/s%)")
        return { saved = tonumber(saved), fits = verdict == "fits", percent = tonumber(percent),
          rate = tonumber(rate), text = l }
      end
    end
    return nil
  end

  -- A compilation that changes as the message says gives the figures that it says.
  local function keeps(promise, used, model)
    local report, most = model:report(), 0
    for _, m in pairs(report.memory) do
      most = math.max(most, m.max_tile_including_gaps)
    end
    assert.is_true(promise.fits)
    assert.equal(promise.saved, used - most)
    assert.near(promise.percent, 100 * most / report.memory[0].tile_bytes, 0.51)
    assert.near(promise.rate, report.samples_per_second, 1e-3 * promise.rate)
  end

  it("names each option that helps, what it saves, and fits with it", function()
    local text = message(5500, torch.optim.Adam)
    local used = tonumber(text:match("(%d+) bytes used"))
    for name, setter in pairs({ ["optimizer state"] = "setOptimizerLocation",
      accumulators = "setAccumulatorLocation" }) do
      local promise = line(text, name .. " off chip")
      assert.matches("options.TensorLocations:" .. setter .. "(", promise.text, 1, true)
      keeps(promise, used, compile(5500, torch.optim.Adam, function(options)
        options.TensorLocations[setter](options.TensorLocations, off_chip())
      end))
    end
    -- those of both layers are on the chip when the optimizer's states are
    assert.is_nil(line(text, "weights off chip"))
    assert.is_false(line(text, "a smaller proportion of memory").fits)
    local rates = {}
    for rate in text:gmatch("fits %(%d+ %% of it, (%S+) samples/s%)") do
      rates[#rates + 1] = tonumber(rate)
    end
    assert.equal(3, #rates)
    assert.is_true(rates[1] > rates[2] and rates[2] > rates[3])
  end)

  it("names cuts for more IPUs, and fits with them", function()
    local text = message(5500, torch.optim.Adam, function(options)
      options.Training:gradientAccumulation(2)
    end, 2)
    local promise = line(text, "2 IPUs")
    assert.matches("encoder.1 on IPU 1", promise.text, 1, true)
    assert.matches("poptorch.AutoBlocks(2)", promise.text, 1, true)
    assert.matches("gradientAccumulation(3)", promise.text, 1, true)
    keeps(promise, tonumber(text:match("(%d+) bytes used")), compile(5500, torch.optim.Adam,
      function(options, net)
        options.Training:gradientAccumulation(3)
        net.encoder[2] = poptorch.BeginBlock(net.encoder[2], "1", { ipu_id = 1 })
      end, 3))
  end)

  it("names smaller micro-batches, and fits with them", function()
    local text = message(2000, torch.optim.SGD, nil, 16384)
    local promise = line(text, "half of the rows in a micro-batch")
    assert.matches("gradientAccumulation(2)", promise.text, 1, true)
    keeps(promise, tonumber(text:match("(%d+) bytes used")), compile(2000, torch.optim.SGD,
      function(options)
        options.Training:gradientAccumulation(2)
      end, 16384))
  end)

  it("names several options where one is not enough, and no more than it takes", function()
    local text = message(7000, torch.optim.Adam)
    local promise = line(text, "together: ")
    assert.matches("together: optimizer state off chip, accumulators off chip, "
      .. "weights off chip: ", promise.text, 1, true)
    local function with(...)
      local names = { ... }
      return pcall(compile, 7000, torch.optim.Adam, function(options)
        for _, name in ipairs(names) do
          options.TensorLocations[name](options.TensorLocations, off_chip())
        end
      end)
    end
    local O, A, W = "setOptimizerLocation", "setAccumulatorLocation", "setWeightLocation"
    local ok, model = with(O, A, W)
    assert.is_true(ok)
    keeps(promise, tonumber(text:match("(%d+) bytes used")), model)
    assert.is_false((with(O, A)))
    assert.is_false((with(O, W)))
    assert.is_false((with(A, W)))
  end)

  it("says so where none of them helps", function()
    assert.matches("not even all of them together fit", message(18000, torch.optim.SGD), 1, true)
  end)
end)
