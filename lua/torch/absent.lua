--- Names of PyTorch that are not there: what to say instead of a near name
--- that means something else.
local errors = require("torch.errors")

local COMPILE = "lupine.compile(fn, inputs) compiles a function or module for the host, "
  .. "poptorch.trainingModel and inferenceModel a model for the device"

local TWO = "a function of two results gives two: local values, indices = x:max(1)"

-- module -> name -> what takes its place
local M = {
  torch = {
    compile = COMPILE, jit = COMPILE, fx = COMPILE, export = COMPILE, _dynamo = COMPILE,
    func = "gradients as functions are in torch.autograd and torch.autograd.functional",
    vmap = "write the batch dimension out",
    fft = "there are no Fourier transforms",
    onnx = "torch.save writes safetensors; there is no other format of models",
    distributed = "replicas are an option: poptorch.Options():replicationFactor(n)",
    multiprocessing = "DataLoader has workers of its own: num_workers",
    sparse = "all tensors are dense",
    from_numpy = 'torch.tensor takes lists; require("lupine.numpy") reads .npy files',
    complex = "there are no complex dtypes", polar = "there are no complex dtypes",
    quantization = "there are no quantized types", ao = "there are no quantized types",
    hub = "load the weights by torch.load",
    profiler = "`lupine profile` and poptorch.Options():hostProfile(true) tell the times",
    backends = "there is nothing to switch", mps = "there is the host and the simulated IPU",
    xpu = "there is the host and the simulated IPU",
    deepcopy = "a module has net:deepcopy(), a tensor x:clone()",
    channels_last = "tensors have one format of memory, the contiguous one",
    contiguous_format = "tensors have one format of memory, the contiguous one",
    preserve_format = "tensors have one format of memory, the contiguous one",
  },
  ["torch.autograd"] = {
    Variable = "a tensor is all there is: torch.tensor(…, {requires_grad = true})",
  },
  ["torch.nn"] = {
    DataParallel = "replicas are an option: poptorch.Options():replicationFactor(n)",
    parallel = "replicas are an option: poptorch.Options():replicationFactor(n)",
    SyncBatchNorm = "every replica has its own statistics",
  },
  ["torch.optim"] = {
    SparseAdam = "all gradients are dense: use Adam",
  },
  ["torch.utils"] = {
    tensorboard = "print or write the figures yourself",
  },
  Tensor = {
    values = TWO, indices = TWO,
    numpy = 'x:tolist() gives a table; require("lupine.numpy") writes and reads .npy files',
    cuda = "there is the host and the simulated IPU",
  },
  poptorch = {
    cond = "poptorch.for_loop is there; choose between two results with torch.where",
  },
}

--- Raises if the module's name is one of those.
---@param module string "torch.nn"; "Tensor" for attributes of tensors
---@param name any
return function(module, name)
  local why = M[module] and M[module][name]
  errors.check(not why, "NotImplementedError", "%s.%s is not there: %s", module, tostring(name),
    why)
end
