--- What a report says would make a program faster does: its option is set, as it is written,
--- and the program compiled again.
local helper = require("spec.poptorch.helper")
local insights = require("lupine.report.insights")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local read = require("lupine.report").read
local torch = require("torch")

local Net = nn.Module:extend("GainsNet")

function Net:init()
  self.a, self.b, self.loss = nn.Linear(64, 512), nn.Linear(512, 64), nn.MSELoss()
end

function Net:forward(x)
  return self.loss(self.b(self.a(x):relu()):relu(), x)
end

-- A program of two stages, whose optimizer's state and weights are off the chip, and of so
-- many replicas, which have shares of them; `option` is an expression of its options.
local function compiled(option, replicas)
  local options = poptorch.Options():autoRoundNumIPUs(true)
    :setExecutionStrategy(poptorch.AutoBlocks(2))
  options.Training:gradientAccumulation(8)
  options:replicationFactor(replicas or 1)
  for _, kind in ipairs({ "Optimizer", "Weight" }) do
    options.TensorLocations["set" .. kind .. "Location"](options.TensorLocations,
      poptorch.TensorLocationSettings():useOnChipStorage(false):minElementsForOffChip(0)
        :useReplicatedTensorSharding(replicas ~= nil):minElementsForReplicatedTensorSharding(8))
  end
  assert(load("local options, poptorch = ...; return " .. (option or "0")))(options, poptorch)
  local model = Net()
  local executor = poptorch.trainingModel(model, options,
    poptorch.optim.Adam(model:parameters(), { lr = 0.1 }))
  executor:compile(torch.randn(8 * options.Training.gradient_accumulation * (replicas or 1), 64))
  return executor:report()
end

describe("gains", function()
  for name, replicas in pairs({ [""] = false, [", the shares of replicas"] = 2 }) do
    it("are what the program has with the option that they name" .. name, function()
      local report, n = compiled(nil, replicas or nil), 0
      local stands_out, on_chip = insights.text(report), false
      for _, gain in ipairs(report:gains()) do
        if gain.hint ~= "cuts" and gain.hint ~= "proportion" then
          local option = gain.option:gsub(", to measure with", "")
          assert.equal(gain.samples_per_second,
            compiled(option, replicas or nil).samples_per_second, option)
          assert.matches(gain.text .. " (" .. gain.option .. ")", stands_out, 1, true)
          n, on_chip = n + 1, on_chip or gain.hint == "on_chip"
        end
      end
      assert.is_true(n >= 2 and on_chip)
    end)
  end

  it("add gradients up where a second micro-batch would be the first to do so", function()
    -- phased: the sums are off the chip, from where each micro-batch has them come, too
    local function report_of(accumulation, iterations, io_tiles, phased)
      local model, options = Net(), poptorch.Options():deviceIterations(iterations)
      options.Training:gradientAccumulation(accumulation)
      if phased then
        model.a = poptorch.BeginBlock(model.a, { user_id = "A" })
        model.b = poptorch.BeginBlock(model.b, { user_id = "B" })
        options:setExecutionStrategy(poptorch.SerialPhasedExecution(
          poptorch.Phase(poptorch.Stage("A")), poptorch.Phase(poptorch.Stage("B"))))
      end
      if io_tiles then
        options.TensorLocations:numIOTiles(io_tiles)
      end
      local executor = poptorch.trainingModel(model, options,
        poptorch.optim.Adam(model:parameters(), { lr = 0.1 }))
      executor:compile(torch.randn(8 * accumulation * iterations, 64))
      return executor:report()
    end
    for _, case in ipairs({ { 1 }, { 3 }, { 2, 192 }, { 2, nil, true } }) do
      local found
      for _, gain in ipairs(report_of(1, table.unpack(case, 1, 3)):gains()) do
        found = gain.hint == "accumulation" and gain or found
      end
      assert.near(report_of(2, table.unpack(case, 1, 3)).samples_per_second,
        assert(found, "no such gain").samples_per_second, 1e-3)
    end
  end)

  it("print as a table, also those of a file", function()
    local report = compiled()
    local text = tostring(report:gains())
    local heads, first, second = text:match("^(.-)\n(.-)\n(.-)\n")
    assert.matches("^change +less time +samples/s +fullest tile +option$", heads)
    for i, line in ipairs({ first, second }) do
      local gain = report:gains()[i]
      local words = ("%s %.1f %% %.4g %.1f %% %s"):format(gain.text, 100 * gain.saves,
        gain.samples_per_second, 100 * gain.share, gain.option)
      assert.equal(words, (line:gsub(" +", " ")))
    end
    local path = os.tmpname()
    report:save(path)
    assert.equal(text, tostring(read(path):gains()))
    os.remove(path)
  end)

  it("stand in a report that names what it has where it is asked for something else", function()
    local report = compiled()
    local e = helper.raises("AttributeError", function()
      report:sumary()
    end)
    assert.equal("Report has no attribute 'sumary' (nearest: 'summary')", e.message)
    assert.is_nil(report.phases)
  end)
end)
