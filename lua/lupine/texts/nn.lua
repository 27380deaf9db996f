--- Texts of torch.nn's layers, whose families are made by rows and helpers, with the
--- shapes that they take and give (N: batch, C: channels, L, H, W, D: sizes).
local LAYERS = [[
Module: What networks are made of: a class with init, which makes parameters and modules as
  fields, and forward(...), which calling the module runs. Net = nn.Module:extend("Net").
Module.training: Whether it is in training mode; train() and eval() set it.
Module.forward: Yours: what calling the module computes.
Parameter: A tensor that modules and optimizers take for a weight: assigned to a field of a module
  it is found by parameters().
Parameter.replicaGrouping: Which groups of replicas have a value of their own; a method of
  executors' parameters, trainer.W:replicaGrouping(comm_group_type, shards,
  variable_retrieval_mode).
Module:cpu: The module itself; everything is on the host.
Module:eval: Training mode off: dropout passes values on, normalisation uses running statistics.
Module:requires_grad_: Whether gradients of all parameters are wanted.
Module:register_forward_hook: hook(module, inputs, output) runs after forward and may give another
  output. Returns a handle with remove().
Module:register_forward_pre_hook: hook(module, inputs) runs before forward and may give other
  inputs. Returns a handle with remove().
Module:register_full_backward_hook: hook(module, grad_input, grad_output) runs when the gradients
  of the inputs are known and may give others. Returns a handle with remove().
Module:register_full_backward_pre_hook: hook(module, grad_output) runs before the gradients of the
  inputs are computed and may give others. Returns a handle with remove().
Module:register_state_dict_hook Module:register_state_dict_post_hook: hook(module, state_dict,
  prefix) runs after state_dict. Returns a handle with remove().
Module:register_state_dict_pre_hook: hook(module, prefix, keep_vars) runs before state_dict.
  Returns a handle with remove().
Module:register_load_state_dict_pre_hook: A hook that runs before load_state_dict and may change
  what is loaded. Returns a handle with remove().
Module:register_load_state_dict_post_hook: A hook that runs after load_state_dict and may change
  the lists of missing and unexpected keys. Returns a handle with remove().
Sequential: Modules one after the other: each takes what the one before gives. A list counts
  from 1 by [], from 0 in the keys of state_dict.
ModuleList: A list of modules, whose parameters are found.
ModuleDict: Modules by name, whose parameters are found, in the order of insertion.
ModuleDict:clear ParameterDict:clear: Removes everything.
ModuleDict:contains ParameterDict:contains: Whether there is a key.
ModuleDict:keys ParameterDict:keys: The keys in order, as a list.
ModuleDict:pop ParameterDict:pop: Removes a key and returns its value.
ModuleDict:setdefault ParameterDict:setdefault: The value of a key, set to the default if there is
  none.
ModuleDict:values ParameterDict:values: The values in order, as a list.
ParameterList: A list of parameters.
ParameterDict: Parameters by name, in the order of insertion.
Identity: Gives what it takes, whatever its arguments.
Linear: x A^T + b: (..., in_features) to (..., out_features).
Bilinear: x1 A x2 + b: (..., in1_features) and (..., in2_features) to (..., out_features).
LazyLinear: Linear that takes in_features from the first input.
Flatten: Dimensions start_dim (1) to end_dim (-1) as one.
Unflatten: One dimension as several.
Conv1d: Convolution (cross-correlation): (N, C, L) or (C, L) to (N, out_channels, L_out).
Conv2d: Convolution (cross-correlation): (N, C, H, W) or (C, H, W) to (N, out_channels, H_out,
  W_out), H_out = floor((H + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1).
Conv3d: Convolution (cross-correlation): (N, C, D, H, W) to (N, out_channels, D_out, H_out, W_out).
ConvTranspose1d: Transposed convolution: (N, C, L) to (N, out_channels, L_out).
ConvTranspose2d: Transposed convolution: (N, C, H, W) to (N, out_channels, H_out, W_out), H_out =
  (H - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.
ConvTranspose3d: Transposed convolution: (N, C, D, H, W) to (N, out_channels, D_out, H_out, W_out).
LazyConv1d LazyConv2d LazyConv3d: The convolution that takes in_channels from the first input.
LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d: The transposed convolution that takes
  in_channels from the first input.
MaxPool1d: The largest element of each window: (N, C, L) to (N, C, L_out); stride is kernel_size
  unless given.
MaxPool2d: The largest element of each window: (N, C, H, W) to (N, C, H_out, W_out); stride is
  kernel_size unless given.
MaxPool3d: The largest element of each window: (N, C, D, H, W) to (N, C, D_out, H_out, W_out).
MaxUnpool1d MaxUnpool2d MaxUnpool3d: Elements put back where max pooling with return_indices found
  them, zeros elsewhere.
AvgPool1d: The mean of each window: (N, C, L) to (N, C, L_out).
AvgPool2d: The mean of each window: (N, C, H, W) to (N, C, H_out, W_out).
AvgPool3d: The mean of each window: (N, C, D, H, W) to (N, C, D_out, H_out, W_out).
LPPool1d LPPool2d LPPool3d: The p-norm of each window: norm_type is p.
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d: Means of windows that give output_size,
  whatever the input's size.
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d: The largest elements of windows that give
  output_size, whatever the input's size.
FractionalMaxPool2d FractionalMaxPool3d: The largest elements of windows at random places that give
  a size or a share of the input's.
BatchNorm1d: Channels of (N, C) or (N, C, L) with mean 0 and variance 1 over the batch, times weight
  plus bias; in eval mode by running statistics.
BatchNorm2d: Channels of (N, C, H, W) with mean 0 and variance 1 over the batch, times weight plus
  bias; in eval mode by running statistics.
BatchNorm3d: Channels of (N, C, D, H, W) with mean 0 and variance 1 over the batch, times weight
  plus bias; in eval mode by running statistics.
LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d: The batch normalisation that takes num_features
  from the first input.
InstanceNorm1d InstanceNorm2d InstanceNorm3d: Each channel of each sample with mean 0 and variance
  1; affine and track_running_stats are false unless given.
LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d: The instance normalisation that takes
  num_features from the first input.
BatchNorm1d:reset_running_stats BatchNorm2d:reset_running_stats BatchNorm3d:reset_running_stats
  InstanceNorm1d:reset_running_stats InstanceNorm2d:reset_running_stats
  InstanceNorm3d:reset_running_stats: Running mean 0, variance 1, no batch seen.
LayerNorm: The last dimensions, normalized_shape, with mean 0 and variance 1, times weight plus
  bias.
RMSNorm: The last dimensions, normalized_shape, over their root of mean squares, times weight.
GroupNorm: num_groups groups of channels with mean 0 and variance 1, times weight plus bias by
  channel.
LocalResponseNorm: Each channel over a power of the mean of squares of `size` channels around it.
Dropout: In training each element 0 with probability p, the others over 1 - p.
Dropout1d Dropout2d Dropout3d: In training whole channels 0 with probability p, the others over
  1 - p.
AlphaDropout: Dropout that keeps mean and variance of values after SELU.
FeatureAlphaDropout: AlphaDropout of whole channels.
Embedding: Rows of a table: indices (...) to (..., embedding_dim).
EmbeddingBag: Sums, means or maxima of rows of a table, a bag of indices each.
RNN: A recurrent network of tanh or relu: (L, N, input_size), or (N, L, input_size) if batch_first,
  and the first state; gives the outputs of all steps, and the last state.
LSTM: Long short-term memory: (L, N, input_size), or (N, L, input_size) if batch_first, and first
  states {h, c}; gives the outputs of all steps, and the last states {h, c}.
GRU: Gated recurrent units: (L, N, input_size), or (N, L, input_size) if batch_first, and the first
  state; gives the outputs of all steps, and the last state.
RNNCell: One step of an RNN: (N, input_size) and the state to the next state.
LSTMCell: One step of an LSTM: (N, input_size) and the states {h, c} to the next ones.
GRUCell: One step of a GRU: (N, input_size) and the state to the next state.
RNN:flatten_parameters LSTM:flatten_parameters GRU:flatten_parameters: Nothing: the weights need no
  other layout here.
MultiheadAttention: Attention of several heads: query (L, N, E), key and value (S, N, E), batch
  first if batch_first; gives the output and, unless need_weights is false, the weights.
Transformer: Encoder and decoder with attention: (S, N, E) and (T, N, E) to (T, N, E).
TransformerEncoder: num_layers copies of an encoder layer, and a norm.
TransformerEncoderLayer: Self-attention and two linear layers, each with residual and norm.
TransformerDecoder: num_layers copies of a decoder layer, and a norm.
TransformerDecoderLayer: Self-attention, attention to the memory and two linear layers, each with
  residual and norm.
]]

local RESETS = [[
Bilinear:reset_parameters Embedding:reset_parameters EmbeddingBag:reset_parameters
  PReLU:reset_parameters AdaptiveLogSoftmaxWithLoss:reset_parameters BatchNorm1d:reset_parameters
  BatchNorm2d:reset_parameters BatchNorm3d:reset_parameters InstanceNorm1d:reset_parameters
  InstanceNorm2d:reset_parameters InstanceNorm3d:reset_parameters LayerNorm:reset_parameters
  GroupNorm:reset_parameters RMSNorm:reset_parameters RNN:reset_parameters LSTM:reset_parameters
  GRU:reset_parameters RNNCell:reset_parameters LSTMCell:reset_parameters
  GRUCell:reset_parameters: First values of the parameters, drawn again as the constructor does.
]]

local ACTIVATIONS = [[
ReLU: The larger of each element and 0.
ReLU6: Each element clamped to [0, 6].
RReLU: x above zero, below it x times a slope drawn from [lower, upper]; their mean in eval mode.
LeakyReLU: x above zero, negative_slope x below.
PReLU: x above zero, weight x below; num_parameters weights are learnt, one or one a channel.
ELU: x above zero, alpha (exp(x) - 1) below.
SELU: ELU with the scale and alpha that keep mean and variance.
CELU: max(0, x) + min(0, alpha (exp(x / alpha) - 1)).
GELU: x times the share of a normal distribution below it; approximate 'none' or 'tanh'.
SiLU: x sigmoid(x).
Mish: x tanh(softplus(x)).
Sigmoid: 1 / (1 + exp(-x)).
LogSigmoid: log(sigmoid(x)).
Tanh: The hyperbolic tangent.
Tanhshrink: x - tanh(x).
Softplus: log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
Softsign: x / (1 + |x|).
Softshrink: x moved towards zero by lambd, 0 where |x| <= lambd.
Hardshrink: x where |x| > lambd, 0 elsewhere.
Hardsigmoid: relu6(x + 3) / 6.
Hardswish: x relu6(x + 3) / 6.
Hardtanh: Each element clamped to [min_val, max_val].
Threshold: x above the threshold, `value` elsewhere.
GLU: One half along dim times the sigmoid of the other.
Softmax: exp(x) over its sum along dim.
Softmax2d: Softmax over the channels of (N, C, H, W).
Softmin: Softmax of -x.
LogSoftmax: The logarithm of Softmax.
AdaptiveLogSoftmaxWithLoss: Softmax over many classes in clusters by frequency: input (N,
  in_features) and target (N) to {output, loss}.
AdaptiveLogSoftmaxWithLoss:losses: The negative logarithm of the probability of each target.
]]

local LOSSES = [[
L1Loss: Absolute differences of input and target, of one shape; reduction 'mean', 'sum' or 'none'.
MSELoss: Squared differences of input and target, of one shape; reduction 'mean', 'sum' or 'none'.
SmoothL1Loss: Squared differences over 2 beta below beta, absolute ones less beta / 2 above.
HuberLoss: Half of squared differences below delta, delta times the absolute ones less delta / 2
  above.
CrossEntropyLoss: The cross entropy of scores (N, C, ...) and classes (N, ...) from 0, or class
  probabilities (N, C, ...).
NLLLoss: The negative of log probabilities (N, C, ...) at the classes (N, ...) from 0.
PoissonNLLLoss: The negative logarithm of the likelihood of Poisson distributions.
GaussianNLLLoss: The negative logarithm of the likelihood of normal distributions: (input, target,
  var).
KLDivLoss: target (log(target) - input), where input holds logarithms; 'batchmean' is the
  divergence.
BCELoss: The cross entropy of probabilities and targets in [0, 1], of one shape.
BCEWithLogitsLoss: BCELoss of sigmoid(input), exact; pos_weight weighs the positive class.
MarginRankingLoss: max(0, margin - target (input1 - input2)), the target 1 or -1.
HingeEmbeddingLoss: The input where the target is 1, max(0, margin - input) where it is -1.
SoftMarginLoss: log(1 + exp(-target input)), the target 1 or -1.
MultiMarginLoss: The hinge loss of scores (N, C) against those of the classes (N).
MultiLabelMarginLoss: The hinge loss of scores (N, C) and lists of classes (N, C), ended by -1.
MultiLabelSoftMarginLoss: The cross entropy of each class on its own: scores and targets (N, C).
CosineEmbeddingLoss: 1 - cosine where the target is 1, max(0, cosine - margin) where it is -1.
TripletMarginLoss: max(0, d(anchor, positive) - d(anchor, negative) + margin).
TripletMarginWithDistanceLoss: TripletMarginLoss with a distance of one's own.
CTCLoss: Connectionist temporal classification: log probabilities (T, N, C), targets, and the
  lengths of both.
LinearCrossEntropyLoss: CrossEntropyLoss of a linear layer's result, which is not kept as a whole.
CosineSimilarity: The cosine of the angle between x1 and x2 along dim.
PairwiseDistance: The p-norm of x1 - x2 + eps along the last dimension.
]]

local SHAPES = [[
PixelShuffle: (N, C r^2, H, W) to (N, C, H r, W r).
PixelUnshuffle: (N, C, H r, W r) to (N, C r^2, H, W).
ChannelShuffle: The channels of `groups` groups in turns.
Upsample: (N, C, ...) at a larger size or scale_factor; mode 'nearest', 'linear', 'bilinear',
  'bicubic' or 'trilinear'.
UpsamplingNearest2d: Upsample of pictures, mode 'nearest'.
UpsamplingBilinear2d: Upsample of pictures, mode 'bilinear' with align_corners.
Unfold: The patches of pictures as columns: (N, C, H, W) to (N, C kernel, patches).
Fold: Columns added up to pictures: (N, C kernel, patches) to (N, C, H, W).
ZeroPad1d ZeroPad2d ZeroPad3d: Zeros around the last dimensions; one number, or a list {left,
  right, top, bottom, ...}.
ConstantPad1d ConstantPad2d ConstantPad3d: A value around the last dimensions.
ReflectionPad1d ReflectionPad2d ReflectionPad3d: The values inside, mirrored, around the last
  dimensions.
ReplicationPad1d ReplicationPad2d ReplicationPad3d: The values at the edge around the last
  dimensions.
CircularPad1d CircularPad2d CircularPad3d: The values of the other side around the last dimensions.
]]

local INIT = [[
constant constant_: Fills with a value.
ones_: Fills with ones.
zeros_: Fills with zeros.
uniform uniform_: Fills from [a, b), equally likely.
normal normal_: Fills from a normal distribution of `mean` and `std`.
trunc_normal_: Fills from a normal distribution, values outside [a, b] drawn again.
eye eye_: Fills a matrix with ones on its diagonal, zeros elsewhere.
dirac dirac_: Fills a convolution's weight so that channels are passed on.
xavier_uniform xavier_uniform_: Fills from [-a, a), a = gain sqrt(6 / (fan_in + fan_out)).
xavier_normal xavier_normal_: Fills from a normal distribution, std = gain sqrt(2 / (fan_in +
  fan_out)).
kaiming_uniform kaiming_uniform_: Fills from [-b, b), b = gain sqrt(3 / fan); mode names the fan,
  nonlinearity and a the gain.
kaiming_normal kaiming_normal_: Fills from a normal distribution, std = gain / sqrt(fan); mode
  names the fan, nonlinearity and a the gain.
orthogonal orthogonal_: Fills a matrix with orthonormal rows or columns, times gain.
sparse sparse_: Fills a matrix from a normal distribution; a share `sparsity` of each column is 0.
]]

return { { "torch.nn", LAYERS }, { "torch.nn", RESETS }, { "torch.nn", ACTIVATIONS },
  { "torch.nn", LOSSES }, { "torch.nn", SHAPES }, { "torch.nn.init", INIT } }
