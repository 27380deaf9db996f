/* The dimensions of a reduction, merged where memory allows. */
#include <string.h>

#include "src/kernel/loops/reduce_kernel.h"

bool lp_reduce_lists(const LpAttr *dims, int d)
{
    for (int i = 0; i < dims->n; i++)
        if (dims->v[i] == d)
            return true;
    return false;
}

/* Appends a dimension or merges it into the one before. */
static void add_axis(LpAxis *axis, int8_t *n, LpAxis a)
{
    if (a.size == 1)
        return;
    if (*n > 0) {
        LpAxis *o = &axis[*n - 1];
        if (o->in == a.in * a.size && o->out == a.out * a.size) {
            *o = (LpAxis){o->size * a.size, a.in, a.out};
            return;
        }
    }
    axis[(*n)++] = a;
}

void lp_reduce_geometry(const LpDesc *x, const LpDesc *y, const LpAttr *dims,
                        LpReduceGeo *g)
{
    int64_t in = (int64_t)lp_dtype_size(x->dtype);
    int64_t out = (int64_t)lp_dtype_size(y->dtype);
    LpAxis red[LP_MAX_DIMS + 1];
    bool keep = y->ndim == x->ndim;
    g->n_kept = g->n_red = 0;
    g->kept_elems = g->red_elems = 1;
    for (int d = 0, at = 0; d < x->ndim; d++) {
        LpAxis a = {x->shape[d], x->strides[d] * in, 0};
        if (lp_reduce_lists(dims, d)) {
            if (keep && y->shape[at] == a.size)
                a.out = y->strides[at] * out;
            g->red_elems *= a.size;
            add_axis(red, &g->n_red, a);
            at += keep;
            continue;
        }
        a.out = y->strides[at++] * out;
        g->kept_elems *= a.size;
        add_axis(g->axis, &g->n_kept, a);
    }
    if (g->n_kept == 0)
        g->axis[g->n_kept++] = (LpAxis){1, 0, 0};
    if (g->n_red == 0)
        red[g->n_red++] = (LpAxis){1, 0, 0};
    memcpy(g->axis + g->n_kept, red, (size_t)g->n_red * sizeof *red);
}
