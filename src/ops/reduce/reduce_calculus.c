/* Differences, integrals, products and moments along dimensions, composed of
 * other operators: diff, trapezoid, cumulative_trapezoid, vecdot, renorm, cov,
 * corrcoef. */
#include <math.h>

#include "src/ops/reduce/reduce.h"
#include "src/ops/rules.h"

static int64_t size_of(LpBuilder *b, LpVal x, int d)
{
    return lp_failed(b) ? 0 : lp_type(b, x)->shape[d];
}

/* All of x but the first, or but the last, along d. */
static LpVal but_first(LpBuilder *b, LpVal x, int d)
{
    return lp_slice(b, x, d, 1, size_of(b, x, d), 1);
}

static LpVal but_last(LpBuilder *b, LpVal x, int d)
{
    int64_t n = size_of(b, x, d);
    return lp_slice(b, x, d, 0, n > 0 ? n - 1 : 0, 1);
}

static LpVal element(LpBuilder *b, LpVal x, int d, int64_t i)
{
    LpAttr a[] = {lp_attr_int(d), lp_attr_int(i)};
    return lp_emit(b, LP_OP_select, &x, 1, a);
}

static bool is_bool(LpBuilder *b, LpVal x)
{
    return !lp_failed(b) && lp_type(b, x)->dtype == LP_BOOL;
}

/* ---- diff ---------------------------------------------------------------- */
/* May v stand beside t along d? */
static bool fits_beside(LpBuilder *b, const LpType *t, LpVal v, int d)
{
    if (v == LP_NOVAL || lp_failed(b))
        return !lp_failed(b);
    LpType u = lp_type_of(b, v), like = *t;
    if (u.ndim == t->ndim)
        like.shape[d] = u.shape[d];
    if (lp_shape_eq(&u, &like))
        return true;
    return LP_REFUSE(b, LP_E_RUNTIME,
                     "diff: prepend or append of shape %s must have input's "
                     "shape %s except along dimension %d",
                     lp_shape_str(&u), lp_shape_str(t), d);
}

LP_FORMULA(diff, "diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, "
                 "Tensor? append=None) -> Tensor @fmc")
{
    LpType t = lp_type_of(b, in[0]);
    int64_t n = attr[0].i;
    int d = lp_wrapped(b, attr[1].i, t.ndim), parts = 0;
    LpVal part[3], x = in[0];
    if (t.ndim == 0 || n < 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         t.ndim == 0
                             ? "diff expects input to be at least "
                               "one-dimensional, got %lld dimensions"
                             : "order must be non-negative but got %lld",
                         t.ndim == 0 ? 0LL : (long long)n);
    if (n == 0)
        return lp_clone(b, x);
    if (!fits_beside(b, &t, in[1], d) || !fits_beside(b, &t, in[2], d))
        return LP_NOVAL;
    for (int i = 0; i < 3; i++) {
        static const int order[] = {1, 0, 2}; /* prepend, self, append */
        if (in[order[i]] != LP_NOVAL)
            part[parts++] = in[order[i]];
    }
    if (parts > 1)
        x = lp_cat(b, part, parts, d);
    for (int64_t m = size_of(b, x, d); n > 0 && !lp_failed(b); n--, m--) {
        if (m <= 0)
            break;
        LpVal high = but_first(b, x, d), low = but_last(b, x, d);
        x = is_bool(b, x) ? lp_op2(b, LP_OP_logical_xor, high, low)
                          : lp_sub(b, high, low);
    }
    return x;
}

/* ---- integrals ----------------------------------------------------------- */
/* The distances of neighbouring sample points x, broadcastable against the
 * sums of neighbouring y; LP_NOVAL after a failure. */
static LpVal distances(LpBuilder *b, const char *name, LpVal x, const LpType *y,
                       int d)
{
    LpType t = lp_type_of(b, x);
    int64_t shape[LP_MAX_DIMS];
    bool flat = t.ndim == 1;
    for (int i = 0; i < y->ndim; i++) {
        int at = i - (y->ndim - t.ndim);
        shape[i] = flat ? (i == d ? t.shape[0] : 1) : at < 0 ? 1 : t.shape[at];
    }
    bool fits = t.ndim > 0 && t.ndim <= y->ndim &&
                (flat ? t.shape[0] == y->shape[d]
                      : shape[d] == y->shape[d] || shape[d] == 1);
    if (!fits) {
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "%s: There must be one `x` value for each sample "
                         "point, got x %s and y %s",
                         name, lp_shape_str(&t), lp_shape_str(y));
    }
    x = lp_reshape(b, x, shape, y->ndim);
    return lp_sub(b, but_first(b, x, d), but_last(b, x, d));
}

static LpVal integral(LpBuilder *b, const char *name, const LpAttr *attr,
                      const LpVal *in, int op)
{
    LpType t = lp_type_of(b, in[0]);
    int d = lp_wrapped(b, attr[1].i, t.ndim);
    int64_t dim = d;
    LpAttr a[3] = {lp_attr_ints(&dim, 1),
                   op == LP_OP_sum ? lp_attr_bool(false) : LP_NONE_ATTR,
                   op == LP_OP_sum ? LP_NONE_ATTR : lp_attr_bool(false)};
    bool sampled = in[1] != LP_NOVAL;
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim == 0 || t.dtype == LP_BOOL || (sampled && is_bool(b, in[1])))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "%s: y and x must be number tensors of at least one "
                         "dimension, got y of %s with %d dimensions and %s x",
                         name, lp_dtype_name(t.dtype), t.ndim,
                         !sampled            ? "no"
                         : is_bool(b, in[1]) ? "bool"
                                             : "a number");
    if (t.shape[d] == 0 && op == LP_OP_sum) { /* nothing to integrate */
        LpType none;
        lp_reduce_shape(&t, &a[0], false, &none);
        return lp_full(b, &none, lp_int(0));
    }
    double dx = sampled ? 1 : lp_scalar_f(attr[0].s);
    if (!sampled && op == LP_OP_sum) {
        LpVal ends = lp_mul(
            b, lp_add(b, element(b, in[0], d, 0), element(b, in[0], d, -1)),
            lp_immf(b, 0.5));
        LpVal sum = lp_sum(b, in[0], &dim, 1, false);
        return lp_mul(b, lp_sub(b, sum, ends), lp_immf(b, dx));
    }
    LpVal y = lp_add(b, but_first(b, in[0], d), but_last(b, in[0], d));
    if (sampled)
        y = lp_mul(b, distances(b, name, in[1], &t, d), y);
    y = lp_emit(b, op, &y, 1, a);
    return sampled ? lp_div(b, y, lp_immf(b, 2))
                   : lp_mul(b, y, lp_immf(b, dx / 2));
}

LP_FORMULA(trapezoid,
           "trapezoid(Tensor y, Tensor? x=None, *, Scalar dx=1, int dim=-1) "
           "-> Tensor @f\n"
           "trapz(Tensor y, Tensor? x=None, *, Scalar dx=1, int dim=-1) -> "
           "Tensor @f")
{
    return integral(b, "trapezoid", attr, in, LP_OP_sum);
}

LP_FORMULA(cumulative_trapezoid,
           "cumulative_trapezoid(Tensor y, Tensor? x=None, *, Scalar dx=1, "
           "int dim=-1) -> Tensor @f")
{
    return integral(b, "cumulative_trapezoid", attr, in, LP_OP_cumsum);
}

/* ---- vecdot -------------------------------------------------------------- */
LP_FORMULA(vecdot, "vecdot(Tensor x, Tensor y, *, int[1] dim=-1) -> Tensor @lo",
           .mix = LP_MIX_WIDEN, .cast = LP_CAST_NARROW)
{
    LpType x = lp_type_of(b, in[0]), y = lp_type_of(b, in[1]);
    if (!lp_is_float(x.dtype) || x.dtype != y.dtype)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "linalg.vecdot: x and y have the types %s and %s; "
                         "they must have one floating-point type",
                         lp_dtype_name(x.dtype), lp_dtype_name(y.dtype));
    LpDtype wide = lp_is_half(x.dtype) ? LP_F32 : x.dtype;
    LpVal z = lp_mul(b, lp_cast(b, in[0], wide), lp_cast(b, in[1], wide));
    LpAttr a[3] = {attr[0], lp_attr_bool(false), LP_NONE_ATTR};
    return lp_cast(b, lp_emit(b, LP_OP_sum, &z, 1, a), x.dtype);
}

/* ---- renorm -------------------------------------------------------------- */
/* Slices along dim of a norm above maxnorm are scaled down to it. */
LP_FORMULA(renorm,
           "renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor "
           "@fmio")
{
    LpType t = lp_type_of(b, in[0]);
    double p = lp_scalar_f(attr[0].s), most = lp_scalar_f(attr[2].s);
    int64_t others[LP_MAX_DIMS];
    int d = lp_wrapped(b, attr[1].i, t.ndim), n = 0;
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim < 2 || !(p > 0) || !(most >= 0) || !lp_is_float(t.dtype))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "renorm: the tensor is %s with %d dimensions, p is %g and maxnorm "
            "%g; a floating-point tensor of at least 2 dimensions, p above 0 "
            "and maxnorm from 0 are needed",
            lp_dtype_name(t.dtype), t.ndim, p, most);
    for (int i = 0; i < t.ndim; i++)
        if (i != d)
            others[n++] = i;
    LpAttr a[] = {lp_attr_ints(others, n), lp_attr_bool(true), attr[0],
                  lp_is_half(t.dtype) ? lp_attr_dtype(LP_F32) : LP_NONE_ATTR};
    LpVal norm = lp_emit(b, LP_OP_vector_norm, in, 1, a);
    LpVal above = lp_op2(b, LP_OP_gt, norm, lp_immf(b, most));
    LpVal scale =
        lp_div(b, lp_immf(b, most), lp_add(b, norm, lp_immf(b, 1e-7)));
    scale = lp_where(b, above, scale, lp_immf(b, 1));
    return lp_mul(b, in[0], lp_cast(b, scale, t.dtype));
}

/* ---- covariances --------------------------------------------------------- */
static bool weights_fit(LpBuilder *b, LpVal w, const char *name, bool whole,
                        int64_t n)
{
    if (w == LP_NOVAL)
        return true;
    const LpType *t = lp_type(b, w);
    bool kind = whole ? !lp_is_float(t->dtype) && t->dtype != LP_BOOL
                      : lp_is_float(t->dtype);
    if (t->ndim > 1 || lp_numel(t) != n || !kind)
        lp_fail(b->err, LP_E_RUNTIME,
                "cov(): %s must be %s tensor of %lld elements in at most one "
                "dimension, got %s with %lld",
                name, whole ? "an integer" : "a floating-point", (long long)n,
                lp_dtype_name(t->dtype), (long long)lp_numel(t));
    return !lp_failed(b);
}

/* Observations less the correction; with importances (aweights) by their
 * share of the weights. */
static LpVal freedom(LpBuilder *b, LpVal w, LpVal aw, LpVal sum, int64_t n,
                     int64_t correction)
{
    if (w == LP_NOVAL)
        return lp_immf(b, fmax(0, (double)(n - correction)));
    LpVal less = lp_immi(b, correction);
    if (aw != LP_NOVAL && correction != 0)
        less = lp_div(
            b, lp_mul(b, lp_sum(b, lp_mul(b, w, aw), NULL, 0, false), less),
            sum);
    return lp_op2(b, LP_OP_maximum, lp_sub(b, sum, less), lp_immi(b, 0));
}

static LpVal covariance(LpBuilder *b, LpVal x, LpVal fw, LpVal aw,
                        int64_t correction)
{
    LpType t = lp_type_of(b, x);
    int64_t rows[2] = {1, -1}, along = 1, flat = -1, n;
    if (t.ndim > 2 || t.dtype == LP_BOOL)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "cov(): expected input to have two or fewer "
                         "dimensions and a number type, got %d and %s",
                         t.ndim, lp_dtype_name(t.dtype));
    if (t.ndim < 2) {
        rows[1] = lp_numel(&t);
        x = lp_reshape(b, x, rows, 2);
    }
    n = size_of(b, x, 1);
    if (lp_failed(b) || !weights_fit(b, fw, "fweights", true, n) ||
        !weights_fit(b, aw, "aweights", false, n))
        return LP_NOVAL;
    LpVal w = fw == LP_NOVAL ? aw : aw == LP_NOVAL ? fw : lp_mul(b, fw, aw);
    if (!lp_is_float(t.dtype))
        x = lp_cast(b, x, lp_default_dtype());
    LpVal mean, sum = LP_NOVAL;
    if (w == LP_NOVAL) {
        mean = lp_mean(b, x, &along, 1, true);
    } else {
        w = lp_reshape(b, w, &flat, 1);
        if (aw != LP_NOVAL)
            aw = lp_reshape(b, aw, &flat, 1);
        sum = lp_sum(b, w, NULL, 0, false);
        mean = lp_div(b, lp_sum(b, lp_mul(b, x, w), &along, 1, true), sum);
    }
    LpVal dof = freedom(b, w, aw, sum, n, correction);
    LpVal apart = lp_sub(b, x, mean);
    LpVal right = w == LP_NOVAL ? apart : lp_mul(b, apart, w);
    LpAttr none = LP_NONE_ATTR;
    LpVal c = lp_div(b, lp_matmul(b, apart, lp_transpose(b, right, 0, 1)), dof);
    return lp_emit(b, LP_OP_squeeze, &c, 1, &none);
}

LP_FORMULA(cov, "cov(Tensor self, *, int correction=1, Tensor? fweights=None, "
                "Tensor? aweights=None) -> Tensor @fm")
{
    return covariance(b, in[0], in[1], in[2], attr[0].i);
}

LP_FORMULA(corrcoef, "corrcoef(Tensor self) -> Tensor @fm")
{
    LpVal c = covariance(b, in[0], LP_NOVAL, LP_NOVAL, 1);
    if (lp_failed(b))
        return LP_NOVAL;
    if (lp_type(b, c)->ndim == 0)
        return lp_div(b, c, c);
    LpAttr a[] = {lp_attr_int(0), lp_attr_int(0), lp_attr_int(1)};
    LpVal s = lp_op1(b, LP_OP_sqrt, lp_emit(b, LP_OP_diagonal, &c, 1, a));
    c = lp_div(b, lp_div(b, c, lp_unsqueeze(b, s, 1)), lp_unsqueeze(b, s, 0));
    return lp_op3(b, LP_OP_clamp, c, lp_immi(b, -1), lp_immi(b, 1));
}
