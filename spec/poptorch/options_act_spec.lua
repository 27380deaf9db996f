--- Every option that is said to have an effect has one: some program shows
--- another report, other values, lines of the log, files or errors with it. Those
--- that are said to have none have none.
local core = require("lupine.core")
local given = require("spec.support.option_values")
local environment = require("spec.poptorch.helper").with_env
local nn = require("torch.nn")
local options = require("poptorch.options")
local logging = require("poptorch.logging")
local poptorch = require("poptorch")
local rules = require("poptorch.options.rules")
local session_options = require("popart.session_options")
local torch = require("torch")

-- ---- the programs --------------------------------------------------------------------------

-- Two layers, on two IPUs if told so, with what options speak of: casting, float16,
-- random numbers, a buffer that is written and one that is not.
local Sample = nn.Module:extend("Sample")

function Sample:init(ipus)
  self.ipus = ipus
  self.first, self.second = nn.Linear(64, 192), nn.Linear(192, 64)
  self.norm, self.loss = nn.LayerNorm(64), nn.MSELoss()
  self:register_buffer("count", torch.zeros(1))
  self:register_buffer("offset", torch.ones(1))
end

function Sample:forward(x)
  local h
  do
    local _ <close> = poptorch.Block("A", { ipu_id = 0 })
    self.count:add_(1)
    h = poptorch.autocast(function()
      return self.first(x + self.count + self.offset)
    end):float()
    h = nn.functional.dropout(h:relu(), 0.5)
  end
  local _ <close> = poptorch.Block("B", { ipu_id = self.ipus - 1 })
  local y = self.norm(self.second(h:half()):float() / 3)
  return y, self.loss(y, x)
end

-- The texts of what a call gives, or of what it raises.
local function text_of(f, ...)
  local got = table.pack(pcall(f, ...))
  local out = { tostring(got[1]) }
  for i = 2, got.n do
    local v = got[i]
    if core.is_tensor(v) then
      out[i] = tostring(v.shape) .. tostring(v:double():sum():item())
    elseif type(v) == "table" and (v.message or getmetatable(v) == nil) then
      out[i] = v.message or table.concat({ #v, type(v[1]) }, " ")
    else
      out[i] = type(v) == "string" and v or type(v)
    end
  end
  return table.concat(out, " ")
end

local FOLDER = os.tmpname()
os.remove(FOLDER)

local function files()
  local list = io.popen("find " .. FOLDER .. " -type f 2>/dev/null | sort")
  local text = list:read("a")
  list:close()
  os.execute("rm -rf " .. FOLDER)
  return text
end

local function weights(model)
  local out = {}
  for name, p in model:named_parameters() do
    out[#out + 1] = name .. p:double():sum():item()
  end
  return table.concat(out, " ")
end

local METHODS = { "isAttachedToDevice", "compilationTime", "cycleCount", "hostProfile",
  "getLatency", "copyNamedBuffersToDevice", "getTensorNames", "detachFromDevice" }

-- What a program of these options shows, as {name, text}.
local function watch(seen, o, training, ipus)
  local function note(name, f, ...)
    seen[#seen + 1] = { name, text_of(f, ...) }
  end
  torch.manual_seed(1)
  local net = Sample(ipus)
  local x = torch.randn(rules.input_factor(o), 64)
  local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
  if o.random_seed then
    torch.manual_seed(2) -- the device's is the options'
  end
  local model
  note("wrap", function()
    model = training and poptorch.trainingModel(net, o, optimizer)
      or poptorch.inferenceModel(net, o)
    return "wrapped"
  end)
  if not model then
    return
  end
  note("compile", function()
    model:compile(x)
    return model:report().plan:json() -- without what has no effect
  end)
  note("nodes", function()
    local parts = {}
    for _, node in ipairs(model:report():nodes()) do
      parts[#parts + 1] = ("%s %s:%s"):format(node.name, node.file, node.line)
    end
    return table.concat(parts, "\n")
  end)
  note("call", model, x)
  note("call again", model, x)
  note("anchor", function()
    return model:getAnchoredTensor("w")
  end)
  note("weights", weights, net)
  note("infinities", model, x * math.huge)
  for _, name in ipairs(METHODS) do
    note(name, function()
      return model[name](model)
    end)
  end
  note("setOptimizer", function()
    optimizer.not_an_attribute = 1
    model:setOptimizer(optimizer)
  end)
  for _ = 1, 7 do
    logging.warn("the same line")
  end
  note("loader", function()
    local loader = poptorch.DataLoader(o, torch.utils.data.TensorDataset(torch.arange(64)),
      { batch_size = 1 })
    local first = loader:iter()()
    return loader.combinedBatchSize, first
  end)
  pcall(model.destroy, model)
end

-- The log that f writes, levels and all, without times and without what only
-- says that an option was set.
local function log_of(f)
  local log, lines = core.host.log, {}
  core.host.log = function(level, line)
    if not line:find("^poptorch%.Options set ") then
      lines[#lines + 1] = level .. " " .. line:gsub("%d+%.%d+ s", "some time")
    end
  end
  logging.set_max_repeats(0) -- no line was seen before
  logging.set_max_repeats(4)
  local ok, e = pcall(f)
  core.host.log = log
  assert(ok, e)
  return table.concat(lines, "\n")
end

-- The same with the log and the files; `set` gets fresh options.
local function observe(set, training, ipus)
  local seen = {}
  os.execute("mkdir -p " .. FOLDER .. "/logs")
  local log = log_of(function()
    local o = poptorch.Options():broadcastBuffers(false)
    if ipus == 2 then
      o:deviceIterations(training and 1 or 2)
      o.Training:gradientAccumulation(training and 4 or 1)
    end
    set(o, training)
    watch(seen, o, training, ipus)
  end)
  seen[#seen + 1] = { "log", log }
  seen[#seen + 1] = { "files", files() }
  return seen
end

-- Names of what differs.
local function differences(a, b)
  local of, list = {}, {}
  for _, entry in ipairs(a) do
    of[entry[1]] = entry[2]
  end
  for _, entry in ipairs(b) do
    list[#list + 1] = of[entry[1]] ~= entry[2] and entry[1] or nil
  end
  return list
end

-- ---- the walk --------------------------------------------------------------------------------

given.given.logDir = { FOLDER .. "/logs" }
given.given.enableExecutableCaching = { FOLDER .. "/cache" }
given.given.enableProfiling = { FOLDER .. "/profile" }
given.given.gradientAccumulation = { 8 }
given.given.deviceIterations = { 8 }
given.given.setExecutionStrategy = { poptorch.SerialPhasedExecution("A", "B") }
given.given.anchorTensor = { "w", "first.weight" }
given.given.setAvailableMemoryProportion = { { IPU0 = 0.0005 } }
given.given.autocastPolicy = { poptorch.autocasting.Policy({}, { nn.functional.linear }) }
given.given.updatableNamedBuffers = { { "offset" } }
given.given.sourceLocationExcludes = { { "options_act_spec" } }
given.given.appendToLocationExcludes = { "options_act_spec" }

given.given.set = { "autoRecomputation", 0 }

local function accumulated(o, training)
  o.Training:gradientAccumulation(training and 4 or 1)
end

-- What options need of others, with and without them.
local PREPARE = {
  broadcastBuffers = function(o)
    o:replicationFactor(2):broadcastBuffers(true)
  end,
  inputReplicaGrouping = function(o)
    o:replicationFactor(2)
  end,
  outputMode = function(o)
    o:deviceIterations(2)
  end,
  accumulationAndReplicationReductionType = accumulated,
  setMeanAccumulationAndReplicationReductionStrategy = accumulated,
  modelName = function(o)
    o:logDir(FOLDER .. "/logs")
  end,
  autoRoundNumIPUs = function(o)
    o:replicationFactor(3)
  end,
  disable = function(o)
    o.Distributed:configureProcessId(1, 2)
  end,
}

local CONTEXTS = { { true, 1 }, { false, 1 }, { true, 2 }, { false, 2 } }

-- What `set` changes in some program; fn(names) may stop the walk.
local function each_difference(prepare, set, fn)
  prepare = prepare or function() end
  for _, context in ipairs(CONTEXTS) do
    local training, ipus = context[1], context[2]
    local without = observe(prepare, training, ipus)
    local with = observe(function(o)
      prepare(o, training)
      set(o)
    end, training, ipus)
    if fn(differences(without, with)) then
      return true
    end
  end
  return false
end

local function some(names)
  return #names > 0
end

local function each_row(fn)
  local parts = { { "", options.Options } }
  for _, name in ipairs(options.GROUPS) do
    parts[#parts + 1] = { name, options.CLASSES[name] }
  end
  for _, part in ipairs(parts) do
    for _, row in ipairs(part[2]._rows) do
      if row.name then
        fn(part[1] .. ":" .. row.name, row, PREPARE[row.name], function(o)
          local group = part[1] == "" and o or o[part[1]]
          group[row.name](group, given.arguments(row))
        end)
      end
    end
  end
end

-- Values of PopART's options that are read.
local SESSION = {
  ["automaticLossScalingSettings.enabled"] = true, autoRecomputation = 0,
  enableFloatingPointChecks = true, enableStochasticRounding = true, enableStableNorm = true,
  syntheticDataMode = 2, instrumentWithHardwareCycleCounter = true, numIOTiles = 32,
  partialsTypeMatMuls = "half", cachePath = FOLDER .. "/cache", enableEngineCaching = true,
  convolutionOptions = { partialsType = "half" }, matmulOptions = { partialsType = "half" },
  ["batchSerializationSettings.factor"] = 2,
  lstmOptions = { partialsType = "half" }, engineOptions = { ["debug.allowOutOfMemory"] = "true" },
}

for _, name in ipairs({ "binEdgeLocation", "thresholdUpperCountProportion", "updatePeriod",
  "gradientTensorTrackingMethod" }) do
  SESSION["automaticLossScalingSettings." .. name] = 1
end

-- Why one shows in none of the programs here.
local ELSEWHERE = {
  cachePath = "enableExecutableCaching sets it with enableEngineCaching",
  enableEngineCaching = "the same",
  ["batchSerializationSettings.factor"] = "phased execution: spec/poptorch/simulation_spec.lua",
  enableStableNorm = "normalisations: spec/poptorch/stable_norm_spec.lua",
  matmulOptions = "notes: spec/bind/program/program_spec.lua", lstmOptions = "the same",
  convolutionOptions = "convolutions: spec/poptorch/half_partials_spec.lua",
  ["Training:setConvolutionDithering"] = "convolutions: spec/passes/ipu/starts_spec.lua",
  engineOptions = "a program that does not fit: spec/poptorch/simulation_spec.lua",
}
for _, name in ipairs({ "weightIOSchedule", "activationIOSchedule", "accumulatorIOSchedule",
  "optimizerStateIOSchedule", "schedule" }) do
  SESSION["executionPhaseSettings." .. name] = 1
  ELSEWHERE["executionPhaseSettings." .. name] = "phased execution: "
    .. "spec/poptorch/simulation_spec.lua"
end
SESSION["batchSerializationSettings.batchSchedule"] = 3
ELSEWHERE["batchSerializationSettings.batchSchedule"] = "the same"
for name in pairs(SESSION) do
  ELSEWHERE[name] = ELSEWHERE[name] or name:find("^automaticLossScalingSettings%.[^e]")
    and "spec/poptorch/loss_scaling_spec.lua" or nil
end

describe("an option", function()
  local level
  setup(function()
    level = core.host.log_level()
    poptorch.setLogLevel("DEBUG")
  end)
  teardown(function()
    core.host.log_level(level)
    logging.set_max_repeats(4)
  end)

  it("that is said to have an effect has one", function()
    local env = { LUPINE_SPEC_NO_SIZE = "2", LUPINE_SPEC_NO_RANK = "1" }
    each_row(function(name, row, prepare, set)
      assert.is_true((row.effect == nil) ~= (row.no_effect == nil), name .. " does not say")
      if row.effect then
        environment(env, function()
          assert.is_true(ELSEWHERE[name] ~= nil or each_difference(prepare, set, some),
            name .. " shows nowhere")
        end)
      end
    end)
  end)

  it("that is said to have none has none but in the log and its files", function()
    each_row(function(name, row, prepare, set)
      if row.no_effect then
        each_difference(prepare, set, function(names)
          for _, what in ipairs(names) do
            assert.is_true(what == "log" or what == "files", ("%s changes %s"):format(name, what))
          end
        end)
      end
    end)
  end)

  it("of PopART that is read has an effect", function()
    for _, name in ipairs(session_options.names) do
      if session_options.fate(name) == "read" then
        local value = SESSION[name]
        assert.is_true(value ~= nil, name .. " is new: what shows it?")
        assert.is_true(ELSEWHERE[name] ~= nil or each_difference(nil, function(o)
          o._Popart:set(name, value)
        end, some), name .. " shows nowhere")
      end
    end
  end)
end)
