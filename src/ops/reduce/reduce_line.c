/* Reductions that find a position (argmax, argmin, max and min along a
 * dimension, median, mode) and running sums and extremes. Running products
 * are in reduce_product.c. */
#include "runtime/cost/cost.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/ops/reduce/reduce.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define LIKE (lp_type(g->b, X))

/* 0, 1, … along dimension `dim` of `like`, shape 1 elsewhere, int64. */
static LpVal iota_along(LpBuilder *b, const LpType *like, int dim)
{
    LpType t = *like;
    LpAttr a[4] = {lp_attr_scalar(lp_int(0)),
                   lp_attr_scalar(lp_int(t.shape[dim])),
                   lp_attr_scalar(lp_int(1)), lp_attr_dtype(LP_I64)};
    LpVal v = lp_emit(b, LP_OP_arange, NULL, 0, a);
    for (int d = 0; d < t.ndim; d++)
        t.shape[d] = d == dim ? t.shape[d] : 1;
    return lp_reshape(b, v, t.shape, t.ndim);
}

/* ---- positions ----------------------------------------------------------- */
static LpLineKind kind_of(const LpOp *op)
{
    return *(const LpLineKind *)op->data;
}

static LP_KERNEL_PREPARE(prepare_line)
{
    return lp_line_prepare(r, kind_of(r->op), k, e);
}

/* The int attribute 0 becomes a list of one; 0-d tensors have none. */
static LpStatus infer_position(LpInfer *x)
{
    bool numbers = x->n_out == 1 || kind_of(x->op) == LP_LINE_MEDIAN;
    LP_FAIL_IF(numbers && x->in[0].dtype == LP_BOOL, x->err, LP_E_RUNTIME,
               "%s: the tensor has the type bool; it must be a number type",
               x->op->name);
    LP_TRY(lp_reduce_dims(x));
    LP_FAIL_IF(x->in[0].ndim == 0 && x->attr[LP_REDUCE_DIM].n > 0, x->err,
               LP_E_INDEX, "%s: a tensor without dimensions has none to reduce",
               x->op->name);
    LP_TRY(lp_reduce_nonempty(x, LP_E_INDEX));
    for (int i = 0; i < x->n_out; i++)
        lp_reduce_shape(&x->in[0], &x->attr[LP_REDUCE_DIM],
                        x->attr[LP_REDUCE_KEEPDIM].i, &x->out[i]);
    x->out[x->n_out - 1].dtype = LP_I64;
    return LP_OK;
}

/* dy goes to the element that was taken. */
static void grad_position(LpGrad *g)
{
    LpType like = *LIKE;
    if (like.ndim == 0 || DY == LP_NOVAL) {
        g->din[0] = DY;
        return;
    }
    LpVal dy = lp_reduce_restore(g->b, DY, &like, &g->attr[LP_REDUCE_DIM]);
    LpVal at =
        lp_reduce_restore(g->b, g->out[1], &like, &g->attr[LP_REDUCE_DIM]);
    LpVal all = iota_along(g->b, &like, (int)g->attr[LP_REDUCE_DIM].v[0]);
    g->din[0] = WHERE(EQ(all, at), dy, K(0));
}

#define ARG(name, kind, row)                                                   \
    LP_PRIMITIVE(name,                                                         \
                 #name ".own(Tensor self, int[1]? dim=None, bool keepdim="     \
                       "False) -> Tensor @p\n" #name                           \
                       "(Tensor self, int? dim=None, bool keepdim=False) -> "  \
                       "Tensor @fmo",                                          \
                 infer_position, prepare_line, lp_rule_position,               \
                 .cost_row = row, .no_grad = "positions have no gradient",     \
                 .data = &(const LpLineKind){kind})
ARG(argmax, LP_LINE_ARGMAX, LP_RED_MAX)
ARG(argmin, LP_LINE_ARGMIN, LP_RED_MIN)

#define ALONG(op, name, kind, rule, row)                                       \
    LP_PRIMITIVE(op,                                                           \
                 #op "(Tensor self, int[1] dim, bool keepdim=False) -> "       \
                     "(Tensor values, Tensor indices) @p\n" #name              \
                     ".dim(Tensor self, int dim, bool keepdim=False) -> "      \
                     "(Tensor values, Tensor indices) @fmo",                   \
                 infer_position, prepare_line, rule, .cost_row = row,          \
                 .flags = LP_OPF_EXACT, .grad = grad_position, .grad_out = 2,  \
                 .data = &(const LpLineKind){kind})
ALONG(max_dim, max, LP_LINE_MAX, lp_rule_position, LP_RED_MAX)
ALONG(min_dim, min, LP_LINE_MIN, lp_rule_position, LP_RED_MIN)
ALONG(median_dim, median, LP_LINE_MEDIAN, lp_rule_sorted_line, 0)

LP_PRIMITIVE(mode,
             "mode.own(Tensor self, int[1] dim=-1, bool keepdim=False) -> "
             "(Tensor values, Tensor indices) @p\n"
             "mode(Tensor self, int dim=-1, bool keepdim=False) -> "
             "(Tensor values, Tensor indices) @fmo",
             infer_position, prepare_line, lp_rule_sorted_line,
             .grad = grad_position, .grad_out = 2,
             .data = &(const LpLineKind){LP_LINE_MODE})

/* ---- running extremes ---------------------------------------------------- */
static LpStatus infer_extremes(LpInfer *x)
{
    LP_TRY(lp_reduce_dims(x));
    x->out[0] = x->out[1] = x->in[0];
    x->out[0].wrapped = x->out[1].wrapped = false;
    x->out[1].dtype = LP_I64;
    return LP_OK;
}

/* dy is added where the extremes came from. */
static void grad_extremes(LpGrad *g)
{
    if (LIKE->ndim == 0 || DY == LP_NOVAL) {
        g->din[0] = DY;
        return;
    }
    LpAttr dim = lp_attr_int(g->attr[LP_RUNNING_DIM].v[0]);
    LpVal zero = lp_zeros_as(g->b, X, lp_dtype_of(g->b, DY));
    g->din[0] = lp_emit(g->b, LP_OP_scatter_add, (LpVal[]){zero, g->out[1], DY},
                        3, &dim);
}

#define RUNNING(name, kind)                                                    \
    LP_PRIMITIVE(name,                                                         \
                 #name ".own(Tensor self, int[1] dim) -> (Tensor values, "     \
                       "Tensor indices) @p\n" #name                            \
                       "(Tensor self, int dim) -> (Tensor values, Tensor "     \
                       "indices) @fmo",                                        \
                 infer_extremes, prepare_line, lp_rule_running_extreme,        \
                 .grad = grad_extremes, .grad_out = 2,                         \
                 .data = &(const LpLineKind){kind})
RUNNING(cummax, LP_LINE_CUMMAX)
RUNNING(cummin, LP_LINE_CUMMIN)

/* ---- running sums -------------------------------------------------------- */
LpStatus lp_infer_running(LpInfer *x)
{
    LP_TRY(lp_reduce_dims(x));
    x->out[0] = x->in[0];
    x->out[0].wrapped = false;
    if (x->attr[LP_CUMSUM_DTYPE].kind == LP_ATTR_DTYPE)
        x->out[0].dtype = (LpDtype)x->attr[LP_CUMSUM_DTYPE].i;
    else if (!lp_is_float(x->in[0].dtype))
        x->out[0].dtype = LP_I64;
    LP_FAIL_IF(x->out[0].dtype == LP_BOOL, x->err, LP_E_NOT_IMPLEMENTED,
               "%s: dtype is bool; it must be a number type", x->op->name);
    return LP_OK;
}

static LP_KERNEL_PREPARE(prepare_cumsum)
{
    LpLineKind kind =
        r->attr[LP_CUMSUM_REVERSE].i ? LP_LINE_CUMSUM_REVERSE : LP_LINE_CUMSUM;
    return lp_line_prepare(r, kind, k, e);
}

static void grad_cumsum(LpGrad *g)
{
    LpAttr a[3] = {g->attr[LP_CUMSUM_DIM], LP_NONE_ATTR,
                   lp_attr_bool(!g->attr[LP_CUMSUM_REVERSE].i)};
    g->din[0] = lp_emit(g->b, LP_OP_cumsum, &g->dout[0], 1, a);
}

/* y_i = x_0 + … + x_i, or x_i + … + x_(n-1) in reverse; the gradient is the
 * other one of dy. */
LP_PRIMITIVE(cumsum,
             "cumsum.own(Tensor self, int[1] dim, ScalarType? dtype=None, bool "
             "reverse=False) -> Tensor @p\n"
             "cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> "
             "Tensor @fmid",
             lp_infer_running, prepare_cumsum, lp_rule_running,
             .cost_row = LP_EW_add, .grad = grad_cumsum)

/* ---- logarithms of running sums ------------------------------------------ */
static LpStatus infer_logsums(LpInfer *x)
{
    LP_TRY(lp_reduce_dims(x));
    LP_FAIL_IF(!lp_is_float(x->in[0].dtype), x->err, LP_E_NOT_IMPLEMENTED,
               "logcumsumexp: the tensor has the type %s; it must be a "
               "floating-point type",
               lp_dtype_name(x->in[0].dtype));
    return lp_view_same(x);
}

static LP_KERNEL_PREPARE(prepare_logsums)
{
    return lp_line_prepare(r,
                           r->attr[LP_RUNNING_REVERSE].i
                               ? LP_LINE_CUMLOGSUM_REVERSE
                               : LP_LINE_CUMLOGSUM,
                           k, e);
}

/* dx_j = sum over i >= j of dy_i exp(x_j - r_i): through logarithms, so that
 * no exponential overflows, for the positive dy less for the negative ones.
 * A dy that is nothing counts as the least number, whose logarithm is
 * finite. */
static void grad_logsums(LpGrad *g)
{
    LpDtype t = lp_type(g->b, X)->dtype;
    LpDtype wide = t == LP_F64 ? LP_F64 : LP_F32;
    LpVal x = lp_cast(g->b, X, wide), r = lp_cast(g->b, R, wide);
    LpVal dy = lp_cast(g->b, DY, wide), part[2];
    LpAttr a[2] = {g->attr[LP_RUNNING_DIM],
                   lp_attr_bool(!g->attr[LP_RUNNING_REVERSE].i)};
    for (int i = 0; i < 2; i++) {
        LpVal some = OP2(maximum, i ? NEG(dy) : dy,
                         K(wide == LP_F64 ? 0x1p-1022 : 0x1p-126));
        LpVal v = SUB(OP1(log, some), r);
        v = lp_emit(g->b, LP_OP_logcumsumexp, &v, 1, a);
        part[i] = OP1(exp, ADD(v, x));
    }
    g->din[0] = SUB(part[0], part[1]);
}

/* y_i = log(exp(x_0) + … + exp(x_i)), from the end in reverse */
LP_PRIMITIVE(logcumsumexp,
             "logcumsumexp.own(Tensor self, int[1] dim, bool reverse=False) "
             "-> Tensor @p\n"
             "logcumsumexp(Tensor self, int dim) -> Tensor @fmo",
             infer_logsums, prepare_logsums, lp_rule_running_logsum,
             .grad = grad_logsums, .grad_in = 1, .grad_out = 1)
