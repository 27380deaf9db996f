/* The geometry of a view is what its record's shape rule says of memory. */
#include "src/kernel/copy/view_geometry.h"

#include "src/base/mem.h"

LpStatus lp_view_geometry(const LpOp *op, const LpAttr *attr, int n_attr,
                          const LpType *base, const int64_t *strides,
                          LpViewGeometry *g, LpErr *e)
{
    LpArena arena = {0};
    LpAttr a[LP_MAX_ATTR];
    int64_t own[LP_MAX_DIMS];
    for (int i = 0; i < LP_MAX_ATTR; i++)
        a[i] = i < n_attr ? attr[i] : LP_NONE_ATTR;
    if (!strides)
        lp_contiguous_strides(base, own);
    *g = (LpViewGeometry){.offset = 0};
    LpInfer x = {.op = op,
                 .n_in = 1,
                 .n_out = 1,
                 .in = base,
                 .attr = a,
                 .out = &g->type,
                 .arena = &arena,
                 .err = e,
                 .in_strides = strides ? strides : own,
                 .strides = g->strides,
                 .offset = &g->offset,
                 .needs_copy = &g->needs_copy};
    LpStatus st = lp_op_infer(&x);
    lp_arena_fini(&arena);
    return st;
}

bool lp_view_overlaps(const LpViewGeometry *g)
{
    /* by growing stride, each must step over all that the smaller span */
    bool done[LP_MAX_DIMS] = {false};
    int64_t span = 0;
    for (int k = 0; k < g->type.ndim; k++) {
        int best = -1;
        for (int i = 0; i < g->type.ndim; i++)
            if (!done[i] && (best < 0 || g->strides[i] < g->strides[best]))
                best = i;
        done[best] = true;
        if (g->type.shape[best] < 2)
            continue;
        if (g->strides[best] <= span)
            return true;
        span += g->strides[best] * (g->type.shape[best] - 1);
    }
    return false;
}
