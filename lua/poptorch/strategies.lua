--- Stages, phases and the four execution strategies: what a user writes. How
--- blocks get their place from them is poptorch.placement.
---
--- Source: PopTorch API reference, "Parallel execution"; user guide 4.4.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")

local M = {}

local AE = { error = "AssertionError" }

-- The arguments as a list. A nil among them is a misspelt name.
local function no_hole(where, ...)
  for i = 1, select("#", ...) do
    errors.check(select(i, ...) ~= nil, "AssertionError", "%s: argument %d is nil", where, i)
  end
  return { ... }
end

--- Blocks that run on one IPU.
---@class poptorch.Stage
---@field blocks string[] ids of its blocks
local Stage = class.new("Stage")
M.Stage = Stage

signatures.note(Stage, "Stage(*block_ids)", 1)

--- Stage("A", "B").
--- error: AssertionError for an id that is no string
---@param ... string block ids
function Stage:init(...)
  self.blocks = check.strings(no_hole("Stage(block_ids)", ...), "Stage(block_ids)", AE)
end

--- Places the stage.
--- error: AssertionError for anything but an int >= 0
---@param ... any ipu (integer)
---@return poptorch.Stage self
function Stage:ipu(...)
  self._ipu = check.int(check.one("Stage.ipu", "ipu", ...), "Stage.ipu(ipu)",
    { error = "AssertionError", min = 0 })
  return self
end

function Stage:__tostring()
  return ("Stage(%s%s)"):format(table.concat(self.blocks, ", "),
    self._ipu and "; ipu=" .. self._ipu or "")
end

-- A Stage from a Stage, a block id or a list of block ids.
local function to_stage(arg, where)
  if Stage:is(arg) then
    return arg
  elseif type(arg) == "string" then
    return Stage(arg)
  elseif type(arg) == "table" and not getmetatable(arg) and #arg > 0 then
    return Stage(table.unpack(arg))
  end
  return errors.raise("AssertionError",
    "%s: expected a Stage, a block id or a list of block ids, got %s", where, check.describe(arg))
end

--- Stages that run in parallel.
---@class poptorch.Phase
---@field stages poptorch.Stage[]
local Phase = class.new("Phase")
M.Phase = Phase

signatures.note(Phase, "Phase(*arg)", 1)

--- Phase(stage, ...) or Phase("A", "B"), which is one stage of two blocks.
--- error: AssertionError for a mix of both or anything else
---@param ... poptorch.Stage|string
function Phase:init(...)
  local args = no_hole("Phase", ...)
  local stages, strings = 0, 0
  for _, arg in ipairs(args) do
    stages = stages + (Stage:is(arg) and 1 or 0)
    strings = strings + (type(arg) == "string" and 1 or 0)
  end
  if #args > 0 and stages == #args then
    self.stages = args
  elseif #args > 0 and strings == #args then
    self.stages = { Stage(...) }
  else
    local shown = {}
    for i, arg in ipairs(args) do
      shown[i] = check.describe(arg)
    end
    errors.raise("AssertionError", "Phase: expected Stages only or block ids only, got %s",
      #shown > 0 and table.concat(shown, ", ") or "nothing")
  end
end

--- The stage at an index, from 0.
---@param ... any idx (integer)
---@return poptorch.Stage
function Phase:stage(...)
  local idx = check.int(check.one("Phase.stage", "idx", ...), "Phase.stage(idx)", AE)
  return errors.check(self.stages[idx + 1], "IndexError",
    "Phase.stage: index %s is outside 0..%d", tostring(idx), #self.stages - 1)
end

--- One IPU for each stage.
--- error: AssertionError when the counts differ
---@param ... integer
---@return poptorch.Phase
function Phase:ipus(...)
  local n = select("#", ...)
  errors.check(n == #self.stages, "AssertionError",
    "Phase.ipus: the phase has %d stages, got %d IPUs", #self.stages, n)
  for i = 1, n do
    self.stages[i]:ipu((select(i, ...)))
  end
  return self
end

function Phase:__tostring()
  local parts = {}
  for i, s in ipairs(self.stages) do
    parts[i] = tostring(s)
  end
  return "Phase(" .. table.concat(parts, ", ") .. ")"
end

--- What all strategies have. `kind` is "pipelined", "sharded", "serial_phased"
--- or "parallel_phased"; `_block_map` (block id -> Stage) is nil when stages
--- follow `_auto_stage`. `alone` says why it changes nothing for a model on one
--- IPU, `off_chip` is set if tensors are off the chip unless an option says else.
local Strategy = class.new("Strategy")
M.Strategy = Strategy

--- The stage of a block.
--- error: AssertionError for a block that no stage names
---@param ... any block_id (string)
---@return poptorch.Stage
function Strategy:stage(...)
  local block_id = check.string(check.one("stage", "block_id", ...), "stage(block_id)", AE)
  local stage = self._block_map and self._block_map[block_id]
  if not stage then
    errors.raise("AssertionError", "unknown block '%s'; the strategy lists %s%s", block_id,
      self._block_map and table.concat(self._ids, ", ") or "no blocks: its stages are automatic",
      check.nearest(block_id, self._ids or {}))
  end
  return stage
end

-- Enters the blocks of a stage in the map of the strategy.
local function add_blocks(self, stage)
  self._block_map = self._block_map or {}
  self._ids = self._ids or {}
  for _, id in ipairs(stage.blocks) do
    errors.check(self._block_map[id] == nil, "AssertionError",
      "%s: block '%s' is in more than one stage", getmetatable(self).__name, id)
    self._block_map[id] = stage
    self._ids[#self._ids + 1] = id
  end
end

function Strategy:__tostring()
  local parts = {}
  for i, p in ipairs(self._phases or self._stages or {}) do
    parts[i] = tostring(p)
  end
  if self._auto_stage and not self._block_map then
    parts[1] = tostring(self._auto_stage)
  end
  return ("%s(%s)"):format(getmetatable(self).__name, table.concat(parts, ", "))
end

-- A single list whose first element is a Stage or a list stands for its
-- elements; one list of strings is a stage of several blocks.
local function spread(args)
  local list = args[1]
  if #args == 1 and type(list) == "table" and not getmetatable(list)
    and type(list[1]) == "table" then
    return list
  end
  return args
end

--- Stages overlap on successive micro-batches; the default strategy.
---@class poptorch.PipelinedExecution
local Pipelined = Strategy:extend("PipelinedExecution")
M.PipelinedExecution = Pipelined
signatures.note(Pipelined, "PipelinedExecution(*args)", 1)
Pipelined.kind = "pipelined"
Pipelined.mode = 0
Pipelined.alone = "the model is on one IPU, there is nothing to overlap"

--- PipelinedExecution(), (AutoStage.X), or one argument per stage: a Stage, a
--- block id, a list of block ids.
--- error: AssertionError for other arguments or a block in two stages
function Pipelined:init(...)
  self._auto_stage = enums.AutoStage.SameAsIpu
  local args = spread(no_hole(getmetatable(self).__name, ...))
  check.dense(args, getmetatable(self).__name)
  if #args == 1 and enums.AutoStage:is(args[1]) then
    self._auto_stage = args[1]
    return
  end
  self._stages = {}
  for i, arg in ipairs(args) do
    local stage = to_stage(arg, getmetatable(self).__name)
    stage._stage_id = i - 1
    self._stages[i] = stage
    add_blocks(self, stage)
  end
end

--- The values stored with an executable.
---@return table<string, any>
function Pipelined:backendOptions()
  return { execution_mode = self.mode }
end

--- Stages run one after another, one IPU at a time.
---@class poptorch.ShardedExecution: poptorch.PipelinedExecution
local Sharded = Pipelined:extend("ShardedExecution")
M.ShardedExecution = Sharded
signatures.note(Sharded, "ShardedExecution(*args)", 1)
Sharded.kind = "sharded"
Sharded.mode = 1
Sharded.alone = "the model is on one IPU"

--- A pipeline over so many IPUs whose blocks lupine finds: when the model is compiled,
--- the simulated system tries where its modules can begin a block, takes what is fastest
--- of what fits, and marks those modules as poptorch.BeginBlock does. The model has no
--- blocks of its own.
---@class poptorch.AutoBlocks: poptorch.PipelinedExecution
---@field ipus integer
local AutoBlocks = Pipelined:extend("AutoBlocks")
M.AutoBlocks = AutoBlocks
signatures.note(AutoBlocks, "AutoBlocks(ipus)", 1)

--- error: AssertionError for anything but an int >= 1
---@param ... any ipus (integer)
function AutoBlocks:init(...)
  self._auto_stage = enums.AutoStage.AutoIncrement
  self.ipus = check.int(check.one("AutoBlocks", "ipus", ...), "AutoBlocks(ipus)",
    { error = "AssertionError", min = 1 })
end

function AutoBlocks:__tostring()
  return ("AutoBlocks(%d)"):format(self.ipus)
end

local Phased = Strategy:extend("PhasedExecution")
Phased.off_chip = true

-- Phases come as several arguments or as one list of Phases and lists.
local function phase_list(args)
  local list = args[1]
  if #args == 1 and type(list) == "table" and not getmetatable(list) then
    local first = list[1]
    if Phase:is(first) or type(first) == "table" and not getmetatable(first) then
      return list
    end
  end
  return args
end

--- One argument per phase: a Phase, a Stage, a list of Stages, a block id or a
--- list of block ids.
--- error: AssertionError without phases, or a block in two stages
function Phased:init(...)
  self._tensors_liveness = enums.Liveness.AlwaysLive
  self._separate_backward_phase = false
  self._phases = {}
  local args = phase_list(no_hole(getmetatable(self).__name, ...))
  check.dense(args, getmetatable(self).__name)
  errors.check(#args > 0, "AssertionError",
    "%s: phases must be listed: there are no automatic ones", getmetatable(self).__name)
  for i, arg in ipairs(args) do
    local plain_list = type(arg) == "table" and not getmetatable(arg)
    local phase = Phase:is(arg) and arg or Phase(table.unpack(plain_list and arg or { arg }))
    self._phases[i] = phase
    for j, stage in ipairs(phase.stages) do
      stage._phase_id = i - 1
      stage._stage_id = j - 1
      add_blocks(self, stage)
    end
  end
end

--- The phase at an index, from 0.
--- error: AssertionError for anything but an int >= 0, IndexError past the end
---@param ... any phase (integer)
---@return poptorch.Phase
function Phased:phase(...)
  local phase = check.int(check.one("phase", "phase", ...), "phase(phase)",
    { error = "AssertionError", min = 0 })
  return errors.check(self._phases[phase + 1], "IndexError",
    "phase(phase): %s is outside 0..%d", tostring(phase), #self._phases - 1)
end

-- A switch that is on when nothing is said.
local function switch(where, name, ...)
  local value = check.one(where, name, ...)
  if value == nil then
    return true
  end
  return check.bool(value, ("%s(%s)"):format(where, name), AE)
end

--- No phase is shared by forward and backward.
---@param ... any use (boolean, true if nil)
---@return poptorch.Strategy self
function Phased:useSeparateBackwardPhase(...)
  self._separate_backward_phase = switch("useSeparateBackwardPhase", "use", ...)
  return self
end

function Phased:backendOptions()
  return {
    execution_mode = 2,
    separate_backward_phase = self._separate_backward_phase,
    tensors_liveness = self._tensors_liveness.value,
    serial_phases_execution = self.kind == "serial_phased",
  }
end

--- Phases in turn on one group of IPUs.
---@class poptorch.SerialPhasedExecution
local Serial = Phased:extend("SerialPhasedExecution")
M.SerialPhasedExecution = Serial
signatures.note(Serial, "SerialPhasedExecution(*phases)", 1)
Serial.kind = "serial_phased"

--- Where tensors live between phases.
--- error: AssertionError for anything but a poptorch.Liveness
---@param ... any liveness (poptorch.Liveness)
---@return poptorch.SerialPhasedExecution self
function Serial:setTensorsLiveness(...)
  self._tensors_liveness = check.enum(check.one("setTensorsLiveness", "liveness", ...),
    "setTensorsLiveness(liveness)", enums.Liveness, AE)
  return self
end

--- Phases alternate between even and odd IPUs.
---@class poptorch.ParallelPhasedExecution
local Parallel = Phased:extend("ParallelPhasedExecution")
M.ParallelPhasedExecution = Parallel
signatures.note(Parallel, "ParallelPhasedExecution(*phases)", 1)
Parallel.kind = "parallel_phased"

--- Tensors leave the chip between the forward and the backward pass.
---@param ... any off_chip (boolean, true if nil)
---@return poptorch.ParallelPhasedExecution self
function Parallel:sendTensorsOffChipAfterFwd(...)
  local off_chip = switch("sendTensorsOffChipAfterFwd", "off_chip", ...)
  self._tensors_liveness = off_chip and enums.Liveness.OffChipAfterFwd
    or enums.Liveness.AlwaysLive
  return self
end

return M
