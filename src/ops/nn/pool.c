/* Pooling over the last 1 to 3 axes; everything before them is planes.
 *
 * max_pool gives the values and, as a second result, where they were: flat
 * indices in the input plane. Its gradient scatters along them, and the
 * gradient of that gathers. avg_pool is linear; it and its gradient are each
 * other's gradients. Adaptive windows of output o run from floor(o in / out)
 * to ceil((o + 1) in / out).
 *
 * Canonical attributes: one entry a spatial axis; stride filled in. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/view/view.h"

/* ---- shape rules --------------------------------------------------------- */
static LpStatus check_planes(const LpInfer *x, int n)
{
    LP_FAIL_IF(n < 1 || n > 3 || x->in[0].ndim < n + 1 || x->in[0].ndim > n + 2,
               x->err, LP_E_RUNTIME,
               "%s: expected an input of %d or %d dimensions, got shape %s",
               x->op->name, n + 1, n + 2, lp_shape_str(&x->in[0]));
    return LP_OK;
}

/* Channels and the n sizes after them. */
static LpStatus check_filled(const LpInfer *x, int n)
{
    const LpType *in = &x->in[0];
    for (int i = in->ndim - n - 1; i < in->ndim; i++)
        LP_FAIL_IF(in->shape[i] == 0, x->err, LP_E_RUNTIME,
                   "%s: size 0 of dimension %d of `input`: only the batch may "
                   "be empty",
                   x->op->name, i);
    return LP_OK;
}

static LpStatus check_input(const LpInfer *x, int n)
{
    LP_TRY(lp_need_float(x, 0, "input"));
    return check_planes(x, n);
}

static int64_t out_size(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d,
                        bool ceil_mode)
{
    int64_t span = in + 2 * p - d * (k - 1) - 1 + (ceil_mode ? s - 1 : 0);
    int64_t out = span / s + 1;
    /* the last window must start inside the input or the left padding */
    if (ceil_mode && (out - 1) * s >= in + p)
        out--;
    return span < 0 ? 0 : out;
}

/* Canonical kernel, stride, padding of a window, with which the attributes of
 * max_pool and, from `first` on, of means begin; `dilation` NULL: dense. `in`
 * gives the sizes, *out gets them. */
static LpStatus window(LpInfer *x, int first, const LpType *in,
                       const LpAttr *dilation, bool ceil_mode, LpType *out)
{
    LpAttr *a = x->attr + first;
    int n = a[LP_MAX_POOL_KERNEL_SIZE].n;
    LP_TRY(lp_spread(x, &a[LP_MAX_POOL_KERNEL_SIZE], n, "kernel_size", 1));
    if (a[LP_MAX_POOL_STRIDE].kind == LP_ATTR_NONE ||
        a[LP_MAX_POOL_STRIDE].n == 0)
        a[LP_MAX_POOL_STRIDE] = a[LP_MAX_POOL_KERNEL_SIZE];
    LP_TRY(lp_spread(x, &a[LP_MAX_POOL_STRIDE], n, "stride", 1));
    LP_TRY(lp_spread(x, &a[LP_MAX_POOL_PADDING], n, "padding", 0));
    *out = *in;
    for (int i = 0; i < n; i++) {
        int axis = in->ndim - n + i;
        int64_t k = a[LP_MAX_POOL_KERNEL_SIZE].v[i],
                p = a[LP_MAX_POOL_PADDING].v[i];
        int64_t d = dilation ? dilation->v[i] : 1;
        LP_FAIL_IF(p > (d * (k - 1) + 1) / 2, x->err, LP_E_RUNTIME,
                   "%s: `padding` should be at most half of the effective "
                   "kernel size, but got padding=%lld, kernel_size=%lld and "
                   "dilation=%lld",
                   x->op->name, (long long)p, (long long)k, (long long)d);
        out->shape[axis] = out_size(
            in->shape[axis], k, a[LP_MAX_POOL_STRIDE].v[i], p, d, ceil_mode);
        LP_FAIL_IF(out->shape[axis] < 1, x->err, LP_E_RUNTIME,
                   "%s: input size %lld of spatial dimension %d is too small "
                   "for kernel_size=%lld, padding=%lld: the output would be "
                   "empty",
                   x->op->name, (long long)in->shape[axis], i, (long long)k,
                   (long long)p);
    }
    return LP_OK;
}

static LpStatus infer_max_pool(LpInfer *x)
{
    const LpType *in = &x->in[0];
    LP_FAIL_IF(in->dtype == LP_BOOL, x->err, LP_E_RUNTIME,
               "max_pool: `input` must be a tensor of numbers, got bool");
    LP_TRY(check_planes(x, x->attr[LP_MAX_POOL_KERNEL_SIZE].n));
    LP_TRY(check_filled(x, x->attr[LP_MAX_POOL_KERNEL_SIZE].n));
    LP_TRY(lp_spread(x, &x->attr[LP_MAX_POOL_DILATION],
                     x->attr[LP_MAX_POOL_KERNEL_SIZE].n, "dilation", 1));
    LP_TRY(window(x, 0, &x->in[0], &x->attr[LP_MAX_POOL_DILATION],
                  x->attr[LP_MAX_POOL_CEIL_MODE].i != 0, &x->out[0]));
    x->out[1] = x->out[0];
    x->out[1].dtype = LP_I64;
    return LP_OK;
}

static LpStatus infer_avg_pool(LpInfer *x)
{
    if (x->in[0].dtype != LP_I64)
        LP_TRY(lp_need_float(x, 0, "input"));
    LP_TRY(check_planes(x, x->attr[LP_AVG_POOL_KERNEL_SIZE].n));
    LP_TRY(check_filled(x, x->attr[LP_AVG_POOL_KERNEL_SIZE].n));
    const LpAttr *div = &x->attr[LP_AVG_POOL_DIVISOR_OVERRIDE];
    LP_FAIL_IF(div->kind != LP_ATTR_NONE && div->i == 0, x->err, LP_E_RUNTIME,
               "avg_pool: `divisor_override` must be not zero");
    return window(x, 0, &x->in[0], NULL, x->attr[LP_AVG_POOL_CEIL_MODE].i != 0,
                  &x->out[0]);
}

/* Replaces the spatial sizes of `t` by an attribute's. */
static LpStatus resized(const LpInfer *x, const LpAttr *size, const LpType *t,
                        LpType *out)
{
    *out = *t;
    for (int i = 0; i < size->n; i++) {
        LP_FAIL_IF(size->v[i] < 0, x->err, LP_E_RUNTIME,
                   "%s: sizes must not be negative, got %lld", x->op->name,
                   (long long)size->v[i]);
        out->shape[t->ndim - size->n + i] = size->v[i];
    }
    return LP_OK;
}

static LpStatus infer_avg_back(LpInfer *x)
{
    LpType made, check;
    LP_TRY(check_input(x, x->attr[LP_AVG_BACK_SIZE].n));
    LP_TRY(resized(x, &x->attr[LP_AVG_BACK_SIZE], &x->in[0], &made));
    LP_TRY(window(x, LP_AVG_BACK_KERNEL_SIZE, &made, NULL,
                  x->attr[LP_AVG_BACK_CEIL_MODE].i != 0, &check));
    LP_FAIL_IF(!lp_shape_eq(&check, &x->in[0]), x->err, LP_E_RUNTIME,
               "avg_pool_backward: the pooling has an output of shape %s, but "
               "the gradient has shape %s",
               lp_shape_str(&check), lp_shape_str(&x->in[0]));
    x->out[0] = made;
    return LP_OK;
}

/* What may not be empty, as PyTorch has it: of means of one or two dimensions
 * these, else all but the first, be it the batch or the channels. */
static LpStatus infer_adaptive(LpInfer *x)
{
    const LpType *in = &x->in[0];
    int n = x->attr[LP_POOL_SIZE].n;
    LP_TRY(check_input(x, n));
    for (int i = n < 3 && x->n_out == 1 ? in->ndim - n : 1; i < in->ndim; i++)
        LP_FAIL_IF(in->shape[i] < 1, x->err, LP_E_RUNTIME,
                   "%s: expected input to have non-zero size for non-batch "
                   "dimensions, but dimension %d of `input` is empty",
                   x->op->name, i);
    LP_TRY(resized(x, &x->attr[LP_POOL_SIZE], &x->in[0], &x->out[0]));
    if (x->n_out > 1) {
        x->out[1] = x->out[0];
        x->out[1].dtype = LP_I64;
    }
    return LP_OK;
}

static LpStatus infer_adaptive_back(LpInfer *x)
{
    LP_TRY(check_input(x, x->attr[LP_POOL_SIZE].n));
    return resized(x, &x->attr[LP_POOL_SIZE], &x->in[0], &x->out[0]);
}

static LpStatus check_indices(const LpInfer *x)
{
    LP_FAIL_IF(x->in[1].dtype != LP_I64, x->err, LP_E_RUNTIME,
               "%s: `indices` must be int64, got %s", x->op->name,
               lp_dtype_name(x->in[1].dtype));
    return LP_OK;
}

static LpStatus infer_scatter(LpInfer *x)
{
    LP_TRY(check_input(x, x->attr[LP_POOL_SIZE].n));
    LP_TRY(check_indices(x));
    LP_FAIL_IF(!lp_shape_eq(&x->in[0], &x->in[1]), x->err, LP_E_RUNTIME,
               "%s: gradient %s and indices %s must have the same shape",
               x->op->name, lp_shape_str(&x->in[0]), lp_shape_str(&x->in[1]));
    return resized(x, &x->attr[LP_POOL_SIZE], &x->in[0], &x->out[0]);
}

static LpStatus infer_gather(LpInfer *x)
{
    const LpType *in = &x->in[0], *at = &x->in[1];
    int n = x->attr[LP_POOL_SIZE].n;
    LP_TRY(check_input(x, n));
    LP_TRY(check_indices(x));
    LP_FAIL_IF(at->ndim != in->ndim || !lp_sizes_eq(in, at, in->ndim - n),
               x->err, LP_E_RUNTIME,
               "%s: input %s and indices %s must have the same planes",
               x->op->name, lp_shape_str(in), lp_shape_str(at));
    x->out[0] = x->in[1];
    x->out[0].dtype = x->in[0].dtype;
    return LP_OK;
}

/* ---- gradients ----------------------------------------------------------- */
/* The last n sizes of v's type, as an attribute. */
static LpAttr spatial(LpBuilder *b, LpVal v, int n)
{
    const LpType *t = lp_type(b, v);
    const int64_t *p = lp_arena_memdup(b->scratch, t->shape + t->ndim - n,
                                       (size_t)n * sizeof *p);
    if (!p)
        lp_fail(b->err, LP_E_MEMORY, "out of memory");
    return lp_attr_ints(p, p ? n : 0);
}

static void grad_max(LpGrad *g)
{
    if (g->dout[0] == LP_NOVAL)
        return;
    LpAttr a = spatial(g->b, g->in[0], g->attr[LP_MAX_POOL_KERNEL_SIZE].n);
    g->din[0] = lp_emit(g->b, LP_OP_max_pool_backward,
                        (LpVal[]){g->dout[0], g->out[1]}, 2, &a);
}

static void grad_scatter(LpGrad *g)
{
    g->din[0] = lp_emit(g->b, LP_OP_max_pool_gather,
                        (LpVal[]){g->dout[0], g->in[1]}, 2, g->attr);
}

static void grad_gather(LpGrad *g)
{
    g->din[0] = lp_emit(g->b, LP_OP_max_pool_backward,
                        (LpVal[]){g->dout[0], g->in[1]}, 2, g->attr);
}

static void grad_avg(LpGrad *g)
{
    LpAttr a[LP_AVG_BACK_ATTRS];
    a[LP_AVG_BACK_SIZE] =
        spatial(g->b, g->in[0], g->attr[LP_AVG_POOL_KERNEL_SIZE].n);
    memcpy(a + LP_AVG_BACK_KERNEL_SIZE, g->attr, LP_AVG_POOL_ATTRS * sizeof *a);
    g->din[0] = lp_emit(g->b, LP_OP_avg_pool_backward, &g->dout[0], 1, a);
}

static void grad_avg_back(LpGrad *g)
{
    g->din[0] = lp_emit(g->b, LP_OP_avg_pool, &g->dout[0], 1,
                        g->attr + LP_AVG_BACK_KERNEL_SIZE);
}

static void grad_adaptive_avg(LpGrad *g)
{
    LpAttr a = spatial(g->b, g->in[0], g->attr[LP_POOL_SIZE].n);
    g->din[0] =
        lp_emit(g->b, LP_OP_adaptive_avg_pool_backward, &g->dout[0], 1, &a);
}

static void grad_adaptive_avg_back(LpGrad *g)
{
    LpAttr a = spatial(g->b, g->in[0], g->attr[LP_POOL_SIZE].n);
    g->din[0] = lp_emit(g->b, LP_OP_adaptive_avg_pool, &g->dout[0], 1, &a);
}

/* ---- records ------------------------------------------------------------- */
LP_PRIMITIVE(max_pool,
             "max_pool(Tensor input, int[] kernel_size, int[]? stride, int[] "
             "padding, int[] dilation, bool ceil_mode) -> (Tensor values, "
             "Tensor indices) @p",
             infer_max_pool, lp_max_pool_prepare, lp_rule_pool,
             .flags = LP_OPF_BLOCKED | LP_OPF_EXACT, .grad = grad_max,
             .grad_out = 2,
             .data = &(const LpPoolFacts){.max = true, .windowed = true})

LP_PRIMITIVE(max_pool_backward,
             "max_pool_backward(Tensor grad, Tensor indices, int[] size) -> "
             "Tensor @p",
             infer_scatter, lp_max_pool_scatter_prepare, lp_rule_pool,
             .flags = LP_OPF_BLOCKED, .grad = grad_scatter, .grad_in = 2,
             .data = &(const LpPoolFacts){.max = true, .backward = true})

LP_PRIMITIVE(max_pool_gather,
             "max_pool_gather(Tensor input, Tensor indices, int[] size) -> "
             "Tensor @p",
             infer_gather, lp_max_pool_gather_prepare, lp_rule_pool,
             .flags = LP_OPF_EXACT, .grad = grad_gather, .grad_in = 2,
             .data = &(const LpPoolFacts){.max = true})

#define WINDOW                                                                 \
    "int[] kernel_size, int[]? stride, int[] padding, bool ceil_mode, bool "   \
    "count_include_pad, int? divisor_override) -> Tensor @p"

LP_PRIMITIVE(avg_pool, "avg_pool(Tensor input, " WINDOW, infer_avg_pool,
             lp_avg_pool_prepare, lp_rule_pool, .grad = grad_avg,
             .data = &(const LpPoolFacts){.windowed = true})

LP_PRIMITIVE(avg_pool_backward,
             "avg_pool_backward(Tensor grad, int[] size, " WINDOW,
             infer_avg_back, lp_avg_pool_back_prepare, lp_rule_pool,
             .grad = grad_avg_back,
             .data = &(const LpPoolFacts){
                 .backward = true, .windowed = true, .window = 1})

LP_PRIMITIVE(adaptive_avg_pool,
             "adaptive_avg_pool(Tensor input, int[] output_size) -> Tensor @p",
             infer_adaptive, lp_adaptive_avg_pool_prepare, lp_rule_pool,
             .grad = grad_adaptive_avg,
             .data = &(const LpPoolFacts){.max = false})

LP_PRIMITIVE(adaptive_avg_pool_backward,
             "adaptive_avg_pool_backward(Tensor grad, int[] size) -> Tensor @p",
             infer_adaptive_back, lp_adaptive_avg_pool_back_prepare,
             lp_rule_pool, .grad = grad_adaptive_avg_back,
             .data = &(const LpPoolFacts){.backward = true})

LP_PRIMITIVE(adaptive_max_pool,
             "adaptive_max_pool(Tensor input, int[] output_size) -> (Tensor "
             "values, Tensor indices) @p",
             infer_adaptive, lp_adaptive_max_pool_prepare, lp_rule_pool,
             .grad = grad_max, .grad_out = 2,
             .data = &(const LpPoolFacts){.max = true})

/* ---- public forms -------------------------------------------------------- */
/* Those that have the attributes of the primitive; with its first result or
 * with all. */
#define SAME(primitive)                                                        \
    LP_EXPAND(expand_##primitive)                                              \
    {                                                                          \
        LpVal all[2];                                                          \
        if (lp_emit_n(b, LP_OP_##primitive, in, 1, attr, all))                 \
            memcpy(out, all, (size_t)n_out * sizeof *out);                     \
    }
SAME(max_pool)
SAME(avg_pool)
SAME(adaptive_max_pool)

LP_EXPAND(expand_avg_1d) /* without divisor_override */
{
    LpAttr a[LP_AVG_POOL_ATTRS];
    memcpy(a, attr, LP_AVG_POOL_DIVISOR_OVERRIDE * sizeof *a);
    a[LP_AVG_POOL_DIVISOR_OVERRIDE] = LP_NONE_ATTR;
    out[0] = lp_emit(b, LP_OP_avg_pool, in, 1, a);
}

/* To one position: PyTorch takes the mean (which of nothing is NaN). */
static bool is_mean(const LpType *in, const LpAttr *size)
{
    bool one = in->ndim == size->n + 1 || in->ndim == size->n + 2;
    for (int i = 0; i < size->n; i++)
        one = one && size->v[i] == 1;
    return one && lp_is_float(in->dtype);
}

LP_EXPAND(expand_adaptive_avg)
{
    const LpAttr *size = &attr[LP_POOL_SIZE];
    if (is_mean(lp_type(b, in[0]), size)) {
        int64_t dims[3] = {-3, -2, -1};
        out[0] = lp_mean(b, in[0], dims + 3 - size->n, size->n, true);
        return;
    }
    out[0] = lp_emit(b, LP_OP_adaptive_avg_pool, in, 1, attr);
}

#define WINDOW_N(n)                                                            \
    "Tensor input, int[" #n "] kernel_size, int[" #n "]? stride=None, int[" #n \
    "] padding=0, "
#define MAX_N(n) WINDOW_N(n) "int[" #n "] dilation=1, bool ceil_mode=False)"
#define RESULT(name, args, result, rule, cast)                                 \
    FLAGGED(name, args, result, rule, "fn", cast)
#define FLAGGED(name, args, result, rule, flags, policy)                       \
    LP_EXPANDED(name, #name "(" args " -> " result " @" flags, rule,           \
                .cast = LP_CAST_##policy)
#define PAIR "(Tensor values, Tensor indices)"
#define POOL(n, cast)                                                          \
    RESULT(max_pool##n##d, MAX_N(n), "Tensor", expand_max_pool, cast)          \
    RESULT(max_pool##n##d_with_indices, MAX_N(n), PAIR, expand_max_pool,       \
           AS_IS)                                                              \
    RESULT(adaptive_avg_pool##n##d, "Tensor input, int[" #n "] output_size)",  \
           "Tensor", expand_adaptive_avg, cast)                                \
    FLAGGED(adaptive_max_pool##n##d, "Tensor input, int[" #n "] output_size)", \
            "Tensor", expand_adaptive_max_pool, "n", cast)                     \
    FLAGGED(adaptive_max_pool##n##d_with_indices,                              \
            "Tensor input, int[" #n "] output_size)", PAIR,                    \
            expand_adaptive_max_pool,                                          \
            "n\nadaptive_max_pool" #n "d(Tensor input, int[" #n                \
            "] output_size) -> " PAIR " @f",                                   \
            cast) /* PyTorch's has both */
POOL(1, AS_IS)
POOL(2, AS_IS)
POOL(3, WIDE)
#define AVG_N(n) WINDOW_N(n) "bool ceil_mode=False, bool count_include_pad=True"
RESULT(avg_pool1d, AVG_N(1) ")", "Tensor", expand_avg_1d, AS_IS)
FLAGGED(avg_pool2d, AVG_N(2) ", int? divisor_override=None)", "Tensor",
        expand_avg_pool, "fno", AS_IS)
FLAGGED(avg_pool3d, AVG_N(3) ", int? divisor_override=None)", "Tensor",
        expand_avg_pool, "fno", WIDE)
