/* Reductions by order, composed of a sort (topk) and look-ups in what it gives:
 * kthvalue, nanmedian, quantile, nanquantile. NaN is sorted last. */
#include <math.h>
#include <string.h>

#include "src/ops/reduce/reduce.h"
#include "src/ops/rules.h"

/* x sorted along d, and where the elements came from. */
static bool sorted(LpBuilder *b, LpVal x, int d, LpVal v[2])
{
    LpAttr a[] = {lp_attr_int(d), lp_attr_bool(false), lp_attr_bool(true)};
    return lp_emit_n(b, LP_OP_sort, &x, 1, a, v) == 2;
}

/* The first k of them, at least. */
static bool first_sorted(LpBuilder *b, LpVal x, int d, int64_t k, int64_t n,
                         LpVal v[2])
{
    LpAttr a[] = {lp_attr_int(k), lp_attr_int(d), lp_attr_bool(false),
                  lp_attr_bool(true)};
    if (k > n / 16) /* topk would sort them all itself */
        return sorted(b, x, d, v);
    return lp_emit_n(b, LP_OP_topk, &x, 1, a, v) == 2;
}

static LpVal gather(LpBuilder *b, LpVal x, int d, LpVal index)
{
    LpAttr a = lp_attr_int(d);
    return lp_emit(b, LP_OP_gather, (LpVal[]){x, index}, 2, &a);
}

static LpVal squeezed(LpBuilder *b, LpVal x, int64_t d)
{
    LpAttr a = lp_attr_ints(&d, 1);
    return lp_emit(b, LP_OP_squeeze, &x, 1, &a);
}

static bool refuses_bool(LpBuilder *b, const char *name, LpDtype t)
{
    if (t == LP_BOOL)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: the tensor has the type bool; it must be a number type",
                name);
    return t == LP_BOOL;
}

/* ---- kthvalue ------------------------------------------------------------ */
LP_COMPOSITE(kthvalue,
             "kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> "
             "(Tensor values, Tensor indices) @fmo")
{
    LpType t = lp_type_of(b, in[0]);
    int d = lp_wrapped(b, attr[1].i, t.ndim);
    int64_t k = attr[0].i, n = t.ndim == 0 ? 1 : t.shape[d];
    if (lp_failed(b) || refuses_bool(b, "kthvalue", t.dtype))
        return;
    if (k < 1 || k > n) {
        lp_fail(b->err, LP_E_RUNTIME,
                "kthvalue(): selected number k out of range for dimension %d: "
                "k is %lld, the dimension has %lld elements",
                d, (long long)k, (long long)n);
        return;
    }
    if (!first_sorted(b, in[0], d, k, n, out) || t.ndim == 0)
        return;
    for (int i = 0; i < 2; i++) {
        out[i] = lp_slice(b, out[i], d, k - 1, k, 1);
        if (!attr[2].i)
            out[i] = squeezed(b, out[i], d);
    }
}

/* ---- nanmedian ----------------------------------------------------------- */
/* The element of rank (n - 1) / 2 among the n that are numbers, the first if
 * there are none. */
static void median_of_numbers(LpBuilder *b, LpVal x, int d, bool keepdim,
                              LpVal *out)
{
    LpType t = lp_type_of(b, x);
    int64_t dim = d;
    LpVal v[2];
    LpAttr down = lp_attr_str("floor");
    LpVal n = lp_sum(b, lp_op2(b, LP_OP_eq, x, x), &dim, t.ndim > 0, true);
    LpVal twice[] = {lp_sub(b, n, lp_immi(b, 1)), lp_immi(b, 2)};
    LpVal k = lp_emit(b, LP_OP_div, twice, 2, &down);
    k = lp_op2(b, LP_OP_maximum, k, lp_immi(b, 0));
    if (!sorted(b, x, d, v))
        return;
    for (int i = 0; i < 2; i++) {
        out[i] = gather(b, v[i], d, k);
        if (!keepdim)
            out[i] = squeezed(b, out[i], d);
    }
}

LP_COMPOSITE(nanmedian_dim,
             "nanmedian_dim(Tensor self, int dim, bool keepdim=False) -> "
             "(Tensor values, Tensor indices) @p\n"
             "nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> "
             "(Tensor values, Tensor indices) @fmo")
{
    LpType t = lp_type_of(b, in[0]);
    int d = lp_wrapped(b, attr[0].i, t.ndim);
    if (lp_failed(b) || refuses_bool(b, "nanmedian", t.dtype))
        return;
    if (t.ndim > 0 && t.shape[d] == 0) {
        lp_fail(b->err, LP_E_INDEX,
                "nanmedian(): Expected reduction dim %d to have non-zero size",
                d);
        return;
    }
    median_of_numbers(b, in[0], d, attr[1].i != 0, out);
}

LP_FORMULA(nanmedian, "nanmedian(Tensor self) -> Tensor @fm")
{
    LpType t = lp_type_of(b, in[0]);
    int64_t flat = -1;
    LpVal both[2] = {LP_NOVAL, LP_NOVAL};
    if (refuses_bool(b, "nanmedian", t.dtype))
        return LP_NOVAL;
    if (lp_numel(&t) == 0)
        return lp_emit(b, LP_OP_median, in, 1, NULL);
    LpVal x = lp_op1(b, LP_OP_detach, lp_reshape(b, in[0], &flat, 1));
    median_of_numbers(b, x, 0, false, both);
    return lp_reduce_shared(b, in[0], both[0]);
}

/* ---- quantiles ----------------------------------------------------------- */
/* quantile, nanquantile */
enum { Q_DIM, Q_KEEPDIM, Q_INTERPOLATION };
static const char *const interpolations[] = {"linear", "lower", "higher",
                                             "midpoint", "nearest"};
enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST, N_INTERPOLATIONS };

static int interpolation_of(LpBuilder *b, const char *name, const LpAttr *a)
{
    for (int i = 0; i < N_INTERPOLATIONS; i++)
        if (strcmp(a->str, interpolations[i]) == 0)
            return i;
    lp_fail(b->err, LP_E_RUNTIME,
            "%s() interpolation must be one of linear, lower, higher, midpoint "
            "or nearest, but got %s",
            name, a->str);
    return LINEAR;
}

static void check_quantile(LpBuilder *b, const char *name, const LpVal *in)
{
    const LpType *x = lp_type(b, in[0]);
    const LpType *q = lp_is_imm(in[1]) ? NULL : lp_type(b, in[1]);
    double v = q ? 0 : lp_scalar_f(b->imm(b, in[1]));
    if (x->dtype != LP_F32 && x->dtype != LP_F64)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s() input tensor must be either float or double dtype, got "
                "%s",
                name, lp_dtype_name(x->dtype));
    else if (lp_numel(x) == 0)
        lp_fail(b->err, LP_E_RUNTIME, "%s() input tensor must be non-empty",
                name);
    else if (!(v >= 0 && v <= 1))
        lp_fail(b->err, LP_E_RUNTIME,
                "%s() q must be in the range [0, 1] but got %g", name, v);
    else if (q && q->dtype != x->dtype)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s() q tensor must be same dtype as the input tensor, got %s "
                "and %s",
                name, lp_dtype_name(q->dtype), lp_dtype_name(x->dtype));
    else if (q && q->ndim > 1)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s() q must be a scalar or 1D tensor, got %d dimensions", name,
                q->ndim);
}

/* Positions in lines of x (the last dimension), as floats: q of the distance
 * from first to last; a line with a NaN is NaN unless it is ignored. */
static LpVal ranks_of(LpBuilder *b, LpVal x, LpVal q, bool ignore_nan)
{
    LpType t = lp_type_of(b, x);
    int64_t last = t.ndim - 1;
    LpVal top = lp_immf(b, (double)t.shape[last] - 1);
    LpVal number = lp_op2(b, LP_OP_eq, x, x);
    if (ignore_nan) {
        LpVal n = lp_cast(b, lp_sum(b, number, &last, 1, true), t.dtype);
        LpVal most = lp_sub(b, n, lp_immi(b, 1));
        return lp_mul(b, q, lp_op2(b, LP_OP_maximum, most, lp_immi(b, 0)));
    }
    LpAttr a[] = {lp_attr_ints(&last, 1), lp_attr_bool(true)};
    LpVal all = lp_emit(b, LP_OP_all, &number, 1, a);
    return lp_where(b, all, lp_mul(b, q, top), top);
}

/* x: [rest …, n], q: [Q]. The result: [rest …, Q]. */
static LpVal interpolated(LpBuilder *b, LpVal x, LpVal q, int how,
                          bool ignore_nan)
{
    LpAttr no_decimals = lp_attr_int(0);
    LpVal v[2], rank = ranks_of(b, x, q, ignore_nan);
    int d = lp_type(b, x)->ndim - 1;
    if (!sorted(b, x, d, v))
        return LP_NOVAL;
    if (how == NEAREST)
        rank = lp_emit(b, LP_OP_round, &rank, 1, &no_decimals);
    LpVal low = lp_op1(b, how == HIGHER ? LP_OP_ceil : LP_OP_floor, rank);
    LpVal y = gather(b, v[0], d, lp_cast(b, low, LP_I64));
    if (how != LINEAR && how != MIDPOINT)
        return y;
    LpVal high = lp_cast(b, lp_op1(b, LP_OP_ceil, rank), LP_I64);
    LpVal z = gather(b, v[0], d, high);
    LpVal w = how == LINEAR ? lp_sub(b, rank, low) : lp_immf(b, 0.5);
    return lp_op3(b, LP_OP_lerp, y, z, w);
}

static LpVal quantile(LpBuilder *b, const char *name, const LpAttr *attr,
                      const LpVal *in, bool ignore_nan)
{
    int how = interpolation_of(b, name, &attr[Q_INTERPOLATION]);
    LpVal x = in[0], q = in[1];
    check_quantile(b, name, in);
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, x),
           one = {.dtype = t.dtype, .ndim = 1, .shape = {1}};
    bool single = lp_is_imm(q) || lp_type(b, q)->ndim == 0;
    if (lp_is_imm(q))
        q = lp_full(b, &one, b->imm(b, q));
    else if (single)
        q = lp_reshape(b, q, one.shape, 1);
    bool all = attr[Q_DIM].kind == LP_ATTR_NONE || t.ndim == 0;
    int d = all ? 0 : lp_wrapped(b, attr[Q_DIM].i, t.ndim);
    int64_t flat = -1, order[LP_MAX_DIMS + 1];
    int n = 0, rest = all ? 0 : t.ndim - 1;
    for (int i = 0; i < t.ndim; i++)
        if (i != d)
            order[n++] = i;
    order[n++] = d;
    x = all ? lp_reshape(b, x, &flat, 1) : lp_permute(b, x, order, t.ndim);
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal y = interpolated(b, x, q, how, ignore_nan);
    order[0] = rest; /* the quantiles first */
    for (int i = 0; i < rest; i++)
        order[i + 1] = i;
    y = lp_permute(b, y, order, rest + 1);
    if (attr[Q_KEEPDIM].i)
        for (int i = 0; i < (all ? t.ndim : 1); i++)
            y = lp_unsqueeze(b, y, all ? 1 : d + 1);
    return single ? squeezed(b, y, 0) : y;
}

#define QUANTILE(name, ignore_nan)                                             \
    LP_FORMULA(name,                                                           \
               #name "(Tensor self, Value q, int? dim=None, bool "             \
                     "keepdim=False, *, str interpolation='linear') -> "       \
                     "Tensor @fmo",                                            \
               .cast = LP_CAST_WIDE)                                           \
    {                                                                          \
        return quantile(b, #name, attr, in, ignore_nan);                       \
    }
QUANTILE(quantile, false)
QUANTILE(nanquantile, true)
