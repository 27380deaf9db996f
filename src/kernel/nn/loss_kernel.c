/* Kernels of losses: negative log-likelihood and its gradient, and the final
 * reduction. Sums are taken over fixed chunks, then over the chunks in order
 * and in float64, so they do not depend on the number of threads. */
#include <string.h>

#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/plain.h"

typedef enum { NONE, MEAN, SUM } Reduction;

static Reduction reduction_of(const char *s)
{
    return strcmp(s, "none") == 0 ? NONE : strcmp(s, "mean") == 0 ? MEAN : SUM;
}

/* x [n, classes, inner], target [n, inner] */
typedef struct Nll {
    int64_t n, classes, inner, ignore;
    Reduction how;
} Nll;

static LpStatus check_target(const Nll *s, const int64_t *target, LpErr *e)
{
    for (int64_t i = 0; i < s->n * s->inner; i++)
        LP_FAIL_IF(target[i] != s->ignore &&
                       (target[i] < 0 || target[i] >= s->classes),
                   e, LP_E_INDEX,
                   "target %lld is out of bounds: class ids count from 0 to "
                   "%lld, of %lld classes (sample %lld of the batch)",
                   (long long)target[i], (long long)s->classes - 1,
                   (long long)s->classes, (long long)(i / s->inner));
    return LP_OK;
}

#define CHUNK 4096

/* (x, target, weight) -> loss, total weight */
LP_PLAIN_CORE(nll_core)
{
    const Nll *s = (const void *)p->param;
    const int64_t *target = in[1];
    LpDtype t = (LpDtype)p->compute;
    LP_TRY(check_target(s, target, e));
    double sum = 0, total = 0, part = 0;
    for (int64_t i = 0; i < s->n * s->inner; i++) {
        int64_t c = target[i];
        double v = 0;
        if (c != s->ignore) {
            double w = in[2] ? lp_real_at(t, in[2], c) : 1;
            int64_t at =
                (i / s->inner * s->classes + c) * s->inner + i % s->inner;
            v = -w * lp_real_at(t, in[0], at);
            total += w;
        }
        if (s->how == NONE)
            lp_real_set(t, out[0], i, v);
        part += v;
        if (i % CHUNK == CHUNK - 1) {
            sum += part;
            part = 0;
        }
    }
    sum += part;
    if (s->how != NONE)
        lp_real_set(t, out[0], 0, s->how == MEAN ? sum / total : sum);
    lp_real_set(t, out[1], 0, total);
    return LP_OK;
}

static Nll nll_of(const LpDesc *target, const LpDesc *x, const LpAttr *a)
{
    int axis = x->ndim == 1 ? 0 : 1;
    Nll s = {.n = axis ? x->shape[0] : 1,
             .classes = x->shape[axis],
             .inner = lp_elements(target->shape + 1, target->ndim - 1),
             .how = reduction_of(a[LP_NLL_REDUCTION].str),
             .ignore = a[LP_NLL_IGNORE_INDEX].i};
    return s;
}

LP_KERNEL_PREPARE(lp_nll_prepare)
{
    Nll s = nll_of(&r->in[1], &r->in[0], r->attr);
    return lp_plain_prepare(r, k, nll_core, lp_plain_type(r->out[0].dtype), &s,
                            sizeof s, 0, e);
}

/* (dy, target, weight, total) -> dx */
LP_PLAIN_CORE(nll_back_core)
{
    const Nll *s = (const void *)p->param;
    const int64_t *target = in[1];
    LpDtype t = (LpDtype)p->compute;
    LP_TRY(check_target(s, target, e));
    int64_t all = s->n * s->classes * s->inner;
    memset(out[0], 0, (size_t)all * lp_dtype_size(t));
    double total = s->how == MEAN ? lp_real_at(t, in[3], 0) : 1;
    for (int64_t i = 0; i < s->n * s->inner; i++) {
        int64_t c = target[i];
        if (c == s->ignore)
            continue;
        double w = in[2] ? lp_real_at(t, in[2], c) : 1;
        double g = lp_real_at(t, in[0], s->how == NONE ? i : 0);
        int64_t at = (i / s->inner * s->classes + c) * s->inner + i % s->inner;
        lp_real_set(t, out[0], at, -w * g / total);
    }
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_nll_back_prepare)
{
    Nll s = nll_of(&r->in[1], &r->out[0], r->attr);
    return lp_plain_prepare(r, k, nll_back_core, lp_plain_type(r->out[0].dtype),
                            &s, sizeof s, 0, e);
}

/* ---- the final reduction ------------------------------------------------- */
typedef struct Final {
    int64_t n;
    Reduction how;
} Final;

LP_PLAIN_CORE(final_core)
{
    const Final *s = (const void *)p->param;
    LpDtype t = (LpDtype)p->compute;
    size_t size = lp_dtype_size(t);
    double *part = work, sum = 0;
    if (s->how == NONE) {
        memcpy(out[0], in[0], (size_t)s->n * size);
        return LP_OK;
    }
    int64_t chunks = (s->n + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(lp_plain_width(p, s->n)) schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t n = s->n - c * CHUNK < CHUNK ? s->n - c * CHUNK : CHUNK;
        part[c] =
            t == LP_F64
                ? lp_nn()->f64->sum((double *)in[0] + c * CHUNK, n)
                : (double)lp_nn()->f32->sum((float *)in[0] + c * CHUNK, n);
    }
    for (int64_t c = 0; c < chunks; c++)
        sum += part[c];
    lp_real_set(t, out[0], 0, s->how == MEAN ? sum / (double)s->n : sum);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_identity_loss_prepare)
{
    Final s = {.n = lp_desc_numel(&r->in[0]),
               .how = reduction_of(r->attr[LP_IDENTITY_LOSS_REDUCTION].str)};
    size_t chunks = (size_t)((s.n + CHUNK - 1) / CHUNK);
    return lp_plain_prepare(r, k, final_core, lp_plain_type(r->out[0].dtype),
                            &s, sizeof s, chunks * sizeof(double), e);
}
