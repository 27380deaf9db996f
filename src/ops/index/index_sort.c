/* Sorting and searching. Equal values keep their order (every sort is
 * stable), NaN counts as the largest. */
#include <string.h>

#include "src/kernel/copy/gather_sort.h"
#include "src/ops/index/index.h"
#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* The values came from where result 1 says. */
static void grad_sorted(LpGrad *g, int64_t dim)
{
    LpAttr a = lp_attr_int(dim);
    LpVal z = lp_zeros_as(g->b, g->in[0], lp_dtype_of(g->b, g->dout[0]));
    g->din[0] = lp_emit(g->b, LP_OP_scatter_add,
                        (LpVal[]){z, g->out[1], g->dout[0]}, 3, &a);
}

/* ---- sort, argsort ------------------------------------------------------- */
static LpStatus infer_sort(LpInfer *x)
{
    LP_TRY(lp_wrap_dim(&x->attr[LP_SORT_DIM].i, x->in[0].ndim, x->err));
    x->out[0] = x->out[1] = x->in[0];
    x->out[1].dtype = LP_I64;
    return LP_OK;
}

static void grad_sort(LpGrad *g)
{
    if (g->dout[0])
        grad_sorted(g, g->attr[LP_SORT_DIM].i);
}

LP_PRIMITIVE(sort,
             "sort(Tensor self, int dim=-1, bool descending=False, bool "
             "stable=False) -> (Tensor values, Tensor indices) @fmo",
             infer_sort, lp_sort_prepare, lp_rule_sort, .grad = grad_sort,
             .grad_out = 1 << 1)

LP_FORMULA(argsort,
           "argsort(Tensor self, int dim=-1, bool descending=False, bool "
           "stable=False) -> Tensor @fmo")
{
    LpVal v[2];
    return lp_emit_n(b, LP_OP_sort, in, 1, attr, v) ? v[1] : LP_NOVAL;
}

LP_FORMULA(msort, "msort(Tensor self) -> Tensor @fmo")
{
    LpVal v[2];
    LpAttr a[] = {lp_attr_int(0), lp_attr_bool(false), lp_attr_bool(true)};
    return lp_emit_n(b, LP_OP_sort, in, 1, a, v) ? v[0] : LP_NOVAL;
}

/* ---- topk ---------------------------------------------------------------- */
static LpStatus infer_topk(LpInfer *x)
{
    LpAttr *a = x->attr;
    const LpType *in = &x->in[0];
    LP_TRY(lp_wrap_dim(&a[LP_TOPK_DIM].i, in->ndim, x->err));
    int64_t n = in->ndim == 0 ? 1 : in->shape[a[LP_TOPK_DIM].i];
    LP_FAIL_IF(a[LP_TOPK_K].i < 0 || a[LP_TOPK_K].i > n, x->err, LP_E_RUNTIME,
               "selected index k out of range: k is %lld, the dimension has "
               "%lld elements",
               (long long)a[LP_TOPK_K].i, (long long)n);
    LP_FAIL_IF(in->dtype == LP_BOOL, x->err, LP_E_NOT_IMPLEMENTED,
               "\"topk_impl_loop\" not implemented for 'Bool'");
    x->out[0] = *in;
    if (in->ndim > 0)
        x->out[0].shape[a[LP_TOPK_DIM].i] = a[LP_TOPK_K].i;
    x->out[1] = x->out[0];
    x->out[1].dtype = LP_I64;
    return LP_OK;
}

static void grad_topk(LpGrad *g)
{
    if (g->dout[0])
        grad_sorted(g, g->attr[LP_TOPK_DIM].i);
}

/* The results are in order whether or not `sorted` asks for it. */
LP_PRIMITIVE(topk,
             "topk(Tensor self, int k, int dim=-1, bool largest=True, bool "
             "sorted=True) -> (Tensor values, Tensor indices) @fmo",
             infer_topk, lp_topk_prepare, lp_rule_sort, .grad = grad_topk,
             .grad_out = 1 << 1)

/* ---- searchsorted, bucketize --------------------------------------------- */
static LpStatus infer_searchsorted(LpInfer *x)
{
    const LpType *e = &x->in[0], *v = &x->in[1], *by = &x->in[2];
    if (x->op->n_attr > 2 && !lp_attr_none(&x->attr[LP_SEARCHSORTED_SIDE])) {
        const char *side = x->attr[LP_SEARCHSORTED_SIDE].str;
        bool right = side[0] == 'r';
        LP_FAIL_IF(strcmp(side, right ? "right" : "left") != 0, x->err,
                   LP_E_RUNTIME,
                   "searchsorted(): side can only be 'left' or 'right' but got "
                   "%s",
                   side);
        LP_FAIL_IF(!right && x->attr[LP_SEARCHSORTED_RIGHT].i, x->err,
                   LP_E_RUNTIME,
                   "searchsorted(): side and right can't be set to opposites, "
                   "got side of left while right was True");
        x->attr[LP_SEARCHSORTED_RIGHT] = lp_attr_bool(right);
    }
    LP_FAIL_IF(lp_infer_promote(x->in, 2) == LP_BOOL, x->err,
               LP_E_NOT_IMPLEMENTED,
               "\"searchsorted\" not implemented for 'Bool': the boundaries or "
               "the values must have a number type");
    bool fits = e->ndim == 1 || (e->ndim > 0 && e->ndim == v->ndim);
    LP_FAIL_IF(!fits || !lp_sizes_eq(e, v, e->ndim - 1), x->err, LP_E_RUNTIME,
               "searchsorted(): boundaries tensor should be 1 dimension or the "
               "first N-1 dimensions of boundaries tensor and input value "
               "tensor must match, but we got boundaries tensor %s and input "
               "value tensor %s",
               lp_shape_str(e), lp_shape_str(v));
    if (x->n_in > 2 && by->dtype != LP_DT_NONE)
        LP_FAIL_IF(by->dtype != LP_I64 || !lp_shape_eq(e, by), x->err,
                   LP_E_RUNTIME,
                   "searchsorted(): sorter must be a tensor of int64 and of "
                   "the boundaries' shape %s",
                   lp_shape_str(e));
    x->out[0] = *v;
    x->out[0].wrapped = false;
    x->out[0].dtype = x->attr[LP_SEARCHSORTED_OUT_INT32].i ? LP_I32 : LP_I64;
    return LP_OK;
}

LP_PRIMITIVE(searchsorted,
             "searchsorted(Tensor sorted_sequence, Value self, Tensor? "
             "sorter=None, *, bool out_int32=False, bool right=False, str? "
             "side=None) -> Tensor @p\n"
             "searchsorted.input(Tensor sorted_sequence, Value self, *, bool "
             "out_int32=False, bool right=False, str? side=None, Tensor? "
             "sorter=None) -> Tensor @fo",
             infer_searchsorted, lp_searchsorted_prepare, lp_rule_lookup,
             .no_grad = "positions have no gradient")

LP_FORMULA(bucketize, "bucketize(Value self, Tensor boundaries, *, bool "
                      "out_int32=False, bool right=False) -> Tensor @fo")
{
    LpAttr a[] = {attr[0], attr[1], LP_NONE_ATTR};
    if (lp_type(b, in[1])->ndim != 1)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "bucketize(): boundaries tensor must be 1 dimension, "
                         "but got dim(%d)",
                         lp_type(b, in[1])->ndim);
    return lp_emit(b, LP_OP_searchsorted, (LpVal[]){in[1], in[0], LP_NOVAL}, 3,
                   a);
}

/* ---- histc --------------------------------------------------------------- */
static LpStatus infer_histc(LpInfer *x)
{
    double lo = lp_scalar_f(x->attr[LP_HISTC_MIN].s),
           hi = lp_scalar_f(x->attr[LP_HISTC_MAX].s);
    LP_FAIL_IF(!lp_is_float(x->in[0].dtype), x->err, LP_E_NOT_IMPLEMENTED,
               "\"histogram_cpu\" not implemented for '%s'",
               lp_dtype_name(x->in[0].dtype));
    LP_FAIL_IF(x->attr[LP_HISTC_BINS].i < 1, x->err, LP_E_RUNTIME,
               "torch.histc(): bins must be > 0, but got %lld",
               (long long)x->attr[LP_HISTC_BINS].i);
    LP_FAIL_IF(!(lo <= hi), x->err, LP_E_RUNTIME,
               "torch.histc(): max must be larger than min, got [%g, %g]", lo,
               hi);
    x->out[0] = (LpType){.dtype = x->in[0].dtype,
                         .ndim = 1,
                         .shape = {x->attr[LP_HISTC_BINS].i}};
    return LP_OK;
}

LP_PRIMITIVE(histc,
             "histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> "
             "Tensor @fmo",
             infer_histc, lp_histc_prepare, lp_rule_lookup_add,
             .no_grad = "counts have no gradient")
