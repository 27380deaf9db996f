/* What the rules of linear algebra share (linalg.h). */
#include "src/ops/linalg/linalg.h"

#include "src/ops/cost_ctx.h"
#include "src/ops/layout_cost.h"

/* ---- checks -------------------------------------------------------------- */
LpStatus lp_check_matrix(LpErr *e, const char *who, const LpType *a)
{
    LP_FAIL_IF(a->ndim < 2, e, LP_E_RUNTIME,
               "%s: The input tensor A must have at least 2 dimensions, got %d",
               who, a->ndim);
    LP_FAIL_IF(!lp_is_float(a->dtype), e, LP_E_NOT_IMPLEMENTED,
               "%s: Expected a floating point tensor as input. Got %s", who,
               lp_dtype_name(a->dtype));
    LP_FAIL_IF(a->dtype != LP_F32 && a->dtype != LP_F64, e,
               LP_E_NOT_IMPLEMENTED,
               "%s: Low precision dtypes not supported. Got %s", who,
               lp_dtype_name(a->dtype));
    for (int i = a->ndim - 2; i < a->ndim; i++)
        LP_FAIL_IF(a->shape[i] > INT32_MAX / 16, e, LP_E_RUNTIME,
                   "%s: a side of the matrices is %lld; at most %d are "
                   "supported",
                   who, (long long)a->shape[i], INT32_MAX / 16);
    return LP_OK;
}

LpStatus lp_check_square(LpErr *e, const char *who, const LpType *a)
{
    LP_TRY(lp_check_matrix(e, who, a));
    long long m = a->shape[a->ndim - 2], n = a->shape[a->ndim - 1];
    LP_FAIL_IF(m != n, e, LP_E_RUNTIME,
               "%s: A must be batches of square matrices, but they are %lld by "
               "%lld matrices",
               who, m, n);
    return LP_OK;
}

LpStatus lp_check_system(LpErr *e, const char *who, const LpType *a,
                         const LpType *b, bool left)
{
    LP_TRY(lp_check_square(e, who, a));
    LP_FAIL_IF(b->dtype != a->dtype, e, LP_E_RUNTIME,
               "%s: Expected A and B to have the same dtype, but found A of "
               "type %s and B of type %s instead",
               who, lp_dtype_name(a->dtype), lp_dtype_name(b->dtype));
    LP_FAIL_IF(b->ndim < 2, e, LP_E_RUNTIME,
               "%s: B must have at least 2 dimensions, got %d", who, b->ndim);
    long long n = a->shape[a->ndim - 1];
    long long rows = b->shape[b->ndim - 2], cols = b->shape[b->ndim - 1];
    LP_FAIL_IF((left ? rows : cols) != n, e, LP_E_RUNTIME,
               "%s: Incompatible shapes of A and B for the equation %s "
               "(%lldx%lld and %lldx%lld)",
               who, left ? "AX = B" : "XA = B", n, n, rows, cols);
    LP_FAIL_IF(rows > INT32_MAX / 16 || cols > INT32_MAX / 16, e, LP_E_RUNTIME,
               "%s: a side of B is longer than the supported %d", who,
               INT32_MAX / 16);
    return LP_OK;
}

LpStatus lp_check_batch(LpErr *e, const char *who, const char *name,
                        const LpType *a, const LpType *b)
{
    LP_FAIL_IF(a->ndim != b->ndim || !lp_sizes_eq(a, b, a->ndim - 2), e,
               LP_E_RUNTIME,
               "%s: B and %s must have the same batch dimensions, got the "
               "shapes %s and %s",
               who, name, lp_shape_str(b), lp_shape_str(a));
    return LP_OK;
}

bool lp_is_vector_rhs(const LpType *a, const LpType *b)
{
    return b->ndim == 1 ||
           (b->ndim == a->ndim - 1 && lp_sizes_eq(a, b, b->ndim));
}

/* ---- pieces -------------------------------------------------------------- */
LpVal lp_eye(LpBuilder *b, int64_t rows, int64_t cols, LpDtype t)
{
    LpAttr a[] = {lp_attr_int(rows), lp_attr_int(cols), lp_attr_dtype(t)};
    return lp_emit(b, LP_OP_eye, NULL, 0, a);
}

LpVal lp_eye_like(LpBuilder *b, const LpType *like)
{
    LpType t = *like;
    int64_t n = t.shape[t.ndim - 2];
    t.shape[t.ndim - 1] = n;
    return lp_expand_as(b, lp_eye(b, n, n, t.dtype), &t);
}

LpVal lp_diagonal_of(LpBuilder *b, LpVal x)
{
    LpAttr a[] = {lp_attr_int(0), lp_attr_int(-2), lp_attr_int(-1)};
    return lp_emit(b, LP_OP_diag_embed, &x, 1, a);
}

static int from_end(LpBuilder *b, LpVal x, int dim)
{
    return dim < 0 ? lp_type(b, x)->ndim + dim : dim;
}

LpVal lp_first(LpBuilder *b, LpVal x, int dim, int64_t n)
{
    if (lp_failed(b))
        return LP_NOVAL;
    int d = from_end(b, x, dim);
    return lp_type(b, x)->shape[d] == n ? x : lp_slice(b, x, d, 0, n, 1);
}

LpVal lp_rest(LpBuilder *b, LpVal x, int dim, int64_t from)
{
    if (lp_failed(b))
        return LP_NOVAL;
    int d = from_end(b, x, dim);
    return lp_slice(b, x, d, from, lp_type(b, x)->shape[d], 1);
}

bool lp_same_batch(LpBuilder *b, LpVal *x, LpVal *y)
{
    if (lp_failed(b))
        return false;
    LpType tx = lp_type_of(b, *x), ty = lp_type_of(b, *y), batch = tx, by = ty;
    batch.ndim = (int8_t)(tx.ndim - 2);
    by.ndim = (int8_t)(ty.ndim - 2);
    if (lp_broadcast(&batch, &by, b->err) != LP_OK)
        return false;
    LpVal *v[] = {x, y};
    const LpType *t[] = {&tx, &ty};
    for (int i = 0; i < 2; i++) {
        LpType to = batch;
        to.shape[to.ndim++] = t[i]->shape[t[i]->ndim - 2];
        to.shape[to.ndim++] = t[i]->shape[t[i]->ndim - 1];
        if (!lp_shape_eq(&to, t[i]))
            *v[i] = lp_expand_as(b, *v[i], &to);
    }
    return !lp_failed(b);
}

LpVal lp_triangular(LpBuilder *b, LpVal a, LpVal rhs, bool upper, bool left,
                    bool unit)
{
    LpAttr at[] = {lp_attr_bool(upper), lp_attr_bool(left), lp_attr_bool(unit)};
    return lp_emit(b, LP_OP_triangular, (LpVal[]){a, rhs}, 2, at);
}

LpVal lp_solve(LpBuilder *b, LpVal a, LpVal rhs)
{
    LpAttr at[] = {lp_attr_bool(false), lp_attr_str("linalg.solve")};
    LpVal out[4] = {0};
    lp_emit_n(b, LP_OP_solve_matrix, (LpVal[]){a, rhs}, 2, at, out);
    return out[0];
}

LpVal lp_inverse(LpBuilder *b, LpVal a, bool check, LpVal *info)
{
    LpAttr at[] = {lp_attr_bool(check), lp_attr_str("linalg.inv")};
    LpVal out[2] = {0};
    lp_emit_n(b, LP_OP_inverse_matrix, &a, 1, at, out);
    if (info)
        *info = out[1];
    return out[0];
}

/* ---- cost ---------------------------------------------------------------- */
const double lp_linalg_third = 1.0 / 3, lp_linalg_one = 1, lp_linalg_two = 2,
             lp_linalg_ten = 10, lp_linalg_twenty = 20;

void lp_rule_linalg(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    int64_t elems = 0;
    const LpType *a = &r->in[0];
    double m = (double)a->shape[a->ndim - 2], n = (double)a->shape[a->ndim - 1];
    double macs = *(const double *)r->op->data * m * n * (m < n ? m : n);
    int64_t count = lp_elements(a->shape, a->ndim - 2);
    if (count == 0)
        return;
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i].dtype != LP_DT_NONE)
            elems += lp_numel(&r->in[i]) / count;
    if (r->n_in > 1 && r->in[1].ndim >= 2) /* right-hand sides */
        macs += m * n * (double)r->in[1].shape[r->in[1].ndim - 1];
    macs = macs < 1e18 ? macs : 1e18;
    lp_cost_add(out, lp_cost_serial(&x, LP_COST_FLOAT, count, elems,
                                    (int64_t)macs + 1));
}
