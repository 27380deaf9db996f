/* Shapes in text, compared and broadcast. */
#include "src/tensor/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/checked.h"

const LpType *lp_number_type(LpKind k)
{
    static const LpType types[LP_N_DTYPES] = {
#define DTYPE(id, name, bytes, kind, ctype)                                    \
    [LP_##id] = {.dtype = LP_##id, .wrapped = true},
#include "src/tensor/dtypes.def"
#undef DTYPE
    };
    LpPromo p = LP_PROMO_INIT;
    lp_promo_number(&p, k);
    return &types[p.num];
}

bool lp_sizes_eq(const LpType *a, const LpType *b, int n)
{
    return memcmp(a->shape, b->shape, (size_t)n * sizeof *a->shape) == 0;
}

bool lp_shape_eq(const LpType *a, const LpType *b)
{
    return a->ndim == b->ndim && lp_sizes_eq(a, b, a->ndim);
}

void lp_type_drop_first(LpType *t)
{
    t->ndim--;
    memmove(t->shape, t->shape + 1, (size_t)t->ndim * sizeof *t->shape);
}

void lp_type_add_first(LpType *t, int64_t n)
{
    memmove(t->shape + 1, t->shape, (size_t)t->ndim * sizeof *t->shape);
    t->shape[0] = n;
    t->ndim++;
}

bool lp_type_eq(const LpType *a, const LpType *b)
{
    return a->dtype == b->dtype && lp_shape_eq(a, b);
}

const char *lp_shape_str_in(const LpType *t, char buf[LP_SHAPE_STR])
{
    size_t n = 0;
    buf[n++] = '[';
    for (int i = 0; i < t->ndim && n < LP_SHAPE_STR - 24; i++)
        n += (size_t)snprintf(buf + n, LP_SHAPE_STR - n, "%s%" PRId64,
                              i ? ", " : "", t->shape[i]);
    buf[n++] = ']';
    buf[n] = '\0';
    return buf;
}

LpStatus lp_shape_check(const LpType *t, LpErr *e)
{
    int64_t n = (int64_t)lp_dtype_size(t->dtype);
    for (int i = 0; i < t->ndim; i++) {
        LP_FAIL_IF(t->shape[i] < 0, e, LP_E_RUNTIME,
                   "a size must not be negative: %s", lp_shape_str(t));
        LP_FAIL_IF(t->shape[i] > 0 && !lp_mul_i64(n, t->shape[i], &n), e,
                   LP_E_OVERFLOW,
                   "a tensor of shape %s has too many elements: its sizes, "
                   "without zeros, multiply beyond 2^63 bytes",
                   lp_shape_str(t));
    }
    return LP_OK;
}

LpStatus lp_broadcast(LpType *out, const LpType *t, LpErr *e)
{
    LpType a = *out;
    int n = a.ndim > t->ndim ? a.ndim : t->ndim;
    for (int i = 1; i <= n; i++) {
        int64_t x = i <= a.ndim ? a.shape[a.ndim - i] : 1;
        int64_t y = i <= t->ndim ? t->shape[t->ndim - i] : 1;
        if (x != y && x != 1 && y != 1) {
            return lp_fail(e, LP_E_RUNTIME,
                           "shapes %s and %s do not broadcast: sizes %" PRId64
                           " and %" PRId64 " at dimension %d",
                           lp_shape_str(&a), lp_shape_str(t), x, y, n - i);
        }
        out->shape[n - i] = x == 1 ? y : x;
    }
    out->ndim = (int8_t)n;
    return LP_OK;
}

LpStatus lp_wrap_dim(int64_t *dim, int ndim, LpErr *e)
{
    int64_t n = ndim > 0 ? ndim : 1;
    LP_FAIL_IF(*dim < -n || *dim >= n, e, LP_E_INDEX,
               "dimension out of range: expected one in [%" PRId64 ", %" PRId64
               "], got %" PRId64,
               -n, n - 1, *dim);
    if (*dim < 0)
        *dim += n;
    return LP_OK;
}

void lp_contiguous_strides(const LpType *t, int64_t strides[LP_MAX_DIMS])
{
    int64_t s = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        strides[i] = s;
        s *= t->shape[i] > 0 ? t->shape[i] : 1;
    }
}
