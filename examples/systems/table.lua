--- Published systems beside what the simulated system says of them: a line each of rows a
--- second and of the fullest tile. Models are on device meta: no weights are made.
---
--- usage: lupine examples/systems/table.lua [NUMBER ...]   (lines of the table; all of them)
local poptorch = require("poptorch")
local torch = require("torch")

local folder = arg[0]:match("^(.*/)") or ""
local published = dofile(folder .. "published.lua")

local function options_of(c)
  local options = poptorch.Options():replicationFactor(c.replicas):useOfflineIpuTarget(c.chip)
  options:autoRoundNumIPUs(true):broadcastBuffers(false):outputMode(poptorch.OutputMode.Sum)
  options.Training:gradientAccumulation(c.accumulation)
  options.Precision:enableStochasticRounding(true):setPartialsType(torch.half)
  local ipus, proportions = c.halves and #c.halves or c.cuts and #c.cuts or 1, {}
  for i = 0, ipus - 1 do
    local of = c.proportion
    proportions["IPU" .. i] = type(of) == "table" and of[i + 1] or of
  end
  options:setAvailableMemoryProportion(proportions)
  if c.model == "bert" then
    options:setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    options.TensorLocations:setOptimizerLocation(poptorch.TensorLocationSettings()
      :useOnChipStorage(c.state_on_chip or false):useReplicatedTensorSharding(true))
  end
  options._Popart:set("autoRecomputation", c.checkpoints and "RecomputeAll" or "Pipeline")
  options._Popart:set("engineOptions", { ["debug.allowOutOfMemory"] = "true" })
  return options
end

-- The report of a system.
local function simulate(c)
  local rows = c.micro_batch * c.accumulation * c.replicas
  torch.set_default_device("meta")
  local model, optimizer, inputs = dofile(folder .. c.model .. ".lua")(c, rows)
  local executor = poptorch.trainingModel(model, options_of(c), optimizer)
  executor:compile(table.unpack(inputs))
  torch.set_default_device("cpu")
  local report = executor:report()
  executor:destroy()
  return report
end

local function fullest(report)
  local most = 0
  for _, memory in pairs(report.memory) do
    most = math.max(most, memory.max_tile_including_gaps / memory.tile_bytes)
  end
  return most
end

local function line(c)
  local report = simulate(c)
  local rate = report.samples_per_second
  print(("| %s | %s | %s | %d | %.0f | %.2f | %.0f |"):format(c.name, c.system, c.from, c.rate,
    rate, rate / c.rate, 100 * fullest(report)))
end

poptorch.setLogLevel("ERR")
local wanted = {}
for i = 1, #arg do
  wanted[assert(math.tointeger(tonumber(arg[i])), "lines are numbers")] = true
end
print("| model | system | published by | rows a second | simulated | ratio | fullest tile, % |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for i, c in ipairs(published) do
  if #arg == 0 or wanted[i] then
    line(c)
  end
end
