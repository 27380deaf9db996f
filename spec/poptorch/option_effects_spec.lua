--- No option is ignored in silence: what is set is read by something, refused,
--- or noted in the report.
local files = require("spec.support.files")
local errors = require("lupine.base.errors")
local given = require("spec.support.option_values")
local Group = require("poptorch.options.group")
local nn = require("torch.nn")
local options = require("poptorch.options")
local poptorch = require("poptorch")
local rules = require("poptorch.options.rules")
local session_options = require("popart.session_options")
local simulation = require("poptorch.simulation")
local tables = require("lupine.base.tables")
local torch = require("torch")

local Net = nn.Module:extend("Net")

function Net:init()
  self.fc = nn.Linear(2, 2)
  self.loss = nn.MSELoss()
  self:register_buffer("count", torch.zeros(1))
end

function Net:forward(x)
  local _ <close> = poptorch.autocast(self.casts)
  self.count:add_(1)
  return self.loss(self.fc(x) + self.count, x)
end

-- Everything that a script can do with a model, as far as its options allow.
local function use(o, training)
  local net = Net()
  net.casts = not rawget(o.Precision, "_values").autocast_enabled
  local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1 })
  local model = training and poptorch.trainingModel(net, o, optimizer)
    or poptorch.inferenceModel(net, o)
  local x = torch.ones(rules.input_factor(o), 2)
  if rawget(o.Training, "_owner")._Popart:toDict()["automaticLossScalingSettings.enabled"] then
    net:half()
    x = x:half() -- it looks at gradients of float16
  end
  model:compile(x)
  local report = model:report()
  for _, name in ipairs({ "__call", "compilationTime", "cycleCount", "hostProfile",
    "getLatency", "copyNamedBuffersToDevice", "setOptimizer", "detachFromDevice" }) do
    pcall(function()
      optimizer.not_an_attribute = 1
      if name == "__call" then
        return model(x)
      end
      return model[name](model, name == "setOptimizer" and optimizer or nil)
    end)
  end
  pcall(poptorch.DataLoader, o, torch.utils.data.TensorDataset(x), { batch_size = 1 })
  model:destroy()
  return report
end

-- Properties by "Group.key", and how they print now.
local function values(o)
  local out = {}
  local function add(group, prefix)
    for _, row in ipairs(getmetatable(group)._rows) do
      if row.key then
        out[prefix .. row.key] = Group.shown(group:_read(row))
      end
    end
  end
  add(o, "")
  for _, name in ipairs(options.GROUPS) do
    add(o[name], name .. ".")
  end
  return out
end

-- Runs f; the properties that were read meanwhile, but for the report's notes.
local function reads(o, f)
  local read, annotate, seen, name_of = Group._read, simulation.annotate, {}, {}
  for _, name in ipairs(options.GROUPS) do
    name_of[getmetatable(o[name])] = name .. "."
  end
  local function noted(self, row)
    seen[(name_of[getmetatable(self)] or "") .. (row.key or "")] = true
    return read(self, row)
  end
  Group._read = noted
  function simulation.annotate(...)
    Group._read = read
    annotate(...)
    Group._read = noted
  end
  local results = table.pack(pcall(f))
  Group._read, simulation.annotate = read, annotate
  return seen, table.unpack(results, 1, results.n)
end

-- What an option needs of others.
local PREPARE = {
  broadcastBuffers = function(o)
    o:replicationFactor(2)
  end,
  inputReplicaGrouping = function(o)
    o:replicationFactor(2):broadcastBuffers(false)
  end,
  outputMode = function(o)
    o:deviceIterations(2)
  end,
}

-- Setters that give back what is there without them.
local RESETS = { setEnvVarNames = true, disable = true }

-- Fresh options with one set, and which properties that changed.
local function changed_by(name, row)
  local o = poptorch.Options()
  local prepare = PREPARE[row.name] or function(opts)
    opts:broadcastBuffers(false)
  end
  prepare(o)
  local before, group = values(o), name == "" and o or o[name]
  group[row.name](group, given.arguments(row))
  local changed = {}
  for key, value in pairs(values(o)) do
    changed[#changed + 1] = value ~= before[key] and key or nil
  end
  return o, changed
end

local function check(name, row, training)
  local o, changed = changed_by(name, row)
  local what = name .. ":" .. row.name
  assert.is_true(#changed > 0 or RESETS[row.name] or row.name == "set", what)
  if not training and o.Training.gradient_accumulation > 1 then
    return
  end
  local seen, ok, report = reads(o, function()
    return use(o, training)
  end)
  if not ok then
    assert.is_true(errors.NotImplementedError:is(report), what .. ": " .. tostring(report))
    return
  end
  local notes = table.concat(report.no_effect, "\n")
  for _, key in ipairs(changed) do
    assert.is_true(seen[key] or key == "profile_dir" -- which the engine options have
      or notes:find(row.name, 1, true) ~= nil
      or key == "source_location_excludes" and notes:find("sourceLocationExcludes", 1, true) ~= nil,
      ("%s: %s is neither read nor noted in\n%s"):format(what, key, notes))
  end
  if row.no_effect then
    assert.is_truthy(notes:find(row.no_effect, 1, true)
      or row.name == "appendToLocationExcludes", what .. " is not noted in\n" .. notes)
  end
end

-- Two layers on as many IPUs and in as many phases; 64 x 192 elements are more
-- than 8192, a bias has fewer.
local Layers = nn.Module:extend("Layers")

function Layers:init()
  self.first, self.second = nn.Linear(64, 192), nn.Linear(192, 64)
  self.loss = nn.MSELoss()
end

function Layers:forward(x)
  local h
  do
    local _ <close> = poptorch.Block("A", { ipu_id = 0 })
    h = self.first(x):relu()
  end
  local _ <close> = poptorch.Block("B", { ipu_id = 1 })
  local y = self.second(h):tanh()
  return y, self.loss(y, x)
end

local function report_of(o, training, momentum)
  local net = Layers()
  local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = momentum or 0 })
  local model = training and poptorch.trainingModel(net, o, optimizer)
    or poptorch.inferenceModel(net, o)
  model:compile(torch.ones(rules.input_factor(o) * 8, 64))
  local report = model:report()
  model:destroy()
  return report
end

local function noted(report, name)
  for _, note in ipairs(report.no_effect) do
    if note:find(name, 1, true) then
      return note
    end
  end
  return nil
end

-- The programs in which locations are tried.
local CONTEXTS = {
  training = { training = true, momentum = 0.9, tiles = 32, replicas = 2 },
  ["without state or I/O tiles"] = { training = true, replicas = 2 },
  ["one replica"] = { training = true, momentum = 0.9, tiles = 32 },
  inference = { tiles = 32, replicas = 2 },
}
for _, liveness in ipairs(poptorch.Liveness:members()) do
  for _, training in ipairs({ true, false }) do
    CONTEXTS[tostring(liveness) .. (training and " in training" or "")] = {
      training = training, momentum = 0.9, tiles = 32,
      strategy = function()
        return poptorch.SerialPhasedExecution("A", "B"):setTensorsLiveness(liveness)
      end,
    }
  end
end
CONTEXTS["parallel phases"] = { training = true, tiles = 32, strategy = function()
  return poptorch.ParallelPhasedExecution("A", "B")
end }

-- What is set of a location, and what is set before.
local LOCATED = {
  { set = { "useOnChipStorage", false } },
  { set = { "useOnChipStorage", true } },
  { set = { "useOnChipStorage", false }, before = { minElementsForOffChip = 1000000 } },
  { set = { "minElementsForOffChip", 1000 } },
  { set = { "minElementsForOffChip", 1000 }, before = { useOnChipStorage = false } },
  { set = { "minElementsForOffChip", 3 }, before = { useOnChipStorage = false } },
  { set = { "useReplicatedTensorSharding", true } },
  { set = { "useReplicatedTensorSharding", true },
    before = { minElementsForReplicatedTensorSharding = 1000000 } },
  { set = { "minElementsForReplicatedTensorSharding", 3 } },
  { set = { "minElementsForReplicatedTensorSharding", 3 },
    before = { useReplicatedTensorSharding = true } },
  { set = { "minElementsForReplicatedTensorSharding", 8193 },
    before = { useReplicatedTensorSharding = true } },
  { set = { "useIOTilesToLoad", true } },
  { set = { "useIOTilesToLoad", true }, before = { useOnChipStorage = false } },
  { set = { "useIOTilesToStore", true } },
  { set = { "useIOTilesToStore", true }, before = { useOnChipStorage = false } },
}

local reports = {} -- of what was asked for before

-- The report with a location of these settings.
local function report_with(name, kind, settings)
  local key = { name, kind }
  for _, setting in ipairs(tables.keys(settings)) do
    key[#key + 1] = setting .. "=" .. tostring(settings[setting])
  end
  key = table.concat(key, " ")
  if reports[key] then
    return table.unpack(reports[key])
  end
  local context = CONTEXTS[name]
  local o = poptorch.Options():replicationFactor(context.replicas or 1)
  o:deviceIterations(context.training and 1 or 4)
  o.Training:gradientAccumulation(context.training and 4 or 1)
  if context.strategy then
    o:setExecutionStrategy(context.strategy())
  end
  if context.tiles then
    o.TensorLocations:numIOTiles(context.tiles)
  end
  local location = poptorch.TensorLocationSettings()
  for other, value in pairs(settings) do
    location[other](location, value)
  end
  local set = "set" .. kind .. "Location"
  o.TensorLocations[set](o.TensorLocations, location)
  local report = report_of(o, context.training, context.momentum)
  reports[key] = { report.plan:json(), noted(report, "TensorLocations." .. set) or "" }
  return table.unpack(reports[key])
end

-- A setting that leaves the report as it is without, and not the location as
-- fresh ones are, is noted, by its name or with all of its kind; another is not.
local function located(name, kind, case)
  local with, set, value = {}, table.unpack(case.set)
  for key, before in pairs(case.before or {}) do
    with[key] = before
  end
  local before = report_with(name, kind, with)
  with[set] = value
  local after, note = report_with(name, kind, with)
  local what = ("%s: %s.%s(%s): %s"):format(name, kind, set, tostring(value), note)
  local told = note:find(set .. ":", 1, true) or note:find(" has no ", 1, true)
  if before ~= after then
    assert.is_nil(told, what)
  elseif value ~= (set == "useOnChipStorage" and not CONTEXTS[name].strategy) then
    local of = set == "minElementsForReplicatedTensorSharding" and "useReplicatedTensorSharding:"
    assert.is_truthy(told or of and note:find(of, 1, true), what)
  end
end

describe("an option that is set", function()
  local level
  before_each(function()
    level = poptorch.setLogLevel and require("lupine.core").host.log_level()
    poptorch.setLogLevel("OFF")
  end)
  after_each(function()
    require("lupine.core").host.log_level(level)
    require("poptorch.logging").use_file(nil)
    files.remove(given.folder)
  end)

  for _, training in ipairs({ true, false }) do
    it("is read, refused or noted in " .. (training and "training" or "inference"), function()
      local parts = { { "", options.Options } }
      for _, name in ipairs(options.GROUPS) do
        parts[#parts + 1] = { name, options.CLASSES[name] }
      end
      for _, part in ipairs(parts) do
        for _, row in ipairs(part[2]._rows) do
          if row.name then
            check(part[1], row, training)
          end
        end
      end
    end)
  end

  it("in a location changes the report, or is noted", function()
    for name in pairs(CONTEXTS) do
      for _, kind in ipairs({ "Activation", "Weight", "Optimizer", "Accumulator" }) do
        for _, case in ipairs(LOCATED) do
          -- which activations are kept, and how large they are, options do not know
          if kind ~= "Activation" or case.set[1] ~= "minElementsForOffChip"
            or case.set[2] ~= 3 then
            located(name, kind, case)
          end
        end
      end
    end
  end)

  it("as the memory proportion of an IPU is noted if that has no work", function()
    local function report(proportions)
      local o = poptorch.Options():setAvailableMemoryProportion(proportions)
      o.Training:gradientAccumulation(4)
      return report_of(o, true)
    end
    local plain = report({})
    assert.is_true(noted(plain, "setAvailableMemoryProportion") == nil)
    local one, other = report({ IPU1 = 0.0005 }), report({ IPU1 = 0.6, IPU3 = 0.01, IPU2 = 0.01 })
    assert.is_nil(noted(one, "setAvailableMemoryProportion"))
    assert.is_false(one.plan:json() == plain.plan:json())
    assert.equal(plain.plan:json(), other.plan:json())
    assert.equal("setAvailableMemoryProportion: the model does not use IPU2, IPU3",
      noted(other, "setAvailableMemoryProportion"))
  end)

  it("that acts on some types or operators is noted where there are none", function()
    for name, case in pairs({
      enableStochasticRounding = { "Precision", true, "nothing is of float16" },
      setPartialsType = { "Precision", torch.half, "nothing is of float16" },
      setConvolutionDithering = { "Training", true, "the model has no convolution" },
    }) do
      local function notes(model, x)
        local o = poptorch.Options()
        o[case[1]][name](o[case[1]], case[2])
        local executor = poptorch.inferenceModel(model, o)
        executor:compile(x)
        return table.concat(executor:report().no_effect, "\n")
      end
      local note = ("%s.%s: %s"):format(case[1], name, case[3])
      assert.matches(note, notes(nn.Linear(4, 4), torch.ones(2, 4)), 1, true)
      assert.is_nil(notes(nn.Conv1d(1, 1, 2):half(), torch.ones(1, 1, 4):half()):find(name))
    end
  end)

  it("by a name of PopART is read, refused or noted", function()
    local value = { bool = true, int = 1, float = 1.0, string = "x", list = {}, table = { x = 1 } }
    local read = {}
    for _, name in ipairs(session_options.names) do
      local o = poptorch.Options()
      local fate = session_options.fate(name)
      o._Popart:set(name, value[session_options.kind(name)] or 1)
      local ok, got = pcall(function()
        local model = poptorch.inferenceModel(nn.ReLU(), o)
        model:compile(torch.ones(2))
        return table.concat(model:report().no_effect, "\n")
      end)
      if fate == "refused" then
        assert.is_true(not ok and errors.NotImplementedError:is(got), name)
        assert.matches(name, got.message, 1, true)
      elseif fate == "read" then
        read[name] = true
      else
        assert.is_true(ok, tostring(got))
        assert.is_truthy(got:find(("_Popart.set('%s'): "):format(name), 1, true), name)
      end
    end
    -- those that are read: by rows of options, or by popart.session_options itself
    for _, cls in pairs(options.CLASSES) do
      for _, row in ipairs(cls._rows) do
        read[row.popart or ""] = nil
      end
    end
    for _, row in ipairs(options.Options._rows) do
      read[row.popart or ""] = nil
    end
    local rest = {}
    for name in pairs(read) do
      rest[#rest + 1] = name
    end
    table.sort(rest)
    assert.same({ "autoRecomputation", "automaticLossScalingSettings.binEdgeLocation",
      "automaticLossScalingSettings.gradientTensorTrackingMethod",
      "automaticLossScalingSettings.thresholdUpperCountProportion",
      "automaticLossScalingSettings.updatePeriod",
      "batchSerializationSettings.batchSchedule", "batchSerializationSettings.factor",
      "enableEngineCaching", "engineOptions",
      "executionPhaseSettings.accumulatorIOSchedule",
      "executionPhaseSettings.activationIOSchedule",
      "executionPhaseSettings.optimizerStateIOSchedule", "executionPhaseSettings.schedule",
      "executionPhaseSettings.weightIOSchedule",
      "lstmOptions", "matmulOptions" }, rest)
  end)
end)
