--- PopART's Python module in Lua: models built node by node, run by sessions with
--- explicit streams, on the simulated IPUs.
---
---     local popart = require("popart")
---
--- The same compiler and the same sessions stand behind poptorch. Names, arguments and
--- defaults are the original's; how Python is spelled in Lua is in docs/porting.md.
---
--- Source: PopART user guide and Python API.
local Builder = require("popart.builder")
local builder_attributes = require("popart.node_attributes")
local dataflow = require("popart.dataflow")
local device_info = require("popart.device_info")
local devices = require("popart.devices")
local enums = require("popart.enums")
local errors = require("popart.errors")
local functions = require("popart.functions")
local graph_transformer = require("popart.graph_transformer")
local logging = require("popart.logging")
local operations = require("popart.operations")
local opsets = require("popart.opsets")
local optimizers = require("popart.optimizers")
local options = require("popart.options")
local patterns = require("popart.patterns")
local prefixes = require("popart.prefixes")
local session = require("popart.session")
local step_library = require("popart.step_library")
local stepio = require("popart.stepio")
local tensor_info = require("popart.tensor_info")
local tensor_location = require("popart.tensor_location")
local variable_settings = require("popart.variable_settings")

local M = {
  Builder = Builder,
  defaultAiOnnxOpset = opsets.DEFAULT,
  defaultAiOnnxMlOpset = 1,
  defaultAiGraphcoreOpset = 1,
  AnchorReturnType = dataflow.AnchorReturnType,
  DataFlow = dataflow.DataFlow,
  InputSettings = dataflow.InputSettings,
  DeviceInfo = device_info.DeviceInfo,
  DeviceManager = devices.DeviceManager,
  InferenceSession = session.InferenceSession,
  Session = session.Session,
  TrainingSession = session.TrainingSession,
  RecomputeType = builder_attributes.RecomputeType,
  StepIO = step_library.StepIO,
  TensorInfo = tensor_info.TensorInfo,
  InputShapeInfo = tensor_info.InputShapeInfo,
  DebugContext = operations.DebugContext,
  OperatorIdentifier = operations.OperatorIdentifier,
  getSupportedOperations = operations.getSupportedOperations,
  GraphTransformer = graph_transformer.GraphTransformer,
  getLogger = logging.getLogger,
  Logger = logging.Logger,
  logger = logging.logger,
  errors = errors,
}

-- All that a part has but its helpers, which begin in lower case.
for _, part in ipairs({ enums, errors.classes, errors.throws, optimizers, patterns, stepio,
  variable_settings, options, tensor_location }) do
  for name, value in pairs(part) do
    if type(name) == "string" and (part == errors.classes or part == errors.throws
      or name:find("^%u")) then
      M[name] = value
    end
  end
end
for _, part in ipairs({ functions, prefixes }) do
  for name, fn in pairs(part) do
    M[name] = fn
  end
end
M.RecoveryAction = errors.RecoveryAction

return require("lupine.base.namespace").close(M, "popart")
