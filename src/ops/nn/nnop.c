/* Checks of arguments that the neural-network families share. */
#include "src/ops/nn/nnop.h"
#include "src/ops/view/view.h"

LpStatus lp_need_float(const LpInfer *x, int i, const char *name)
{
    LP_FAIL_IF(!lp_is_float(x->in[i].dtype), x->err, LP_E_NOT_IMPLEMENTED,
               "%s: `%s` must be a floating point tensor, got %s", x->op->name,
               name, lp_dtype_name(x->in[i].dtype));
    return LP_OK;
}

LpStatus lp_need_shape(const LpInfer *x, int i, const char *name,
                       const LpType *want)
{
    const LpType *t = &x->in[i];
    LP_FAIL_IF(t->dtype != LP_DT_NONE && !lp_shape_eq(t, want), x->err,
               LP_E_RUNTIME, "%s: expected `%s` to be of shape %s, but got %s",
               x->op->name, name, lp_shape_str(want), lp_shape_str(t));
    return LP_OK;
}

LpStatus lp_spread(LpInfer *x, LpAttr *a, int n, const char *name,
                   int64_t least)
{
    int64_t v[LP_MAX_DIMS];
    LP_FAIL_IF(a->n != 1 && a->n != n, x->err, LP_E_RUNTIME,
               "%s: `%s` must hold 1 or %d numbers, got %d", x->op->name, name,
               n, a->n);
    for (int i = 0; i < n; i++) {
        v[i] = a->v[a->n == 1 ? 0 : i];
        LP_FAIL_IF(v[i] < least, x->err, LP_E_RUNTIME,
                   "%s: `%s` must be at least %lld, got %lld", x->op->name,
                   name, (long long)least, (long long)v[i]);
        /* products of two of them stay below 2^63 */
        LP_FAIL_IF(v[i] > INT32_MAX, x->err, LP_E_RUNTIME,
                   "%s: `%s` must be below 2147483648, got %lld", x->op->name,
                   name, (long long)v[i]);
    }
    return lp_set_ints(x, (int)(a - x->attr), v, n);
}
