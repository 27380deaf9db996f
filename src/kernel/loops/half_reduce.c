/* A sum is a product with ones: those that are kept lie side by side in its
 * panels, those that are summed are its index. */
#include "src/kernel/loops/half_reduce.h"

#include "src/base/mem.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/half_sums.h"

typedef struct Sums {
    LpHalfSums *h;
    int64_t kept;
    float each; /* of a mean: what a sum is divided by */
} Sums;

static void drop(void *state)
{
    Sums *s = state;
    lp_free(s->h);
    lp_free(s);
}

LP_PLAIN_CORE(core)
{
    const Sums *s = lp_plain_owned(p);
    const float one = 1;
    float *y = out[0];
    lp_half_sums_run(s->h, &one, in[0], y, work);
    for (int64_t i = 0; i < s->kept && s->each != 1; i++)
        y[i] /= s->each;
    return LP_OK;
}

/* Sizes and strides of x, as it is once it is contiguous. */
typedef struct Axes {
    int n;
    int64_t size[LP_MAX_DIMS], stride[LP_MAX_DIMS], all;
} Axes;

static void axes(const LpDesc *x, const LpAttr *dims, Axes side[2])
{
    int64_t step[LP_MAX_DIMS], at = 1;
    for (int d = x->ndim - 1; d >= 0; d--, at *= x->shape[d + 1])
        step[d] = at;
    side[0] = side[1] = (Axes){.all = 1};
    for (int d = 0; d < x->ndim; d++) {
        Axes *a = &side[lp_reduce_lists(dims, d)];
        a->size[a->n] = x->shape[d];
        a->stride[a->n++] = step[d];
        a->all *= x->shape[d];
    }
}

LpStatus lp_half_reduce_prepare(const LpKernelReq *r, bool mean,
                                const LpAttr *dims, LpKernel *k, LpErr *e)
{
    Axes side[2];
    axes(&r->in[0], dims, side);
    const Axes *kept = &side[0], *red = &side[1];
    Sums *s = lp_calloc(1, sizeof *s);
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "%s: out of memory", r->op->name);
    s->kept = kept->all;
    s->each = mean ? (float)red->all : 1;
    LpStatus st = lp_half_sums_new(r, 1, 1, kept->all, red->all, &s->h, e);
    if (st == LP_OK) {
        LpHalfSums *h = s->h;
        lp_half_sums_axes(h->b_k, red->n, red->size, red->stride, 0);
        lp_half_sums_axes(h->b_j, kept->n, kept->size, kept->stride, 0);
        lp_half_sums_axes(h->c_j, 1, &kept->all, &(int64_t){1}, 0);
        st = lp_half_sums_ready(h, e);
    }
    if (st != LP_OK) {
        drop(s);
        return st;
    }
    return lp_plain_prepare_owned(r, k, core, LP_F32, (LpPlainOwned){s, drop},
                                  s->h->work, e);
}
