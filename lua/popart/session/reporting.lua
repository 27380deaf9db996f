--- What the simulated system says of a session's program: reports, cycles, the graph.
---
--- Source: PopART Python API, Session; PopART user guide, profiling.
local NAMES = require("lupine.onnx.annotation_names")
local check = require("lupine.base.check")
local core = require("lupine.core")
local device_info = require("popart.device_info")
local enums = require("popart.enums")
local errors = require("popart.errors")
local own = require("popart.session.own")
local proto = require("lupine.onnx.proto")
local settings = require("popart.session_settings")
local tables = require("lupine.base.tables")

local M = { methods = {} }
local methods = M.methods

local function reported(self)
  local s = own.state(self)
  errors.check(s.session and s.options.compileEngine, "popart_exception",
    "Session must have been prepared before a report can be fetched")
  errors.check(device_info.can_profile(s.device), "poplar_exception",
    "Profiling is disabled for current device type.")
  return s
end

--- What the simulated system says, as text. Its figures are of one run, whichever runs
--- there were.
--- error: popart_exception before prepareDevice; poplar_exception for a CPU device
--- source: 004 popart.Session.getSummaryReport
---@param resetProfile? boolean changes nothing: no counter goes on from run to run
---@return string
function methods:getSummaryReport(resetProfile)
  local s = reported(self)
  check.bool(resetProfile == nil or resetProfile, "getSummaryReport: resetProfile")
  local report, shown = s.session.report, s.options.reportOptions
  local text = report:summary()
  for _, option in ipairs({ { "showExecutionSteps", "steps" }, { "showVarStorage", "storage" } }) do
    if shown[option[1]] == "true" then
      text = text .. "\n" .. report[option[2]](report)
    end
  end
  if not settings.profiles(s) then
    text = text .. "\nExecution profiling not enabled\n"
  end
  return text
end

--- The report of the simulated system.
--- source: 004 popart.Session.getReport
---@return lupine.Report
function methods:getReport()
  return reported(self).session.report
end

--- The program's plan as JSON.
---@return string
function methods:getSerializedGraph()
  return reported(self).session.report:json()
end

-- ---- cycles --------------------------------------------------------------------------------

-- Cycles of an IPU's stages in a run.
local function of_ipu(report, ipu)
  local cycles, found = 0, false
  for _, stage in ipairs(report.stages) do
    if stage.ipu == ipu then
      found = true
      cycles = cycles + stage.forward_cycles + stage.recompute_cycles + stage.backward_cycles
    end
  end
  return found and cycles * report.micro_batches or nil
end

local function has(list, name)
  for _, member in ipairs(list) do
    if member.name == name then
      return true
    end
  end
  return false
end

--- Cycles of the last run, as the simulated system counts them: of all of it (""), or of
--- what one IPU computes ("inner_ipu_0").
--- error: popart_runtime_error before a run or without
--- SessionOptions.instrumentWithHardwareCycleCounter; for an id that
--- SessionOptions.hardwareInstrumentations does not ask for
---@param id? string
---@return integer
function methods:getCycleCount(id)
  local s = own.state(self)
  local o = s.options
  errors.check(o.instrumentWithHardwareCycleCounter, "popart_runtime_error",
    "SessionOption 'instrumentWithHardwareCycleCounter' must be set to True in order to measure "
    .. "cycle count.")
  errors.check(s.has_run, "popart_runtime_error", "Must call run before getCycleCount.")
  id = check.string(id or "", "getCycleCount: id")
  local report, ipu = s.session.report, math.tointeger(tonumber(id:match("^inner_ipu_(%d+)$")))
  local cycles
  if id == "" and has(o.hardwareInstrumentations, "Outer") then
    cycles = report.cycles
  elseif ipu and has(o.hardwareInstrumentations, "Inner") then
    cycles = of_ipu(report, ipu)
  end
  return errors.check(cycles, "popart_runtime_error", "No cycle count with the id '%s' can be "
    .. "found. Make sure that you set SessionOptions.hardwareInstrumentations correctly.", id)
end

-- ---- the graph -----------------------------------------------------------------------------

local function tensors_of(s, names)
  local list = tables.array({ n = 0 })
  for i, id in ipairs(names) do
    if id ~= "" then
      local type = s.traced.types[id]
      local shape = tables.array({ n = 0 })
      for k, size in ipairs(type and type.shape or {}) do
        shape[k], shape.n = size, k
      end
      list.n = list.n + 1
      list[list.n] = { name = id, index = i - 1, shape = shape,
        type = type and tostring(type.dtype):match("[^.]*$") or "unknown" }
    end
  end
  return list
end

-- Annotations of where a node is, which it need not have itself.
local PLACES = { ipu = NAMES.virtualGraph, stage = NAMES.pipelineStage,
  phase = NAMES.executionPhase }

-- Whether results are kept for the backward pass or computed again: what the session has
-- decided, or else what the node says. Copies that a backward pass computes are not of this
-- graph.
local function recompute_type(s, node)
  local kept, says = s.marks.keep[node], proto.find(node, NAMES.recomputeOutput)
  if kept == nil then
    local _, said = pcall(enums.RecomputeType, says and says.i or 0)
    return enums.RecomputeType:is(said) and said.name or "Undefined"
  end
  return kept and "Checkpoint" or "Recompute"
end

local function attributes_of(s, node)
  local out = {}
  for _, a in ipairs(node.attribute or {}) do
    local value, field = proto.value(a, nil)
    if field ~= "g" and field ~= "t" then
      out[a.name] = type(value) == "table" and table.concat(value, ", ") or tostring(value)
    end
  end
  for field, name in pairs(PLACES) do
    local place = (s.where.at[node] or {})[field]
    out[name] = place and ("%d"):format(place)
  end
  out.recomputetype = recompute_type(s, node)
  return out
end

local function operator(s, plan)
  local node = plan.node
  return { name = node.name or "", type = plan.op, version = plan.version,
    domain = proto.domain(node.domain) == "" and "ai.onnx" or proto.domain(node.domain),
    inputs = tensors_of(s, plan.inputs), outputs = tensors_of(s, plan.outputs),
    attributes = attributes_of(s, node) }
end

-- The operators of a graph, under the name that Builder:setGraphName gave it or else that
-- of its place; and those of the graphs inside.
local function add_graph(s, out, place, graph)
  local given = graph.name ~= "" and not graph.name:find("^BuilderGraph_%d+$") and graph.name
  local name = given and not out[given] and given or place
  local list = tables.array({ n = 0 })
  out[name] = list
  for i, plan in ipairs(graph.nodes) do
    list[i], list.n = operator(s, plan), i
    for key, body in pairs(plan.bodies) do
      add_graph(s, out, ("%s/%d/%s"):format(place, i - 1, key), body)
    end
  end
end

--- The forward graph as JSON: {"maingraph": [{"name", "type", "version", "domain",
--- "inputs", "outputs", "attributes"}, …]}, and the graphs inside by names of their own;
--- a graph that Builder:setGraphName named has that name.
--- error: TypeError for another format than popart.IrSerializationFormat.JSON
--- source: PopART Python API, Session
---@param format popart.IrSerializationFormat
---@return string
function methods:serializeIr(format)
  check.enum(format, "serializeIr: format", enums.IrSerializationFormat)
  local s, out = own.state(self), {}
  add_graph(s, out, "maingraph", s.model.graph)
  return core.json_encode(out, 1)
end
methods._serializeIr = methods.serializeIr

--- Whether operators that write in place could be ordered in two ways: never, the order of
--- writes is the trace's.
---@return boolean
function methods:checkInplacingAmbiguity()
  return false
end

return M
