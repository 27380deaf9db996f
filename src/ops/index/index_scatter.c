/* Single elements by index along one dimension: gather and the scatters.
 * Several additions to one element are made in the order of the index,
 * whatever the number of threads. */
#include <string.h>

#include "src/kernel/copy/hooks.h"
#include "src/ops/index/index.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"

/* ---- gather, scatter, scatter_add ---------------------------------------- */
/* Index no larger than `t` except along dim. */
static LpStatus check_sizes(LpInfer *x, const LpType *t, const char *what,
                            int64_t dim, bool along)
{
    const LpType *index = &x->in[1];
    int n = index->ndim < 1 ? 1 : index->ndim, m = t->ndim < 1 ? 1 : t->ndim;
    LP_FAIL_IF(n != m, x->err, LP_E_RUNTIME,
               "%s: Index tensor must have the same number of dimensions as %s "
               "tensor, got %d and %d",
               x->op->name, what, index->ndim, t->ndim);
    for (int d = 0; d < index->ndim && d < t->ndim; d++)
        LP_FAIL_IF((along || d != dim) && index->shape[d] > t->shape[d], x->err,
                   LP_E_RUNTIME,
                   "%s: expected index %s to be no larger than %s %s%s",
                   x->op->name, lp_shape_str(index), what, lp_shape_str(t),
                   along ? "" : " apart from the dimension");
    return LP_OK;
}

static LpStatus infer_gather(LpInfer *x)
{
    LP_TRY(lp_check_index(x, 1, "index"));
    LP_TRY(lp_wrap_dim(&x->attr[LP_INDEX_DIM].i, x->in[0].ndim, x->err));
    if (lp_numel(&x->in[1]) > 0)
        LP_TRY(
            check_sizes(x, &x->in[0], "self", x->attr[LP_INDEX_DIM].i, false));
    x->out[0] = x->in[1];
    x->out[0].dtype = x->in[0].dtype;
    return LP_OK;
}

static void grad_gather(LpGrad *g)
{
    LpVal z = lp_zeros_as(g->b, g->in[0], lp_dtype_of(g->b, g->dout[0]));
    g->din[0] = lp_emit(g->b, LP_OP_scatter_add,
                        (LpVal[]){z, g->in[1], g->dout[0]}, 3, g->attr);
}

LP_PRIMITIVE(gather,
             "gather(Tensor self, int dim, Tensor index) -> Tensor @fmo",
             infer_gather, lp_gather_prepare, lp_rule_lookup,
             .flags = LP_OPF_EXACT, .grad = grad_gather, .grad_in = 1 << 1)

static LpStatus infer_scatter_elements(LpInfer *x)
{
    LP_TRY(lp_check_index(x, 1, "index"));
    LP_TRY(lp_wrap_dim(&x->attr[LP_INDEX_DIM].i, x->in[0].ndim, x->err));
    bool number = x->in[2].wrapped;
    if (lp_numel(&x->in[1]) > 0) {
        LP_TRY(
            check_sizes(x, &x->in[0], "self", x->attr[LP_INDEX_DIM].i, false));
        if (!number)
            LP_TRY(check_sizes(x, &x->in[2], "src", x->attr[LP_INDEX_DIM].i,
                               true));
    }
    LP_FAIL_IF(!number && x->in[0].dtype != x->in[2].dtype, x->err,
               LP_E_RUNTIME,
               "%s(): Expected self.dtype (%s) to be equal to src.dtype (%s)",
               x->op->name, lp_dtype_name(x->in[0].dtype),
               lp_dtype_name(x->in[2].dtype));
    x->out[0] = x->in[0];
    return LP_OK;
}

static LpVal at_index(LpGrad *g, LpVal v)
{
    return lp_emit(g->b, LP_OP_gather, (LpVal[]){v, g->in[1]}, 2, g->attr);
}

/* The gradient of src has src's sizes: zero where no index is. */
static LpVal pad_to_src(LpGrad *g, LpVal v)
{
    if (v == LP_NOVAL || lp_failed(g->b))
        return v;
    LpType src = lp_type_of(g->b, g->in[2]);
    if (src.ndim == 0 || lp_type(g->b, v)->ndim == 0)
        return lp_reshape_as(g->b, v, &src);
    for (int i = src.ndim - 1; i >= 0; i--) {
        LpType t = lp_type_of(g->b, v);
        int64_t n = t.shape[i];
        if (n == src.shape[i])
            continue;
        t.shape[i] = src.shape[i];
        LpAttr a[] = {lp_attr_ints(t.shape, t.ndim), lp_attr_int(i),
                      lp_attr_int(0), lp_attr_int(n), lp_attr_int(1)};
        v = lp_emit(g->b, LP_OP_slice_backward, &v, 1, a);
        if (lp_failed(g->b))
            return LP_NOVAL;
    }
    return v;
}

static bool has_src(LpGrad *g)
{
    return g->need[2] && !lp_is_imm(g->in[2]);
}

static void grad_scatter_elements(LpGrad *g)
{
    if (g->need[0])
        g->din[0] = lp_emit(g->b, LP_OP_scatter,
                            (LpVal[]){g->dout[0], g->in[1], lp_immi(g->b, 0)},
                            3, g->attr);
    if (has_src(g))
        g->din[2] = pad_to_src(g, at_index(g, g->dout[0]));
}

static LpStatus prepare_scatter(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    return lp_scatter_elements(r, LP_SCATTER_SET, true, k, e);
}

LP_PRIMITIVE(scatter,
             "scatter(Tensor self, int dim, Tensor index, Value src) -> Tensor "
             "@fmio",
             infer_scatter_elements, prepare_scatter, lp_rule_lookup_add,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_scatter_elements,
             .grad_in = 1 << 1)

static void grad_scatter_add(LpGrad *g)
{
    if (g->need[0])
        g->din[0] = g->dout[0];
    if (has_src(g))
        g->din[2] = pad_to_src(g, at_index(g, g->dout[0]));
}

static LpStatus prepare_scatter_add(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    return lp_scatter_elements(r, LP_SCATTER_SUM, true, k, e);
}

LP_PRIMITIVE(scatter_add,
             "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> "
             "Tensor @fmio",
             infer_scatter_elements, prepare_scatter_add, lp_rule_lookup_add,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_scatter_add,
             .grad_in = 1 << 1)

/* ---- scatter_reduce ------------------------------------------------------ */
static const char *const reduces[] = {
    [LP_SCATTER_SUM] = "sum",   [LP_SCATTER_PROD] = "prod",
    [LP_SCATTER_MEAN] = "mean", [LP_SCATTER_AMAX] = "amax",
    [LP_SCATTER_AMIN] = "amin",
};

static int find_reduce(const char *name)
{
    for (int i = LP_SCATTER_SUM; i <= LP_SCATTER_AMIN; i++)
        if (strcmp(name, reduces[i]) == 0)
            return i;
    return -1;
}

static LpStatus infer_scatter_reduce(LpInfer *x)
{
    LP_FAIL_IF(find_reduce(x->attr[LP_SCATTER_REDUCE_REDUCE].str) < 0, x->err,
               LP_E_RUNTIME,
               "reduce argument must be either sum, prod, mean, amax or amin, "
               "got %s.",
               x->attr[LP_SCATTER_REDUCE_REDUCE].str);
    return infer_scatter_elements(x);
}

static LpVal scatter_sum(LpGrad *g, LpVal self, LpVal src)
{
    return lp_emit(g->b, LP_OP_scatter_add, (LpVal[]){self, g->in[1], src}, 3,
                   g->attr);
}

static LpVal truth(LpGrad *g, int op, LpVal x, LpVal y)
{
    LpVal v = lp_op2(g->b, op, x, y);
    return lp_failed(g->b) ? LP_NOVAL
                           : lp_cast(g->b, v, lp_dtype_of(g->b, g->dout[0]));
}

/* src cut to the index's sizes. */
static LpVal src_at_index(LpGrad *g)
{
    LpVal v = g->in[2];
    LpType index = lp_type_of(g->b, g->in[1]);
    if (index.ndim != lp_type(g->b, v)->ndim) /* one of them is 0-d */
        return lp_reshape_as(g->b, v, &index);
    for (int i = 0; i < index.ndim && !lp_failed(g->b); i++)
        if (lp_type(g->b, v)->shape[i] != index.shape[i])
            v = lp_slice(g->b, v, i, 0, index.shape[i], 1);
    return v;
}

/* The extreme's gradient is shared by all that are equal to it. */
static void grad_extreme(LpGrad *g, LpVal *dself, LpVal *dsrc)
{
    LpVal src = src_at_index(g);
    LpVal self_is = truth(g, LP_OP_eq, g->in[0], g->out[0]);
    LpVal src_is = truth(g, LP_OP_eq, src, at_index(g, g->out[0]));
    LpVal share = lp_div(g->b, g->dout[0], scatter_sum(g, self_is, src_is));
    *dself = lp_mul(g->b, self_is, share);
    *dsrc = lp_mul(g->b, src_is, at_index(g, share));
}

static void grad_mean(LpGrad *g, LpVal *dself, LpVal *dsrc)
{
    LpDtype t = lp_dtype_of(g->b, g->dout[0]);
    LpType self = lp_type_of(g->b, g->in[0]);
    LpType index = lp_type_of(g->b, g->in[1]);
    self.dtype = index.dtype = t;
    LpVal n = scatter_sum(
        g,
        lp_full(g->b, &self, lp_int(g->attr[LP_SCATTER_REDUCE_INCLUDE_SELF].i)),
        lp_full(g->b, &index, lp_int(1)));
    n = lp_op2(g->b, LP_OP_maximum, n, lp_full(g->b, &self, lp_int(1)));
    LpVal share = lp_div(g->b, g->dout[0], n);
    *dself = share;
    *dsrc = at_index(g, share);
}

/* Products without a factor: divided out, except that a single zero gets the
 * product of the others. */
static void grad_prod(LpGrad *g, LpVal *dself, LpVal *dsrc)
{
    LpBuilder *b = g->b;
    LpVal src = src_at_index(g), zero = lp_immi(b, 0), one = lp_immi(b, 1);
    LpAttr a[] = {g->attr[LP_SCATTER_REDUCE_DIM],
                  g->attr[LP_SCATTER_REDUCE_REDUCE],
                  g->attr[LP_SCATTER_REDUCE_INCLUDE_SELF]};
    LpVal self_zero = lp_op2(b, LP_OP_eq, g->in[0], zero);
    LpVal self1 = lp_where(b, self_zero, one, g->in[0]);
    LpVal with1 =
        lp_emit(b, LP_OP_scatter_reduce, (LpVal[]){self1, g->in[1], src}, 3, a);
    *dself = lp_div(b, lp_mul(b, g->dout[0], with1), self1);
    LpVal src_zero = lp_op2(b, LP_OP_eq, src, zero);
    LpVal count = truth(g, LP_OP_eq, src, zero);
    if (lp_failed(b))
        return;
    LpVal none = lp_zeros_as(b, g->in[0], lp_dtype_of(b, g->dout[0]));
    count = at_index(g, scatter_sum(g, none, count));
    LpVal single = lp_op2(b, LP_OP_eq, count, one);
    LpVal lone = lp_where(b, src_zero, single, src_zero);
    LpVal src1 = lp_where(b, lone, one, src);
    LpVal others = lp_emit(b, LP_OP_scatter_reduce,
                           (LpVal[]){g->in[0], g->in[1], src1}, 3, a);
    LpVal rest = lp_div(b, at_index(g, lp_mul(b, g->dout[0], g->out[0])),
                        lp_where(b, src_zero, one, src));
    *dsrc = lp_where(b, lone, at_index(g, lp_mul(b, g->dout[0], others)), rest);
}

static void grad_scatter_reduce(LpGrad *g)
{
    LpVal dself = g->dout[0], dsrc = LP_NOVAL;
    switch (find_reduce(g->attr[LP_SCATTER_REDUCE_REDUCE].str)) {
    case LP_SCATTER_SUM:
        dsrc = at_index(g, g->dout[0]);
        break;
    case LP_SCATTER_PROD:
        grad_prod(g, &dself, &dsrc);
        break;
    case LP_SCATTER_MEAN:
        grad_mean(g, &dself, &dsrc);
        break;
    default:
        grad_extreme(g, &dself, &dsrc);
    }
    if (g->need[0] && !g->attr[LP_SCATTER_REDUCE_INCLUDE_SELF].i)
        dself =
            lp_emit(g->b, LP_OP_scatter,
                    (LpVal[]){dself, g->in[1], lp_immi(g->b, 0)}, 3, g->attr);
    if (g->need[0])
        g->din[0] = dself;
    if (g->need[2])
        g->din[2] = pad_to_src(g, dsrc);
}

static LpStatus prepare_scatter_reduce(const LpKernelReq *r, LpKernel *k,
                                       LpErr *e)
{
    return lp_scatter_elements(
        r, (LpScatterHow)find_reduce(r->attr[LP_SCATTER_REDUCE_REDUCE].str),
        r->attr[LP_SCATTER_REDUCE_INCLUDE_SELF].i != 0, k, e);
}

LP_PRIMITIVE(scatter_reduce,
             "scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, "
             "str reduce, *, bool include_self=True) -> Tensor @fmio",
             infer_scatter_reduce, prepare_scatter_reduce, lp_rule_lookup_add,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_scatter_reduce,
             .grad_in = 1 << 0 | 1 << 1 | 1 << 2, .grad_out = 1)

/* ---- scatter with a reduction -------------------------------------------- */
/* reduce is "add" or "multiply"; a number is spread over the index. */
LP_FORMULA(scatter_by,
           "scatter.reduce(Tensor self, int dim, Tensor index, Value src, *, "
           "str reduce) -> Tensor @fmio")
{
    const char *how = attr[1].str;
    bool add = strcmp(how, "add") == 0;
    LpVal src = in[2];
    if (!add && strcmp(how, "multiply") != 0)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "reduce argument must be either add or multiply, got %s.", how);
    if (lp_is_imm(src)) {
        LpType t = lp_type_of(b, in[1]);
        t.dtype = lp_dtype_of(b, in[0]);
        src = lp_full(b, &t, b->imm(b, src));
    }
    LpAttr a[] = {attr[0], lp_attr_str(add ? "sum" : "prod"),
                  lp_attr_bool(true)};
    return lp_emit(b, LP_OP_scatter_reduce, (LpVal[]){in[0], in[1], src}, 3, a);
}
