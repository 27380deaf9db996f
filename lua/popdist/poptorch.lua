--- PopTorch's options where PopRun starts the processes:
--- `local options = require("popdist.poptorch").Options()`.
--- Source: PopTorch API reference 11.1; PopTorch user guide, "Distributed
--- execution".
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local poptorch_options = require("poptorch.options")
local popdist = require("popdist")
local signatures = require("lupine.base.signatures")

local M = {}

-- Setters that would contradict PopRun, and the properties that they set.
local FIXED = { replicationFactor = "replication_factor", useIpuId = "ipu_id" }
local DISTRIBUTED = { disable = true, setEnvVarNames = true, configureProcessId = true }

local function refuse(name)
  return function()
    errors.raise("RuntimeError", "Cannot call `%s` with popdist.poptorch.Options: PopRun has set "
      .. "what it sets", name)
  end
end

local Distributed = poptorch_options._DistributedOptions:extend("_DistributedOptions")

function Distributed:init()
  self._values.numProcesses = popdist.getNumInstances()
  self._values.processId = popdist.getInstanceIndex()
end

for name in pairs(DISTRIBUTED) do
  Distributed[name] = refuse("Distributed." .. name)
end

--- poptorch.Options for a process that PopRun has started: the replicas of this
--- process and its place among the others are those of the environment and cannot
--- be changed; without that environment, one process with one replica.
--- source: PopTorch API reference, popdist.poptorch.Options
---@class popdist.poptorch.Options: poptorch.Options
local Options = poptorch_options.Options:extend("Options")
M.Options = Options
signatures.note(Options, "Options(ipus_per_replica=None)", 1)

function Options:setup()
  poptorch_options.Options.setup(self)
  local distributed = Distributed()
  rawset(distributed, "_owner", self)
  rawset(self, "Distributed", distributed)
  self._values.replication_factor = popdist.getNumLocalReplicas()
end

--- ipus_per_replica: what PopRun was told, to be sure of it; the number of IPUs
--- follows from the model.
--- error: RuntimeError if PopRun was told another number, or something that is
--- no number
---@param ... any ipus_per_replica, by position or name
function Options:init(...)
  local n = check.arguments("popdist.poptorch.Options", { "ipus_per_replica" }, nil, ...)[1]
  check.int(n, "popdist.poptorch.Options: ipus_per_replica", { nullable = true, min = 1 })
  errors.check(check.is_none(n) or popdist.checkNumIpusPerReplica(n), "RuntimeError",
    "popdist.poptorch.Options: ipus_per_replica: PopRun was told %d, got %s",
    popdist.getNumIpusPerReplica(), tostring(n))
end

function Options:_assign(row, value)
  if row.name and FIXED[row.name] then
    refuse(row.name)()
  end
  poptorch_options.Options._assign(self, row, value)
end

for name in pairs(FIXED) do
  Options[name] = refuse(name)
end

return M
