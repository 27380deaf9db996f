---@meta
-- luacheck: ignore 212 241
-- Made by poptorch/options/document.lua from the rows of the options; do not edit.

---@class poptorch.Options
---@field device_iterations integer
---@field replication_factor integer
---@field auto_round_num_ipus boolean
---@field broadcast_buffers boolean
---@field input_group_size any
---@field input_group_type any
---@field output_mode poptorch.OutputMode
---@field output_return_period integer
---@field anchored_tensors any
---@field random_seed integer?
---@field log_dir string
---@field max_repeat_logs integer?
---@field model_name string?
---@field executable_cache_path string?
---@field use_model boolean?
---@field connection_type poptorch.ConnectionType
---@field sync_pattern poptorch.SyncPattern
---@field ipu_id integer?
---@field ipu_version integer?
---@field execution_strategy Strategy
---@field available_memory_proportion table
---@field enable_stable_norm boolean
---@field enable_synthetic_data boolean
---@field log_cycle_count boolean
---@field profile_dir string?
---@field host_profile boolean
---@field module_namescope boolean
---@field relax_optimizer_checks boolean
---@field show_compilation_progress_bar boolean
---@field source_location_excludes table
---@field updatable_named_buffers table?
---@field Training poptorch.options._TrainingOptions
---@field Precision poptorch.options._PrecisionOptions
---@field TensorLocations poptorch.options._TensorLocationOptions
---@field Distributed poptorch.options._DistributedOptions
---@field Jit poptorch.options._JitOptions
---@field _Popart poptorch.options._PopartOptions
local Options = {}

--- Iterations of the device's loop per call, each with a new batch.
--- effect: Rows of the schedule per call; the host's overhead is paid once per call.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param device_iterations integer
---@return poptorch.Options
function Options:deviceIterations(device_iterations) end

--- Copies of the model that work on different data.
--- effect: IPUs times this; gradients are reduced over the copies.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param replication_factor integer
---@return poptorch.Options
function Options:replicationFactor(replication_factor) end

--- Reserves a power of two of IPUs, where it would be an error.
--- effect: Idle IPUs are reserved.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param auto_round_num_ipus? boolean
---@return poptorch.Options
function Options:autoRoundNumIPUs(auto_round_num_ipus) end

--- Only false lets a replicated model modify its buffers: each replica has its own.
--- effect: Which models compile; the machine has buffers of each replica in any case.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param broadcast_buffers? boolean
---@return poptorch.Options
function Options:broadcastBuffers(broadcast_buffers) end

--- Replicas of a group read the same input; not CommGroupType.All.
--- effect: Host traffic divides by the group size.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param input_group_size? integer
---@param input_group_type? poptorch.CommGroupType
---@return poptorch.Options
function Options:inputReplicaGrouping(input_group_size, input_group_type) end

--- Which results a call returns; Default is All for inference, Final for training; EveryN needs
---   a period, which divides deviceIterations.
--- effect: Results copied to the host.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param output_mode poptorch.OutputMode
---@param output_return_period? integer
---@return poptorch.Options
function Options:outputMode(output_mode, output_return_period) end

--- Makes a tensor of the graph retrievable after a run; without a mode it follows outputMode.
---   Slices stand by device iteration, micro-batch, replica.
--- effect: The tensor stays live to its copy to the host.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param short_name string
---@param long_name string
---@param output_mode? poptorch.OutputMode?
---@param output_return_period? integer
---@return poptorch.Options
function Options:anchorTensor(short_name, long_name, output_mode, output_return_period) end

--- Seed of the device's random numbers; also seeds the host's.
--- effect: Values only.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param random_seed integer?
---@return poptorch.Options
function Options:randomSeed(random_seed) end

--- Directory of log files; written once it is set.
--- effect: The log of a model from when it is wrapped also goes to modelName.log there.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param log_dir string
---@return poptorch.Options
function Options:logDir(log_dir) end

--- Equal log lines before they are suppressed; nil: never.
--- effect: The log, from when a model is wrapped.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param max_lines integer?
---@return poptorch.Options
function Options:maxRepeatLogs(max_lines) end

--- Sub-directory of reports; "inference" or "training" when unset.
--- effect: Names the folder of reports, and the log file of logDir.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param name string?
---@return poptorch.Options
function Options:modelName(name) end

--- Directory of compiled executables, made if it is missing; nil: no cache. POPTORCH_CACHE_DIR
---   sets it for all options.
--- effect: Compiling; not on the IPU Model.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param path string?
---@return poptorch.Options
function Options:enableExecutableCaching(path) end

--- The IPU Model in place of hardware; wins over POPTORCH_IPU_MODEL.
--- effect: No cycle count, no power-of-two rule.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param use_model boolean?
---@return poptorch.Options
function Options:useIpuModel(use_model) end

--- When to attach to an IPU: before compiling, after it, never.
--- effect: When simulated IPUs are taken.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param connection_type poptorch.ConnectionType
---@return poptorch.Options
function Options:connectionType(connection_type) end

--- Which IPUs synchronise for host I/O.
--- effect: none: all IPUs wait for host I/O alike
--- source: PopTorch 3.x API reference, poptorch.Options
---@param sync_pattern poptorch.SyncPattern
---@return poptorch.Options
function Options:syncPattern(sync_pattern) end

--- Device id, as `lupine info` lists them; its IPUs must equal the model's times replicas:
---   fewer are an error, more are reserved with a warning.
--- effect: Which simulated IPUs are taken.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param ipu_id integer?
---@return poptorch.Options
function Options:useIpuId(ipu_id) end

--- Compile only: 1 Mk1, 2 Mk2, 21 Mk2 with FP8.
--- effect: Chip the program is planned for.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param ipu_version integer?
---@return poptorch.Options
function Options:useOfflineIpuTarget(ipu_version) end

--- How blocks are spread over IPUs and time.
--- effect: Stages, placement and schedule.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param strategy Strategy
---@return poptorch.Options
function Options:setExecutionStrategy(strategy) end

--- Temporary memory of each IPU for convolution, matmul and gather: {IPU0 = 0.5}, 0 to 1.
--- effect: The planner's bound on temporary memory.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param available_memory_proportion table
---@return poptorch.Options
function Options:setAvailableMemoryProportion(available_memory_proportion) end

--- Two-pass mean and variance in normalisations: slower, more accurate.
--- effect: float16 is normalised by statistics in float32, of two passes, which cost one more;
---   otherwise mean and deviation are halves.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param enabled boolean
---@return poptorch.Options
function Options:enableStableNorm(enabled) end

--- Random normal data made on the device in place of host I/O.
--- effect: No host I/O.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param enabled boolean
---@return poptorch.Options
function Options:enableSyntheticData(enabled) end

--- Counts the cycles of the main graph, logged at DEBUG; hardware only.
--- effect: The counter reads of the real program.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param log_cycle_count boolean
---@return poptorch.Options
function Options:logCycleCount(log_cycle_count) end

--- Writes profiling reports to this directory; nil: the current one.
--- effect: Files in a folder modelName there when a model is compiled: profile.json,
---   summary.txt, debug.json, graph.txt; a tile's memory may overflow.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param profile_dir string?
---@return poptorch.Options
function Options:enableProfiling(profile_dir) end

--- Takes the time of the host's instructions: model:hostProfile().
--- effect: What model:hostProfile() says: where the host's time goes.
--- source: lupine
---@param enabled boolean
---@return poptorch.Options
function Options:hostProfile(enabled) end

--- Operator names without the path of their module.
--- effect: Names of operators: executor:getTensorNames(), report:nodes().
--- source: PopTorch 3.x API reference, poptorch.Options
---@return poptorch.Options
function Options:disableModuleNamescope() end

--- Unexpected optimizer attributes are logged at DEBUG in place of WARN.
--- effect: The log.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param relax? boolean
---@return poptorch.Options
function Options:relaxOptimizerAttributesChecks(relax) end

--- A progress bar while compiling; without it compilationTime() is an error.
--- effect: The bar, on a terminal; compilationTime().
--- source: PopTorch 3.x API reference, poptorch.Options
---@param show? boolean
---@return poptorch.Options
function Options:showCompilationProgressBar(show) end

--- Frames whose path holds one of these strings do not count as the source of an operator. The
---   default stands for the library's own files.
--- effect: The file and line of operators: report:nodes(), profiles, errors.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param excludes table
---@return poptorch.Options
function Options:sourceLocationExcludes(excludes) end

--- Adds to sourceLocationExcludes.
--- effect: As sourceLocationExcludes.
--- source: PopTorch 3.x API reference, poptorch.Options
---@param ... string
---@return poptorch.Options
function Options:appendToLocationExcludes(...) end

--- Buffers that copyNamedBuffersToDevice() may change after compiling.
--- effect: These buffers are variables, not constants.
--- source: PopTorch 3.4
---@param buffers table?
---@return poptorch.Options
function Options:updatableNamedBuffers(buffers) end

---@class poptorch.options._TrainingOptions
---@field gradient_accumulation integer
---@field accumulation_and_replication_reduction_type poptorch.ReductionType
---@field mean_accumulation_and_replication_reduction_strategy poptorch.MeanReductionStrategy
---@field automatic_loss_scaling boolean
---@field convolution_dithering boolean
local _TrainingOptions = {}

--- Micro-batches whose gradients are accumulated before a weight update.
--- effect: Micro-batches per update; a pipeline is filled and flushed once per update, replicas
---   reduce once per update.
--- source: PopTorch 3.x API reference, poptorch.options._TrainingOptions
---@param gradient_accumulation integer
---@return poptorch.options._TrainingOptions
function _TrainingOptions:gradientAccumulation(gradient_accumulation) end

--- Mean or Sum over accumulated micro-batches and over replicas.
--- effect: The divisor of gradients; no cost of its own.
--- source: PopTorch 3.x API reference, poptorch.options._TrainingOptions
---@param reduction_type poptorch.ReductionType
---@return poptorch.options._TrainingOptions
function _TrainingOptions:accumulationAndReplicationReductionType(reduction_type) end

--- When the mean divides: at every micro-batch (Running) or at the end (Post); PostAndLoss
---   (deprecated) by the replicas before the backward pass. An optimizer with accum_type
---   float16 uses Running.
--- effect: Running scales the accumulator at every micro-batch; Post once; PostAndLoss the
---   gradients by the replicas.
--- source: PopTorch 3.x API reference, poptorch.options._TrainingOptions
---@param mean_reduction_strategy poptorch.MeanReductionStrategy
---@return poptorch.options._TrainingOptions
function _TrainingOptions:setMeanAccumulationAndReplicationReductionStrategy(
  mean_reduction_strategy) end

--- Adjusts the loss scale from the gradients' histogram.
--- effect: The loss scale is multiplied by a factor that each update halves or doubles;
---   counting the gradients of float16 costs cycles in every micro-batch. An update whose
---   gradients are not finite is left out.
--- source: PopTorch 3.x API reference, poptorch.options._TrainingOptions
---@param enabled boolean
---@return poptorch.options._TrainingOptions
function _TrainingOptions:setAutomaticLossScaling(enabled) end

--- Lays out convolutions from different tiles. Keeps the partials type that setPartialsType
---   chose.
--- effect: Convolutions that do not take all tiles begin at tiles drawn from their shapes: the
---   memory of the fullest tile.
--- source: PopTorch 3.x API reference, poptorch.options._TrainingOptions
---@param enabled boolean
---@return poptorch.options._TrainingOptions
function _TrainingOptions:setConvolutionDithering(enabled) end

---@class poptorch.options._PrecisionOptions
---@field floating_point_exceptions boolean
---@field stochastic_rounding boolean
---@field partials_type any
---@field half_float_casting poptorch.HalfFloatCastingBehavior
---@field running_statistics_always_float boolean
---@field autocast_enabled boolean
---@field autocast_policy Policy
local _PrecisionOptions = {}

--- A run raises poptorch.Error on inf - inf, x/0, 0*inf, results that are not real, comparison
---   with NaN.
--- effect: Checks after every operator on the host; the IPU traps at no cost.
--- source: PopTorch 3.x API reference, poptorch.options._PrecisionOptions
---@param enabled boolean
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:enableFloatingPointExceptions(enabled) end

--- Rounds to float16 up or down at random, so that the expected value is exact.
--- effect: Values change, by the seed; cycles do not. Sums of outputs over a call, which the
---   host makes, round to nearest.
--- source: PopTorch 3.x API reference, poptorch.options._PrecisionOptions
---@param enabled boolean
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:enableStochasticRounding(enabled) end

--- Type of partial results of matrix multiplications, convolutions, sums and means of float16.
--- effect: half: running sums round to float16 after each 16 products, in the order of their
---   index; partials take half the memory and exchange, and the arithmetic unit works at its
---   rate for them.
--- source: PopTorch 3.x API reference, poptorch.options._PrecisionOptions
---@param dtype any
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:setPartialsType(dtype) end

--- Deprecated: mixed types promote as in PyTorch whatever is chosen.
--- effect: none: mixed types promote as in PyTorch
--- source: PopTorch 3.x API reference, poptorch.options._PrecisionOptions
---@param half_float_casting poptorch.HalfFloatCastingBehavior
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:halfFloatCasting(half_float_casting) end

--- Deprecated: the type of running statistics is that of the buffers.
--- effect: none: running statistics have their buffers' type
--- source: PopTorch 3.x API reference, poptorch.options._PrecisionOptions
---@param value boolean
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:runningStatisticsAlwaysFloat(value) end

--- Master switch of automatic casting (2.6): marked modules and poptorch.autocast.
--- effect: Types of operators, and of the weights of marked modules.
--- source: PopTorch 2.6 user guide, "Automatic casting"
---@param autocast_enabled boolean
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:autocastEnabled(autocast_enabled) end

--- Which operators automatic casting runs in which type (2.6).
--- effect: As autocastEnabled.
--- source: PopTorch 2.6 user guide, "Automatic casting"
---@param autocast_policy Policy
---@return poptorch.options._PrecisionOptions
function _PrecisionOptions:autocastPolicy(autocast_policy) end

---@class poptorch.options._TensorLocationOptions
---@field num_io_tiles integer
---@field location_activation TensorLocationSettings
---@field location_weight TensorLocationSettings
---@field location_optimizer TensorLocationSettings
---@field location_accumulator TensorLocationSettings
local _TensorLocationOptions = {}

--- Tiles of each IPU set aside for I/O.
--- effect: Fewer tiles compute; host I/O and streaming overlap.
--- source: PopTorch 3.x API reference, poptorch.options._TensorLocationOptions
---@param num_tiles integer
---@return poptorch.options._TensorLocationOptions
function _TensorLocationOptions:numIOTiles(num_tiles) end

--- Location of activations.
--- effect: Tile memory and streaming of activations.
--- source: PopTorch 3.x API reference, poptorch.options._TensorLocationOptions
---@param location TensorLocationSettings
---@return poptorch.options._TensorLocationOptions
function _TensorLocationOptions:setActivationLocation(location) end

--- Location of weights.
--- effect: Tile memory and streaming of weights.
--- source: PopTorch 3.x API reference, poptorch.options._TensorLocationOptions
---@param location TensorLocationSettings
---@return poptorch.options._TensorLocationOptions
function _TensorLocationOptions:setWeightLocation(location) end

--- Location of optimizer state.
--- effect: Tile memory and streaming of optimizer state.
--- source: PopTorch 3.x API reference, poptorch.options._TensorLocationOptions
---@param location TensorLocationSettings
---@return poptorch.options._TensorLocationOptions
function _TensorLocationOptions:setOptimizerLocation(location) end

--- Location of gradient accumulators.
--- effect: Tile memory and streaming of gradient accumulators.
--- source: PopTorch 3.x API reference, poptorch.options._TensorLocationOptions
---@param location TensorLocationSettings
---@return poptorch.options._TensorLocationOptions
function _TensorLocationOptions:setAccumulatorLocation(location) end

---@class poptorch.options._DistributedOptions
---@field numProcesses any
---@field processId any
local _DistributedOptions = {}

--- Sets this process's id and the number of processes.
--- effect: The rows that a DataLoader reads; inference runs this process's replicas, training
---   with more than one is refused.
--- source: PopTorch 3.x API reference, poptorch.options._DistributedOptions
---@param process_id integer
---@param num_processes integer
---@return poptorch.options._DistributedOptions
function _DistributedOptions:configureProcessId(process_id, num_processes) end

--- Reads count and id from these environment variables, now.
--- effect: As configureProcessId.
--- source: PopTorch 3.x API reference, poptorch.options._DistributedOptions
---@param var_num_processes string
---@param var_process_id string
---@return poptorch.options._DistributedOptions
function _DistributedOptions:setEnvVarNames(var_num_processes, var_process_id) end

--- Ignores the environment: one process.
--- effect: As configureProcessId(0, 1).
--- source: PopTorch 3.x API reference, poptorch.options._DistributedOptions
---@return poptorch.options._DistributedOptions
function _DistributedOptions:disable() end

---@class poptorch.options._JitOptions
---@field trace_model boolean
local _JitOptions = {}

--- Deprecated: accepted, warns.
--- effect: none: models are always traced by running forward once
--- source: PopTorch 3.x API reference, poptorch.options._JitOptions
---@param trace_model boolean
---@return poptorch.options._JitOptions
function _JitOptions:traceModel(trace_model) end

---@class poptorch.options._PopartOptions
---@field patterns any
---@field patterns_level any
local _PopartOptions = {}

--- Sets a session option by its PopART name.
--- effect: That of the session option, or a note in the report; one that would change results
---   and an unknown name are errors when compiling.
--- source: PopTorch 3.x API reference, poptorch.options._PopartOptions
---@param key string
---@param value any
---@return poptorch.options._PopartOptions
function _PopartOptions:set(key, value) end

--- Switches graph patterns on or off by name; level 0 none, 1 minimal, 2 default, 3 all.
--- effect: none: the passes over the graph are fixed
--- source: PopTorch 3.x API reference, poptorch.options._PopartOptions
---@param patterns table
---@param level? integer
---@return poptorch.options._PopartOptions
function _PopartOptions:setPatterns(patterns, level) end

---@class poptorch.TensorLocationSettings
---@field min_elements_for_off_chip integer
---@field min_elements_for_replicated_tensor_sharding integer
---@field on_chip_storage boolean?
---@field replicated_tensor_sharding boolean
---@field io_tiles_to_load boolean
---@field io_tiles_to_store boolean
local TensorLocationSettings = {}

--- Tensors with fewer elements stay on chip.
--- effect: Which tensors are off chip; 2 when unset.
--- source: PopTorch 3.x API reference, poptorch.TensorLocationSettings
---@param min_elements integer
---@return poptorch.TensorLocationSettings
function TensorLocationSettings:minElementsForOffChip(min_elements) end

--- Only tensors with more elements are sharded over replicas.
--- effect: Which tensors are sharded; 8192 when unset.
--- source: PopTorch 3.x API reference, poptorch.TensorLocationSettings
---@param min_elements integer
---@return poptorch.TensorLocationSettings
function TensorLocationSettings:minElementsForReplicatedTensorSharding(min_elements) end

--- true: on chip; false: off chip; nil: undefined.
--- effect: Off chip: streamed in before use and out after, no tile memory between.
--- source: PopTorch 3.x API reference, poptorch.TensorLocationSettings
---@param use? boolean?
---@return poptorch.TensorLocationSettings
function TensorLocationSettings:useOnChipStorage(use) end

--- Shards over the replicas (weights, optimizer state).
--- effect: A replica keeps its part; a gather before use, a scatter after.
--- source: PopTorch 3.x API reference, poptorch.TensorLocationSettings
---@param use? boolean
---@return poptorch.TensorLocationSettings
function TensorLocationSettings:useReplicatedTensorSharding(use) end

--- Loads through I/O tiles.
--- effect: Streaming overlaps with computing.
--- source: PopTorch 3.x API reference, poptorch.TensorLocationSettings
---@param use? boolean
---@return poptorch.TensorLocationSettings
function TensorLocationSettings:useIOTilesToLoad(use) end

--- Keeps on I/O tiles (sharded tensors).
--- effect: That of useIOTilesToLoad.
--- source: PopTorch 3.x API reference, poptorch.TensorLocationSettings
---@param use? boolean
---@return poptorch.TensorLocationSettings
function TensorLocationSettings:useIOTilesToStore(use) end
