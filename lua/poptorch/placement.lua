--- Placement: which stage, IPU and phase each block of a model gets. Pure
--- functions of the strategy and of the block starts in program order; no
--- tensors, no tracer. The rules that a placed model must keep are the
--- strategy's; core.compile checks them.
---
--- Rules (PopTorch user guide 4.4 and API reference "Parallel execution"):
--- - Operators before the first block are on IPU 0, stage 0, phase 0. After a
---   scope ended no block is active.
--- - IPU = the Stage's, else the block's, else the stage id.
--- - SameAsIpu: stage id = IPU. AutoIncrement: ids from 1 on in the order in
---   which blocks first appear (0 is what stands before them).
--- - Phased: a block's phase is that of its Stage; without an IPU the n-th
---   stage of a phase is on IPU n (serial) or 2n + phase parity (parallel).
local class = require("lupine.base.class")
local core = require("lupine.core")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")

local M = {}

--- IPUs that one program can use; more need several processes.
M.MOST_IPUS = core.strategy.most_ipus

--- Where the operators of one stretch of the program run.
---@class poptorch.Place
---@field block string?   user id; nil before the first block
---@field stage integer
---@field ipu integer
---@field phase integer   0 unless phased

--- Follows the block starts of a trace; `active` is the place of what is traced
--- now, nil outside blocks.
---@class poptorch.Assigner
---@field active poptorch.Place?
local Assigner = class.new("Assigner")
M.Assigner = Assigner

---@param strategy table one of the four strategies
function Assigner:init(strategy)
  self.strategy = strategy
  self.active = { stage = 0, ipu = 0, phase = 0 }
  self._next_stage = 1
  self._stage_of = {}
end

-- Stage id, IPU and phase of a block without Stages.
local function automatic(self, user_id, ipu_id, named)
  if self.strategy._auto_stage == enums.AutoStage.SameAsIpu then
    errors.check(ipu_id, "AssertionError",
      "%s has no ipu_id: AutoStage.SameAsIpu needs one for every block; give it one, "
      .. "list the stages in the strategy, or use AutoStage.AutoIncrement", named)
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

local function from_stage(self, user_id, ipu_id, named, auto)
  local strategy = self.strategy
  local stage = strategy._block_map[user_id]
  errors.check(stage, "AssertionError", "unknown %s: %s lists the blocks %s%s", named,
    class.of(strategy).__name, table.concat(strategy._ids, ", "),
    auto and "; give it the user_id of one" or "")
  local phase = stage._phase_id or 0
  return stage._stage_id, stage._ipu or ipu_id
    or core.strategy.default_ipu(strategy.kind, stage._stage_id, phase), phase
end

--- A block starts.
--- error: AssertionError for a block that the strategy does not know, or one
--- without an IPU where it needs one
---@param user_id string
---@param ipu_id integer?
---@param name? string what starts a block without an id of its own, for messages
---@return poptorch.Place
function Assigner:enter(user_id, ipu_id, name)
  local named = name and ("block without a name (%s%s)"):format(name,
    ipu_id and (", ipu_id=%d"):format(ipu_id) or "") or ("block '%s'"):format(user_id)
  local find = self.strategy._block_map and from_stage or automatic
  local stage, ipu, phase = find(self, user_id, ipu_id, named, name ~= nil)
  self.active = { block = user_id, stage = stage, ipu = ipu, phase = phase }
  return self.active
end

--- A scope ended: no block is active.
function Assigner:leave()
  self.active = nil
end

return M
