--- Options of the libraries that PopART hands on: what convolutionOptions, matmulOptions,
--- lstmOptions and gclOptions may say. The rows are the one place that names them; their
--- values are texts.
---
--- Sources: PopLibs' API reference (convolutions, products of matrices, LSTMs); of
--- collectives PopART, whose error names the two.
local check = require("lupine.base.check")
local tables = require("lupine.base.tables")

local M = {}

local BOOL, TYPES = { "true", "false" }, { "half", "float" }
local SHARE, INTEGER, TEXT = "a number from 0 to 1", "an integer >= 0", "a text"

local PRODUCTS = { availableMemoryProportion = SHARE, partialsType = TYPES,
  use128BitConvUnitLoad = BOOL, enableMultiStageReduce = BOOL, enableFastReduce = BOOL,
  enableSingleInputReduce = BOOL, remapOutputTensor = BOOL, planConstraints = TEXT }

--- What values options take: texts that are allowed, or a kind in words.
---@type table<string, table<string, string[]|string>>
M.values = {
  convolutionOptions = tables.with(PRODUCTS, { interIpuPartialsType = TYPES,
    enableConvolutionDithering = BOOL, enableConvDithering = BOOL, gatherConvOutput = BOOL,
    planConstraintsOutputFilename = TEXT, startTileMultiplier = INTEGER, numIOTiles = INTEGER,
    pass = { "NONE", "INFERENCE_FWD", "TRAINING_FWD", "TRAINING_BWD", "TRAINING_WU",
      "FC_INFERENCE_FWD", "FC_TRAINING_FWD", "FC_TRAINING_BWD", "FC_TRAINING_WU" } }),
  matmulOptions = tables.with(PRODUCTS, { inputRHSIsPreArranged = BOOL,
    fullyConnectedPass = { "NONE", "INFERENCE_FWD", "TRAINING_FWD", "TRAINING_BWD",
      "TRAINING_WU" } }),
  lstmOptions = { availableMemoryProportion = SHARE, inferenceOnly = BOOL, partialsType = TYPES,
    weightAccumulatorsType = TYPES, preCalcWeights = BOOL, rnnCodeReuse = BOOL,
    recomputationMode = { "none", "cellAndTanh", "full" }, numShards = INTEGER },
  gclOptions = { useSynclessCollectives = { "true", "false", "auto", "hybrid" },
    maxBytesPerTile = INTEGER },
}

local FITS = {
  [SHARE] = function(text)
    local x = tonumber(text)
    return x and x >= 0 and x <= 1
  end,
  [INTEGER] = function(text)
    local x = math.tointeger(tonumber(text))
    return x and x >= 0
  end,
  [TEXT] = function()
    return true
  end,
}

local function fits(kind, text)
  return type(kind) == "string" and FITS[kind](text)
    or type(kind) == "table" and tables.set(kind)[text]
end

--- Names of the option of convolutions to dither: PopLibs', and the one that PopTorch writes.
M.DITHERING = { "enableConvDithering", "enableConvolutionDithering" }

--- Whether convolutionOptions ask for dithering.
---@param given table<string, any>
---@return boolean
function M.dithers(given)
  for _, name in ipairs(M.DITHERING) do
    if tostring(given[name]) == "true" then
      return true
    end
  end
  return false
end

--- The first name of a library's options that it does not have, and what it has.
---@param library string "convolutionOptions", …
---@param given table<string, any>
---@return string? nil: it has all
function M.unknown(library, given)
  local names = tables.keys(M.values[library])
  local name = tables.keys(given, function(name)
    return not M.values[library][name]
  end)[1]
  return name and ("%s: there is no option '%s'%s. Allowed: %s"):format(library, name,
    check.nearest(name, names), table.concat(names, ", "))
end

--- What is wrong with the first value of a library's options that is; those of names that
--- it does not have are not looked at.
---@param library string "convolutionOptions", …
---@param given table<string, any>
---@return string? nil: nothing
function M.wrong(library, given)
  for _, name in ipairs(tables.keys(given)) do
    local kind, text = M.values[library][name], tostring(given[name])
    if kind and not fits(kind, text) then
      return ("%s: %s: expected %s, got '%s'"):format(library, name,
        type(kind) == "table" and table.concat(kind, ", ") or kind, text)
    end
  end
  return nil
end

return M
