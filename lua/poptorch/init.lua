--- PopTorch's interface: `local poptorch = require "poptorch"`. Names, meanings
--- and defaults are those of PopTorch 3.x (and of 2.6 where it differs);
--- methods are called with a colon, keyword arguments come in a last table.
local attaching = require("poptorch.attaching")
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local cpu = require("poptorch.cpu")
local data = require("poptorch.data")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local executor = require("poptorch.executor")
local logging = require("poptorch.logging")
local multi_conv = require("poptorch.multi_conv")
local options = require("poptorch.options")
local overlap = require("poptorch.overlap")
local parsers = require("poptorch.parsers")
local scopes = require("poptorch.scopes")
local strategies = require("poptorch.strategies")
local tables = require("lupine.base.tables")

local M = {
  enums = enums,
  options = options,
  autocasting = require("poptorch.autocasting"),
  profiling = require("poptorch.profiling"),

  Options = options.Options,
  TensorLocationSettings = options.TensorLocationSettings,

  Block = blocks.Block,
  BeginBlock = blocks.BeginBlock,
  BlockFunction = blocks.BlockFunction,
  removeBlocks = blocks.removeBlocks,
  MultiConv = multi_conv.MultiConv,
  NameScope = scopes.NameScope,
  Attribute = scopes.Attribute,
  autocast = scopes.autocast,
  CPU = cpu.CPU,

  --- The base of the four strategies.
  IExecutionStrategy = strategies.Strategy,
  Stage = strategies.Stage,
  Phase = strategies.Phase,
  PipelinedExecution = strategies.PipelinedExecution,
  AutoBlocks = strategies.AutoBlocks,
  ShardedExecution = strategies.ShardedExecution,
  SerialPhasedExecution = strategies.SerialPhasedExecution,
  ParallelPhasedExecution = strategies.ParallelPhasedExecution,

  PoplarExecutor = executor.Executor,
  trainingModel = executor.trainingModel,
  inferenceModel = executor.inferenceModel,
  load = executor.load,
  registerPreCompileHook = executor.registerPreCompileHook,
  registerPostCompileHook = executor.registerPostCompileHook,
  ICustomArgParser = parsers.ICustomArgParser,
  registerCustomArgParser = parsers.registerCustomArgParser,
  DataLoader = data.DataLoader,
  AsynchronousDataAccessor = data.AsynchronousDataAccessor,

  Error = errors.Error,
  RecoverableError = errors.RecoverableError,
  UnrecoverableError = errors.UnrecoverableError,
  ConfigFileError = errors.ConfigFileError,

  ipuHardwareIsAvailable = attaching.ipuHardwareIsAvailable,
  ipuHardwareVersion = attaching.ipuHardwareVersion,
  setLogLevel = logging.setLogLevel,
}

M.optim = require("poptorch.optim")
M.custom_op = require("poptorch.custom_op")
for _, functions in ipairs({ "ops", "cluster" }) do
  for name, fn in pairs(require("poptorch." .. functions)) do
    M[name] = fn
  end
end
M.set_overlap_for_input = overlap.set_overlap_for_input
M.set_overlap_for_output = overlap.set_overlap_for_output

--- True while a model is traced for the IPU; false when it runs on the host.
---@return boolean
function M.isRunningOnIpu()
  return blocks.tracer ~= nil
end

for name, enumeration in pairs(enums) do
  M[name] = enumeration
end

return setmetatable(M, {
  __index = function(t, name)
    require("lupine.base.absent")("poptorch", name)
    errors.raise("AttributeError", "module 'poptorch' has no attribute '%s'%s", tostring(name),
      check.nearest(name, tables.keys(t)))
  end,
})
