--- Options.Distributed: this process among those that train together. The
--- count and the id come from Open MPI's variables when the options are made.
--- Source: PopTorch API reference, poptorch.options._DistributedOptions.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local variables = require("lupine.base.variables")

local Distributed
Distributed = Group.define("_DistributedOptions", {
  {
    name = "configureProcessId", params = { { "process_id", kind = "int", min = 0 },
      { "num_processes", kind = "int", min = 1 } },
    set = function(self, values, _, row)
      local n = Group._argument(row, "num_processes", values[2])
      local id = Group._argument(row, "process_id", values[1], "int", { min = 0, max = n - 1 })
      self._values.processId, self._values.numProcesses = id, n
    end,
    doc = "Sets this process's id and the number of processes.",
    effect = "The rows that a DataLoader reads; inference runs this process's replicas, "
      .. "training with more than one is refused.",
  },
  {
    name = "setEnvVarNames", params = { { "var_num_processes", kind = "string" },
      { "var_process_id", kind = "string" } },
    set = function(self, values, _, row)
      local size = Group._argument(row, "var_num_processes", values[1])
      local rank = Group._argument(row, "var_process_id", values[2])
      self:_read_env(size, rank)
    end,
    doc = "Reads count and id from these environment variables, now.",
    effect = "As configureProcessId.",
  },
  {
    name = "disable", params = {},
    set = function(self)
      self._values.processId, self._values.numProcesses = 0, 1
    end,
    doc = "Ignores the environment: one process.",
    effect = "As configureProcessId(0, 1).",
  },
  {
    key = "numProcesses", default = 1, dict = "num_distributed_processes",
    doc = "Number of processes.", setter = "configureProcessId",
  },
  {
    key = "processId", default = 0, dict = "distributed_process_id",
    doc = "Id of this process, from 0.", setter = "configureProcessId",
  },
})

function Distributed:_read_env(size, rank)
  local n, id = variables.integer(size, 1, 1), variables.integer(rank, 0, 0)
  errors.check(id < n, "ValueError", "%s: the number of a process is less than how many there "
    .. "are, got %d with %s = %s", rank, id, size, os.getenv(size) or "nil (1)")
  self._values.numProcesses, self._values.processId = n, id
end

--- Takes the number of processes and this one's from MPI's environment.
function Distributed:init()
  self:_read_env("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
end

--- Replicas of all processes and the first one of this process.
---@param replication_factor integer
---@return integer total, integer first
function Distributed:replicas(replication_factor)
  replication_factor = check.int(replication_factor, "replicas: replication_factor")
  return self.numProcesses * replication_factor, self.processId * replication_factor
end

return Distributed
