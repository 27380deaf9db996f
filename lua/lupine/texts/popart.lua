--- Texts of popart's names that rows and helpers make.
local SESSIONS = [[
Builder: Builds an ONNX model node by node: inputs, weights and constants, operators by
  builder.aiOnnx and builder.aiGraphcore, outputs; getModelProto gives it to a session.
Builder:excludePatterns: Names patterns that leave a node alone; nothing comes of it here.
Builder:executionPhase: The phase of nodes in fn, or until the scope is closed, or of a node.
Builder:pipelineStage: The stage of nodes in fn, or until the scope is closed, or of a node.
Builder:virtualGraph: The IPU of nodes in fn, or until the scope is closed, or of a node.
Builder:schedulePriority: The priority of nodes in the schedule; nothing comes of it here.
Builder:getExecutionPhase: The phase of a node.
Builder:getPipelineStage: The stage of a node.
Builder:getVirtualGraph: The IPU of a node.
Builder:hasExecutionPhase: Whether a node has a phase.
Builder:hasPipelineStage: Whether a node has a stage.
Builder:hasVirtualGraph: Whether a node has an IPU.
Builder:getAllNodeAttributeNames: The names of a node's attributes.
Builder:getFloatNodeAttribute: A node's attribute, a number.
Builder:getFloatVectorNodeAttribute: A node's attribute, a list of numbers.
Builder:getInt64NodeAttribute: A node's attribute, an integer.
Builder:getInt64VectorNodeAttribute: A node's attribute, a list of integers.
Builder:getStringNodeAttribute: A node's attribute, a string.
Builder:getStringVectorNodeAttribute: A node's attribute, a list of strings.
Builder:nodeHasAttribute: Whether a node has an attribute.
Builder:removeNodeAttribute: Takes an attribute from a node.
Builder:getPartialsType: The type of a product's or convolution's partial results.
Builder:setPartialsType: The type of a product's or convolution's partial results, FLOAT or HALF.
Builder:getRecomputeOutputInBackwardPass: Whether a node's results are computed again.
Builder:setAvailableMemoryProportion: The share of a tile's memory that a node's temporaries take.
Builder:setInplacePreferences: Priorities of forms in place; nothing comes of them here.
Session: What InferenceSession and TrainingSession have in common.
Session:hasInfo: Whether the program has a tensor.
Session:getAllTensorIds Session:getTensorIds: The names of the program's tensors.
Session:getRandomSeed: The seed of the session's random numbers.
Session:connectHostFunction Session:connectStream Session:connectStreamToCallback
  Session:copyFromRemoteBuffer Session:copyToRemoteBuffer Session:fromIr Session:runWithHandle
  Session:setDeviceInfo: Not there: an error that says what is instead.
CommGroup.type: How replicas form groups.
CommGroup.replicaGroupSize: Replicas of a group.
DeviceInfo.type: What kind of device it is.
DeviceInfo.connectionType: When it is attached to.
DeviceInfo.numIpus: How many IPUs it has.
DeviceInfo.tilesPerIPU: How many tiles each of them has.
DeviceInfo.isAttached: Whether this process has it.
OperatorIdentifier.domain: "ai.onnx", "ai.graphcore" or one's own.
OperatorIdentifier.type: The operator's name.
OperatorIdentifier.version: The version of the set of operators.
ReplicaGrouping.numReplicas: How many replicas there are.
ReplicaGrouping.stride: How far apart the replicas of a group are.
ReplicaGrouping.groupSize: Replicas of a group.
Session.dataFlow: Its batches per step, and its anchors.
Session.replicationFactor: How many replicas run.
Session.accumulationFactor: Micro-batches of an update.
TensorLocation.storage: On the chip or off it.
TensorLocation.loadTileSet: The tiles that load it.
TensorLocation.storageTileSet: The tiles that hold it.
TensorLocation.replicatedTensorSharding: Whether each replica keeps a part of it.
TensorLocation.shardingDomain: The replicas that share it.
IStepIO:in_: Yours: gives the n elements of an input.
IStepIO:inComplete: Yours: the input was read.
IStepIO:out: Yours: gives a tensor of n elements for an anchor.
IStepIO:outComplete: Yours: the anchor was written.
IWeightsIO:contains: Yours: whether there is a weight of a name.
IWeightsIO:weight: Yours: the memory of a weight.
Logger:critical Logger:debug Logger:error Logger:info Logger:warn: A line of the log at that level.
]]

local OPTIMIZERS = [[
Optimizer: What popart's optimizers have in common.
OptimizerValue: A number of an optimizer, and whether it is constant: compiled into the program.
OptimizerValueMap: A number of an optimizer for all weights, and others for single ones.
ClipNormSettings: Which weights' gradients together have at most a norm.
ClipNormSettings.weightIds: The weights' names.
ClipNormSettings.maxNorm: The largest norm.
Optimizer.clip_norm_settings: Its ClipNormSettings, a list.
ClipNormSettings:getMaxNorm: The largest norm.
Adam:beta1s Adam:beta2s Adam:epss Adam:learningRates Adam:maxWeightNorms Adam:weightDecays: Such a
  number's values, as an OptimizerValueMap.
Adaptive:alphas Adaptive:epss Adaptive:learningRates Adaptive:momentums Adaptive:weightDecays: Such
  a number's values, as an OptimizerValueMap.
SGD:dampenings SGD:learningRates SGD:momentums SGD:nesterov SGD:velocityScalings SGD:weightDecays:
  Such a number's values, as an OptimizerValueMap.
]]

local SETTINGS = [[
AccumulateOuterFragmentSettings: sessionOptions.accumulateOuterFragmentSettings: when accumulated
  gradients are applied.
AutodiffSettings: sessionOptions.autodiffSettings: how subgraphs get their inputs back.
AutomaticLossScalingSettings: sessionOptions.automaticLossScalingSettings: the loss scale follows
  the gradients.
BatchSerializationSettings: sessionOptions.batchSerializationSettings: batches in parts.
ExecutionPhaseSettings: sessionOptions.executionPhaseSettings: execution in phases.
ExperimentalSettings: sessionOptions.experimentalSettings: what has no place of its own.
ReplicatedCollectivesSettings: sessionOptions.replicatedCollectivesSettings: which collectives
  between replicas are merged.
GraphTransformer:convertBFloats16ToFloat32: Tensors of bfloat16 become float32.
GraphTransformer:convertDoublesToFloats: Tensors of float64 become float32.
GraphTransformer:convertDoublesToHalfs: Tensors of float64 become float16.
GraphTransformer:convertFloatsToHalfs: Tensors of float32 become float16.
GraphTransformer:convertINT16ToINT32 GraphTransformer:convertINT8ToINT32
  GraphTransformer:convertUINT8ToINT32: Tensors of that type become int32.
]]

local ERRORS = [[
popart_exception: What popart raises: a model, option or call that is not allowed.
popart_internal_exception: A fault of popart's own.
popart_runtime_error: A session that cannot do what is asked of it now.
optimizer_replacement_error: An optimizer that the program was not compiled for.
OutOfMemoryException: A model that does not fit its IPUs.
poplibs_exception: What the libraries of operators refuse.
poplar_exception: What the compiler refuses.
poplar_runtime_error: What goes wrong while a program runs.
poplar_application_error poplar_application_runtime_error: The program's own fault.
poplar_system_error poplar_system_runtime_error: The machine's fault.
poplar_recoverable_error poplar_recoverable_runtime_error: A fault of the machine after which a
  script can go on; recovery_action says how.
poplar_unrecoverable_error poplar_unrecoverable_runtime_error: A fault of the machine that takes its
  device with it.
poplar_unknown_error poplar_unknown_runtime_error unknown_runtime_error: A fault of the machine of
  which nothing is known.
]]

local PREFIXES = [[
reservedAccl1Prefix reservedAccl2Prefix reservedAccl3Prefix reservedAcclFinalOutPrefix
  reservedAcclPrefix reservedAcclToReducePrefix reservedAcclToUpdatePrefix
  reservedAccumPrefix reservedAdamUpdaterPrefix reservedAutomaticLossScalePrefix
  reservedFinalReducedGradPrefix reservedGradientPrefix reservedLambR1SqPrefix
  reservedLambR2SqPrefix reservedLossScalingPrefix reservedRandomSeedPrefix
  reservedRemoteArgPrefix reservedRestoredPrefix reservedSeedModifierPrefix
  reservedStashedPrefix reservedStepPrefix reservedUpdatedVarPrefix:
  The start of the names of such tensors.
reservedDefaultAdamBeta1Prefix reservedDefaultAdamBeta2Prefix reservedDefaultAdamEpsPrefix
  reservedDefaultDampeningScaleFactor1Prefix reservedDefaultLearningRatePrefix
  reservedDefaultLossScalingPrefix reservedDefaultMaxWeightNormPrefix
  reservedDefaultScaledLearningRate0Prefix reservedDefaultScaledLearningRate1Prefix
  reservedDefaultScaledMomentum1Prefix reservedDefaultScaledWeightDecay1Prefix
  reservedDefaultStepPrefix reservedDefaultWeightDecayPrefix
  reservedDefaultWeightDecayScaleFactor0Prefix:
  The start of the name of such a number of an optimizer for all weights.
reservedSpecificAdamBeta1Prefix reservedSpecificAdamBeta2Prefix reservedSpecificAdamEpsPrefix
  reservedSpecificDampeningScaleFactor1Prefix reservedSpecificLearningRatePrefix
  reservedSpecificLossScalingPrefix reservedSpecificMaxWeightNormPrefix
  reservedSpecificScaledLearningRate0Prefix reservedSpecificScaledLearningRate1Prefix
  reservedSpecificScaledMomentum1Prefix reservedSpecificScaledWeightDecay1Prefix
  reservedSpecificStepPrefix reservedSpecificWeightDecayPrefix
  reservedSpecificWeightDecayScaleFactor0Prefix:
  The start of the names of such numbers of an optimizer for single weights.
]]

return { { "popart", SESSIONS }, { "popart", OPTIMIZERS }, { "popart", SETTINGS },
  { "popart", ERRORS }, { "popart", PREFIXES },
  { "popart.logging", "logger:setLevel: Sets the level of a module's log." } }
