/* Chains of matrix products, Vandermonde matrices. */
#include <string.h>

#include "src/ops/linalg/linalg.h"

/* ---- chains -------------------------------------------------------------- */
#define MAX_CHAIN 64

/* The cheapest order by multiplications: cost[i][j] of members i to j, which
 * split[i][j] ends the left part of. */
static void cheapest(const int64_t *side, int n, int split[][MAX_CHAIN])
{
    double cost[MAX_CHAIN][MAX_CHAIN] = {{0}};
    for (int len = 2; len <= n; len++)
        for (int i = 0; i + len <= n; i++) {
            int j = i + len - 1;
            cost[i][j] = -1;
            for (int k = i; k < j; k++) {
                double c =
                    cost[i][k] + cost[k + 1][j] +
                    (double)side[i] * (double)side[k + 1] * (double)side[j + 1];
                if (cost[i][j] < 0 || c < cost[i][j]) {
                    cost[i][j] = c;
                    split[i][j] = k;
                }
            }
        }
}

static LpVal chained(LpBuilder *b, const LpVal *v, int split[][MAX_CHAIN],
                     int i, int j)
{
    if (i == j)
        return v[i];
    int k = split[i][j];
    LpVal x = chained(b, v, split, i, k);
    return lp_op2(b, LP_OP_mm, x, chained(b, v, split, k + 1, j));
}

/* All of two dimensions and fitting; side has n + 1 sizes. */
static bool chain_fits(LpBuilder *b, const char *who, const LpVal *v, int n,
                       int64_t *side)
{
    for (int i = 0; i < n && !lp_failed(b); i++) {
        LpType t = lp_type_of(b, v[i]), next = t;
        if (t.ndim != 2) {
            lp_fail(b->err, LP_E_RUNTIME,
                    "%s(): tensor %d must be 2D but got %dD", who, i, t.ndim);
            return false;
        }
        side[i] = t.shape[0];
        side[i + 1] = t.shape[1];
        if (i + 1 < n)
            next = lp_type_of(b, v[i + 1]);
        if (next.dtype != t.dtype)
            lp_fail(b->err, LP_E_RUNTIME,
                    "%s(): all tensors must have the same dtype, but tensors "
                    "%d and %d have %s and %s",
                    who, i, i + 1, lp_dtype_name(t.dtype),
                    lp_dtype_name(next.dtype));
        else if (i + 1 < n && next.ndim == 2 && next.shape[0] != t.shape[1])
            lp_fail(b->err, LP_E_RUNTIME,
                    "%s(): tensors %d and %d with shapes %s and %s cannot be "
                    "multiplied",
                    who, i, i + 1, lp_shape_str(&t), lp_shape_str(&next));
    }
    return !lp_failed(b);
}

static LpVal chain(LpBuilder *b, const char *who, const LpVal *v, int n)
{
    int split[MAX_CHAIN][MAX_CHAIN];
    int64_t side[MAX_CHAIN + 1];
    if (n > MAX_CHAIN)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "%s(): %d tensors; at most %d are supported", who, n,
                         MAX_CHAIN);
    if (!chain_fits(b, who, v, n, side))
        return LP_NOVAL;
    cheapest(side, n, split);
    return chained(b, v, split, 0, n - 1);
}

/* The first and the last may be vectors: a row, a column. */
LP_FORMULA(multi_dot, "multi_dot(Tensor[] tensors) -> Tensor @lo",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    LpVal *v = lp_value_list(b, n_in);
    if (!v)
        return LP_NOVAL;
    if (n_in < 2)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "multi_dot(): expected at least 2 tensors but got %d",
                         n_in);
    memcpy(v, in, (size_t)n_in * sizeof *v);
    int first = lp_type(b, in[0])->ndim, last = lp_type(b, in[n_in - 1])->ndim;
    if (first < 1 || first > 2 || last < 1 || last > 2) {
        bool at_end = first == 1 || first == 2;
        lp_fail(b->err, LP_E_RUNTIME,
                "multi_dot(): the %s tensor must be 1D or 2D but got %dD",
                at_end ? "last" : "first", at_end ? last : first);
        return LP_NOVAL;
    }
    if (first == 1)
        v[0] = lp_unsqueeze(b, v[0], 0);
    if (last == 1)
        v[n_in - 1] = lp_unsqueeze(b, v[n_in - 1], 1);
    LpVal r = chain(b, "multi_dot", v, n_in);
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, r);
    int64_t shape[2];
    int n = 0;
    if (first == 2)
        shape[n++] = t.shape[0];
    if (last == 2)
        shape[n++] = t.shape[1];
    return n == 2 ? r : lp_reshape(b, r, shape, n);
}

LP_FORMULA(chain_matmul, "chain_matmul(Tensor[] matrices) -> Tensor @f",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    if (n_in == 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "chain_matmul(): Expected one or more matrices");
    LpVal r = chain(b, "chain_matmul", in, n_in);
    return n_in == 1 ? lp_emit(b, LP_OP_alias, &in[0], 1, NULL) : r;
}

/* ---- powers of numbers --------------------------------------------------- */
/* [1, x, x^2, …]: running products along a new last dimension. */
static LpVal powers(LpBuilder *b, LpVal x, int64_t n)
{
    LpType t = lp_type_of(b, x), one = t;
    one.shape[one.ndim++] = 1;
    t.shape[t.ndim++] = n > 0 ? n - 1 : 0;
    LpVal rest = lp_expand_as(b, lp_unsqueeze(b, x, -1), &t);
    LpVal v[] = {lp_full(b, &one, lp_int(1)), rest};
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal all = lp_cat(b, v, 2, t.ndim - 1);
    LpAttr a[] = {lp_attr_int(-1), LP_NONE_ATTR};
    all = lp_emit(b, LP_OP_cumprod, &all, 1, a);
    return n == 0 ? lp_slice(b, all, t.ndim - 1, 0, 0, 1) : all;
}

static int64_t count_of(LpBuilder *b, const LpAttr *n, const LpType *t,
                        int64_t least)
{
    int64_t count = lp_attr_none(n) ? t->shape[t->ndim - 1] : n->i;
    if (count < least)
        lp_fail(b->err, LP_E_RUNTIME,
                least > 0 ? "N must be greater than 1, got %lld"
                          : "N must be non-negative, got %lld",
                (long long)count);
    return count;
}

LP_FORMULA(vander_rows, "vander.rows(Tensor x, *, int? N=None) -> Tensor @l")
{
    LpType t = lp_type_of(b, in[0]);
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim == LP_MAX_DIMS)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "linalg.vander: x must have 0 to %d dimensions, got %d",
            LP_MAX_DIMS - 1, t.ndim);
    LpVal x = t.ndim > 0 ? in[0] : lp_unsqueeze(b, in[0], 0);
    t.shape[0] = t.ndim > 0 ? t.shape[0] : 1;
    t.ndim = t.ndim > 0 ? t.ndim : 1;
    int64_t n = count_of(b, &attr[0], &t, 2);
    return lp_failed(b) ? LP_NOVAL : powers(b, x, n);
}

LP_FORMULA(vander,
           "vander(Tensor x, int? N=None, bool increasing=False) -> Tensor "
           "@f")
{
    LpType t = lp_type_of(b, in[0]);
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim != 1)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "x must be a one-dimensional tensor, got %d dimensions.", t.ndim);
    int64_t n = count_of(b, &attr[0], &t, 0);
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal r = powers(b, in[0], n);
    return attr[1].i ? r : lp_flip(b, r, -1);
}
