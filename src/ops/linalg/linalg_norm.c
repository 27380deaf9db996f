/* Norms of matrices and vectors by PyTorch's orders, condition numbers. An
 * order is a number or a name, so each function has two operators. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/ops/infer.h"
#include "src/ops/linalg/linalg.h"

/* The extreme along a dimension; the largest of no elements is 0. */
static LpVal extreme(LpBuilder *b, LpVal x, int dim, bool least)
{
    LpType t = lp_type_of(b, x);
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.shape[dim] == 0 && !least) {
        t.shape[dim] = 1;
        return lp_full(b, &t, lp_int(0));
    }
    int64_t d = dim;
    LpAttr a[] = {lp_attr_ints(&d, 1), lp_attr_bool(true)};
    return lp_emit(b, least ? LP_OP_amin : LP_OP_amax, &x, 1, a);
}

static LpVal vector_norm(LpBuilder *b, LpVal x, LpScalar ord,
                         const int64_t *dims, int n, bool keepdim)
{
    LpAttr a[] = {n ? lp_attr_ints(dims, n) : LP_NONE_ATTR,
                  lp_attr_bool(keepdim), lp_attr_scalar(ord), LP_NONE_ATTR};
    return lp_emit(b, LP_OP_vector_norm, &x, 1, a);
}

/* Of the singular values: their sum, the largest, the least. */
static LpVal by_values(LpBuilder *b, LpVal x, int d0, int d1, int how)
{
    LpType t = lp_type_of(b, x);
    int n = t.ndim, k = 0;
    int64_t order[LP_MAX_DIMS];
    for (int i = 0; i < n; i++)
        if (i != d0 && i != d1)
            order[k++] = i;
    order[k++] = d0;
    order[k] = d1;
    LpVal s = lp_op1(b, LP_OP_svdvals, lp_permute(b, x, order, n));
    int64_t last = n - 2;
    LpVal r =
        how == 0 ? lp_sum(b, s, &last, 1, true) : extreme(b, s, n - 2, how < 0);
    t.shape[d0] = t.shape[d1] = 1;
    return lp_reshape(b, r, t.shape, n);
}

/* The norm with its dimensions kept as 1; NOVAL for no order. */
static LpVal kept_norm(LpBuilder *b, LpVal x, const char *name, double number,
                       int d0, int d1)
{
    int64_t dims[] = {d0, d1}, sum = d0;
    if (name && strcmp(name, "fro") == 0)
        return vector_norm(b, x, lp_int(2), dims, 2, true);
    if (name && strcmp(name, "nuc") == 0)
        return by_values(b, x, d0, d1, 0);
    double size = name ? 0 : fabs(number);
    if (size == 2)
        return by_values(b, x, d0, d1, number > 0 ? 1 : -1);
    if (size != 1 && size != (double)INFINITY)
        return LP_NOVAL;
    int over = size == 1 ? d1 : d0;
    sum = size == 1 ? d0 : d1;
    LpVal sums = vector_norm(b, x, lp_int(1), &sum, 1, true);
    return extreme(b, sums, over, number < 0);
}

static LpVal norm_at(LpBuilder *b, LpVal x, const char *ord, double number,
                     int d0, int d1, bool keepdim, const char *who)
{
    LpType t = lp_type_of(b, x);
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal r = kept_norm(b, x, ord, number, d0, d1);
    if (!r && !lp_failed(b) && ord)
        lp_fail(b->err, LP_E_RUNTIME, "%s: Order %s not supported.", who, ord);
    else if (!r && !lp_failed(b))
        lp_fail(b->err, LP_E_RUNTIME, "%s: Order %g not supported.", who,
                number);
    if (keepdim || lp_failed(b))
        return r;
    int n = 0;
    for (int i = 0; i < t.ndim; i++)
        if (i != d0 && i != d1)
            t.shape[n++] = t.shape[i];
    return lp_reshape(b, r, t.shape, n);
}

/* ---- matrix_norm --------------------------------------------------------- */
/* `ord` or `number` in place of the attribute */
static LpVal of_matrices(LpBuilder *b, LpVal x, const char *ord, double number,
                         const LpAttr *attr, const char *who)
{
    LpType t = lp_type_of(b, x);
    const LpAttr *dims = &attr[LP_NORMS_DIM];
    const LpAttr *dtype = &attr[LP_NORMS_DTYPE];
    if (lp_failed(b))
        return LP_NOVAL;
    if (lp_infer_norm_dtype(who, t.dtype, dtype, b->err) != LP_OK)
        return LP_NOVAL;
    bool values = ord ? strcmp(ord, "nuc") == 0 : fabs(number) == 2;
    if (values && lp_infer_wide(who, t.dtype, b->err) != LP_OK)
        return LP_NOVAL;
    if (dtype->kind == LP_ATTR_DTYPE)
        x = lp_cast(b, x, (LpDtype)dtype->i);
    if (t.ndim < 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "linalg.matrix_norm: The input tensor A must have at least 2 "
            "dimensions, got %d.",
            t.ndim);
    if (dims->n != 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "linalg.matrix_norm: dim must be a 2-tuple, got %d dimensions",
            dims->n);
    int d0 = lp_wrapped(b, dims->v[0], t.ndim);
    int d1 = lp_wrapped(b, dims->v[1], t.ndim);
    if (!lp_failed(b) && d0 == d1)
        lp_fail(b->err, LP_E_RUNTIME,
                "linalg.matrix_norm: dims must be different. Got (%lld, %lld)",
                (long long)dims->v[0], (long long)dims->v[1]);
    return norm_at(b, x, ord, number, d0, d1, attr[LP_NORMS_KEEPDIM].i != 0,
                   who);
}

LP_FORMULA(matrix_norm,
           "matrix_norm(Tensor A, Scalar ord, int[] dim=[-2,-1], bool "
           "keepdim=False, *, ScalarType? dtype=None) -> Tensor @lo")
{
    return of_matrices(b, in[0], NULL, lp_scalar_f(attr[LP_NORMS_ORD].s), attr,
                       "linalg.matrix_norm");
}

LP_FORMULA(matrix_norm_named,
           "matrix_norm.named(Tensor A, str ord='fro', int[] dim=[-2,-1], "
           "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor @lo")
{
    return of_matrices(b, in[0], attr[LP_NORMS_ORD].str, 0, attr,
                       "linalg.matrix_norm");
}

/* ---- norm ---------------------------------------------------------------- */
/* Without an order the 2-norm of all elements, or of the dimensions named. */
static LpVal any_norm(LpBuilder *b, LpVal x, const char *name,
                      const LpAttr *attr)
{
    static const int64_t last[] = {-2, -1};
    LpAttr ord = attr[LP_NORMS_ORD], dim = attr[LP_NORMS_DIM];
    LpAttr keepdim = attr[LP_NORMS_KEEPDIM];
    LpAttr dtype = attr[LP_NORMS_DTYPE];
    bool all = lp_attr_none(&dim);
    int given = all ? lp_type(b, x)->ndim : dim.n;
    if (lp_failed(b))
        return LP_NOVAL;
    if (!all && given != 1 && given != 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "linalg.norm: If dim is specified, it must be of length 1 or "
            "2. Got %d",
            given);
    bool none = !name && lp_attr_none(&ord);
    if (all && !none && given != 1 && given != 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "linalg.norm: If dim is not specified but ord is, the input "
            "must be 1D or 2D. Got %dD",
            given);
    if (name || (!none && given == 2)) {
        LpAttr a[] = {ord, all ? lp_attr_ints(last, 2) : dim, keepdim, dtype};
        return of_matrices(b, x, name, name ? 0 : lp_scalar_f(ord.s), a,
                           "linalg.matrix_norm");
    }
    LpAttr v[] = {dim, keepdim, none ? lp_attr_scalar(lp_int(2)) : ord, dtype};
    return lp_emit(b, LP_OP_vector_norm, &x, 1, v);
}

LP_FORMULA(linalg_norm,
           "norm.linalg(Tensor A, Scalar? ord=None, int[1]? dim=None, bool "
           "keepdim=False, *, ScalarType? dtype=None) -> Tensor @lo")
{
    return any_norm(b, in[0], NULL, attr);
}

LP_FORMULA(linalg_norm_named,
           "norm.linalg_named(Tensor A, str ord, int[1]? dim=None, bool "
           "keepdim=False, *, ScalarType? dtype=None) -> Tensor @lo")
{
    return any_norm(b, in[0], attr[LP_NORMS_ORD].str, attr);
}

/* ---- condition number ---------------------------------------------------- */
static bool square(LpBuilder *b, LpVal x, const char *ord)
{
    LpType t = lp_type_of(b, x);
    long long m = t.shape[t.ndim - 2], n = t.shape[t.ndim - 1];
    if (m == n)
        return true;
    lp_fail(b->err, LP_E_RUNTIME,
            "linalg.cond(ord=%s): A must be batches of square matrices, but "
            "they are %lld by %lld matrices",
            ord, m, n);
    return false;
}

/* |A| |A^-1|; singular matrices have the inverse infinity. */
static LpVal by_inverse(LpBuilder *b, LpVal x, const char *name, double number)
{
    int n = lp_type(b, x)->ndim;
    LpVal info;
    LpVal inv = lp_inverse(b, x, false, &info);
    LpVal bad = lp_op2(b, LP_OP_gt, info, lp_immi(b, 0));
    bad = lp_unsqueeze(b, lp_unsqueeze(b, bad, -1), -1);
    inv = lp_where(b, bad, lp_immf(b, (double)INFINITY), inv);
    LpVal r = norm_at(b, x, name, number, n - 2, n - 1, false, "linalg.cond");
    return lp_mul(
        b, r,
        norm_at(b, inv, name, number, n - 2, n - 1, false, "linalg.cond"));
}

static LpVal condition(LpBuilder *b, LpVal x, const char *name,
                       const LpAttr *ord)
{
    LpType t = lp_type_of(b, x);
    if (lp_failed(b) || lp_check_matrix(b->err, "linalg.cond", &t) != LP_OK)
        return LP_NOVAL;
    double p = name ? 0 : lp_attr_none(ord) ? 2 : lp_scalar_f(ord->s);
    int64_t least = t.shape[t.ndim - 2] < t.shape[t.ndim - 1]
                        ? t.shape[t.ndim - 2]
                        : t.shape[t.ndim - 1];
    bool known = name ? strcmp(name, "fro") == 0 || strcmp(name, "nuc") == 0
                      : fabs(p) == 1 || fabs(p) == 2 || isinf(p);
    char text[32];
    if (name)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%g", p);
    if (!known)
        return LP_REFUSE(b, LP_E_VALUE,
                         "linalg.cond got an invalid norm type: %s", text);
    if (fabs(p) != 2 && !square(b, x, text))
        return LP_NOVAL;
    if (least == 0) {
        t.ndim -= 2;
        return lp_full(b, &t, lp_int(0));
    }
    if (fabs(p) != 2)
        return by_inverse(b, x, name, p);
    LpVal s = lp_op1(b, LP_OP_svdvals, x);
    int last = t.ndim - 2;
    LpVal high = lp_slice(b, s, last, 0, 1, 1);
    LpVal low = lp_slice(b, s, last, least - 1, least, 1);
    LpVal r = p > 0 ? lp_div(b, high, low) : lp_div(b, low, high);
    return lp_reshape(b, r, t.shape, t.ndim - 2);
}

LP_FORMULA(cond, "cond(Tensor A, Scalar? p=None) -> Tensor @lc",
           .cast = LP_CAST_WIDE)
{
    return condition(b, in[0], NULL, &attr[0]);
}

LP_FORMULA(cond_named, "cond.named(Tensor A, str p) -> Tensor @lc",
           .cast = LP_CAST_WIDE)
{
    return condition(b, in[0], attr[0].str, NULL);
}
