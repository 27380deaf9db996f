--- What becomes of session options that were set by their PopART names
--- (Options._Popart): some are read, some refused because they would change
--- results (poptorch.supported), the others are listed in a report's no_effect.
---
--- Source of the names: PopART's SessionOptions; see poptorch.options.popart.
local rules = require("poptorch.options.rules")

local M = {}

local function set_of(names)
  local set = {}
  for name in names:gmatch("%S+") do
    set[name] = true
  end
  return set
end

-- Options' own settings lie behind these, or the simulation reads them; what
-- the tables of library options hold is told key by key.
local READ = set_of [[automaticLossScalingSettings.enabled autoRecomputation
  enableFloatingPointChecks enableStochasticRounding enableStableNorm syntheticDataMode
  instrumentWithHardwareCycleCounter numIOTiles partialsTypeMatMuls cachePath
  enableEngineCaching convolutionOptions matmulOptions lstmOptions engineOptions]]

local WHY = {
  { "blocks and the execution strategy place operators", [[virtualGraphMode
    virtualGraphSplitRatios executionPhaseSettings.phases executionPhaseSettings.stages
    executionPhaseSettings.schedule executionPhaseSettings.weightIOSchedule
    executionPhaseSettings.activationIOSchedule executionPhaseSettings.optimizerStateIOSchedule
    executionPhaseSettings.accumulatorIOSchedule]] },
  { "batchSerializationSettings.factor is not set", [[batchSerializationSettings.method
    batchSerializationSettings.batchSchedule batchSerializationSettings.transformContext
    batchSerializationSettings.concatOnVirtualGraphChange
    batchSerializationSettings.concatOnExecutionPhaseChange
    batchSerializationSettings.concatOnPipelineStageChange]] },
  { "no ONNX file is written", "saveInitializersToFile" },
  { "locations are chosen for each kind of tensor, by Options.TensorLocations",
    "tensorLocationSettingsOverride" },
  { "the loss scale is float32 always", "ensureFp32LossScaleTensor" },
  { "softmax subtracts the greatest value always", "enableNonStableSoftmax" },
  { "automaticLossScalingSettings.enabled is not set", [[automaticLossScalingSettings.updatePeriod
    automaticLossScalingSettings.binEdgeLocation
    automaticLossScalingSettings.gradientTensorTrackingMethod
    automaticLossScalingSettings.thresholdUpperCountProportion]] },
  { "recomputation is planned by the execution strategy", "explicitRecomputation" },
  { "repeated parts of the graph are found without settings", [[enableOutlining
    enableOutliningCopyCostPruning outlineThreshold outlineSequenceBreakCost
    subgraphCopyingStrategy]] },
}
local why_of = {}
for _, row in ipairs(WHY) do
  for name in pairs(set_of(row[2])) do
    why_of[name] = row[1]
  end
end

local function sorted(t)
  local keys = {}
  for key in pairs(t) do
    keys[#keys + 1] = tostring(key)
  end
  table.sort(keys)
  return keys
end

local LIBRARIES = { "convolutionOptions", "matmulOptions", "lstmOptions" }

--- Whether partial results in half are asked for: by Precision or of a library.
---@param options poptorch.Options
---@return boolean
function M.half_partials(options)
  local session = options._Popart:toDict()
  local half = options.Precision.partials_type == "half"
  for _, name in ipairs(LIBRARIES) do
    half = half or (session[name] or {}).partialsType == "half"
  end
  return half
end

local function note_libraries(session, partials, note)
  for _, name in ipairs(LIBRARIES) do
    for _, key in ipairs(sorted(session[name] or {})) do
      local value = session[name][key]
      local of = ("_Popart.set('%s') %s"):format(name, key)
      if key == "partialsType" then
        note(value ~= partials, of, "the simulated machine has one type of partials, that of "
          .. "Precision.setPartialsType")
      else -- setConvolutionDithering writes text; it is noted under its own name
        note(key ~= "enableConvolutionDithering" or type(value) ~= "string", of,
          "the planner of the simulated machine has no such setting")
      end
    end
  end
end

--- note(set, name, why) for every session option, engine option and pattern
--- that was chosen and that nothing reads.
---@param options poptorch.Options
---@param note fun(set: boolean, name: string, why: string)
function M.note(options, note)
  local popart = options._Popart
  local session = popart:toDict()
  for _, name in ipairs(sorted(popart._options)) do
    note(not READ[name], ("_Popart.set('%s')"):format(name),
      why_of[name] or "the simulated system has no such choice")
  end
  note(session.enableEngineCaching and not session.cachePath,
    "_Popart.set('enableEngineCaching')", "there is no cachePath")
  note_libraries(session, options.Precision.partials_type, note)
  for _, key in ipairs(sorted(rules.engine_options(options))) do
    local profiling = options.profile_dir and key:find("^autoReport%.")
    note(key ~= "debug.allowOutOfMemory" and not profiling, ("engine option '%s'"):format(key),
      "the simulated engine has debug.allowOutOfMemory only")
  end
  local patterns = table.concat(sorted(popart.patterns), ", ")
  note(patterns ~= "" or popart.patterns_level ~= 2, "_Popart.setPatterns",
    ("the passes over the graph are fixed (given: level %d%s)"):format(popart.patterns_level,
      patterns ~= "" and "; " .. patterns or ""))
end

return M
