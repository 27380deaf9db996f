/* Distances between rows, by the p-norm. */
#include <math.h>
#include <string.h>

#include "src/ops/linalg/linalg.h"

#define BY_PRODUCT 25 /* rows above which cdist prefers a matrix product */

/* Of each row; 0 where rows have no elements. */
static LpVal row_norm(LpBuilder *b, LpVal x, double p)
{
    int64_t last = -1;
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, x);
    LpAttr a[] = {lp_attr_ints(&last, 1), lp_attr_bool(false),
                  lp_attr_scalar(lp_float(t.shape[t.ndim - 1] ? p : 2)),
                  LP_NONE_ATTR};
    return lp_emit(b, LP_OP_vector_norm, &x, 1, a);
}

LP_FORMULA(dist, "dist(Tensor self, Tensor other, Scalar p=2) -> Tensor @fm")
{
    LpVal apart = lp_sub(b, in[0], in[1]);
    LpAttr a[] = {LP_NONE_ATTR, lp_attr_bool(false), attr[0], LP_NONE_ATTR};
    return lp_emit(b, LP_OP_vector_norm, &apart, 1, a);
}

/* |x - y|^2 = |x|^2 - 2 x y + |y|^2, below 0 by rounding only; the root of 0
 * has the gradient 0. */
static LpVal by_product(LpBuilder *b, LpVal x, LpVal y)
{
    int64_t last = -1;
    LpVal xx = lp_sum(b, lp_mul(b, x, x), &last, 1, true);
    LpVal yy = lp_mt(b, lp_sum(b, lp_mul(b, y, y), &last, 1, true));
    LpVal xy = lp_mul(b, lp_matmul(b, x, lp_mt(b, y)), lp_immf(b, -2));
    LpVal sq = lp_add(b, lp_add(b, xx, yy), xy);
    LpVal far = lp_op2(b, LP_OP_gt, sq, lp_immi(b, 0));
    LpVal root = lp_op1(b, LP_OP_sqrt, lp_where(b, far, sq, lp_immf(b, 1)));
    return lp_where(b, far, root, lp_immf(b, 0));
}

static bool rows_fit(LpBuilder *b, const LpType *x, const LpType *y, double p)
{
    const LpType *t[] = {x, y};
    for (int i = 0; i < 2; i++)
        if (t[i]->ndim < 2 || !lp_is_float(t[i]->dtype)) {
            if (t[i]->ndim < 2)
                lp_fail(b->err, LP_E_RUNTIME,
                        "cdist only supports at least 2D tensors, X%d got: "
                        "%dD",
                        i + 1, t[i]->ndim);
            else
                lp_fail(b->err, LP_E_RUNTIME,
                        "cdist only supports floating-point dtypes, X%d got: "
                        "%s",
                        i + 1, lp_dtype_name(t[i]->dtype));
            return false;
        }
    long long nx = x->shape[x->ndim - 1], ny = y->shape[y->ndim - 1];
    if (nx != ny || x->dtype != y->dtype)
        lp_fail(b->err, LP_E_RUNTIME,
                "X1 and X2 must have the same number of columns and the same "
                "dtype. X1: %lld, %s X2: %lld, %s",
                nx, lp_dtype_name(x->dtype), ny, lp_dtype_name(y->dtype));
    else if (!(p >= 0))
        lp_fail(b->err, LP_E_RUNTIME,
                "cdist only supports non-negative p values, got %g", p);
    return !lp_failed(b);
}

/* Halves are computed as float32: squares of differences, and differences of
 * squares, leave their range soon. */
LP_FORMULA(cdist,
           "cdist(Tensor x1, Tensor x2, float p=2.0, str "
           "compute_mode='use_mm_for_euclid_dist_if_necessary') -> Tensor "
           "@f",
           .mix = LP_MIX_WIDEN, .cast = LP_CAST_WIDE)
{
    static const char *const modes[] = {"use_mm_for_euclid_dist_if_necessary",
                                        "use_mm_for_euclid_dist",
                                        "donot_use_mm_for_euclid_dist"};
    LpVal x = in[0], y = in[1];
    LpType t = lp_type_of(b, x), u = lp_type_of(b, y);
    double p = attr[0].f;
    int mode = 0;
    while (mode < 3 && strcmp(attr[1].str, modes[mode]) != 0)
        mode++;
    if (mode == 3)
        lp_fail(b->err, LP_E_VALUE, "%s is not a valid value for compute_mode",
                attr[1].str);
    if (lp_failed(b) || !rows_fit(b, &t, &u, p) || !lp_same_batch(b, &x, &y))
        return LP_NOVAL;
    LpDtype wide = lp_dtype_size(t.dtype) < 4 ? LP_F32 : t.dtype;
    x = lp_cast(b, x, wide);
    y = lp_cast(b, y, wide);
    int n = t.ndim > u.ndim ? t.ndim : u.ndim;
    int64_t rx = t.shape[t.ndim - 2], ry = u.shape[u.ndim - 2];
    bool large = rx > BY_PRODUCT || ry > BY_PRODUCT;
    if (p == 2 && (mode == 1 || (mode == 0 && large)))
        return lp_cast(b, by_product(b, x, y), t.dtype);
    if (n == LP_MAX_DIMS)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "cdist: at most %d dimensions are supported, got %d",
                         LP_MAX_DIMS - 1, n);
    LpVal d = lp_sub(b, lp_unsqueeze(b, x, n - 1), lp_unsqueeze(b, y, n - 2));
    return lp_cast(b, row_norm(b, d, p), t.dtype);
}

/* Row i against every later one, i by i. */
LP_FORMULA(pdist, "pdist(Tensor self, float p=2.0) -> Tensor @fn")
{
    LpType t = lp_type_of(b, in[0]);
    double p = attr[0].f;
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim != 2)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "pdist only supports 2D tensors, got: %dD", t.ndim);
    if (!lp_is_float(t.dtype) || !(p >= 0))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "pdist only supports floating-point dtypes and "
                         "non-negative p values, got %s and %g",
                         lp_dtype_name(t.dtype), p);
    LpAttr a[] = {lp_attr_int(t.shape[0]), lp_attr_int(t.shape[0]),
                  lp_attr_int(1), LP_NONE_ATTR};
    LpVal pairs = lp_emit(b, LP_OP_triu_indices, NULL, 0, a), row[2];
    for (int i = 0; i < 2 && !lp_failed(b); i++) {
        LpAttr at[] = {lp_attr_int(0), lp_attr_int(i)};
        LpAttr zero = lp_attr_int(0);
        LpVal index = lp_emit(b, LP_OP_select, &pairs, 1, at);
        row[i] =
            lp_emit(b, LP_OP_index_select, (LpVal[]){in[0], index}, 2, &zero);
    }
    return lp_failed(b) ? LP_NOVAL : row_norm(b, lp_sub(b, row[0], row[1]), p);
}
