/* Convolutions of 1 to 3 spatial dimensions.
 *
 *   convolution(x, w):  x [N, C, spatial], w [O, C/groups, kernel]
 *                       (transposed: w [C, O/groups, kernel]) -> [N, O, …]
 *
 * It is linear in either operand, and so are its two gradients; each one's
 * gradients are the other two:
 *
 *   y = conv(x, w)          dx = back_input(dy, w)   dw = back_weight(dy, x)
 *   y = back_input(g, w)    dg = conv(dy, w)         dw = back_weight(g, dy)
 *   y = back_weight(g, x)   dg = conv(x, dy)         dx = back_input(g, dy)
 *
 * Canonical attributes: one entry a spatial dimension, two for the padding
 * (before …, after …), which may differ: padding="same" of an even kernel and
 * ONNX's auto_pad need it. The public forms add batch and bias. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/kernel/product/plus.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/view/view.h"

/* ---- shape rules --------------------------------------------------------- */
static LpStatus check_operands(const LpInfer *x, const LpType *in,
                               const LpType *w)
{
    const char *op = x->op->name;
    LP_FAIL_IF(in->ndim < 3 || in->ndim > 5 || w->ndim != in->ndim, x->err,
               LP_E_RUNTIME,
               "%s: expected an input of 3 to 5 dimensions (batch, channels, "
               "spatial) and a weight of as many, got shapes %s and %s",
               op, lp_shape_str(in), lp_shape_str(w));
    LP_FAIL_IF(in->dtype == LP_BOOL, x->err, LP_E_RUNTIME,
               "%s: expected an input of numbers, got bool", op);
    LP_FAIL_IF(in->dtype != w->dtype, x->err, LP_E_RUNTIME,
               "%s: input type (%s) and weight type (%s) should be the same",
               op, lp_dtype_name(in->dtype), lp_dtype_name(w->dtype));
    return LP_OK;
}

static LpStatus canonical_padding(LpInfer *x, int i, int n)
{
    LpAttr *a = &x->attr[i];
    int64_t v[6];
    LP_FAIL_IF(a->n != 1 && a->n != n && a->n != 2 * n, x->err, LP_E_RUNTIME,
               "%s: `padding` must hold 1, %d or %d numbers, got %d",
               x->op->name, n, 2 * n, a->n);
    for (int k = 0; k < 2 * n; k++) {
        v[k] = a->n == 1 ? a->v[0] : a->v[k % a->n];
        LP_FAIL_IF(v[k] < 0, x->err, LP_E_RUNTIME,
                   "%s: negative padding is not supported, got %lld",
                   x->op->name, (long long)v[k]);
        LP_FAIL_IF(v[k] > INT32_MAX, x->err, LP_E_RUNTIME,
                   "%s: `padding` must be below 2147483648, got %lld",
                   x->op->name, (long long)v[k]);
    }
    return lp_set_ints(x, i, v, 2 * n);
}

/* The six common attributes, which begin at `first`. */
static LpStatus canonical(LpInfer *x, int first, int n)
{
    LpAttr *a = x->attr + first;
    LP_TRY(lp_spread(x, &a[LP_CONV_STRIDE], n, "stride", 1));
    LP_TRY(lp_spread(x, &a[LP_CONV_DILATION], n, "dilation", 1));
    LP_TRY(lp_spread(x, &a[LP_CONV_OUTPUT_PADDING], n, "output_padding", 0));
    LP_TRY(canonical_padding(x, first + LP_CONV_PADDING, n));
    LP_FAIL_IF(a[LP_CONV_GROUPS].i < 1 || a[LP_CONV_GROUPS].i > INT32_MAX,
               x->err, LP_E_RUNTIME,
               "%s: `groups` must be at least 1 and below 2147483648, got %lld",
               x->op->name, (long long)a[LP_CONV_GROUPS].i);
    for (int i = 0; i < n && a[LP_CONV_TRANSPOSED].i; i++) {
        int64_t o = a[LP_CONV_OUTPUT_PADDING].v[i];
        LP_FAIL_IF(o >= a[LP_CONV_STRIDE].v[i] && o >= a[LP_CONV_DILATION].v[i],
                   x->err, LP_E_RUNTIME,
                   "%s: `output_padding` (%lld) must be smaller than either "
                   "stride (%lld) or dilation (%lld)",
                   x->op->name, (long long)o, (long long)a[LP_CONV_STRIDE].v[i],
                   (long long)a[LP_CONV_DILATION].v[i]);
    }
    return LP_OK;
}

static LpStatus check_channels(const LpInfer *x, const LpType *in,
                               const LpType *w, bool transposed, int64_t groups)
{
    int64_t c = transposed ? w->shape[0] : w->shape[1] * groups;
    LP_FAIL_IF(in->shape[1] != c || w->shape[0] % groups != 0, x->err,
               LP_E_RUNTIME,
               "%s: given groups=%lld%s and weight of size %s, expected input "
               "%s to have %lld channels (and size 0 of the weight divisible "
               "by groups), but got %lld channels",
               x->op->name, (long long)groups,
               transposed ? ", transposed=True" : "", lp_shape_str(w),
               lp_shape_str(in), (long long)c, (long long)in->shape[1]);
    return LP_OK;
}

/* PyTorch takes empty batches and channels, but no empty places. */
static LpStatus check_filled(const LpInfer *x, const LpType *in,
                             const LpType *w)
{
    LP_FAIL_IF(w->shape[0] < 1, x->err, LP_E_RUNTIME,
               "%s: expected weight to be at least 1 at dimension 0, but got "
               "size %s",
               x->op->name, lp_shape_str(w));
    for (int d = 2; d < in->ndim && in->shape[0] && in->shape[1]; d++)
        LP_FAIL_IF(in->shape[d] == 0, x->err, LP_E_RUNTIME,
                   "%s: an empty input may have no batch or no channels, but "
                   "dimension %d of %s is empty",
                   x->op->name, d, lp_shape_str(in));
    return LP_OK;
}

/* out = shape of the convolution of `in` with `w`; attributes canonical. */
static LpStatus conv_shape(const LpInfer *x, const LpAttr *a, const LpType *in,
                           const LpType *w, LpType *out)
{
    int n = in->ndim - 2;
    bool t = a[LP_CONV_TRANSPOSED].i != 0;
    LP_TRY(check_channels(x, in, w, t, a[LP_CONV_GROUPS].i));
    LpType r = *in;
    r.shape[1] = t ? w->shape[1] * a[LP_CONV_GROUPS].i : w->shape[0];
    for (int i = 0; i < n; i++) {
        int64_t size = in->shape[2 + i], k = w->shape[2 + i];
        int64_t s = a[LP_CONV_STRIDE].v[i],
                p = a[LP_CONV_PADDING].v[i] + a[LP_CONV_PADDING].v[n + i];
        int64_t reach = a[LP_CONV_DILATION].v[i] * (k - 1) + 1;
        LP_FAIL_IF(k < 1, x->err, LP_E_RUNTIME,
                   "%s: the kernel must have at least 1 element in every "
                   "dimension, got size %lld",
                   x->op->name, (long long)k);
        LP_FAIL_IF(!t && size + p < reach, x->err, LP_E_RUNTIME,
                   "%s: calculated padded input size of spatial dimension %d: "
                   "%lld. Kernel size: %lld. The kernel can't be greater than "
                   "the padded input",
                   x->op->name, i, (long long)(size + p), (long long)reach);
        r.shape[2 + i] =
            t ? (size - 1) * s - p + reach + a[LP_CONV_OUTPUT_PADDING].v[i]
              : (size + p - reach) / s + 1;
        LP_FAIL_IF(r.shape[2 + i] < 1 && size > 0, x->err, LP_E_RUNTIME,
                   "%s: the output size of spatial dimension %d would be %lld, "
                   "which is too small",
                   x->op->name, i, (long long)r.shape[2 + i]);
    }
    *out = r;
    return LP_OK;
}

static LpStatus infer_convolution(LpInfer *x)
{
    LP_TRY(check_operands(x, &x->in[0], &x->in[1]));
    LP_TRY(canonical(x, 0, x->in[0].ndim - 2));
    LP_TRY(check_filled(x, &x->in[0], &x->in[1]));
    return conv_shape(x, x->attr, &x->in[0], &x->in[1], &x->out[0]);
}

/* The shape that attribute 0 holds must be one whose convolution has the shape
 * of the gradient, operand 0. */
static LpStatus infer_back(LpInfer *x)
{
    bool weight = x->op == &op_convolution_backward_weight;
    LpType made = x->in[0], check;
    LP_FAIL_IF(x->attr[LP_CONV_BACK_SIZE].n != x->in[0].ndim, x->err,
               LP_E_RUNTIME, "%s: `%s` must hold %d numbers, got %d",
               x->op->name, weight ? "weight_size" : "input_size",
               x->in[0].ndim, x->attr[LP_CONV_BACK_SIZE].n);
    lp_set_dims(&made, x->attr[LP_CONV_BACK_SIZE].v,
                x->attr[LP_CONV_BACK_SIZE].n);
    LP_TRY(check_operands(x, &x->in[0], &x->in[1]));
    LP_TRY(canonical(x, LP_CONV_BACK_STRIDE, x->in[0].ndim - 2));
    LP_TRY(conv_shape(x, x->attr + LP_CONV_BACK_STRIDE,
                      weight ? &x->in[1] : &made, weight ? &made : &x->in[1],
                      &check));
    LP_FAIL_IF(!lp_shape_eq(&check, &x->in[0]), x->err, LP_E_RUNTIME,
               "%s: the convolution has an output of shape %s, but the "
               "gradient has shape %s",
               x->op->name, lp_shape_str(&check), lp_shape_str(&x->in[0]));
    x->out[0] = made;
    return LP_OK;
}

/* ---- gradients ----------------------------------------------------------- */
/* One of the two gradients; `like` gives the shape of the result. */
static LpVal back(LpBuilder *b, int op, const LpAttr *conv, LpVal dy, LpVal y,
                  LpVal like)
{
    LpType t = *lp_type(b, like);
    LpAttr a[LP_CONV_BACK_ATTRS];
    int64_t *shape =
        lp_arena_memdup(b->scratch, t.shape, (size_t)t.ndim * sizeof *shape);
    if (!shape)
        return LP_REFUSE(b, LP_E_MEMORY, "out of memory");
    a[LP_CONV_BACK_SIZE] = lp_attr_ints(shape, t.ndim);
    memcpy(a + LP_CONV_BACK_STRIDE, conv, LP_CONV_ATTRS * sizeof *a);
    return lp_emit(b, op, (LpVal[]){dy, y}, 2, a);
}

static LpVal forward(LpBuilder *b, const LpAttr *conv, LpVal x, LpVal w)
{
    return lp_emit(b, LP_OP_convolution, (LpVal[]){x, w}, 2, conv);
}

static void grad_convolution(LpGrad *g)
{
    if (g->need[0])
        g->din[0] = back(g->b, LP_OP_convolution_backward_input, g->attr,
                         g->dout[0], g->in[1], g->in[0]);
    if (g->need[1])
        g->din[1] = back(g->b, LP_OP_convolution_backward_weight, g->attr,
                         g->dout[0], g->in[0], g->in[1]);
}

/* Of either gradient: the other one stands in its second operand's place. */
static void grad_back(LpGrad *g)
{
    const LpAttr *conv = g->attr + LP_CONV_BACK_STRIDE;
    bool weight = g->op == &op_convolution_backward_weight;
    LpVal x = weight ? g->in[1] : g->dout[0];
    if (g->need[0])
        g->din[0] = forward(g->b, conv, x, weight ? g->dout[0] : g->in[1]);
    if (g->need[1])
        g->din[1] = back(g->b,
                         weight ? LP_OP_convolution_backward_input
                                : LP_OP_convolution_backward_weight,
                         conv, g->in[0], g->dout[0], g->in[1]);
}

/* What broadcasts to the channels of the result is added to it. */
static LpStatus infer_plus(LpInfer *x)
{
    LP_TRY(infer_convolution(x));
    const LpType *t = &x->in[2], *y = &x->out[0];
    bool fits = t->ndim == y->ndim - 1 && t->dtype == y->dtype &&
                lp_is_float(t->dtype) && t->shape[0] == y->shape[1] &&
                lp_numel(t) == t->shape[0];
    LP_FAIL_IF(!fits, x->err, LP_E_RUNTIME,
               "%s: `bias` must be %s with a number for each of %lld channels "
               "and sizes of 1, got %s of shape %s",
               x->op->name, lp_dtype_name(y->dtype), (long long)y->shape[1],
               lp_dtype_name(t->dtype), lp_shape_str(t));
    return LP_OK;
}

static void grad_plus(LpGrad *g)
{
    grad_convolution(g);
    if (g->need[2])
        g->din[2] = g->dout[0];
}

#define COMMON                                                                 \
    "int[] stride, int[] padding, int[] dilation, bool transposed, int[] "     \
    "output_padding, int groups) -> Tensor @p"

LP_PRIMITIVE(convolution, "convolution(Tensor input, Tensor weight, " COMMON,
             infer_convolution, lp_conv_prepare, lp_rule_convolution,
             .flags = LP_OPF_CACHED | LP_OPF_BLOCKED | LP_OPF_PLANNED,
             .product = LP_PRODUCT_CONV, .grad = grad_convolution, .grad_in = 3,
             .readers = LP_READERS(2, 1, 0, 0), .work = lp_conv_work)

/* Of the half types: PyTorch adds the bias in float32 and rounds once. */
LP_PRIMITIVE(
    convolution_plus,
    "convolution_plus(Tensor input, Tensor weight, Tensor bias, " COMMON,
    infer_plus, lp_conv_plus_prepare, lp_rule_convolution_plus,
    .flags = LP_OPF_CACHED | LP_OPF_BLOCKED | LP_OPF_PLANNED,
    .product = LP_PRODUCT_CONV, .grad = grad_plus, .grad_in = 3,
    .readers = LP_READERS(2, 1, 0, 0), .work = lp_conv_work,
    .data = &lp_plus_ops)

LP_PRIMITIVE(convolution_backward_input,
             "convolution_backward_input(Tensor grad, Tensor weight, int[] "
             "input_size, " COMMON,
             infer_back, lp_conv_input_prepare, lp_rule_convolution_input,
             .flags = LP_OPF_CACHED | LP_OPF_BLOCKED,
             .product = LP_PRODUCT_CONV_INPUT, .grad = grad_back, .grad_in = 3,
             .readers = LP_READERS(2, 1, 0, 0), .work = lp_conv_input_work)

LP_PRIMITIVE(convolution_backward_weight,
             "convolution_backward_weight(Tensor grad, Tensor input, int[] "
             "weight_size, " COMMON,
             infer_back, lp_conv_weight_prepare, lp_rule_convolution_weight,
             .flags = LP_OPF_CACHED | LP_OPF_BLOCKED,
             .product = LP_PRODUCT_CONV_WEIGHT, .grad = grad_back, .grad_in = 3,
             .readers = LP_READERS(2, 1, 0, 0), .work = lp_conv_weight_work)

/* ---- public forms -------------------------------------------------------- */
/* y = convolution(x, w), with what is to be added to its channels. */
static LpVal biased(LpBuilder *b, const LpAttr *a, LpVal x, LpVal w, LpVal bias,
                    int n)
{
    if (bias == LP_NOVAL || lp_failed(b))
        return forward(b, a, x, w);
    LpType tx = *lp_type(b, x), tw = *lp_type(b, w), t = *lp_type(b, bias);
    bool once = lp_is_half(t.dtype) && t.dtype == tx.dtype &&
                t.dtype == tw.dtype && tw.ndim == n + 2;
    LpVal y = once ? LP_NOVAL : forward(b, a, x, w);
    if (lp_failed(b))
        return LP_NOVAL;
    int64_t channels = !once ? lp_type(b, y)->shape[1]
                       : a[LP_CONV_TRANSPOSED].i
                           ? tw.shape[1] * a[LP_CONV_GROUPS].i
                           : tw.shape[0];
    if (t.ndim != 1 || t.shape[0] != channels)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "convolution: expected `bias` to be 1-dimensional with %lld "
            "elements, but got shape %s",
            (long long)channels, lp_shape_str(&t));
    if (t.dtype != tx.dtype)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "convolution: input type (%s) and bias type (%s) should be the "
            "same",
            lp_dtype_name(tx.dtype), lp_dtype_name(t.dtype));
    bias = lp_reshape(b, bias, (int64_t[]){channels, 1, 1, 1}, n + 1);
    return once
               ? lp_emit(b, LP_OP_convolution_plus, (LpVal[]){x, w, bias}, 3, a)
               : lp_add(b, y, bias);
}

/* in: input, weight, bias; an input without a batch gets one for the time. */
static LpVal public_conv(LpBuilder *b, const LpVal *in, int n, const LpAttr *a)
{
    LpType t = *lp_type(b, in[0]);
    LpVal x = in[0];
    if (t.ndim != n + 1 && t.ndim != n + 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "expected %dD (unbatched) or %dD (batched) input to conv%s%dd, "
            "but got input of size %s",
            n + 1, n + 2, a[LP_CONV_TRANSPOSED].i ? "_transpose" : "", n,
            lp_shape_str(&t));
    if (t.ndim == n + 1)
        x = lp_unsqueeze(b, x, 0);
    const char *op = a[LP_CONV_TRANSPOSED].i ? "conv_transpose" : "conv";
    if (!lp_alike(b, in[1], in[0], op, "weight") ||
        !lp_alike(b, in[2], in[0], op, "bias"))
        return LP_NOVAL;
    LpVal y = biased(b, a, x, in[1], in[2], n);
    if (t.ndim == n + 2 || lp_failed(b))
        return y;
    LpType r = *lp_type(b, y);
    return lp_reshape(b, y, r.shape + 1, r.ndim - 1);
}

/* The convolution's attributes of a form's, padded by `padding`. */
static LpVal straight(LpBuilder *b, const LpVal *in, const LpAttr *attr,
                      LpAttr padding)
{
    static const int64_t zero[3] = {0};
    int n = attr[LP_CONVN_STRIDE].n;
    LpAttr a[LP_CONV_ATTRS] = {
        [LP_CONV_STRIDE] = attr[LP_CONVN_STRIDE],
        [LP_CONV_PADDING] = padding,
        [LP_CONV_DILATION] = attr[LP_CONVN_DILATION],
        [LP_CONV_TRANSPOSED] = lp_attr_bool(false),
        [LP_CONV_OUTPUT_PADDING] = lp_attr_ints(zero, n),
        [LP_CONV_GROUPS] = attr[LP_CONVN_GROUPS],
    };
    return public_conv(b, in, n, a);
}

LP_EXPAND(expand_conv)
{
    out[0] = straight(b, in, attr, attr[LP_CONVN_PADDING]);
}

/* padding by name; "same" keeps the spatial sizes */
LP_EXPAND(expand_conv_named)
{
    const int64_t *stride = attr[LP_CONVN_STRIDE].v;
    const char *how = attr[LP_CONVN_PADDING].str;
    int n = attr[LP_CONVN_STRIDE].n;
    int64_t pad[6] = {0};
    bool same = strcmp(how, "same") == 0;
    if (!same && strcmp(how, "valid") != 0) {
        lp_fail(b->err, LP_E_VALUE,
                "conv%dd: `padding` must be numbers, 'valid' or 'same', got "
                "'%s'",
                n, how);
        return;
    }
    LpType w = *lp_type(b, in[1]);
    for (int i = 0; i < n && same && i + 2 < w.ndim; i++) {
        int64_t total = attr[LP_CONVN_DILATION].v[i] * (w.shape[2 + i] - 1);
        if (stride[i] != 1) {
            lp_fail(b->err, LP_E_RUNTIME,
                    "padding='same' is not supported for strided convolutions, "
                    "got stride %lld",
                    (long long)stride[i]);
            return;
        }
        pad[i] = total / 2;
        pad[n + i] = total - total / 2;
    }
    out[0] = straight(b, in, attr, lp_attr_ints(pad, 2 * n));
}

LP_EXPAND(expand_conv_transpose)
{
    LpAttr a[LP_CONV_ATTRS] = {
        [LP_CONV_STRIDE] = attr[LP_CONVT_STRIDE],
        [LP_CONV_PADDING] = attr[LP_CONVT_PADDING],
        [LP_CONV_DILATION] = attr[LP_CONVT_DILATION],
        [LP_CONV_TRANSPOSED] = lp_attr_bool(true),
        [LP_CONV_OUTPUT_PADDING] = attr[LP_CONVT_OUTPUT_PADDING],
        [LP_CONV_GROUPS] = attr[LP_CONVT_GROUPS],
    };
    out[0] = public_conv(b, in, attr[LP_CONVT_STRIDE].n, a);
}

#define CONV(n)                                                                \
    LP_EXPANDED(conv##n##d,                                                    \
                "conv" #n "d(Tensor input, Tensor weight, Tensor? "            \
                "bias=None, int[" #n "] stride=1, int[" #n                     \
                "] padding=0, int[" #n                                         \
                "] dilation=1, int groups=1) -> Tensor @fn",                   \
                expand_conv, .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)     \
    LP_EXPANDED(conv##n##d_padding,                                            \
                "conv" #n "d.padding(Tensor input, Tensor weight, Tensor? "    \
                "bias=None, int[" #n "] stride=1, str padding='valid', "       \
                "int[" #n "] dilation=1, int groups=1) -> Tensor @fn",         \
                expand_conv_named, .mix = LP_MIX_FOLLOW,                       \
                .cast = LP_CAST_NARROW)                                        \
    LP_EXPANDED(                                                               \
        conv_transpose##n##d,                                                  \
        "conv_transpose" #n "d(Tensor input, Tensor weight, Tensor? "          \
        "bias=None, int[" #n "] stride=1, int[" #n "] padding=0, int[" #n      \
        "] output_padding=0, int groups=1, int[" #n                            \
        "] dilation=1) -> Tensor @fn",                                         \
        expand_conv_transpose, .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
CONV(1)
CONV(2)
CONV(3)
