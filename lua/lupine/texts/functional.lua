--- Texts of torch.nn.functional's functions that no operator has.
return { { "torch.nn.functional", [[
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d: Means of windows that give the output
  size.
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d: The largest elements of windows that
  give the output size; with return_indices their indices, too.
max_pool1d max_pool2d max_pool3d: The largest element of each window; with return_indices its
  index, too. stride is kernel_size unless given.
affine_grid: Coordinates in [-1, 1] of a grid that matrices theta (N, 2, 3) or (N, 3, 4) map, for
  grid_sample.
grid_sample: Values of pictures at coordinates in [-1, 1]; mode 'bilinear', 'nearest' or 'bicubic'.
alpha_dropout: Dropout that keeps mean and variance of values after selu.
feature_alpha_dropout: alpha_dropout of whole channels.
batch_norm: Channels with mean 0 and variance 1 over the batch if training (which updates the
  running statistics), by these otherwise; times weight plus bias.
instance_norm: Each channel of each sample with mean 0 and variance 1, times weight plus bias.
normalize: Over its p-norm along dim, which counts as at least eps.
channel_shuffle: The channels of `groups` groups in turns.
cosine_similarity: The cosine of the angle between x1 and x2 along dim.
pairwise_distance: The p-norm of x1 - x2 + eps along the last dimension.
cosine_embedding_loss: 1 - cosine where the target is 1, max(0, cosine - margin) where it is -1.
ctc_loss: Connectionist temporal classification: log probabilities (T, N, C), targets, and the
  lengths of both.
gaussian_nll_loss: The negative logarithm of the likelihood of normal distributions.
multi_margin_loss: The hinge loss of scores (N, C) against those of the classes (N).
multilabel_margin_loss: The hinge loss of scores (N, C) and lists of classes (N, C), ended by -1.
multilabel_soft_margin_loss: The cross entropy of each class on its own: scores and targets (N, C).
triplet_margin_loss: max(0, d(anchor, positive) - d(anchor, negative) + margin).
triplet_margin_with_distance_loss: triplet_margin_loss with a distance of one's own.
linear_cross_entropy: cross_entropy of a linear layer's result, which is not kept as a whole.
embedding: The rows of weight at indices; padding_idx gets no gradient, max_norm scales rows down.
embedding_bag: Sums, means or maxima of rows of weight, a bag of indices each.
fold: Columns added up to pictures: (N, C kernel, patches) to (N, C, H, W).
unfold: The patches of pictures as columns: (N, C, H, W) to (N, C kernel, patches).
fractional_max_pool2d fractional_max_pool3d: The largest elements of windows at random places.
fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices: The largest elements of
  windows at random places, and their indices.
max_unpool1d max_unpool2d max_unpool3d: Elements put back where max pooling found them, zeros
  elsewhere.
lp_pool1d lp_pool2d lp_pool3d: The p-norm of each window: norm_type is p.
elu_: elu in place.
hardtanh_: hardtanh in place.
leaky_relu_: leaky_relu in place.
glu: One half along dim times the sigmoid of the other.
gumbel_softmax: softmax of the logits and Gumbel noise over tau; hard gives one 1 and zeros, with
  the soft gradient.
interpolate upsample: Pictures at another size or scale_factor; mode 'nearest', 'linear',
  'bilinear', 'bicubic', 'trilinear', 'area' or 'nearest-exact'.
upsample_bilinear: interpolate, mode 'bilinear' with align_corners.
upsample_nearest: interpolate, mode 'nearest'.
multi_head_attention_forward: What MultiheadAttention computes, all weights given.
one_hot: A new last dimension that is 1 at the index and 0 elsewhere; num_classes -1 is one more
  than the largest index.
rrelu: x above zero, below it x times a slope drawn from [lower, upper]; their mean unless
  training.
]] } }
