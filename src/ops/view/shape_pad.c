/* nn.functional.pad. A constant is one operator; the other modes join the
 * operand with parts of itself, dimension by dimension from the last:
 *
 *   reflect    the inner neighbours of the edge, backwards
 *   replicate  the edge itself, expanded
 *   circular   the other side
 *
 * Negative widths crop; floats that are not cropped have an operator of their
 * own (pad_edges.c). */
#include <string.h>

#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define LL(x) ((long long)(x))

static LpVal part(LpBuilder *b, LpVal x, int d, int64_t from, int64_t to)
{
    return lp_slice(b, x, d, from, to, 1);
}

/* One side of one dimension of n elements, `p` > 0 wide. */
static LpVal pad_side(LpBuilder *b, LpVal x, int d, int64_t p, bool before,
                      const char *mode)
{
    LpType t = lp_type_of(b, x);
    int64_t n = t.shape[d];
    switch (mode[2]) {
    case 'f': { /* reflect */
        LpVal v =
            before ? part(b, x, d, 1, p + 1) : part(b, x, d, n - 1 - p, n - 1);
        return lp_flip(b, v, d);
    }
    case 'p': { /* replicate */
        LpVal v = before ? part(b, x, d, 0, 1) : part(b, x, d, n - 1, n);
        t.shape[d] = p;
        return lp_expand_as(b, v, &t);
    }
    default: /* circular */
        return before ? part(b, x, d, n - p, n) : part(b, x, d, 0, p);
    }
}

static bool check_side(LpBuilder *b, int64_t p, int64_t n, int d,
                       const char *mode)
{
    int64_t most = mode[2] == 'f' ? n - 1 : mode[2] == 'r' ? n : INT64_MAX;
    if (p > most || (p > 0 && n == 0))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "pad: mode '%s' allows a padding of at most %lld for "
                         "dimension %d of size %lld, got %lld",
                         mode, LL(most < n ? most : n), d, LL(n), LL(p));
    return true;
}

static bool check_widths(LpBuilder *b, int64_t before, int64_t after, int64_t n,
                         int d, const char *mode)
{
    const int64_t most = INT64_C(1) << 60;
    if (before < -most || before > most || after < -most || after > most)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "pad: %lld and %lld elements at the sides of "
                         "dimension %d; each must lie between -2^60 and 2^60",
                         LL(before), LL(after), d);
    if (n + before + after < (mode[0] == 'r'))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "pad: nothing is left of dimension %d of size %lld "
                         "after %lld and %lld elements at its sides",
                         d, LL(n), LL(before), LL(after));
    return check_side(b, before, n, d, mode) &&
           check_side(b, after, n, d, mode);
}

LpVal lp_pad_sides(LpBuilder *b, LpVal x, int d, int64_t before, int64_t after,
                   const char *mode)
{
    LpVal v[3];
    int k = 0;
    if (before > 0)
        v[k++] = pad_side(b, x, d, before, true, mode);
    v[k++] = x;
    if (after > 0)
        v[k++] = pad_side(b, x, d, after, false, mode);
    return k == 1 ? x : lp_cat(b, v, k, d);
}

/* What is cropped is the result's, except of a circle. */
static LpVal pad_dim(LpBuilder *b, LpVal x, int d, int64_t before,
                     int64_t after, const char *mode)
{
    int64_t n = lp_type(b, x)->shape[d];
    if (!check_widths(b, before, after, n, d, mode))
        return LP_NOVAL;
    int64_t crop = before < 0 ? -before : 0;
    if (before >= 0 && after >= 0)
        return lp_pad_sides(b, x, d, before, after, mode);
    if (mode[0] == 'r')
        return part(b, lp_pad_sides(b, x, d, before, after, mode), d, crop,
                    crop + n + before + after);
    if (n + before + after == 0)
        return part(b, x, d, 0, 0);
    int64_t left = n - crop + (after < 0 ? after : 0);
    left = left < 0 ? 0 : left;
    if (!check_side(b, before, left, d, mode) ||
        !check_side(b, after, left, d, mode))
        return LP_NOVAL;
    x = part(b, x, d, crop, crop + left);
    return lp_pad_sides(b, x, d, before, after, mode);
}

/* Floats that there are, without a width below zero. */
static bool pads_only(const LpAttr *pad, const LpType *x)
{
    bool some = false;
    if (!lp_is_float(x->dtype) || lp_numel(x) == 0)
        return false;
    for (int i = 0; i < pad->n; i++) {
        if (pad->v[i] < 0)
            return false;
        some |= pad->v[i] > 0;
    }
    return some;
}

static LpVal pad_by_mode(LpBuilder *b, const LpAttr *pad, const LpAttr *how,
                         LpVal x)
{
    const char *mode = how->str;
    int n = lp_type(b, x)->ndim, m = pad->n / 2;
    if (strcmp(mode, "reflect") != 0 && strcmp(mode, "replicate") != 0 &&
        strcmp(mode, "circular") != 0)
        return LP_REFUSE(b, LP_E_NOT_IMPLEMENTED,
                         "Unrecognised padding mode %s (allowed: constant, "
                         "reflect, replicate, circular)",
                         mode);
    if (m < 1 || m > 3 || (n != m + 1 && n != m + 2)) {
        lp_fail(
            b->err, LP_E_NOT_IMPLEMENTED,
            "pad: mode %s takes 2, 4 or 6 values, for the last 1, 2 or 3 of "
            "2 to 5 dimensions with a batch or channel dimension before "
            "them; got %d values for %d dimensions",
            mode, pad->n, n);
        return LP_NOVAL;
    }
    for (int d = n == m + 2; d < n && mode[0] == 'r'; d++)
        if (lp_type(b, x)->shape[d] == 0)
            return LP_REFUSE(
                b, LP_E_RUNTIME,
                "pad: mode %s: dimension %d is empty; only the batch may be",
                mode, d);
    if (pads_only(pad, lp_type(b, x))) {
        for (int i = 0; i < m; i++)
            if (!check_widths(b, pad->v[2 * i], pad->v[2 * i + 1],
                              lp_type(b, x)->shape[n - 1 - i], n - 1 - i, mode))
                return LP_NOVAL;
        LpAttr a[] = {*pad, *how};
        return lp_emit(b, LP_OP_pad_edges, &x, 1, a);
    }
    LpVal y = x;
    bool crops = false;
    for (int i = 0; i < m && !lp_failed(b); i++) {
        y = pad_dim(b, y, n - 1 - i, pad->v[2 * i], pad->v[2 * i + 1], mode);
        crops |= pad->v[2 * i] < 0 || pad->v[2 * i + 1] < 0;
    }
    return y == x || crops ? lp_clone(b, y) : y;
}

/* Reflection and replication have kernels of their own; constant and circular
 * padding copy. */
static LpCast cast_pad(const LpAttr *attr)
{
    bool own = strcmp(attr[1].str, "reflect") == 0 ||
               strcmp(attr[1].str, "replicate") == 0;
    return own ? LP_CAST_WIDE : LP_CAST_AS_IS;
}

LP_FORMULA(pad,
           "pad(Tensor input, int[] pad, str mode='constant', float? "
           "value=None) -> Tensor @n",
           .cast_of = cast_pad)
{
    const LpAttr *pad = &attr[0], *value = &attr[2];
    const char *mode = attr[1].str;
    int n = lp_type(b, in[0])->ndim;
    if (pad->n % 2 != 0 || pad->n > 2 * n)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "Padding length must be divisible by 2 and at most "
                         "two times the number of dimensions of the input, got "
                         "%d values for %d dimensions",
                         pad->n, n);
    if (strcmp(mode, "constant") == 0) {
        LpAttr a[] = {*pad, lp_attr_none(value)
                                ? lp_attr_scalar(lp_int(0))
                                : lp_attr_scalar(lp_float(value->f))};
        return lp_emit(b, LP_OP_constant_pad_nd, &in[0], 1, a);
    }
    if (!lp_attr_none(value) && value->f != 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "Padding mode \"%s\" doesn't take in value argument",
                         mode);
    return pad_by_mode(b, pad, &attr[1], in[0]);
}
