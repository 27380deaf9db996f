/* tensordot: a sum of products over pairs of dimensions, made of one matrix
 * product. */
#include "src/ops/rules.h"

/* t's dimensions with the listed ones last (first), as a matrix; the others'
 * sizes are added to *rest. */
static LpVal flattened(LpBuilder *b, LpVal x, const int64_t *dims, int n,
                       bool last, LpType *rest)
{
    LpType t = lp_type_of(b, x);
    int64_t order[LP_MAX_DIMS], inner = 1, outer = 1;
    bool taken[LP_MAX_DIMS] = {false};
    int at = last ? 0 : n, listed = last ? t.ndim - n : 0;
    for (int i = 0; i < n; i++) {
        int d = lp_wrapped(b, dims[i], t.ndim);
        if (lp_failed(b))
            return LP_NOVAL;
        if (taken[d])
            return LP_REFUSE(
                b, LP_E_RUNTIME,
                "dim %d appears multiple times in the list of dims", d);
        taken[d] = true;
        order[listed + i] = d;
        inner *= t.shape[d];
    }
    for (int d = 0; d < t.ndim; d++) {
        if (taken[d])
            continue;
        order[at++] = d;
        outer *= t.shape[d];
        if (rest->ndim < LP_MAX_DIMS)
            rest->shape[rest->ndim] = t.shape[d];
        rest->ndim++;
    }
    x = lp_permute(b, x, order, t.ndim);
    return lp_reshape(
        b, x, last ? (int64_t[]){outer, inner} : (int64_t[]){inner, outer}, 2);
}

/* A dimension of size 1 against a longer one: the longer is summed. */
static LpVal summed(LpBuilder *b, LpVal x, const int64_t *dims,
                    const LpType *other, const int64_t *others, int n)
{
    int64_t sum[LP_MAX_DIMS];
    int k = 0, ndim = lp_type(b, x)->ndim;
    for (int i = 0; i < n; i++) {
        int d = lp_wrapped(b, dims[i], ndim);
        int o = lp_wrapped(b, others[i], other->ndim);
        if (lp_failed(b))
            return LP_NOVAL;
        int64_t mine = lp_type(b, x)->shape[d], its = other->shape[o];
        if (its == 1 && mine != 1)
            sum[k++] = d;
        else if (mine != its && mine != 1)
            lp_fail(b->err, LP_E_RUNTIME,
                    "contracted dimensions need to match, but first has size "
                    "%lld in dim %d and second has size %lld in dim %d",
                    (long long)mine, d, (long long)its, o);
    }
    LpDtype t = lp_type(b, x)->dtype;
    return k ? lp_cast(b, lp_sum(b, x, sum, k, true), t) : x;
}

static LpVal tensordot(LpBuilder *b, const LpVal *in, const int64_t *da,
                       const int64_t *db, int n)
{
    LpType t = lp_type_of(b, in[0]), u = lp_type_of(b, in[1]), rest = {0};
    if (lp_failed(b))
        return LP_NOVAL;
    if (n > t.ndim || n > u.ndim)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "tensordot: %d dimensions are listed, the tensors have %d and %d",
            n, t.ndim, u.ndim);
    LpVal x = summed(b, in[0], da, &u, db, n);
    LpVal y = summed(b, in[1], db, &t, da, n);
    x = flattened(b, x, da, n, true, &rest);
    y = flattened(b, y, db, n, false, &rest);
    if (!lp_failed(b) && rest.ndim > LP_MAX_DIMS)
        lp_fail(b->err, LP_E_RUNTIME,
                "tensordot: the result has %d dimensions, at most %d are "
                "supported",
                rest.ndim, LP_MAX_DIMS);
    return lp_reshape(b, lp_op2(b, LP_OP_mm, x, y), rest.shape, rest.ndim);
}

LP_FORMULA(tensordot,
           "tensordot(Tensor self, Tensor other, int dims=2) -> Tensor @fo",
           .cast = LP_CAST_NARROW)
{
    int64_t n = attr[0].i, da[LP_MAX_DIMS], db[LP_MAX_DIMS];
    int nx = lp_type(b, in[0])->ndim, ny = lp_type(b, in[1])->ndim;
    if (n < 0 || n > nx || n > ny)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         n < 0
                             ? "tensordot expects dims >= 0, but got dims=%lld"
                             : "tensordot expects dims < ndim_a or ndim_b, but "
                               "got dims=%lld, with %d and %d dimensions",
                         (long long)n, nx, ny);
    for (int i = 0; i < n; i++) {
        da[i] = nx - n + i;
        db[i] = i;
    }
    return tensordot(b, in, da, db, (int)n);
}

LP_FORMULA(tensordot_lists,
           "tensordot_lists(Tensor self, Tensor other, int[] dims_self, "
           "int[] dims_other) -> Tensor @po",
           .cast = LP_CAST_NARROW)
{
    if (attr[0].n != attr[1].n)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "both dimension lists should have same length");
    return tensordot(b, in, attr[0].v, attr[1].v, attr[0].n);
}
