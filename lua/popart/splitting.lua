--- Which IPU or phase each node of a model gets where its script does not say so: the
--- nodes in order, cut where the cost so far comes near an even share.
---
--- A node costs its weights' bytes, twice with accumulators beside them, and in training
--- those of its results, which the backward pass reads. IPUs are cut only where one value
--- crosses.
---
--- Source: PopART user guide, VirtualGraphMode; its automatic placement.
local bytes = require("popart.tensor_info").bytes
local errors = require("popart.errors")

local M = {}

--- Names that a node reads, those inside of its graphs included.
---@param plan table
---@return string[]
function M.reads(plan)
  local out, seen = {}, {}
  local function add(name)
    out[#out + 1] = not seen[name] and name or nil
    seen[name] = true
  end
  for _, name in ipairs(plan.inputs) do
    add(name)
  end
  for _, body in pairs(plan.bodies) do
    for name in pairs(body.captured) do
      add(name)
    end
  end
  return out
end
local reads = M.reads

--- What each node costs.
---@param plans table[] the model's planned nodes
---@param model popart.Model
---@param types table<string, {dtype: torch.dtype, shape: integer[]}> of all tensors
---@param factors {weights: number, results: number}
---@return number[]
---@return number total
function M.costs(plans, model, types, factors)
  local out, total = {}, 0
  for i, plan in ipairs(plans) do
    local cost = 0
    for _, id in ipairs(reads(plan)) do
      if model.variables[id] or model.constants[id] then
        cost = cost + factors.weights * bytes(types[id])
      end
    end
    for _, id in ipairs(plan.outputs) do
      cost = cost + factors.results * bytes(types[id])
    end
    out[i], total = cost, total + cost
  end
  return out, total
end

--- The number of the last node that reads each value that a node makes.
---@param plans table[]
---@return table<string, integer> last
---@return table<string, integer> maker
function M.last_reads(plans)
  local maker, last = {}, {}
  for i, plan in ipairs(plans) do
    for _, id in ipairs(plan.outputs) do
      maker[id] = i
    end
    for _, id in ipairs(reads(plan)) do
      last[id] = maker[id] and i or nil
    end
  end
  return last, maker
end

-- Numbers of nodes behind which one value alone is read again.
local function crossings(plans)
  local last, maker = M.last_reads(plans)
  local ends, live, out = {}, 0, {}
  for id, at in pairs(last) do
    ends[at] = ends[at] or {}
    table.insert(ends[at], id)
  end
  for i, plan in ipairs(plans) do
    for _, id in ipairs(plan.outputs) do
      live = live + (last[id] and maker[id] == i and 1 or 0)
    end
    live = live - #(ends[i] or {})
    if live == 1 and i < #plans then
      out[#out + 1] = i
    end
  end
  return out
end

local function check_ratios(ratios, ipus)
  errors.check(#ratios == 0 or #ratios == ipus, "popart_exception",
    "The size of virtualGraphSplitRatios must be equal to num_ipus: %d, got %d", ipus, #ratios)
  local sum = 0
  for _, ratio in ipairs(ratios) do
    errors.check(ratio > 0 and ratio < 1, "popart_exception",
      "virtualGraphSplitRatios[i] must be in the range (0, 1), got %g", ratio)
    sum = sum + ratio
  end
  errors.check(#ratios == 0 or math.abs(sum - 1) < 1e-6, "popart_exception",
    "Sum of virtualGraphSplitRatios[i] must be equal to 1.0, but found %g.", sum)
end

-- The place of those from `from` to `to` whose cost so far is nearest to a wanted one.
local function nearest(places, so_far, from, to, wanted)
  local best = from
  for k = from + 1, to do
    if math.abs(so_far[places[k]] - wanted) < math.abs(so_far[places[best]] - wanted) then
      best = k
    end
  end
  return best
end

--- The IPU of each node.
--- error: popart_exception for too few places to cut, or ratios that do not fit
---@param plans table[]
---@param costs number[]
---@param ipus integer
---@param ratios number[] shares of the IPUs; none: even ones
---@return integer[]
function M.ipus(plans, costs, ipus, ratios)
  check_ratios(ratios, ipus)
  local so_far, total = {}, 0
  for i, cost in ipairs(costs) do
    total = total + cost
    so_far[i] = total
  end
  local places, ends, share = crossings(plans), {}, 0
  errors.check(#places >= ipus - 1, "popart_exception", "[AutoVirtualGraph] Couldn't find enough "
    .. "splits for %d IPUs. Only found %d: place nodes with builder:virtualGraph and "
    .. "VirtualGraphMode.Manual, or take a device with fewer IPUs", ipus, #places + 1)
  local from = 1
  for k = 1, ipus - 1 do
    share = share + (ratios[k] or 1 / ipus)
    from = nearest(places, so_far, from, #places - (ipus - 1 - k), share * total)
    ends[k], from = places[from], from + 1
  end
  local out, ipu = {}, 0
  for i in ipairs(plans) do
    out[i] = ipu
    ipu = ipu + (ends[ipu + 1] == i and 1 or 0)
  end
  return out
end

--- The phase of each node: its own, or by its share of the cost, and not before the
--- phase of what it reads.
---@param plans table[]
---@param costs number[]
---@param total number
---@param phases integer
---@param own fun(i: integer): integer? the phase that the script gives a node
---@return integer[]
function M.phases(plans, costs, total, phases, own)
  local out, made, so_far = {}, {}, 0
  for i, plan in ipairs(plans) do
    local phase = own(i) or total > 0 and math.floor(so_far / total * phases) or 0
    so_far = so_far + costs[i]
    for _, id in ipairs(own(i) and {} or reads(plan)) do
      phase = math.max(phase, made[id] or 0)
    end
    out[i] = math.min(phase, phases - 1)
    for _, id in ipairs(plan.outputs) do
      made[id] = out[i]
    end
  end
  return out
end

return M
