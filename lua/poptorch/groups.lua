--- Weights that differ between groups of replicas: parameter:replicaGrouping(…),
--- which PopTorch has on the parameters of a wrapped model.
---
--- The host's tensor then has a first dimension more than what forward sees: a
--- slice for each group, or for each replica.
---
--- Source: PopTorch user guide 4.4.3, listing 4.14; API reference,
--- replicaGrouping, CommGroupType, VariableRetrievalMode.
local check = require("lupine.base.check")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")
local text = require("torch.nn.text")

local M = {}

local G = enums.CommGroupType

-- The core's names.
local KIND = { [G.Consecutive] = "consecutive", [G.Orthogonal] = "orthogonal",
  [G.NoGrouping] = "none" }

-- State of an executor -> when it was made or read last: two may have the same
-- parameter, each with groups of its own.
local read_at = setmetatable({}, { __mode = "k" })
local reads = 0

--- An executor was made, or gave a parameter or module of its model: that is
--- whose parameter's groups are set next.
---@param s table the executor's state
function M.note(s)
  reads = reads + 1
  read_at[s] = reads
end

-- The executor's state and the parameter's name in its model.
local function owner_of(param)
  local found, name
  for s, at in pairs(read_at) do
    if not found or at > read_at[found] then
      for path, p in s.model:named_parameters() do
        if rawequal(p, param) then
          found, name = s, path
        end
      end
    end
  end
  errors.check(found, "Error", "replicaGrouping: this tensor is no parameter of a model that was "
    .. "given to poptorch.trainingModel or poptorch.inferenceModel")
  return found, name
end

--- The first dimension of a parameter is as its groups want it.
--- error: poptorch.Error
---@param s table the executor's state
---@param name string
---@param param torch.Tensor
---@param group table of s.groups
local function check_slices(s, name, param, group)
  errors.check(param:dim() > 0, "Error", "replicaGrouping: parameter '%s' is a scalar: it has no "
    .. "first dimension with a value for each group", name)
  local rf = s.options.replication_factor
  local size = group[1] == "none" and 1 or group[2]
  local slices = group[3] and rf or rf // size
  errors.check(param:size(0) == slices, "Error", "replicaGrouping: parameter '%s' has shape %s: "
    .. "its first dimension must be %d, one for each %s (%d replicas in groups of %d)", name,
    text.repr(param.shape), slices, group[3] and "replica" or "group", rf, size)
end

--- The groups of a parameter as a trace declares them; nil: all replicas have
--- the same values.
---@param s table the executor's state
---@param name string
---@param param torch.Tensor
---@return table? {kind, size, each}
function M.of(s, name, param)
  local group = s.groups and s.groups[param]
  if group then
    check_slices(s, name, param, group)
  end
  return group
end

--- The executor has a program whose variables tell the groups.
---@param s table the executor's state
---@param vars table[] of its step
---@param parameters table<string, torch.Tensor>
function M.adopt(s, vars, parameters)
  s.groups = {}
  for _, v in ipairs(vars) do
    local param = v.group and parameters[v.name]
    if param then
      s.groups[param] = v.group
    end
  end
end

local PARAMETERS = { "self", "comm_group_type", "shards", "variable_retrieval_mode" }

--- Gives groups of replicas values of their own: written `model.W:replicaGrouping(…)`
--- where model is what poptorch.trainingModel or poptorch.inferenceModel gave (of
--- several that have the parameter the one that was read last), before it is
--- compiled. The parameter's first dimension has a value for each group
--- (OnePerGroup) or for each replica (AllReplicas), forward sees the others.
--- CommGroupType.All takes the groups back.
---
--- Gradients are summed within a group and divided by all replicas. Slices of
--- replicas that share a group must be equal on the way to the device.
---
--- error: poptorch.Error if the model is compiled, for a size that does not divide
--- the replication factor, for a parameter whose first dimension is another
--- source: 001 replicaGrouping, 000 4.4.3
---@param ... any self (a parameter), comm_group_type, shards (replicas in each group; nothing
--- for All and NoGrouping), variable_retrieval_mode
local function replica_grouping(...)
  local a = check.arguments("replicaGrouping", PARAMETERS, nil, ...)
  local param, kind = a[1], check.enum(a[2], "replicaGrouping: comm_group_type", G)
  local retrieval = check.enum(a[4], "replicaGrouping: variable_retrieval_mode",
    enums.VariableRetrievalMode)
  errors.check(core.is_tensor(param), "TypeError", "replicaGrouping: expected a Tensor, got %s",
    check.describe(param))
  local s, name = owner_of(param)
  errors.check(not s.session, "Error", "replicaGrouping: the model is compiled already: set the "
    .. "groups of '%s' before, or destroy() it", name)
  local group, rf = nil, s.options.replication_factor
  if kind ~= G.All then
    group = { KIND[kind], nil, retrieval == enums.VariableRetrievalMode.AllReplicas }
  end
  if kind == G.Consecutive or kind == G.Orthogonal then
    group[2] = check.int(a[3], "replicaGrouping: shards")
    errors.check(group[2] > 0 and rf % group[2] == 0, "Error", "replicaGrouping: shards: expected "
      .. "a divisor of the replication factor %d, got %d", rf, group[2])
  end
  if group then
    check_slices(s, name, param, group)
  end
  s.groups = s.groups or {}
  s.groups[param] = group
end

signatures.note(replica_grouping, ("replicaGrouping(%s)"):format(table.concat(PARAMETERS, ", ")))
core.methods.replicaGrouping = replica_grouping

return M
