--- What PopRun tells the processes that it starts: `local popdist =
--- require("popdist")`. Each process, an instance, has some of all replicas;
--- the figures come from variables of the environment, and without them there
--- is one instance with one replica.
--- Source: PopDist and PopRun user guide, "PopDist Python API reference".
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local namespace = require("lupine.base.namespace")
local variables = require("lupine.base.variables")

local M = {}

local figure = variables.integer

--- Whether PopRun has started this process.
---@return boolean
function M.isPopdistEnvSet()
  return variables.text("POPDIST_NUM_TOTAL_REPLICAS") ~= nil
end

--- Replicas of all instances.
---@return integer
function M.getNumTotalReplicas()
  return figure("POPDIST_NUM_TOTAL_REPLICAS", 1, 1)
end

--- Replicas of this instance.
---@return integer
function M.getNumLocalReplicas()
  return figure("POPDIST_NUM_LOCAL_REPLICAS", 1, 1)
end

--- The number of this instance's first replica, from 0.
---@return integer
function M.getReplicaIndexOffset()
  return figure("POPDIST_REPLICA_INDEX_OFFSET", 0, 0)
end

--- IPUs of a replica.
---@return integer
function M.getNumIpusPerReplica()
  return figure("POPDIST_NUM_IPUS_PER_REPLICA", 1, 1)
end

--- The number of this instance among those of its host, from 0.
---@return integer
function M.getLocalInstanceIndex()
  return figure("POPDIST_LOCAL_INSTANCE_INDEX", 0, 0)
end

--- Whether a replica has so many IPUs, as far as PopRun has told.
---@param expected integer
---@return boolean
function M.checkNumIpusPerReplica(expected)
  check.int(expected, "checkNumIpusPerReplica: expected", { min = 1 })
  return figure("POPDIST_NUM_IPUS_PER_REPLICA", expected, 1) == expected
end

-- Counts by replicas, of which each instance has as many.
local function instances_of(replicas, what)
  local each = M.getNumLocalReplicas()
  errors.check(replicas % each == 0, "RuntimeError",
    "popdist: instances must have the same number of replicas; this one has %d, %s %d", each, what,
    replicas)
  return replicas // each
end

--- The number of instances.
--- error: RuntimeError if they differ in replicas
---@return integer
function M.getNumInstances()
  return instances_of(M.getNumTotalReplicas(), "all together")
end

--- The number of this instance, from 0.
--- error: RuntimeError if instances differ in replicas
---@return integer
function M.getInstanceIndex()
  return instances_of(M.getReplicaIndexOffset(), "those before it")
end

--- Checks what the environment says of this instance, before a script asks for
--- a part of it.
--- error: ValueError for a figure that is no number, RuntimeError for one that
--- contradicts others
function M.init()
  M.getNumInstances()
  local index, last = M.getInstanceIndex(), M.getNumInstances() - 1
  errors.check(index <= last, "RuntimeError",
    "popdist.init: this instance is number %d, the last of all is %d", index, last)
  M.getNumIpusPerReplica()
  M.getLocalInstanceIndex()
end

return setmetatable(M, {
  __index = function(_, key)
    if key == "poptorch" then
      return require("popdist.poptorch")
    elseif type(key) == "string" then
      namespace.unknown(M, key, "popdist")
    end
  end,
})
