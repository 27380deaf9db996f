--- Values that the specs give to the setters of poptorch.Options.
local poptorch = require("poptorch")
local torch = require("torch")

local M = {}

--- What options write goes there: the spec that sets them removes it.
M.folder = os.tmpname()
os.remove(M.folder)

--- Arguments of setters, where the kind of the value alone does not tell them.
M.given = {
  enableExecutableCaching = { M.folder },
  enableProfiling = { M.folder },
  logDir = { M.folder },
  inputReplicaGrouping = { 2, poptorch.CommGroupType.Orthogonal },
  outputMode = { poptorch.OutputMode.EveryN, 2 },
  anchorTensor = { "w", "fc.weight" },
  setExecutionStrategy = { poptorch.ShardedExecution() },
  setAvailableMemoryProportion = { { IPU0 = 0.5 } },
  useIpuId = { 63 }, -- the last one that others would take
  useOfflineIpuTarget = { 1 },
  sourceLocationExcludes = { { "x" } },
  appendToLocationExcludes = { "x" },
  updatableNamedBuffers = { { "count" } },
  numIOTiles = { 32 },
  setPartialsType = { torch.half },
  autocastPolicy = { poptorch.autocasting.Policy({}, {}, {}, {}) },
  configureProcessId = { 1, 2 },
  setEnvVarNames = { "LUPINE_SPEC_NO_SIZE", "LUPINE_SPEC_NO_RANK" },
  disable = {},
  disableModuleNamescope = {},
  traceModel = { false },
  set = { "enableOutlining", true },
  setPatterns = { { A = true }, 1 },
}

local OFF_CHIP = poptorch.TensorLocationSettings():useOnChipStorage(false)

local function other(row)
  local kind = row.kind
  if kind == "bool" then
    return not row.default
  elseif kind == "int" then
    return (row.default or 1) + 1
  elseif kind == "string" then
    return "given"
  elseif kind == poptorch.TensorLocationSettings then
    return OFF_CHIP
  end
  for _, member in ipairs(kind:members()) do
    if member ~= row.default then
      return member
    end
  end
end

--- Arguments that make a difference.
---@param row table of an option
---@return any ...
function M.arguments(row)
  return table.unpack(M.given[row.name] or { other(row) })
end

return M
