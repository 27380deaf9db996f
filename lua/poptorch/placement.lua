--- Placement: which stage, IPU and phase each block of a model gets. Pure
--- functions of the strategy and of the block starts in program order; no
--- tensors, no tracer. The rules that a placed model must keep are the
--- strategy's (core.strategy).
---
--- Rules (PopTorch user guide 4.4 and API reference "Parallel execution"):
--- - Operators before the first block are on IPU 0, stage 0, phase 0. After a
---   scope ended no block is active.
--- - IPU = the Stage's, else the block's, else the stage id.
--- - SameAsIpu: stage id = IPU. AutoIncrement: ids from 1 on in the order in
---   which blocks first appear (0 is what stands before them).
--- - A pipeline has one stage more than the IPU changes from block start to
---   block start, counted from IPU 0: neighbours on one IPU merge.
--- - Phased: a block's phase is that of its Stage; without an IPU the n-th
---   stage of a phase is on IPU n (serial) or 2n + phase parity (parallel).
local class = require("lupine.base.class")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")

local M = {}

local rules = core.strategy

--- IPUs that one program can use; more need several processes.
M.MOST_IPUS = rules.most_ipus

--- Where the operators of one stretch of the program run.
---@class poptorch.Place
---@field block string?   user id; nil before the first block
---@field stage integer
---@field ipu integer
---@field phase integer   0 unless phased
---@field used boolean    an operator was placed here
---@field name string     for messages

--- Follows the block starts of a trace. `places` lists every stretch in
--- program order, `pipeline_stages` counts stages as above.
---@class poptorch.Assigner
local Assigner = class.new("Assigner")
M.Assigner = Assigner

---@param strategy table one of the four strategies
function Assigner:init(strategy)
  self.strategy = strategy
  self.places = {}
  self.pipeline_stages = 1
  self._last_ipu = 0
  self._next_stage = 1
  self._stage_of = {}
  self._of_stage = {}
  self._names = {}
  self:_open(nil, 0, 0, 0)
end

function Assigner:_open(block, stage, ipu, phase, name)
  local place = { block = block, stage = stage, ipu = ipu, phase = phase, used = false,
    name = name or ("block '%s'"):format(tostring(block)) }
  self.places[#self.places + 1] = place
  self.active = place
  return place
end

-- How a message names a block: by its id, or where that is a number which
-- nobody wrote, by what starts it.
local function named(self, user_id)
  return self._names[user_id] or ("block '%s'"):format(user_id)
end

-- Stage id, IPU and phase of a block without Stages.
local function automatic(self, user_id, ipu_id)
  if self.strategy._auto_stage == enums.AutoStage.SameAsIpu then
    errors.check(ipu_id, "AssertionError",
      "%s has no ipu_id: AutoStage.SameAsIpu needs one for every block; give it one, "
      .. "list the stages in the strategy, or use AutoStage.AutoIncrement", named(self, user_id))
    return ipu_id, ipu_id, 0
  end
  local stage = self._stage_of[user_id]
  if not stage then
    stage = self._next_stage
    self._next_stage = stage + 1
    self._stage_of[user_id] = stage
  end
  return stage, ipu_id or stage, 0
end

local function from_stage(self, user_id, ipu_id)
  local strategy = self.strategy
  local stage = strategy._block_map[user_id]
  errors.check(stage, "AssertionError", "unknown %s: %s lists the blocks %s%s",
    named(self, user_id), class.of(strategy).__name, table.concat(strategy._ids, ", "),
    self._names[user_id] and "; give it the user_id of one" or "")
  local phase = stage._phase_id or 0
  return stage._stage_id, stage._ipu or ipu_id
    or rules.default_ipu(strategy.kind, stage._stage_id, phase), phase
end

--- A block starts.
--- error: AssertionError for a block that the strategy does not know, or one
--- without an IPU where it needs one; poptorch.Error for a phase on an IPU of
--- the other parity or a stage on two IPUs
---@param user_id string
---@param ipu_id integer?
---@param name? string what starts a block without an id of its own, for messages
---@return poptorch.Place
function Assigner:enter(user_id, ipu_id, name)
  self._names[user_id] = name and ("block without a name (%s%s)"):format(name,
    ipu_id and (", ipu_id=%d"):format(ipu_id) or "")
  local find = self.strategy._block_map and from_stage or automatic
  local stage, ipu, phase = find(self, user_id, ipu_id)
  local kind = self.strategy.kind
  local place = self:_open(user_id, stage, ipu, phase, named(self, user_id))
  rules.check_place(kind, place)
  rules.check_pair(kind, self._of_stage[stage] or place, place)
  self._of_stage[stage] = self._of_stage[stage] or place
  if ipu ~= self._last_ipu then
    self.pipeline_stages = self.pipeline_stages + 1
    self._last_ipu = ipu
  end
  return place
end

--- A scope ended: no block is active.
function Assigner:leave()
  self.active = nil
end

--- The place of an operator that is traced now.
--- error: poptorch.Error when no block is active
---@param what? string the operator, for the message
---@return poptorch.Place
function Assigner:place(what)
  local place = self.active
  if not place then
    errors.raise("Error", "No active Block: %s is outside any block, after the %s "
      .. "ended; move it into a Block scope", what or "an operator",
      named(self, tostring(self.places[#self.places].block)))
  end
  place.used = true
  return place
end

--- The IPUs that hold operators, ascending.
---@return integer[]
function Assigner:ipus()
  local seen, list = {}, {}
  for _, place in ipairs(self.places) do
    if place.used and not seen[place.ipu] then
      seen[place.ipu] = true
      list[#list + 1] = place.ipu
    end
  end
  table.sort(list)
  return list
end

--- Whether the program is a pipeline: pipelined, and on more than one IPU.
---@return boolean
function Assigner:pipelined()
  return self.strategy.kind == "pipelined" and #self:ipus() > 1
end

--- Assigns a whole program: a list of {block id, ipu id}. Every block counts as
--- used, and so do the operators before the first one if `leading`.
---@param strategy table
---@param blocks {[1]: string, [2]: integer?}[]
---@param leading? boolean
---@return poptorch.Assigner
function M.assign(strategy, blocks, leading)
  local a = Assigner(strategy)
  a.active.used = leading or false
  for _, block in ipairs(blocks) do
    a:enter(block[1], block[2]).used = true
  end
  return a
end

--- In a pipeline a stretch may not read what a stretch of a higher stage makes.
--- error: poptorch.Error naming both blocks
---@param assigner poptorch.Assigner
function M.check_order(assigner)
  local used = {}
  for _, later in ipairs(assigner.places) do
    if later.used then
      for _, earlier in ipairs(used) do
        rules.check_read(assigner.strategy.kind, later, earlier)
      end
      used[#used + 1] = later
    end
  end
end

--- A pipeline must hold a micro-batch in every stage: inference needs
--- deviceIterations >= stages, training gradientAccumulation >= 2*stages - 1
--- (forward and backward share the last stage).
--- error: poptorch.Error naming both counts
---@param assigner poptorch.Assigner
---@param options poptorch.Options
---@param training boolean
function M.check_batching(assigner, options, training)
  rules.check_batches(assigner.strategy.kind, assigner.pipeline_stages, training,
    training and options.Training.gradient_accumulation or options.device_iterations)
end

--- The IPUs to reserve for the placed model and all its replicas.
--- error: poptorch.Error for more than 64, and on hardware for a count that is
--- no power of two without autoRoundNumIPUs
---@param assigner poptorch.Assigner
---@param options poptorch.Options
---@param hardware boolean false for the IPU model and offline targets
---@return integer reserved, integer used
function M.num_ipus(assigner, options, hardware)
  local ipus = assigner:ipus()
  local reserved, used = rules.num_ipus(ipus[#ipus] or -1, options.replication_factor, hardware,
    options.auto_round_num_ipus)
  if reserved > used then
    logging.warn("the model uses %d IPUs, %d are reserved (autoRoundNumIPUs)", used, reserved)
  end
  return reserved, used
end

return M
