--- Texts of torch's own functions and classes that tables make: errors, optimizers and
--- schedules, types of tensors, tests.
local TORCH = [[
FloatTensor: A float32 tensor of lists, or of sizes, unset.
DoubleTensor: A float64 tensor of lists, or of sizes, unset.
HalfTensor: A float16 tensor of lists, or of sizes, unset.
BFloat16Tensor: A bfloat16 tensor of lists, or of sizes, unset.
dtype: The class of dtypes: torch.dtype.is(x) tests for one.
LongTensor: An int64 tensor of lists, or of sizes, unset.
IntTensor: An int32 tensor of lists, or of sizes, unset.
ShortTensor: An int16 tensor of lists, or of sizes, unset.
CharTensor: An int8 tensor of lists, or of sizes, unset.
ByteTensor: A uint8 tensor of lists, or of sizes, unset.
BoolTensor: A bool tensor of lists, or of sizes, unset.
allclose: Whether |input - other| <= atol + rtol |other| everywhere.
equal: Whether shapes and all elements are the same.
isreal: Where elements are real: everywhere.
is_complex is_conj is_neg is_distributed is_inference: False: there are no such tensors here.
is_floating_point: Whether the dtype is a floating one.
is_signed: Whether the dtype has a sign.
is_same_size: Whether both have one shape.
numel: The number of elements.
real: The tensor itself, as there are no complex dtypes.
unique: The different values, sorted; with return_inverse where each element's value is, with
  return_counts how often it is there.
atleast_1d: With at least one dimension; several tensors as a list.
atleast_2d: With at least two dimensions; several tensors as a list.
atleast_3d: With at least three dimensions; several tensors as a list.
hann_window: The window of Hann, 0.5 - 0.5 cos.
hamming_window: The window of Hamming, alpha - beta cos.
bartlett_window: The triangular window of Bartlett.
blackman_window: The window of Blackman.
kaiser_window: The window of Kaiser, by beta.
]]

local LINALG = [[
LinAlgError: A matrix that has no inverse, is not positive definite, or did not converge.
eig: Eigenvalues and vectors of a square matrix; an error if they are complex.
eigvals: Eigenvalues of a square matrix; an error if they are complex.
]]

local AMP = [[
GradScaler: Scales the loss so that small gradients of half precision do not vanish, and skips
  updates whose gradients are not finite.
GradScaler:get_backoff_factor: What the scale is multiplied by after such an update.
GradScaler:get_growth_factor: What the scale is multiplied by after growth_interval good updates.
GradScaler:get_growth_interval: Good updates until the scale grows.
GradScaler:is_enabled: Whether it scales at all.
GradScaler:set_backoff_factor: Sets what get_backoff_factor gives.
GradScaler:set_growth_factor: Sets what get_growth_factor gives.
GradScaler:set_growth_interval: Sets what get_growth_interval gives.
]]

local ERRORS = [[
Exception: What every error is: message, type, location, traceback, origin; CLASS:is(e) tests for a
  class and those below it.
ValueError: A value that is not allowed.
TypeError: A value of another type than what is taken.
AttributeError: A name that an object or module does not have.
AssertionError: What a test or a check expects does not hold.
LookupError: What IndexError and KeyError have in common.
IndexError: An index or dimension outside of what is there.
KeyError: A key that is not there.
ArithmeticError: What OverflowError and ZeroDivisionError have in common.
OverflowError: A number that a type cannot hold.
ZeroDivisionError: A division of integers by zero.
OSError: What the system refuses: files, processes, locks.
FileNotFoundError: A file or folder that is not there.
NameError: A name that stands for nothing.
ImportError: A library that cannot be loaded.
StopIteration: An iterator has no more to give.
KeyboardInterrupt: Ctrl-C.
RuntimeError: What goes wrong while a program runs or is compiled.
LinAlgError: A matrix that has no inverse, is not positive definite, or did not converge.
NotImplementedError: What is not there; the message says what is instead.
OutOfMemoryError: Memory that the machine does not give.
Error: What PopTorch raises: a model that cannot be compiled or run as it is.
RecoverableError: A fault of the machine after which a script can go on; recovery_action says how.
UnrecoverableError: A fault of the machine that takes its device with it.
ConfigFileError: A file of options that cannot be read, with its line.
]]

local OPTIM = [[
Optimizer: What optimizers have in common: param_groups, state, step, zero_grad, state_dict.
Optimizer.param_groups: The groups of parameters with their numbers, a list from 1: lr, …
Optimizer.defaults: The numbers of groups that name none.
Optimizer.state: What it keeps of each parameter.
Optimizer:register_state_dict_pre_hook: hook(optimizer) runs before state_dict. Returns a handle
  with remove().
Optimizer:register_state_dict_post_hook: hook(optimizer, state_dict) runs after state_dict and may
  give another. Returns a handle with remove().
Optimizer:register_load_state_dict_pre_hook: hook(optimizer, state_dict) runs before
  load_state_dict and may give another. Returns a handle with remove().
Optimizer:register_load_state_dict_post_hook: hook(optimizer) runs after load_state_dict. Returns a
  handle with remove().
SGD: Stochastic gradient descent, with momentum, dampening, weight decay and Nesterov's step.
Adam: Adam: steps by running means of gradients and of their squares; weight_decay adds to the
  gradient.
AdamW: Adam whose weight decay is taken from the weights, not added to the gradient.
Adamax: Adam with the largest gradient in place of the mean of squares.
NAdam: Adam with Nesterov's momentum.
RAdam: Adam whose first steps wait until the variance of the mean of squares is known.
Adadelta: Steps by running means of squares of gradients and of updates.
Adafactor: Adam with means of squares by rows and columns alone.
Adagrad: Steps over the root of the sum of all squares of gradients.
ASGD: Stochastic gradient descent with averaged weights.
LBFGS: L-BFGS with a closure that evaluates the loss again; line_search_fn 'strong_wolfe'.
Muon: Momentum whose updates of matrices are made orthogonal by Newton-Schulz iterations.
RMSprop: Steps over the root of a running mean of squares, with momentum, centered if wanted.
Rprop: Steps by the sign of gradients, longer while it stays.
]]

local SCHEDULES = [[
LRScheduler: What schedules have in common: step, get_last_lr, state_dict.
LRScheduler.last_epoch: How often it has stepped, less one.
LRScheduler.base_lrs: The first rates, one a group.
LRScheduler:get_last_lr: The learning rates in force, one a group.
LRScheduler:load_state_dict: Goes on from what state_dict gave.
LambdaLR: The first rate times what a function of the epoch gives.
MultiplicativeLR: The rate times what a function of the epoch gives, each epoch.
StepLR: The rate times gamma every step_size epochs.
MultiStepLR: The rate times gamma at each milestone.
ConstantLR: The first rate times factor, for total_iters epochs.
LinearLR: The first rate times a factor from start_factor to end_factor in total_iters epochs.
ExponentialLR: The rate times gamma every epoch.
PolynomialLR: The first rate times (1 - epoch / total_iters)^power.
CosineAnnealingLR: From the first rate to eta_min along half a cosine of T_max epochs.
CosineAnnealingWarmRestarts: CosineAnnealingLR again and again, T_mult times as long each time.
CyclicLR: Up and down between base_lr and max_lr, by batches.
OneCycleLR: Once up to max_lr and down far below, by batches, momentum the other way.
ReduceLROnPlateau: The rate times factor when a metric, given to step, gets no better for `patience`
  epochs.
]]

local SWA = [[
AveragedModel: A copy of a module with the mean of its weights, by update_parameters(model).
SWALR: From the present rate to swa_lr in anneal_epochs.
]]

local TENSOR = [[
allclose: Whether |self - other| <= atol + rtol |other| everywhere.
equal: Whether shapes and all elements are the same.
backward: Adds the gradients of this tensor to the leaves' grad; error: RuntimeError for one of more
  than one element without `gradient`.
cuda: An error: there is no such device.
is_conj is_neg is_distributed is_inference is_shared is_pinned: False: there are no such tensors
  here.
is_signed: Whether the dtype has a sign.
isreal: Where elements are real: everywhere.
new_empty_strided: Elements that are not set, of this tensor's dtype, by sizes and strides.
unique: The different values, sorted; with return_inverse where each element's value is, with
  return_counts how often it is there.
]]

local SCATTER = [[
scatter_sum scatter_add: The sum of each group of elements along dim, told by index.
scatter_mean: The mean of each group of elements along dim, told by index.
scatter_mul: The product of each group of elements along dim, told by index.
scatter_min: The smallest element of each group along dim, and where it was.
scatter_max: The largest element of each group along dim, and where it was.
]]

return { { "torch", TORCH }, { "torch.linalg", LINALG }, { "torch.amp", AMP },
  { "lupine.base.errors", ERRORS }, { "torch.optim", OPTIM },
  { "torch.optim.lr_scheduler", SCHEDULES }, { "torch.optim.swa_utils", SWA },
  { "torch.Tensor", TENSOR }, { "torch_scatter", SCATTER } }
