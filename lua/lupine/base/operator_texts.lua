--- What each operator computes, for ?NAME, the manual and the annotations; its
--- forms stand with its record in src/ops. A line: names that mean the same,
--- then what they do (it may go on in an indented one). `NAME_`, in place, has the
--- text of NAME.
---
--- spec/lupine/operator_texts_spec.lua compares the names with the operators.
local ELEMENTS = [[
abs absolute: The absolute value of each element.
neg negative: Each element with the other sign.
sign sgn: -1, 0 or 1 by the sign of each element.
square: Each element times itself.
sqrt: The square root of each element; NaN below zero.
rsqrt: One over the square root of each element.
reciprocal: One over each element.
deg2rad: Degrees to radians.
rad2deg: Radians to degrees.
exp: e to the power of each element.
exp2: 2 to the power of each element.
expm1: exp(x) - 1, exact for small x.
log: The natural logarithm of each element.
log1p: log(1 + x), exact for small x.
log2: The logarithm to base 2.
log10: The logarithm to base 10.
sin: The sine, of radians.
cos: The cosine, of radians.
tan: The tangent, of radians.
asin arcsin: The angle in [-pi/2, pi/2] whose sine an element is.
acos arccos: The angle in [0, pi] whose cosine an element is.
atan arctan: The angle in (-pi/2, pi/2) whose tangent an element is.
sinh: The hyperbolic sine.
cosh: The hyperbolic cosine.
tanh: The hyperbolic tangent.
asinh arcsinh: The inverse of sinh.
acosh arccosh: The inverse of cosh; NaN below 1.
atanh arctanh: The inverse of tanh; NaN outside [-1, 1].
erf: The error function.
erfc: 1 - erf(x), exact for large x.
erfinv: The inverse of the error function.
lgamma gammaln: The logarithm of the absolute value of the gamma function.
digamma psi: The derivative of lgamma.
polygamma: The n-th derivative of digamma.
mvlgamma multigammaln: The logarithm of the multivariate gamma function of dimension p.
erfcx: exp(x^2) erfc(x), which does not underflow.
ndtr: The share of a standard normal distribution below each element.
log_ndtr: The logarithm of ndtr, exact far below zero.
ndtri: The inverse of ndtr.
logit: log(x / (1 - x)); eps clamps x to [eps, 1 - eps] before.
entr: -x log(x): 0 at zero and -inf below.
sinc: sin(pi x) / (pi x), and 1 at zero.
i0 modified_bessel_i0: The modified Bessel function of the first kind, of order 0.
i0e: i0 times exp(-|x|).
i1 modified_bessel_i1: The modified Bessel function of the first kind, of order 1.
i1e: i1 times exp(-|x|).
modified_bessel_k0: The modified Bessel function of the second kind, of order 0.
modified_bessel_k1: The modified Bessel function of the second kind, of order 1.
scaled_modified_bessel_k0: modified_bessel_k0 times exp(x).
scaled_modified_bessel_k1: modified_bessel_k1 times exp(x).
bessel_j0: The Bessel function of the first kind, of order 0.
bessel_j1: The Bessel function of the first kind, of order 1.
bessel_y0: The Bessel function of the second kind, of order 0.
bessel_y1: The Bessel function of the second kind, of order 1.
spherical_bessel_j0: The spherical Bessel function of the first kind, of order 0: sin(x) / x.
airy_ai: The Airy function Ai.
angle: 0 for elements of zero and above, pi for those below, NaN for NaN.
floor: The largest integer that is not above each element.
ceil: The smallest integer that is not below each element.
trunc fix: Each element without what is behind the point.
round: The nearest integer, or with `decimals` digits behind the point; ties go to the even one.
frac: What is behind the point, with the element's sign.
frexp: Mantissa, in [0.5, 1) but for the sign, and exponent: x = mantissa * 2^exponent.
isnan: Where elements are NaN.
isinf: Where elements are infinite.
isposinf: Where elements are +inf.
isneginf: Where elements are -inf.
isfinite: Where elements are neither infinite nor NaN.
signbit: Where the sign bit is set, -0 among them.
logical_not: Where elements are zero.
bitwise_not: Each element with its bits turned over; for bool, not.
nan_to_num: NaN, +inf and -inf replaced: by 0, the dtype's largest and its lowest number unless
  said.
clone: A copy with memory of its own, through which gradients go.
positive: The tensor itself; bool is refused.
conj conj_physical resolve_conj: The tensor itself, as there are no complex dtypes.
real resolve_neg: The tensor itself, as there are no complex dtypes.
relu: The larger of each element and 0.
sigmoid expit: 1 / (1 + exp(-x)).
gelu: x times the share of a normal distribution below it; approximate='tanh' by a tanh.
silu: x sigmoid(x).
softplus: log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
elu: x above zero, alpha (exp(x) - 1) below.
selu: elu with the scale and alpha that keep mean and variance.
celu: max(0, x) + min(0, alpha (exp(x / alpha) - 1)).
leaky_relu: x above zero, negative_slope x below.
hardtanh: Each element clamped to [min_val, max_val].
relu6: Each element clamped to [0, 6].
hardsigmoid: relu6(x + 3) / 6.
hardswish: x relu6(x + 3) / 6.
mish: x tanh(softplus(x)).
softsign: x / (1 + |x|).
logsigmoid: log(sigmoid(x)), exact far below zero.
threshold: x above the threshold, `value` elsewhere.
softshrink: x moved towards zero by lambd, 0 where |x| <= lambd.
hardshrink: x where |x| > lambd, 0 elsewhere.
tanhshrink: x - tanh(x).
prelu: x above zero, weight x below; a weight for all or one a channel (dimension 1).
add: self + alpha * other.
sub subtract: self - alpha * other.
rsub: other - alpha * self.
mul multiply: self times other.
div divide true_divide: self over other; rounding_mode 'trunc' or 'floor' rounds the quotient.
floor_divide: The quotient rounded down.
fmod: The remainder with the sign of self.
remainder: The remainder with the sign of other, as Python's and Lua's %.
pow: self to the power of the exponent.
float_power: pow in float64.
maximum: The larger of both, NaN if one is.
minimum: The smaller of both, NaN if one is.
max: The largest element; with dim the largest ones along it and their indices; of two tensors
  maximum.
min: The smallest element; with dim the smallest ones along it and their indices; of two tensors
  minimum.
fmax: The larger of both; a number before NaN.
fmin: The smaller of both; a number before NaN.
atan2 arctan2: The angle of the point (other, self), in (-pi, pi].
hypot: sqrt(self^2 + other^2) without overflow on the way.
copysign: The size of self with the sign of other.
nextafter: The next number of the dtype after self on the way to other.
xlogy: self log(other), 0 where self is 0.
xlog1py: self log(1 + other), 0 where self is 0.
zeta: Hurwitz's zeta function.
igamma gammainc: The regularised lower incomplete gamma function.
igammac gammaincc: The regularised upper incomplete gamma function.
gcd: The greatest common divisor of integers.
lcm: The least common multiple of integers.
logaddexp: log(exp(self) + exp(other)) without overflow.
logaddexp2: log2(2^self + 2^other) without overflow.
heaviside: 0 below zero, 1 above, `values` at zero.
chebyshev_polynomial_t: Chebyshev's polynomial of the first kind, of degree n.
chebyshev_polynomial_u: Chebyshev's polynomial of the second kind, of degree n.
chebyshev_polynomial_v: Chebyshev's polynomial of the third kind, of degree n.
chebyshev_polynomial_w: Chebyshev's polynomial of the fourth kind, of degree n.
shifted_chebyshev_polynomial_t: chebyshev_polynomial_t of 2 x - 1.
shifted_chebyshev_polynomial_u: chebyshev_polynomial_u of 2 x - 1.
shifted_chebyshev_polynomial_v: chebyshev_polynomial_v of 2 x - 1.
shifted_chebyshev_polynomial_w: chebyshev_polynomial_w of 2 x - 1.
hermite_polynomial_h: The physicists' Hermite polynomial of degree n.
hermite_polynomial_he: The probabilists' Hermite polynomial of degree n.
laguerre_polynomial_l: Laguerre's polynomial of degree n.
legendre_polynomial_p: Legendre's polynomial of degree n.
eq: Where self and other are equal, as bool.
ne not_equal: Where self and other differ, as bool.
lt less: Where self < other, as bool.
le less_equal: Where self <= other, as bool.
gt greater: Where self > other, as bool.
ge greater_equal: Where self >= other, as bool.
logical_and: Where both are not zero.
logical_or: Where one is not zero.
logical_xor: Where exactly one is not zero.
bitwise_and: The bits that both have.
bitwise_or: The bits that one has.
bitwise_xor: The bits that exactly one has.
bitwise_left_shift: The bits of self moved left by other.
bitwise_right_shift: The bits of self moved right by other, the sign kept.
where: self where the condition holds, other elsewhere; of a condition alone its indices.
clamp clip: Each element, at least min and at most max.
clamp_min: Each element, at least min.
clamp_max: Each element, at most max.
lerp: self + weight (end - self).
addcmul: self + value tensor1 tensor2.
addcdiv: self + value tensor1 / tensor2.
ldexp: self times 2^other.
masked_fill: `value` where the mask is true.
]]

local SHAPES = [[
sum: The sum of all elements, or along dimensions; integers and bool are summed in int64.
mean: The mean of all elements, or along dimensions.
prod: The product of all elements, or along a dimension.
amax: The largest element along dimensions; equal ones share the gradient.
amin: The smallest element along dimensions; equal ones share the gradient.
any: Whether one element is not zero.
all: Whether no element is zero.
count_nonzero: How many elements are not zero.
logsumexp: log(sum(exp(x))) along dimensions without overflow.
vector_norm: The norm of order ord of all elements, or along dimensions.
argmax: The index of the largest element, among all or along a dimension.
argmin: The index of the smallest element, among all or along a dimension.
median: The median, of an even number of elements the lower one; with dim its index, too.
nanmedian: The median of what is not NaN.
mode: The most frequent value along a dimension, and an index of it.
cummax: The largest element so far along a dimension, and its index.
cummin: The smallest element so far along a dimension, and its index.
cumsum: The sum so far along a dimension.
logcumsumexp: log of the sum of exp so far along a dimension.
cumprod: The product so far along a dimension.
var: The variance; correction (1 unless said) is subtracted from the count.
std: The standard deviation; correction (1 unless said) is subtracted from the count.
var_mean: Variance and mean.
std_mean: Standard deviation and mean.
norm: The norm of order p of all elements or along dimensions; 2 unless said.
nansum: The sum of what is not NaN.
nanmean: The mean of what is not NaN.
aminmax: The smallest and the largest element.
kthvalue: The k-th smallest element along a dimension, and its index.
quantile: The q-quantiles of all elements or along a dimension.
nanquantile: The q-quantiles of what is not NaN.
diff: Differences of neighbours along a dimension, n times over.
trapezoid trapz: The integral along a dimension by the trapezoidal rule, at points x or dx apart.
cumulative_trapezoid: The integral so far along a dimension by the trapezoidal rule.
vecdot: Dot products along a dimension.
renorm: Slices along dim whose p-norm is above maxnorm, scaled down to it.
cov: The covariance matrix of the rows.
corrcoef: The matrix of correlation coefficients of the rows.
reshape: The same elements in another shape, a view if that can be; -1 stands for what is left.
view: The same memory in another shape; an error where the elements do not lie so.
expand broadcast_to: A view in which dimensions of size 1 are repeated.
permute: A view with the dimensions in another order.
unsqueeze: A view with one more dimension, of size 1.
squeeze: A view without dimensions of size 1, or without those named if they are of size 1.
detach: The same memory without a history.
select: The slice at an index of a dimension, a view without it.
diagonal: A view of the diagonal of two dimensions, as the last one.
as_strided: A view of the storage by sizes, strides and offset.
unfold: Slices of a size, a step apart along a dimension, side by side in a new last one.
  functional.unfold takes patches of pictures as columns.
slice_scatter: A copy with src in place of a slice.
select_scatter: A copy with src in place of the slice at an index.
diagonal_scatter: A copy with src on a diagonal.
as_strided_scatter: A copy with src at elements by strides.
reshape_as: reshape to another tensor's shape.
view_as: view in another tensor's shape.
expand_as: expand to another tensor's shape.
transpose swapdims swapaxes: A view with two dimensions swapped.
t: A view with the two dimensions of a matrix swapped.
movedim moveaxis: A view with dimensions moved to other places.
flatten: Dimensions start_dim to end_dim as one.
ravel: All elements in one dimension.
unflatten: One dimension as several.
narrow: A view of `length` indices from `start` on.
narrow_copy: A copy of `length` indices from `start` on.
atleast_1d: With at least one dimension.
atleast_2d: With at least two dimensions.
atleast_3d: With at least three dimensions.
split: Views of split_size indices each, or of the sizes of a list, along a dimension.
split_with_sizes: Views of the sizes of a list along a dimension.
chunk: At most `chunks` views of equal size (the last one smaller) along a dimension.
tensor_split: Views, in a number of sections or cut before indices, along a dimension.
hsplit: tensor_split along columns.
vsplit: tensor_split along rows.
dsplit: tensor_split along the third dimension.
unbind: The list of slices along a dimension.
cat concat concatenate: Tensors one after the other along a dimension.
stack: Tensors side by side in a new dimension.
hstack: Tensors one after the other along columns.
vstack row_stack: Tensors one after the other along rows.
dstack: Tensors one after the other along the third dimension.
column_stack: Tensors as columns.
flip: The order of indices turned round along dimensions.
fliplr: Columns from right to left.
flipud: Rows from bottom to top.
rot90: Turned k times by a quarter in the plane of two dimensions.
roll: Moved along dimensions; what leaves at one end comes in at the other.
tril: The lower triangle of matrices, 0 above the diagonal.
triu: The upper triangle of matrices, 0 below the diagonal.
constant_pad_nd: Padded with a value, last dimension first.
pad: Padded, last dimension first; mode 'constant', 'reflect', 'replicate' or 'circular'.
repeat: Repeated as often as said along each dimension; in Lua x:repeat_, as repeat is a word of
  Lua.
tile: Repeated as often as said along each dimension, fewer numbers meaning the last ones.
repeat_interleave: Each element, or slice of a dimension, repeated in place.
diag_embed: Matrices with the last dimension as their diagonal.
diag: The diagonal of a matrix, or a matrix with a diagonal.
diagflat: A matrix with all elements on a diagonal.
trace: The sum of a matrix's diagonal.
meshgrid: The coordinates of a grid, a tensor for each dimension; indexing 'ij' or 'xy'.
cartesian_prod: All combinations of elements of vectors, as rows.
broadcast_tensors: Tensors expanded to a common shape.
block_diag: A matrix with matrices along its diagonal.
pixel_shuffle: Channels to pixels: (N, C r^2, H, W) to (N, C, H r, W r).
pixel_unshuffle: Pixels to channels: (N, C, H r, W r) to (N, C r^2, H, W).
kron: The Kronecker product.
cross: The cross product of vectors of three elements along a dimension.
index_select: The slices at indices of a dimension.
embedding: The rows of weight at indices; padding_idx gets no gradient.
gather: Along dim the elements that index names, of the shape of index.
scatter: src written along dim where index says.
scatter_add: src added along dim where index says.
scatter_reduce: src reduced ('sum', 'prod', 'mean', 'amax', 'amin') along dim where index says.
index_add: alpha times the slices of source added at indices of a dimension.
index_copy: The slices of source written at indices of a dimension.
index_fill: A value written at indices of a dimension.
index_reduce: The slices of source reduced ('prod', 'mean', 'amax', 'amin') at indices of a
  dimension.
index_put: Values written, or added, where lists of indices say.
take: Elements at indices of the flattened tensor.
put: Elements written, or added, at indices of the flattened tensor.
take_along_dim: Elements at indices along a dimension, both broadcast.
masked_select: The elements where the mask is true, in one dimension.
masked_scatter: The elements of source in order where the mask is true.
one_hot: A new last dimension that is 1 at the index and 0 elsewhere.
isin: Where elements are among test_elements.
sort: Sorted along a dimension, and where each element was.
argsort: The indices that sort along a dimension.
msort: Sorted along the first dimension.
topk: The k largest (or smallest) elements along a dimension, and their indices.
searchsorted: Where values would be put into sorted sequences.
bucketize: Between which boundaries values lie.
histc: Counts of elements in bins of equal width from min to max; of both 0, from smallest to
  largest.
nonzero argwhere: The indices of the elements that are not zero, a row each.
unique_all: The different values, where each element's value is among them, and counts.
bincount: How often each number from 0 on occurs, or the sum of its weights.
]]

local MAKERS = [[
full: A tensor of one value.
zeros: A tensor of zeros.
ones: A tensor of ones.
empty: A tensor whose elements are not set.
full_like: A tensor of one value, of another one's shape, dtype and device.
zeros_like: Zeros of another tensor's shape, dtype and device.
ones_like: Ones of another tensor's shape, dtype and device.
empty_like: Elements that are not set, of another tensor's shape, dtype and device.
new_full: A tensor of one value, of this one's dtype and device.
new_zeros: Zeros of this tensor's dtype and device.
new_ones: Ones of this tensor's dtype and device.
new_empty: Elements that are not set, of this tensor's dtype and device.
scalar_tensor: A tensor without dimensions.
fill: Every element set to a value.
zero: Every element set to zero.
arange: From start to below end, a step apart.
linspace: `steps` numbers from start to end, equally far apart.
logspace: base to the power of linspace.
eye: A matrix with ones on its diagonal.
tril_indices: Rows and columns of the lower triangle.
triu_indices: Rows and columns of the upper triangle.
rand: Random numbers, equally likely in [0, 1).
randn: Random numbers of the standard normal distribution.
randint: Random integers from low to below high.
randperm: The integers from 0 to below n in random order.
rand_like: rand of another tensor's shape, dtype and device.
randn_like: randn of another tensor's shape, dtype and device.
randint_like: randint of another tensor's shape, dtype and device.
uniform: Random numbers, equally likely in [from, to).
normal: Random numbers of normal distributions, by mean and standard deviation.
log_normal: exp of random numbers of a normal distribution.
cauchy: Random numbers of a Cauchy distribution.
exponential: Random numbers of an exponential distribution of rate lambd.
geometric: How many tries it takes until the first success of probability p.
bernoulli: 1 with the probability p (or that which each element gives), else 0.
trunc_normal: Random numbers of a normal distribution, those outside [a, b] drawn again.
random: Random integers from `from` to below `to`; without these all that the dtype holds exactly.
multinomial: Indices drawn by the weights of each row.
poisson: Random numbers of Poisson distributions, whose rates the elements are.
binomial: Successes among `count` tries of probability `prob`.
dropout: Each element 0 with probability p, the others over 1 - p; itself if not training.
feature_dropout dropout1d dropout2d dropout3d: Whole channels 0 with probability p, the others
  over 1 - p.
]]

local PRODUCTS = [[
mm: The product of two matrices.
bmm: The products of matrices in two batches.
matmul: Matrix product; the dimensions before the last two are broadcast, vectors have one.
mv: A matrix times a vector.
dot vdot: The sum of products of two vectors.
inner: Dot products along the last dimensions.
outer ger: The matrix of products of two vectors' elements.
addmm: beta self + alpha (mat1 times mat2).
baddbmm: beta self + alpha (the products of matrices in two batches).
addbmm: beta self + alpha (the sum of the products of matrices in two batches).
addmv: beta self + alpha (mat times vec).
addr: beta self + alpha (the outer product of vec1 and vec2).
linear: input times the transpose of weight, and bias.
bilinear: input1 weight input2 for each row, and bias.
einsum: Einstein's sums: 'ij,jk->ik' is a matrix product.
tensordot: Products summed over the last dims of self and the first ones of other, or over two
  lists of dimensions.
dist: The p-norm of self - other.
cdist: The p-norms of the differences of all rows of x1 and x2.
pdist: The p-norms of the differences of all pairs of rows.
multi_dot chain_matmul: The product of several matrices, in the cheapest order.
vander: The powers of each element, a row each.
lu_factor: L and U of a matrix in one, and the rows swapped.
lu_factor_ex: lu_factor with the number of the first zero on the diagonal instead of an error.
lu_unpack: P, L and U out of the results of lu_factor.
lu: P, L and U of a matrix: A = P L U.
lu_solve: X of A X = B, of the results of lu_factor.
cholesky: L of a positive definite matrix A = L L^T.
cholesky_ex: cholesky with the order of the minor that is not positive instead of an error.
cholesky_inverse: The inverse of L L^T.
cholesky_solve: X of L L^T X = B.
ldl_factor: L and D of a symmetric matrix in one, and the rows swapped.
ldl_factor_ex: ldl_factor with a number instead of an error.
ldl_solve: X of A X = B, of the results of ldl_factor.
qr: Q, whose columns are orthonormal, and an upper triangle R: A = Q R.
geqrf: R and the reflectors of which Q is made.
householder_product orgqr: Q out of the reflectors of geqrf.
ormqr: Q of the reflectors of geqrf times another matrix.
solve_triangular: X of A X = B, of a triangular A.
triangular_solve: X of A X = B, of a triangular A, and A.
solve: X of A X = B.
solve_ex: solve with a number instead of an error for a singular matrix.
inv inverse: The inverse of a square matrix.
inv_ex: inv with a number instead of an error for a singular matrix.
det: The determinant.
slogdet: Sign and logarithm of the absolute value of the determinant.
logdet: The logarithm of the determinant; NaN below zero.
matrix_power: A to the n-th power, of its inverse for negative n.
tensorinv: The inverse with respect to tensordot, of the first `ind` dimensions against the
  others.
tensorsolve: X of tensordot(A, X) = B.
lstsq: The X that makes A X - B smallest; residuals, rank and singular values.
svd: A = U diag(S) Vh with singular values from large to small.
svdvals: Singular values from large to small.
eigh: Eigenvalues, from small to large, and eigenvectors of symmetric matrices.
eigvalsh: Eigenvalues of symmetric matrices, from small to large.
pinv pinverse: The pseudo-inverse; singular values below the tolerances count as zero.
matrix_rank: How many singular values are above the tolerances.
matrix_exp: The exponential of a square matrix.
matrix_norm: The norm of matrices: 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2.
cond: The condition number of a matrix in a norm.
]]

local NETWORKS = [[
scaled_dot_product_attention: softmax(query key^T scale + mask) value, with the mask, or below the
  diagonal if is_causal.
conv1d: Convolution over (N, C, L), as cross-correlation.
conv2d: Convolution over (N, C, H, W), as cross-correlation.
conv3d: Convolution over (N, C, D, H, W), as cross-correlation.
conv_transpose1d: The gradient of conv1d with respect to its input, as a layer.
conv_transpose2d: The gradient of conv2d with respect to its input, as a layer.
conv_transpose3d: The gradient of conv3d with respect to its input, as a layer.
max_pool1d: The largest element of each window of (N, C, L).
max_pool2d: The largest element of each window of (N, C, H, W).
max_pool3d: The largest element of each window of (N, C, D, H, W).
max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices: The largest element of
  each window, and its index in the picture.
avg_pool1d: The mean of each window of (N, C, L).
avg_pool2d: The mean of each window of (N, C, H, W).
avg_pool3d: The mean of each window of (N, C, D, H, W).
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d: Means of windows that give the output
  size.
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d: The largest elements of windows that
  give the output size.
adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
  adaptive_max_pool3d_with_indices: The largest elements of windows that give the output size, and
  their indices.
native_layer_norm: layer_norm with the mean and one over the deviation.
layer_norm: The last dimensions with mean 0 and variance 1, then times weight and plus bias.
rms_norm: The last dimensions over their root of mean squares, times weight.
group_norm: Groups of channels with mean 0 and variance 1, then times weight and plus bias by
  channel.
local_response_norm: Each channel over a power of the mean of squares of its neighbours.
softmax: exp(x) over its sum along a dimension.
log_softmax: The logarithm of softmax, exact.
softmin: softmax(-x).
nll_loss: The negative of input at the class of each target, weighted by class.
cross_entropy: nll_loss of log_softmax, or of class probabilities as targets.
mse_loss: Squared differences.
l1_loss: Absolute differences.
smooth_l1_loss: Squared differences over 2 beta below beta, absolute ones less beta / 2 above.
huber_loss: Half of squared differences below delta, delta times the absolute ones less delta / 2
  above.
binary_cross_entropy: The cross entropy of probabilities and targets in [0, 1].
binary_cross_entropy_with_logits: binary_cross_entropy of sigmoid(input), exact.
kl_div: target (log(target) - input), where input holds logarithms; 'batchmean' is the divergence.
poisson_nll_loss: The negative logarithm of the likelihood of Poisson distributions.
margin_ranking_loss: max(0, margin - target (input1 - input2)), the target 1 or -1.
hinge_embedding_loss: The input where the target is 1, max(0, margin - input) where it is -1.
soft_margin_loss: log(1 + exp(-target input)), the target 1 or -1.
]]

local texts = {}
for _, lines in ipairs({ ELEMENTS, SHAPES, MAKERS, PRODUCTS, NETWORKS }) do
  for names, text in lines:gsub("\n%s+", " "):gmatch("([^:\n]+): ([^\n]+)") do
    for name in names:gmatch("%S+") do
      texts[name] = text
    end
  end
end

return texts
