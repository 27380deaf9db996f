--- What the simulated system says of a compiled program.
---
--- Figures are of one call of the program: all device iterations, micro-batches
--- and replicas. Cycles are tile clocks of the simulated chip, bytes those of a
--- whole IPU unless a name says `tile`. Nothing here is measured: it is what
--- the cost model computes (see runtime/cost/cost.h for its sources).
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")

---@class lupine.Report
---@field chip string "ipu1", "ipu2" or "ipu21"
---@field strategy string
---@field ipus integer of one replica
---@field replicas integer
---@field loops integer times the schedule's loop runs in a call
---@field micro_batches integer of one loop
---@field cycles integer
---@field seconds number
---@field samples integer
---@field samples_per_second number
---@field pipeline_efficiency number share of the loop's compute time in which
---  an IPU computes: useful cycles of all IPUs / (IPUs x cycles of the loop)
---@field stages {stage: integer, id: integer, ipu: integer, phase: integer,
---  block: string, forward_cycles: integer, backward_cycles: integer,
---  recompute_cycles: integer, recomputed: boolean, stash_depth: integer}[]
---  of one micro-batch; backward_cycles includes recompute_cycles
---@field schedule table[] rows: kind (fill, steady, flush, phase, update,
---  output), first, count, cycles and their parts, entries (kind, ipu, cycles,
---  and stage, backward, offset of compute, bytes of all others)
---@field sequence {first_row: integer, rows: integer, count: integer,
---  step: integer, once: boolean}[] the loops over rows, in order: turn k of a
---  row has the number first + k * step; all of them run for every weight
---  update, those with `once` at the end of a call
---@field streams {variable: integer, input: boolean, bytes: integer,
---  ipu: integer, stage: integer, backward: boolean}[] what goes to and from
---  the host for a micro-batch, and which run of a stage reads or makes it
---@field memory table<integer, table> by IPU, from 0: always_live,
---  not_always_live, max_tile, max_tile_including_gaps, fullest_tile, fits,
---  categories, biggest, tiles (64 classes of neighbouring tiles), off_chip
---@field operators {name: string, nodes: integer, instances: integer,
---  cycles: integer, flops: integer}[] most cycles first
---@field no_effect string[] options that change nothing here, and why
local Report = class.new("Report")

---@param fields table what core.simulate gave
function Report:init(fields)
  for k, v in pairs(fields) do
    self[k] = v
  end
  self.no_effect = {}
end

--- The figures as text, laid out like Poplar's profile summary.
---@return string
function Report:summary()
  local text = self.text
  if #self.no_effect > 0 then
    text = text .. "\nOptions without effect on these figures:\n  "
      .. table.concat(self.no_effect, "\n  ") .. "\n"
  end
  return text
end

--- The stage's row of `stages`; stages count from 0.
---@param stage integer
---@return table?
function Report:stage(stage)
  return self.stages[stage + 1]
end

function Report.__tostring(self)
  local worst = 0
  for _, m in pairs(self.memory) do
    worst = math.max(worst, m.max_tile_including_gaps / m.tile_bytes)
  end
  return ("Report(%s, %s, %s x %d: %d cycles, %.3g ms, %.4g samples/s, IPUs busy %.1f %%, "
    .. "fullest tile %.1f %%; simulated)"):format(self.chip_name, self.strategy,
    check.count(self.ipus, "IPU"), self.replicas, self.cycles, self.seconds * 1e3,
    self.samples_per_second, self.pipeline_efficiency * 100, worst * 100)
end

local M = { Report = Report }

--- Simulates a completed step. Options, all with defaults: chip ("ipu2"), tiles,
--- strategy ("pipelined", "sharded", "serial_phased", "parallel_phased"),
--- liveness (0..3), separate_backward, recompute ("auto", "none", "all"),
--- io_tiles, partials ("float", "half"), proportion (a number or by IPU),
--- activation, weight, optimizer, accumulator (tables: on_chip, sharded,
--- io_load, io_store, min_off_chip, min_sharded), output_slices (0: one a
--- micro-batch), input_groups (of replicas that read the same rows; 0: each has
--- its own), synthetic_data, allow_out_of_memory.
--- error: poptorch.Error when a tile overflows or blocks cannot be pipelined
---@param step userdata
---@param options? table
---@param placement? {nodes: table[]?, places: table[]?} in place of the model's
---  blocks: a list of {ipu=, stage=, phase=}, an entry an operator of the step
---  or an entry a place of step:places(); what is nil stays as it was
---@return lupine.Report
function M.simulate(step, options, placement)
  return Report(core.simulate(step, options or {}, placement))
end

--- Runs a completed step by plain kernels: how.order is "schedule" (the order
--- that `options` lead to, holding only what that plan keeps) or
--- "micro_batches"; both give the same bits. inputs: by variable number, all
--- slices one after another; how: also seed, micro_batch, threads, placement.
--- error: RuntimeError naming a value that the schedule reads too late
---@param step userdata
---@param options? table as for simulate
---@param inputs table<integer, torch.Tensor>
---@param how? table
---@return table<integer, torch.Tensor> outputs, table<integer, torch.Tensor> variables,
---  integer held most bytes of values at once
function M.replay(step, options, inputs, how)
  return core.replay(step, options or {}, inputs, how or {})
end

return require("lupine.base.namespace").close(M, "lupine.report")
