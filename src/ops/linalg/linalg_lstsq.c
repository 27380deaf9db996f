/* Least squares. The residuals of some drivers are there only where the ranks
 * are full, so their shape depends on data. */
#include <string.h>

#include "src/kernel/linalg/linalg_kernel.h"
#include "src/ops/layout_cost.h"
#include "src/ops/linalg/linalg.h"

static LpStatus infer_lstsq(LpInfer *x)
{
    LpType t = x->in[0], r = x->in[1];
    LpLstsqDriver d = lp_lstsq_driver(x->attr[LP_LSTSQ_DRIVER].str);
    const char *who = "torch.linalg.lstsq";
    LP_TRY(lp_check_matrix(x->err, who, &t));
    LP_TRY(lp_check_batch(x->err, who, "A", &t, &r));
    LP_FAIL_IF(r.dtype != t.dtype || lp_rows(&r) != lp_rows(&t), x->err,
               LP_E_RUNTIME,
               "%s: B is %s with %lld rows; it must be of A's dtype %s with "
               "as many rows, %lld",
               who, lp_dtype_name(r.dtype), (long long)lp_rows(&r),
               lp_dtype_name(t.dtype), (long long)lp_rows(&t));
    bool vectors = d == LP_GELSD || d == LP_GELSS;
    LpType none = {.ndim = 1}, batch = t;
    batch.ndim -= 2;
    x->out[0] = r;
    x->out[0].shape[r.ndim - 2] = lp_cols(&t);
    x->out[1] = d == LP_GELS ? none : batch;
    x->out[1].dtype = LP_I64;
    batch.shape[batch.ndim++] =
        lp_rows(&t) < lp_cols(&t) ? lp_rows(&t) : lp_cols(&t);
    x->out[2] = vectors ? batch : none;
    x->out[2].dtype = t.dtype;
    return lp_shape_check(&x->out[0], x->err);
}

/* X = pinv(A) B */
static void grad_lstsq(LpGrad *g)
{
    LpBuilder *b = g->b;
    if (!g->dout[0])
        return;
    LpAttr a = lp_attr_bool(false);
    LpVal p = lp_emit(b, LP_OP_pinv_matrix,
                      (LpVal[]){g->in[0], LP_NOVAL, LP_NOVAL}, 3, &a);
    g->din[1] = lp_matmul(b, lp_mt(b, p), g->dout[0]);
    if (g->need[0]) {
        LpVal gp = lp_matmul(b, g->dout[0], lp_mt(b, g->in[1]));
        g->din[0] = lp_pinv_grad(b, g->in[0], p, gp);
    }
}

LP_PRIMITIVE(lstsq_matrix,
             "lstsq_matrix(Tensor A, Tensor B, str driver, float? rcond) -> "
             "(Tensor solution, Tensor rank, Tensor singular_values) @p",
             infer_lstsq, lp_lstsq_prepare, lp_rule_linalg, .grad = grad_lstsq,
             .grad_in = 3, .data = &lp_linalg_two)

/* Residuals are given if all matrices have full rank: the shape depends on
 * the ranks. Operands: residuals, ranks; attribute: the full rank */
static LpStatus infer_residuals(LpInfer *x)
{
    LP_FAIL_IF(x->in[1].dtype != LP_I64, x->err, LP_E_TYPE,
               "%s: the ranks have the type %s; it must be int64", x->op->name,
               lp_dtype_name(x->in[1].dtype));
    x->out[0] = x->in[0];
    return LP_OK;
}

static LP_KERNEL_MEASURE(measure_residuals)
{
    LpType t = {.dtype = LP_I64, .ndim = r->in[1].ndim};
    bool full = true;
    memcpy(t.shape, r->in[1].shape, sizeof t.shape);
    int64_t n = lp_numel(&t), one;
    for (int64_t i = 0; i < n; i++) {
        LpDesc d = r->in[1], to = {.dtype = LP_I64};
        int64_t left = i, off = 0;
        for (int k = d.ndim - 1; k >= 0; k--) {
            off += left % d.shape[k] * d.strides[k];
            left /= d.shape[k];
        }
        d.ndim = 0;
        lp_copy_strided(&d, (const int64_t *)in[1] + off, &to, &one);
        full = full && one == r->attr[0].i;
    }
    if (!full)
        *out = (LpType){.dtype = r->in[0].dtype, .ndim = 1};
    return LP_OK;
}

static LP_KERNEL_PREPARE(prepare_residuals)
{
    LpDesc from = r->in[0];
    if (lp_desc_numel(&r->out[0]) == 0)
        return lp_fill_kernel(&r->out[0], lp_int(0), 1, k);
    return lp_copy_kernel(&from, 0, &r->out[0], 1, k);
}

static void grad_residuals(LpGrad *g)
{
    LpType t = lp_type_of(g->b, g->in[0]);
    if (lp_shape_eq(&t, lp_type(g->b, g->dout[0])))
        g->din[0] = g->dout[0];
}

LP_PRIMITIVE(lstsq_residuals,
             "lstsq_residuals(Tensor residuals, Tensor rank, int full) -> "
             "Tensor @p",
             infer_residuals, prepare_residuals, lp_rule_copy,
             .flags = LP_OPF_DYNAMIC, .measure = measure_residuals,
             .grad = grad_residuals)

static LpVal residuals(LpBuilder *b, const LpVal *in, const LpVal *r,
                       LpLstsqDriver d)
{
    LpType t = lp_type_of(b, in[0]);
    int64_t flat = -1;
    if (lp_failed(b) || lp_rows(&t) <= lp_cols(&t) || d == LP_GELSY)
        return lp_slice(b, lp_reshape(b, r[0], &flat, 1), 0, 0, 0, 1);
    LpVal left = lp_sub(b, in[1], lp_matmul(b, in[0], r[0]));
    left = lp_op1(b, LP_OP_square, left);
    left = lp_sum(b, left, (int64_t[]){-2}, 1, false);
    LpAttr a = lp_attr_int(lp_cols(&t));
    return d == LP_GELS ? left
                        : lp_emit(b, LP_OP_lstsq_residuals,
                                  (LpVal[]){left, r[1]}, 2, &a);
}

static bool lstsq_fits(LpBuilder *b, const LpType *t, const LpType *r,
                       bool vector, const char *driver)
{
    const char *who = "torch.linalg.lstsq";
    bool fits =
        (vector || r->ndim == t->ndim) && lp_sizes_eq(r, t, t->ndim - 2);
    if (lp_lstsq_driver(driver) > LP_GELSS)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: parameter `driver` should be one of (gels, gelsy, gelsd, "
                "gelss)",
                who);
    else if (r->dtype != t->dtype)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: Expected input and other to have the same dtype, but got "
                "%s and %s",
                who, lp_dtype_name(t->dtype), lp_dtype_name(r->dtype));
    else if (!fits)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: other must have the batch dimensions of input, and as "
                "many dimensions as it or one less, got the shapes %s and %s",
                who, lp_shape_str(r), lp_shape_str(t));
    else if (r->shape[t->ndim - 2] != lp_rows(t))
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: input.size(-2) should match other.size(-%d), got the "
                "shapes %s and %s",
                who, vector ? 1 : 2, lp_shape_str(t), lp_shape_str(r));
    return !lp_failed(b);
}

LP_COMPOSITE(lstsq,
             "lstsq.own(Tensor A, Tensor B, float? rcond=None, str? "
             "driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, "
             "Tensor singular_values) @p\n"
             "lstsq(Tensor A, Tensor B, float? rcond=None, *, str? "
             "driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, "
             "Tensor singular_values) @lc",
             .cast = LP_CAST_WIDE)
{
    LpType t = lp_type_of(b, in[0]), tb = lp_type_of(b, in[1]);
    const char *driver = lp_attr_none(&attr[1]) ? "gelsy" : attr[1].str;
    if (lp_failed(b))
        return;
    if (t.ndim < 2 || tb.ndim < 1) {
        lp_fail(b->err, LP_E_RUNTIME,
                t.ndim < 2 ? "torch.linalg.lstsq: input must have at least 2 "
                             "dimensions, got %d."
                           : "torch.linalg.lstsq: other must have at least 1 "
                             "dimension, got %d.",
                t.ndim < 2 ? t.ndim : tb.ndim);
        return;
    }
    bool vector = tb.ndim == t.ndim - 1;
    if (lp_check_matrix(b->err, "torch.linalg.lstsq", &t) != LP_OK ||
        !lstsq_fits(b, &t, &tb, vector, driver))
        return;
    LpVal v[] = {in[0], vector ? lp_unsqueeze(b, in[1], -1) : in[1]}, r[3];
    LpAttr a[] = {lp_attr_str(driver), attr[0]};
    if (!lp_emit_n(b, LP_OP_lstsq_matrix, v, 2, a, r))
        return;
    LpType to = lp_type_of(b, r[0]);
    out[0] = vector ? lp_reshape(b, r[0], to.shape, to.ndim - 1) : r[0];
    out[1] = residuals(b, v, r, lp_lstsq_driver(driver));
    out[2] = r[1];
    out[3] = lp_op1(b, LP_OP_detach, r[2]);
}
