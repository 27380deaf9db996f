/* Asks the library for the layout of the weight gradient and makes the
 * reorders from and to plain rows. */
#include "src/kernel/nn/conv_layout.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/product/packed.h"
#include "src/kernel/state.h"

int lp_conv_axes(const LpDesc *d, bool weights, int64_t groups,
                 int64_t shape[6], int64_t strides[6])
{
    int k = 0;
    for (int i = 0; i < d->ndim; i++) {
        if (weights && i == 0 && groups > 1) {
            shape[k] = groups;
            strides[k++] = d->shape[0] / groups * d->strides[0];
            shape[k] = d->shape[0] / groups;
        } else {
            shape[k] = d->shape[i];
        }
        strides[k++] = d->strides[i];
    }
    return k;
}

LpDesc lp_conv_layout_flat(const LpDesc *d)
{
    LpDesc f = {.dtype = d->dtype, .ndim = 1};
    f.shape[0] = (int64_t)(d->layout->layout.bytes / lp_dtype_size(d->dtype));
    f.strides[0] = 1;
    return f;
}

/* ---- copies ------------------------------------------------------------- */
static LpStatus layout_of(const LpDesc *d, int64_t groups, LpDnnLayout *out,
                          LpErr *e)
{
    if (d->layout) {
        *out = d->layout->layout;
        return LP_OK;
    }
    int64_t shape[6], strides[6];
    int n = lp_conv_axes(d, true, groups, shape, strides);
    return lp_dnn_plain(d->dtype, n, shape, strides, out, e);
}

LpStatus lp_conv_layout_copy(const LpDesc *from, const LpDesc *to, int threads,
                             LpKernel *k, LpErr *e)
{
    LpDnnLayout a, b;
    LpDnnPrim *prim;
    int64_t groups = (from->layout ? from : to)->layout->groups;
    LP_TRY(layout_of(from, groups, &a, e));
    LP_TRY(layout_of(to, groups, &b, e));
    LP_TRY(lp_dnn_reorder_new(&a, &b, threads, &prim, e));
    lp_reorder_kernel(prim, k);
    k->threads = threads;
    return LP_OK;
}

/* ---- padding ------------------------------------------------------------ */
typedef struct Run {
    size_t first, n;
} Run;

typedef struct Padding {
    size_t n;
    Run run[];
} Padding;

LP_KERNEL_RUN(run_clear)
{
    const Padding *p = k->state;
    float *at = out[0];
    for (size_t i = 0; i < p->n; i++)
        memset(at + p->run[i].first, 0, p->run[i].n * sizeof *at);
    return LP_OK;
}

/* Runs of zeros; `run` NULL: only counts. */
static size_t zeros(const float *x, size_t n, Run *run)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != 0)
            continue;
        size_t first = i;
        while (i < n && x[i] == 0)
            i++;
        if (run)
            run[found] = (Run){first, i - first};
        found++;
    }
    return found;
}

/* A copy of ones in the library's layout: where is it still zero? */
static LpStatus ones(const LpDesc *d, const LpDesc *plain, float *layout,
                     LpErr *e)
{
    LpKernel copy = {.threads = 1};
    int64_t n = lp_desc_numel(plain);
    LP_TRY(lp_conv_layout_copy(plain, d, 1, &copy, e));
    float *one = lp_alloc_aligned((size_t)n * sizeof *one);
    void *work = lp_alloc_aligned(copy.work_bytes + 1);
    LpStatus s = LP_OK;
    if (one && work) {
        for (int64_t i = 0; i < n; i++)
            one[i] = 1;
        LpRunCtx rc = {0};
        s = copy.run(&copy, (void *[]){one}, (void *[]){layout}, work, &rc, e);
    } else {
        s = lp_no_memory(e);
    }
    copy.fini(&copy);
    lp_free(one);
    lp_free(work);
    return s;
}

LpStatus lp_conv_layout_clear(const LpDesc *d, LpKernel *k, bool *padded,
                              LpErr *e)
{
    LpDesc plain = *d;
    plain.layout = NULL;
    size_t bytes = d->layout->layout.bytes, n = bytes / sizeof(float);
    *padded = n != (size_t)lp_desc_numel(&plain);
    if (!*padded)
        return LP_OK;
    float *x = lp_alloc_aligned(bytes);
    LP_FAIL_IF(!x, e, LP_E_MEMORY, "out of memory");
    memset(x, 0, bytes);
    LpStatus s = ones(d, &plain, x, e);
    size_t bytes_of =
        sizeof(Padding) + (s == LP_OK ? zeros(x, n, NULL) : 0) * sizeof(Run);
    if (s == LP_OK)
        s = lp_kernel_state("padding", bytes_of, run_clear, k, e);
    if (s == LP_OK) {
        Padding *p = k->state;
        p->n = zeros(x, n, p->run);
    }
    lp_free(x);
    return s;
}
