--- Texts of torch.distributions' classes, whose parameters stand in their forms.
return { { "torch.distributions", [[
Distribution: What distributions have in common: sample, rsample, log_prob, mean, variance, entropy.
Distribution.batch_shape: The shape of a batch of distributions.
Distribution.event_shape: The shape of one sample of one of them.
Distribution:cdf: The probability of values up to this one.
Distribution:entropy: The entropy of each distribution of the batch.
Distribution:icdf: The value up to which there is that probability.
Distribution:log_prob: The logarithm of the probability (or its density) of a value.
Distribution:rsample: Samples through which gradients go to the parameters.
Bernoulli: 1 with probability probs, else 0; or by the logits of probabilities.
Beta: Numbers in [0, 1] by two concentrations.
Binomial: Successes among total_count tries of probability probs.
Categorical: A class from 0, by probabilities or logits along the last dimension.
Cauchy: The Cauchy distribution of loc and scale, which has no mean.
Chi2: The sum of df squares of standard normal numbers.
ContinuousBernoulli: The continuous counterpart of Bernoulli on [0, 1].
Dirichlet: Vectors of numbers in [0, 1] whose sum is 1, by concentrations.
ExpRelaxedCategorical: The logarithm of RelaxedOneHotCategorical.
Exponential: Waiting times of a rate.
FisherSnedecor: The ratio of two Chi2 over their degrees of freedom.
Gamma: The gamma distribution of concentration and rate.
GeneralizedPareto: Excesses over a threshold, by loc, scale and concentration.
Geometric: How many tries fail before the first success.
Gumbel: The distribution of largest values, by loc and scale.
HalfCauchy: The absolute value of a Cauchy number.
HalfNormal: The absolute value of a normal number.
Independent: The last dimensions of a batch as part of the event.
InverseGamma: One over a gamma number.
Kumaraswamy: Numbers in [0, 1], as Beta, with a closed form.
LKJCholesky: Cholesky factors of random correlation matrices.
Laplace: The two-sided exponential distribution of loc and scale.
LogNormal: exp of a normal number.
LogisticNormal: Softmax of normal vectors: numbers in [0, 1] whose sum is 1.
LogitRelaxedBernoulli: The logit of RelaxedBernoulli.
LowRankMultivariateNormal: MultivariateNormal by a factor of low rank and a diagonal.
MixtureSameFamily: A mixture of distributions of one kind, weighed by a Categorical.
MixtureSameFamily.mixture_distribution: The Categorical that weighs.
MixtureSameFamily.component_distribution: The components, as a batch.
Multinomial: How often each class is drawn in total_count tries.
MultivariateNormal: Normal vectors of a mean, by covariance, precision or Cholesky factor.
NegativeBinomial: Successes before total_count failures.
Normal: The normal distribution of loc and scale.
OneHotCategorical: A class as a vector with one 1.
OneHotCategoricalStraightThrough: OneHotCategorical whose samples pass gradients to probabilities.
Pareto: Numbers above scale with a tail of power alpha.
Poisson: Counts of a rate.
RelaxedBernoulli: Bernoulli relaxed to (0, 1) by a temperature, with gradients.
RelaxedOneHotCategorical: OneHotCategorical relaxed by a temperature, with gradients.
StudentT: Student's distribution of df degrees of freedom.
TransformedDistribution: A distribution whose samples go through transforms.
TransformedDistribution.base_dist: The distribution that samples come from.
TransformedDistribution.transforms: The transforms, a list.
Uniform: Numbers from low to below high.
VonMises: Angles about loc, as close as concentration says.
Weibull: Times until a failure, by scale and concentration.
Wishart: Random positive definite matrices of df degrees of freedom.
Transform: A function with an inverse and the logarithm of its derivative.
Transform.bijective: Whether it has an inverse.
Transform.domain: The constraint of what it takes.
Transform.codomain: The constraint of what it gives.
Transform.inv: Its inverse, a transform.
Transform:log_abs_det_jacobian: log |dy / dx|.
AbsTransform: The absolute value, which has no inverse.
AffineTransform: loc + scale x.
CatTransform: Several transforms, each of a part along a dimension.
ComposeTransform: Transforms one after the other.
CorrCholeskyTransform: Vectors to Cholesky factors of correlation matrices.
CumulativeDistributionTransform: The cdf of a distribution.
ExpTransform: exp(x).
IndependentTransform: The last dimensions of a batch as part of the event.
LowerCholeskyTransform: Matrices to lower triangles with a positive diagonal.
PositiveDefiniteTransform: Matrices to positive definite ones.
PowerTransform: x to a power.
ReshapeTransform: The event in another shape.
SigmoidTransform: sigmoid(x).
SoftmaxTransform: Softmax along the last dimension.
SoftplusTransform: softplus(x).
StackTransform: Several transforms, each of an index of a dimension.
StickBreakingTransform: Vectors to numbers in [0, 1] whose sum is 1.
TanhTransform: tanh(x).
]] }, { "torch.autograd.functional", [[
jacobian: The derivatives of all outputs with respect to all inputs.
hessian: The second derivatives of a function of one output.
hvp: The function's value, and its Hessian times a vector.
vhp: The function's value, and a vector times its Hessian.
jvp: The function's values, and its Jacobian times a vector.
vjp: The function's values, and a vector times its Jacobian.
]] }, { "torch.nn.utils", [[
clip_grad_norm_: Scales gradients so that their norm together is at most max_norm; returns the norm
  before.
clip_grad_value_: Clamps each element of gradients to [-clip_value, clip_value].
clip_grads_with_norm_: Scales gradients by a norm that is known.
get_total_norm: The norm of tensors together.
fuse_linear_bn_eval: A linear layer with the batch normalisation behind it taken in.
vector_to_parameters: The elements of one vector, written into parameters in order.
]] }, { "torch.nn.utils.parametrize", [[
ParametrizationList: The original of a parameter, and the modules that make what is used of it.
ParametrizationList.unsafe: Whether nothing was checked when it was registered.
ParametrizationList.is_tensor: Whether the original is one tensor.
ParametrizationList.ntensors: How many originals there are, if it is not one.
ParametrizationList:originals: The originals, a list.
]] }, { "torch.nn.utils.prune", [[
BasePruningMethod: What ways of pruning have in common: a mask, computed by compute_mask.
BasePruningMethod:apply: Prunes a parameter of a module: NAME_orig and NAME_mask make NAME.
CustomFromMask custom_from_mask: Prunes where a mask is 0.
Identity identity: Prunes nothing.
L1Unstructured l1_unstructured: Prunes the elements of least absolute value.
LnStructured ln_structured: Prunes slices along dim of least norm.
PruningContainer: Several ways of pruning, one after the other.
RandomStructured random_structured: Prunes slices along dim at random.
RandomUnstructured random_unstructured: Prunes elements at random.
]] }, { "torch.nn.utils.rnn", [[
PackedSequence: Sequences of different lengths, step by step in one tensor.
]] } }
