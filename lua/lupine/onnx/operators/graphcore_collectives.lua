--- Operators of the domain ai.graphcore at which replicas meet. A model by itself has one
--- replica, which is alone in its group; a session says how many there are.
--- source: PopART, builder.hpp (AiGraphcoreOpset1) and willow/src/op/collectives
local core = require("lupine.core")

local internal = core.forms.internal

-- As CollectiveOperator counts them.
local REDUCTIONS = { [0] = "add", "mean", "mul", "min", "max", "and", "or", "square_add", "local" }

local ATTRIBUTES = "__collectiveCommGroup: ints, __collectiveReplicaGrouping: ints"

-- Stride and size of groups as CommGroup says: its type and size.
local function of_comm_group(n, given, replicas)
  n:check(#given == 2, "Invalid commGroup data for collective op: expected a type and a size")
  local kind, size = given[1], given[2]
  n:check(kind >= 0 and kind <= 2, "Unknown commGroup type for collective op: %d. Allowed: 0 (All),"
    .. " 1 (Consecutive), 2 (Orthogonal)", kind)
  size = kind == 0 and replicas or size
  n:check(size > 0 and replicas % size == 0, "commGroup: groups of %d replicas do not make up %d",
    size, replicas)
  return kind == 2 and replicas // size or 1, size
end

local function of_grouping(n, given, replicas)
  n:check(#given == 3 and given[1] == replicas and given[2] > 0 and given[3] > 0
    and replicas % (given[2] * given[3]) == 0, "replicaGrouping: expected %d replicas, a stride "
    .. "and a size that make them up", replicas)
  return given[2], given[3]
end

-- Groups of the node's replicas: stride and size.
local function groups(n)
  local a, replicas = n.attr, n.replicas
  local comm, grouping = a.__collectiveCommGroup or {}, a.__collectiveReplicaGrouping or {}
  n:check(#comm == 0 or #grouping == 0, "Setting both attributes '__collectiveCommGroup' and "
    .. "'__collectiveReplicaGrouping' is not allowed.")
  if #comm > 0 then
    return of_comm_group(n, comm, replicas)
  elseif #grouping > 0 then
    return of_grouping(n, grouping, replicas)
  end
  return 1, replicas
end

-- A collective; `vector` is what groups of one make of a tensor.
local function collective(form, vector)
  return function(n, x)
    local number = n.attr.__collectiveOperator or 0
    local reduction = n:check(REDUCTIONS[number], "Unsupported CollectiveOperator %d. Allowed: 0 "
      .. "to %d", number, #REDUCTIONS)
    if n.infers and not n.replicas then
      return not vector and x -- how many there are says the session
    end
    n.replicas = n.replicas or 1
    local stride, size = groups(n)
    if size == 1 then
      return vector and x:reshape({ -1 }) or internal.nop(x)
    end
    n:check(not n.scope.around, "a collective between replicas has to stand in the model's own "
      .. "graph, not in a loop, branch or called graph")
    return internal[form](x, reduction, n.replicas, stride, size)
  end
end

return function(op)
  -- results differ between replicas, whatever is known of the inputs
  local flags = { random = true }
  op("ReplicatedAllReduce(X; __collectiveOperator: int = 0, " .. ATTRIBUTES .. ") -> (Y)", 1,
    collective("replicated_all_reduce", false), flags)
  op("ReplicatedReduceScatter(X; __collectiveOperator: int = 0, " .. ATTRIBUTES .. ") -> (Y)", 1,
    collective("replicated_reduce_scatter", true), flags)
  op("ReplicatedAllGather(X; " .. ATTRIBUTES .. ") -> (Y)", 1,
    collective("replicated_all_gather", true), flags)
end
