--- Where a session's tensors are: what options say of their kinds, and of single ones
--- (tensorLocationSettingsOverride), as the simulated system takes it.
---
--- Source: PopART user guide, tensor locations; its streamingmemoryopinserter.cpp.
local optimizers = require("popart.optimizers")
local options = require("popart.options")
local prefixes = require("popart.prefixes")
local session_options = require("popart.session_options")
local tables = require("lupine.base.tables")

local M = {}

local KINDS = { activation = "activationTensorLocationSettings",
  weight = "weightTensorLocationSettings", optimizer = "optimizerStateTensorLocationSettings",
  accumulator = "accumulatorTensorLocationSettings" }

local ACCUM, GRADIENT = prefixes.reservedAccumPrefix(), prefixes.reservedGradientPrefix()
local ACCL = prefixes.reservedAcclPrefix() -- of combined SGD: the velocity gathers gradients

local function begins(id, prefix)
  return id:sub(1, #prefix) == prefix
end

-- Which of KINDS a tensor is of, by its name; nil: of none that a location is for.
local function kind_of(s, id)
  local role = s.model.role[id]
  if begins(id, ACCUM) or begins(id, ACCL) and s.accumulation > 1 then
    return "accumulator"
  elseif begins(id, GRADIENT) then
    return nil
  elseif optimizers.is_state(id) then
    return "optimizer"
  elseif role then
    return role ~= "constant" and "weight" or nil
  end
  for _, input in ipairs(s.model.inputs) do
    if input.id == id then
      return nil
    end
  end
  return "activation"
end

-- An accumulator's name in the program.
local function name_of(id)
  return begins(id, ACCUM) and GRADIENT .. id:sub(#ACCUM + 1) or id
end

-- The location of tensors of a kind, or of one of them that has its own.
local function location(o, kind, at)
  local out, schedule = options.location(o[KINDS[kind]], at), session_options.SCHEDULES[kind]
  out.on_demand = session_options.simulated("executionPhaseSettings." .. schedule,
    o.executionPhaseSettings[schedule].name)
  return out
end

--- What lupine.report.simulate is told: activation, weight, optimizer, accumulator, own,
--- own_unmet (M.note tells of names that the program has not).
---@param s table a session's state
---@return table<string, table|boolean>
function M.of(s)
  local o, out = s.options, { own = {}, own_unmet = true }
  for kind in pairs(KINDS) do
    out[kind] = location(o, kind)
  end
  for id, at in pairs(o.tensorLocationSettingsOverride) do
    local kind = kind_of(s, id)
    out.own[name_of(id)] = kind and location(o, kind, at)
  end
  return out
end

-- Why the location of one tensor changes nothing; nil: it may.
local function idle(s, id, known)
  local kind = kind_of(s, id)
  if not known(id) then
    return "the program has no such tensor"
  elseif not kind then
    return "only weights, optimizer states, accumulators and activations have a location"
  elseif kind == "activation" and not s.training then
    return "inference keeps no activations"
  end
  return nil
end

--- Calls note(name, why) for each tensor whose own location changes nothing.
---@param s table a session's state
---@param known fun(id: string): boolean whether the program has a tensor
---@param note fun(name: string, why: string)
function M.note(s, known, note)
  for _, id in ipairs(tables.keys(s.options.tensorLocationSettingsOverride)) do
    local why = idle(s, id, known)
    if why then
      note(("SessionOptions.tensorLocationSettingsOverride of '%s'"):format(id), why)
    end
  end
end

return M
