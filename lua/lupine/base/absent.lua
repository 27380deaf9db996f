--- Names of PyTorch that are not there: what to say instead of a near name
--- that means something else. With the names that are there these are all the
--- documented ones.
local errors = require("lupine.base.errors")

-- {module, what takes their place, names}: "Tensor" for attributes of tensors.
local ROWS = {
  { "torch", "lupine.compile(fn, inputs) compiles a function or module for the host, "
    .. "lupine.compile(model, {optimizer = …, loss = …}) a training step, "
    .. "poptorch.trainingModel and inferenceModel a model for the device",
    "compile compiler jit fx export _dynamo cond while_loop" },
  { "torch", "gradients as functions are in torch.autograd and its functional", "func" },
  { "torch", "write the batch dimension out", "vmap" },
  { "torch", "there are no Fourier transforms", "fft stft istft" },
  { "torch", "torch.hann_window and its like make the windows", "signal" },
  { "torch", "torch.save writes safetensors; there is no other format of models",
    "onnx package from_file" },
  { "torch", "replicas are an option: poptorch.Options():replicationFactor(n)", "distributed" },
  { "torch", "DataLoader has workers of its own: num_workers",
    "multiprocessing fork futures wait" },
  { "torch", "all tensors are dense", "sparse sparse_coo sparse_csr sparse_csc sparse_bsr "
    .. "sparse_bsc sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor "
    .. "sparse_bsc_tensor sparse_compressed_tensor smm sspaddmm hspmm hsmm dsmm spmm saddmm "
    .. "strided layout jagged nested masked" },
  { "torch", 'torch.tensor takes lists; require("lupine.numpy") reads .npy files',
    "from_dlpack to_dlpack" },
  { "torch", "there are no complex dtypes", "complex polar complex32 complex64 complex128 cfloat "
    .. "cdouble chalf imag view_as_real view_as_complex eig" },
  { "torch", "there are no quantized types", "quantization ao quantize_per_tensor "
    .. "quantize_per_channel quantize_per_tensor_dynamic quantized_batch_norm quantized_max_pool1d "
    .. "quantized_max_pool2d quantized_max_pool3d dequantize empty_quantized "
    .. "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine "
    .. "fused_moving_avg_obs_fake_quant q_scale q_zero_point q_per_channel_axis "
    .. "q_per_channel_scales q_per_channel_zero_points int_repr qscheme per_tensor_affine "
    .. "per_tensor_symmetric per_channel_affine per_channel_symmetric "
    .. "per_channel_affine_float_qparams quint8 qint8 qint32 quint4x2 quint2x4" },
  { "torch", "the integer dtypes are uint8, int8, int16, int32 and int64, the floating ones "
    .. "float16, bfloat16, float32 and float64", "uint16 uint32 uint64 float8_e4m3fn "
    .. "float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2" },
  { "torch", "load the weights by torch.load", "hub" },
  { "torch", "`lupine profile` and poptorch.Options():hostProfile(true) tell the times",
    "profiler monitor" },
  { "torch", "there is nothing to switch", "backends set_flush_denormal set_warn_always "
    .. "is_warn_always_enabled set_deterministic_debug_mode get_deterministic_debug_mode "
    .. "is_deterministic_algorithms_warn_only_enabled set_num_interop_threads "
    .. "get_num_interop_threads compiled_with_cxx11_abi" },
  { "torch", "there is the host and the simulated IPU",
    "mps xpu mtia cpu accelerator Stream Event get_device_module" },
  { "torch", "a module has net:deepcopy(), a tensor x:clone()", "deepcopy" },
  { "torch", "tensors have one format of memory, the contiguous one", "channels_last "
    .. "channels_last_3d contiguous_format preserve_format memory_format empty_permuted" },
  { "torch", "torch.linalg.svd and eigh give all of them", "svd_lowrank pca_lowrank lobpcg" },
  { "torch", "torch_scatter.scatter and x:scatter_reduce reduce by index", "segment_reduce" },
  { "torch", "it takes the arguments of a kernel: torch.nn.functional has it", "batch_norm "
    .. "instance_norm embedding embedding_bag ctc_loss kl_div poisson_nll_loss "
    .. "binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss "
    .. "margin_ranking_loss triplet_margin_loss grid_sampler affine_grid_generator" },
  { "torch", "it takes the arguments of a kernel: torch.nn has the layer", "lstm gru rnn_tanh "
    .. "rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell" },
  { "torch", "it takes the arguments of a kernel: torch.nn.functional has conv1d to conv3d",
    "convolution conv_tbc" },
  { "torch", "torch.set_default_dtype sets it", "set_default_tensor_type" },
  { "torch", "a tensor shows no storage of its own: x:data_ptr() and x:storage_offset()",
    "Storage TypedStorage UntypedStorage FloatStorage DoubleStorage HalfStorage BFloat16Storage "
    .. "LongStorage IntStorage ShortStorage CharStorage ByteStorage BoolStorage "
    .. "is_storage storage" },
  { "torch", "x:type() tells it", "typename" },
  { "torch", "torch.manual_seed, torch.get_rng_state and torch.Generator", "random" },
  { "torch", "uniform points are torch.rand's", "quasirandom" },
  { "torch", "operators are functions of torch, libraries of others are loaded by "
    .. "torch.ops.load_library", "library overrides classes" },
  { "torch", "sizes are integers", "SymInt SymFloat SymBool sym_int sym_float sym_max sym_min "
    .. "sym_not sym_ite sym_sum sym_sqrt" },
  { "torch", "torch.linalg has it: lstsq, solve, eigh, qr, cholesky …",
    "lstsq solve symeig matrix_rank qr cholesky" },
  { "torch", "torch.linalg.norm has these norms", "frobenius_norm nuclear_norm" },
  { "torch", "compare values by torch.equal", "hash_tensor" },
  { "torch", "several results are several values", "return_types" },
  { "torch", "errors are classes of torch.errors", "OutOfMemoryError AcceleratorError" },
  { "torch", "torch.__version__ tells it", "version" },
  { "torch", "torch.manual_seed seeds it; torch.Generator makes others", "default_generator" },
  { "torch", "torch.autocast, torch.set_autocast_dtype and torch.is_autocast_enabled do it",
    "set_autocast_enabled is_autocast_cache_enabled set_autocast_cache_enabled "
    .. "clear_autocast_cache is_autocast_cpu_enabled set_autocast_cpu_enabled "
    .. "get_autocast_cpu_dtype set_autocast_cpu_dtype get_autocast_gpu_dtype "
    .. "set_autocast_gpu_dtype" },

  { "torch.autograd", "a tensor is all there is: torch.tensor(…, {requires_grad = true})",
    "Variable" },
  { "torch.autograd", "gradients go backwards: torch.autograd.functional.jvp", "forward_ad" },
  { "torch.autograd", "`lupine profile` tells the times", "profiler profiler_util" },
  { "torch.autograd", "hooks are tensors' and modules': x:register_hook(f)", "graph" },
  { "torch.autograd", "torch.no_grad and its like are functions of torch", "grad_mode" },
  { "torch.autograd", "backward runs in the thread that asks for it",
    "set_multithreading_enabled is_multithreading_enabled" },
  { "torch.linalg", "torch.linalg.svd gives its factors, eigh the root's", "polar matrix_sqrth" },

  { "torch.nn", "replicas are an option: poptorch.Options():replicationFactor(n)",
    "DataParallel parallel" },
  { "torch.nn", "every replica has its own statistics", "SyncBatchNorm" },
  { "torch.nn", "there are no quantized types", "quantized quantizable intrinsic qat" },
  { "torch.nn", "use Module:extend", "Container RNNBase RNNCellBase" },
  { "torch.nn", "register it: self:register_buffer(name, tensor)", "Buffer" },
  { "torch.nn", "lazy layers make theirs: nn.LazyLinear and its like",
    "UninitializedParameter UninitializedBuffer" },
  { "torch.nn.parameter", "register it: self:register_buffer(name, tensor)", "Buffer" },
  { "torch.nn.parameter", "lazy layers make theirs: nn.LazyLinear and its like",
    "UninitializedParameter UninitializedBuffer UninitializedTensorMixin is_lazy" },
  { "torch.nn", "use nn.LocalResponseNorm", "CrossMapLRN2d" },
  { "torch.nn", "use nn.NLLLoss", "NLLLoss2d" },
  { "torch.nn", "F.scaled_dot_product_attention takes the mask", "attention" },
  { "torch.nn", "apply nn.Linear, then nn.CrossEntropyLoss", "LinearCrossEntropyOptions" },
  { "torch.nn", "classes are fields of torch.nn itself", "modules" },
  { "torch.nn.functional", "use F.conv1d", "conv_tbc" },
  { "torch.nn.functional", "there are no scaled products of short floats: torch.bmm",
    "scaled_mm scaled_grouped_mm grouped_mm scaled_addmm scaled_addmm_" },
  { "torch.nn.functional", "gradients of convolutions come by backward", "grad" },
  { "torch.nn.utils", "use clip_grad_norm_", "clip_grad_norm" },
  { "torch.nn.utils", "tensors have one format of memory, the contiguous one",
    "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format" },
  { "torch.nn.utils", "a module's parameters are its own: net:deepcopy() and load_state_dict",
    "stateless" },
  { "torch.nn.utils.rnn", "use pad_packed_sequence, then unpad_sequence", "unpack_sequence" },
  { "torch.nn.utils.parametrize", "register the parametrizations anew",
    "transfer_parametrizations_and_params" },

  { "torch.optim", "all gradients are dense: use Adam", "SparseAdam" },
  { "torch.utils", "print or write the figures yourself", "tensorboard" },
  { "torch.utils", "x:copy_(y) and load_state_dict move values", "swap_tensors" },
  { "torch.utils", "`lupine profile` tells the times",
    "benchmark bottleneck ThroughputBenchmark module_tracker" },
  { "torch.utils", "an operator of one's own is a torch.autograd.Function", "cpp_extension" },
  { "torch.utils", "there is no other format of tensors", "dlpack mobile_optimizer model_zoo" },
  { "torch.utils.data", "use Dataset and IterableDataset", "IterDataPipe MapDataPipe "
    .. "DFIterDataPipe datapipes functional_datapipe DataChunk" },
  { "torch.utils.data", "use DistributedSampler of torch.utils.data itself", "distributed" },
  { "torch.utils.checkpoint", "checkpoint each part by itself", "checkpoint_sequential" },
  { "torch.utils.checkpoint", "a checkpoint keeps its inputs and nothing else",
    "CheckpointPolicy SelectiveCheckpointContext create_selective_checkpoint_contexts "
    .. "set_checkpoint_debug_enabled set_checkpoint_early_stop" },
  { "torch.distributions", "there are no constraint objects: parameters and values are checked",
    "constraints constraint_registry biject_to transform_to" },
  { "torch.distributions", "extend Distribution", "ExponentialFamily" },
  { "torch.testing", "torch.rand and its like make tensors", "make_tensor" },
  { "torch.testing", "use assert_close", "assert_allclose" },
  { "torch.amp", "the functions of a torch.autograd.Function run in the types they were given",
    "custom_fwd custom_bwd" },

  { "Tensor", "a function of two results gives two: local values, indices = x:max(1)",
    "values indices" },
  { "Tensor", "there is the host and the simulated IPU", "ipu xpu mtia record_stream" },
  { "Tensor", "workers are forked: they have the tensor as it was then, and what they write to it "
    .. "is theirs", "share_memory_" },
  { "Tensor", "all tensors are dense", "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc "
    .. "to_sparse_bsr to_sparse_bsc to_dense to_padded_tensor sparse_dim dense_dim sparse_mask "
    .. "sparse_resize_ sparse_resize_and_clear_ coalesce is_coalesced crow_indices col_indices "
    .. "ccol_indices row_indices smm sspaddmm layout resize_as_sparse_" },
  { "Tensor", "there are no complex dtypes", "imag cfloat cdouble chalf" },
  { "Tensor", "there are no quantized types", "dequantize int_repr qscheme q_scale q_zero_point "
    .. "q_per_channel_axis q_per_channel_scales q_per_channel_zero_points" },
  { "Tensor", "there are no Fourier transforms", "stft istft" },
  { "Tensor", "a tensor shows no storage of its own: x:data_ptr() and x:storage_offset()",
    "storage untyped_storage storage_type" },
  { "Tensor", "torch.linalg has it: lstsq, solve, eigh, qr, cholesky",
    "lstsq solve symeig eig qr cholesky" },
  { "Tensor", "x:new_empty(…), x:new_zeros(…) or x:new_tensor(…)", "new" },
  { "Tensor", "x:resize_ and x:resize_as_ are there", "resize resize_as" },
  { "Tensor", "there is one format of tensors", "to_mkldnn as_subclass is_vulkan" },
  { "Tensor", "compare values by torch.equal", "hash_tensor" },
  { "Tensor", "a gradient has the dtype of its tensor", "grad_dtype" },
  { "Tensor", "net:load_state_dict(t) copies values into parameters", "module_load" },
  { "Tensor", "x.grad_fn tells where a tensor comes from", "output_nr" },

  { "poptorch", "a wrapped model has it: executor:save(filename)",
    "save compileAndExport loadExecutable" },
  { "popart", "a debugContext is a name: popart.DebugContext(name)",
    "DebugInfo SourceLocation NameContextManager" },
  { "popart", "the report names files and lines: session:getReport()",
    "initializePoplarDebugInfo closePoplarDebugInfo" },
  { "popart", "popart.OutOfMemoryException is what is raised", "OutOfMemoryError" },
  { "popart", "compare tensors by torch.allclose and lupine.onnx", "NumericsReport" },
  { "popart", "popart.getSupportedOperations(true) has those that are there",
    "getUnsupportedOperations getSupportedOperationsDefinition OpDefinition" },
  { "popart", "builder:virtualGraph(1) and its like close at the end of a block, or take a "
    .. "function", "AttributeContextManager KeyValueContextManager" },
  { "popart", "models are ONNX: popart.Builder makes them", "ir popxl" },
  { "PoplarExecutor", "poptorch.load(filename) makes one", "load" },
}

-- module -> name -> what takes its place
local M = {}
for _, row in ipairs(ROWS) do
  local names = M[row[1]] or {}
  M[row[1]] = names
  for name in row[3]:gmatch("%S+") do
    names[name] = row[2]
  end
end

local Absent = { names = M }

--- Raises if the module's name is one of those.
---@param module string "torch.nn"; "Tensor" for attributes of tensors
---@param name any
function Absent.__call(_, module, name)
  local why = M[module] and M[module][name]
  errors.check(not why, "NotImplementedError", "%s.%s is not there: %s", module, tostring(name),
    why)
end

return setmetatable(Absent, Absent)
