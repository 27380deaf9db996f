--- Weights that differ between groups of replicas: CommGroup, ReplicaGrouping and
--- VariableSettings. Replicas and groups count from 0.
---
--- Source: PopART Python API, VariableSettings.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local enums = require("popart.enums")
local errors = require("popart.errors")
local signatures = require("lupine.base.signatures")

local M = {}

local Type, Mode = enums.CommGroupType, enums.VariableRetrievalMode

local function at_least_one(value, where)
  return check.int(value, where, { min = 1 })
end

-- ---- groups ------------------------------------------------------------------------------

--- Replicas in groups of `groupSize`, whose members are `stride` apart.
--- error: popart_exception where they do not come out even
--- source: PopART Python API, ReplicaGrouping
---@class popart.ReplicaGrouping
---@field numReplicas integer
---@field stride integer
---@field groupSize integer
---@overload fun(numReplicas: integer, stride: integer?, groupSize: integer?):
---  popart.ReplicaGrouping
local ReplicaGrouping = closed.close(class.new("ReplicaGrouping"))
M.ReplicaGrouping = ReplicaGrouping
signatures.note(ReplicaGrouping, "ReplicaGrouping(numReplicas, stride, groupSize)", 1)

function ReplicaGrouping:init(...)
  local v = check.arguments("ReplicaGrouping", { "numReplicas", "stride", "groupSize" }, nil, ...)
  self.numReplicas = at_least_one(v[1], "ReplicaGrouping: numReplicas")
  self.stride = at_least_one(v[2] or 1, "ReplicaGrouping: stride")
  self.groupSize = at_least_one(v[3] or self.numReplicas, "ReplicaGrouping: groupSize")
  errors.check(self.numReplicas % (self.stride * self.groupSize) == 0, "popart_exception",
    "The number of replicas in a `popart::ReplicaGrouping` must be divisible by the product of "
    .. "the stride and the group size, got %d, %d and %d", self.numReplicas, self.stride,
    self.groupSize)
  self.stride = self.groupSize == 1 and 1 or self.stride
end

--- How many groups there are.
---@return integer
function ReplicaGrouping:getNumGroups()
  return self.numReplicas // self.groupSize
end

--- A replica of a group, the first unless `index` says which.
---@param group integer
---@param index? integer
---@return integer
function ReplicaGrouping:getReplicaAt(group, index)
  check.int(group, "getReplicaAt: group", { min = 0, max = self:getNumGroups() - 1 })
  check.int(index or 0, "getReplicaAt: index", { min = 0, max = self.groupSize - 1 })
  local first = group // self.stride * self.stride * self.groupSize + group % self.stride
  return first + (index or 0) * self.stride
end

--- The replicas of a group.
---@param group integer
---@return integer[]
function ReplicaGrouping:getReplicasAt(group)
  local out = {}
  for i = 1, self.groupSize do
    out[i] = self:getReplicaAt(group, i - 1)
  end
  return out
end

--- The group of a replica.
---@param replica integer
---@return integer
function ReplicaGrouping:getGroupAt(replica)
  check.int(replica, "getGroupAt: replica", { min = 0, max = self.numReplicas - 1 })
  return replica % self.stride + self.stride * (replica // (self.stride * self.groupSize))
end

function ReplicaGrouping.__eq(a, b)
  return a.numReplicas == b.numReplicas and a.stride == b.stride and a.groupSize == b.groupSize
end

function ReplicaGrouping.__tostring(self)
  return ("ReplicaGrouping(numReplicas=%d, stride=%d, groupSize=%d)"):format(self.numReplicas,
    self.stride, self.groupSize)
end

--- How replicas form groups, whatever their number: All, Consecutive(size),
--- Orthogonal(size) or Ungrouped.
--- error: TypeError
--- source: PopART Python API, CommGroup
---@class popart.CommGroup
---@field type popart.CommGroupType
---@field replicaGroupSize integer
---@overload fun(type: any, replicaGroupSize: integer?): popart.CommGroup
local CommGroup = closed.close(class.new("CommGroup"))
M.CommGroup = CommGroup
signatures.note(CommGroup, "CommGroup(type, replicaGroupSize)", 1)

function CommGroup:init(...)
  local v = check.arguments("CommGroup", { "type", "replicaGroupSize" }, nil, ...)
  self.type = check.enum(v[1] == nil and Type.All or v[1], "CommGroup: type", Type)
  self.replicaGroupSize = check.int(v[2] or 0, "CommGroup: replicaGroupSize", { min = 0 })
end

--- The groups of so many replicas.
--- error: popart_exception where they do not come out even
---@param n integer
---@return popart.ReplicaGrouping
function CommGroup:toReplicaGrouping(n)
  at_least_one(n, "toReplicaGrouping: numReplicas")
  local size = self.type == Type.All and n or self.type == Type.Ungrouped and 1
    or self.replicaGroupSize
  errors.check(size > 0, "popart_internal_exception", "Attempting to use 0 as a CommGroupSize, "
    .. "groups of type %s must have legal size.", self.type.name)
  errors.check(n % size == 0, "popart_exception",
    "%s: the group size must divide the number of replicas, %d", self, n)
  return ReplicaGrouping(n, self.type == Type.Orthogonal and n // size or 1, size)
end

function CommGroup.__eq(a, b)
  return a.type == b.type and a.replicaGroupSize == b.replicaGroupSize
end

function CommGroup.__tostring(self)
  return ("CommGroup(type=%s, replicaGroupSize=%d)"):format(self.type.name, self.replicaGroupSize)
end

-- ---- settings ------------------------------------------------------------------------------

--- Which replicas share a weight, and which of its values are read back: (CommGroup),
--- (VariableRetrievalMode), both, or (stride, groupSize, mode).
--- error: popart_internal_exception for a group without a size
--- source: PopART Python API, VariableSettings
---@class popart.VariableSettings
---@overload fun(sharedVariableDomain: popart.CommGroup?, retrievalMode: any):
---  popart.VariableSettings
---@overload fun(stride: integer, groupSize: integer, mode: any): popart.VariableSettings
local VariableSettings = closed.close(class.new("VariableSettings"))
M.VariableSettings = VariableSettings
signatures.note(VariableSettings,
  "VariableSettings(sharedVariableDomain_, retrievalMode_, stride, groupSize, mode)", 1)

local NAMES = { "sharedVariableDomain_", "retrievalMode_", "stride", "groupSize", "mode" }

-- domain, mode, stride, group size of any way to call it
local function arguments(...)
  local first, second, third = ...
  if math.type(first) == "integer" then
    return nil, third, first, second
  elseif Mode:is(first) then
    return nil, first
  elseif CommGroup:is(first) and Mode:is(second) then
    return first, second
  end
  local v = check.arguments("VariableSettings", NAMES, nil, ...)
  return v[1], v[2] or v[5], v[3], v[4]
end

function VariableSettings:init(...)
  local domain, mode, stride, size = arguments(...)
  self._mode = check.enum(mode == nil and Mode.OnePerGroup or mode,
    "VariableSettings: retrievalMode", Mode)
  if stride ~= nil or size ~= nil then
    self._stride = at_least_one(stride, "VariableSettings: stride")
    self._size = at_least_one(size, "VariableSettings: groupSize")
    self._stride = self._size == 1 and 1 or self._stride
    return
  end
  domain = check.instance(domain or CommGroup(), "VariableSettings: sharedVariableDomain",
    CommGroup)
  local grouped = domain.type == Type.Consecutive or domain.type == Type.Orthogonal
  errors.check(not grouped or domain.replicaGroupSize > 0, "popart_internal_exception",
    "Bad ReplicaGroupSize (%d) for domain type (%s)!", domain.replicaGroupSize, domain.type.name)
  self._domain, self._size = domain, domain.replicaGroupSize
end

--- Whether it was made of a CommGroup.
---@return boolean
function VariableSettings:isUsingCommGroup()
  return self._domain ~= nil
end

--- The CommGroup that it was made of.
--- error: popart_exception where it was made of a stride and a size
---@return popart.CommGroup
function VariableSettings:getSharedVariableDomain()
  return errors.check(self._domain, "popart_exception", "The variable settings were not "
    .. "initialised using a `popart::CommGroup` instance.")
end

--- The kind of its CommGroup, All without one.
---@return popart.CommGroupType
function VariableSettings:getCommGroupType()
  return self._domain and self._domain.type or Type.All
end

--- The groups of so many replicas.
---@param replicas integer
---@return popart.ReplicaGrouping
function VariableSettings:getReplicaGrouping(replicas)
  if self._domain then
    return self._domain:toReplicaGrouping(replicas)
  end
  return ReplicaGrouping(replicas, self._stride, self._size)
end

--- The stride that it was made of, or, of so many replicas, that between a group's members.
---@param replicas? integer
---@return integer
function VariableSettings:getStride(replicas)
  return replicas and self:getReplicaGrouping(replicas).stride or self._stride or 0
end

--- The group size that it was made of; 0 for All.
---@return integer
function VariableSettings:getGroupSize()
  return self._size
end

--- Which values are read back.
---@return popart.VariableRetrievalMode
function VariableSettings:getRetrievalMode()
  return self._mode
end

--- How many groups so many replicas form.
---@param replicas integer
---@return integer
function VariableSettings:getGroupCount(replicas)
  return self:getReplicaGrouping(replicas):getNumGroups()
end

--- How many replicas a group has.
---@param replicas integer
---@return integer
function VariableSettings:getRealGroupSize(replicas)
  return self:getReplicaGrouping(replicas).groupSize
end

--- The first replica of a group, as far as it does not depend on the number of replicas
--- (of the kind Orthogonal it is the group itself).
---@param group integer
---@return integer
function VariableSettings:getGroupRepresentative(group)
  check.int(group, "getGroupRepresentative: group", { min = 0 })
  local kind = self:getCommGroupType()
  if not self._domain then
    return self:getReplicaGrouping(self._size * self._stride * (group + 1)):getReplicaAt(group)
  elseif kind == Type.Consecutive then
    return self._size * group
  end
  return kind == Type.All and 0 or group
end

--- How many values are read back: one a group, or all.
---@param replicas integer
---@return integer
function VariableSettings:numReplicasReturningVariable(replicas)
  local grouping = self:getReplicaGrouping(replicas)
  return self._mode == Mode.AllReplicas and replicas or grouping:getNumGroups()
end

--- The replicas of each group.
---@param replicas integer
---@return integer[][]
function VariableSettings:groups(replicas)
  local grouping, out = self:getReplicaGrouping(replicas), {}
  for group = 0, grouping:getNumGroups() - 1 do
    out[group + 1] = grouping:getReplicasAt(group)
  end
  return out
end

--- The shape of a replica's value, of the shape on the host: without the groups' dimension,
--- which is there where there are several.
--- error: popart_internal_exception where that is not the number of groups
---@param shape integer[]
---@param replicas integer
---@param name? string of the tensor, for messages
---@return integer[]
function VariableSettings:shapeOnReplica(shape, replicas, name)
  local n = self:getGroupCount(replicas)
  if n == 1 then
    return { table.unpack(shape) }
  end
  errors.check(#shape > 0, "popart_internal_exception", "Tensor '%s' should have at least one "
    .. "dimension when used with `popart::VariableSettings` with more than 1 replica groups.",
    name or "")
  errors.check(shape[1] == n, "popart_internal_exception", "Return mismatch with possibly "
    .. "appended outer dimension (%s) of Tensor: \"%s\". should match numGroups: %d",
    tostring(shape[1]), name or "", n)
  return { table.unpack(shape, 2) }
end

--- The shape on the host, of a replica's.
---@param shape integer[]
---@param replicas integer
---@return integer[]
function VariableSettings:shapeOnHost(shape, replicas)
  local n = self:getGroupCount(replicas)
  return n == 1 and { table.unpack(shape) } or { n, table.unpack(shape) }
end

--- Whether a variable can be made with it: one whose values can be read back.
--- error: popart_exception for VariableRetrievalMode.AllReduceReplicas
function VariableSettings:verify()
  errors.check(self._mode ~= Mode.AllReduceReplicas, "popart_exception", "VariableSettings: "
    .. "VariableRetrievalMode.AllReduceReplicas is not supported. Allowed: OnePerGroup, "
    .. "AllReplicas")
end

function VariableSettings.__eq(a, b)
  return a._domain == b._domain and a._stride == b._stride and a._size == b._size
    and a._mode == b._mode
end

function VariableSettings.__tostring(self)
  return ("VariableSettings(%s, %s)"):format(self._domain and tostring(self._domain)
    or ("stride=%d, groupSize=%d"):format(self._stride, self._size), self._mode)
end

return M
