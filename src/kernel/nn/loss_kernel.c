/* Kernels of losses: negative log-likelihood and its gradient, and the final
 * reduction. Sums are taken over fixed chunks, then over the chunks in order
 * and in float64, so they do not depend on the number of threads. */
#include <string.h>

#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/plain.h"
#include "src/kernel/state.h"

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

static int64_t chunks_of(const Final *s)
{
    return (s->n + CHUNK - 1) / CHUNK;
}

static int64_t chunk_end(const Final *s, int64_t c)
{
    return s->n - c * CHUNK < CHUNK ? s->n : (c + 1) * CHUNK;
}

/* Of chunk c, whose elements lie at x. */
static double chunk_sum(const Final *s, LpDtype t, int64_t c, const void *x)
{
    int64_t n = chunk_end(s, c) - c * CHUNK;
    return t == LP_F64 ? lp_nn()->f64->sum(x, n)
                       : (double)lp_nn()->f32->sum(x, n);
}

static void join(const Final *s, LpDtype t, const double *part, void *out)
{
    double sum = 0;
    for (int64_t c = 0; c < chunks_of(s); c++)
        sum += part[c];
    lp_real_set(t, out, 0, s->how == MEAN ? sum / (double)s->n : sum);
}

LP_PLAIN_CORE(final_core)
{
    const Final *s = (const void *)p->param;
    LpDtype t = (LpDtype)p->compute;
    size_t size = lp_dtype_size(t);
    double *part = work;
    if (s->how == NONE) {
        memcpy(out[0], in[0], (size_t)s->n * size);
        return LP_OK;
    }
    int64_t chunks = chunks_of(s);
#pragma omp parallel for num_threads(lp_plain_width(p, s->n)) schedule(static)
    for (int64_t c = 0; c < chunks; c++)
        part[c] =
            chunk_sum(s, t, c, (char *)in[0] + (size_t)(c * CHUNK) * size);
    join(s, t, part, out[0]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_identity_loss_prepare)
{
    Final s = {.n = lp_desc_numel(&r->in[0]),
               .how = reduction_of(r->attr[LP_IDENTITY_LOSS_REDUCTION].str)};
    return lp_plain_prepare(r, k, final_core, lp_plain_type(r->out[0].dtype),
                            &s, sizeof s,
                            (size_t)chunks_of(&s) * sizeof(double), e);
}

/* The same of a chain's result, chunk by chunk. */
typedef struct ChainFinal {
    Final f;
    LpDtype type;
    LpKernel chain;
    size_t parts, each; /* bytes of all sums; of a thread's scratch */
} ChainFinal;

LP_KERNEL_RUN(run_chain_final)
{
    const ChainFinal *s = k->state;
    double *part = work;
    int64_t chunks = chunks_of(&s->f);
#pragma omp parallel for num_threads(k->threads)                               \
    schedule(static, 1) if (k->threads > 1)
    for (int t = 0; t < k->threads; t++) {
        char *values = (char *)work + s->parts + (size_t)t * s->each;
        int64_t end = chunks * (t + 1) / k->threads;
        for (int64_t c = chunks * t / k->threads; c < end; c++) {
            lp_fused_values(&s->chain, in, values, values + CHUNK * 8, rc,
                            c * CHUNK, chunk_end(&s->f, c));
            part[c] = chunk_sum(&s->f, s->type, c, values);
        }
    }
    join(&s->f, s->type, part, out[0]);
    return LP_OK;
}

static void drop_chain_final(void *state)
{
    ChainFinal *s = state;
    lp_kernel_fini(&s->chain);
    lp_free(s);
}

LpStatus lp_identity_loss_of_chain(const LpFusedReq *r, const char *reduction,
                                   LpKernel *k, LpErr *e)
{
    ChainFinal *s = lp_calloc(1, sizeof *s);
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "out of memory");
    s->f = (Final){lp_desc_numel(&r->out[0]), reduction_of(reduction)};
    s->type = r->out[0].dtype;
    LpStatus status = lp_fused_prepare(r, &s->chain, e);
    if (status != LP_OK) {
        lp_free(s);
        return status;
    }
    s->parts = ((size_t)chunks_of(&s->f) * sizeof(double) + 63) / 64 * 64;
    s->each = (CHUNK * 8 + lp_fused_work(&s->chain) + 63) / 64 * 64;
    k->threads = s->chain.threads;
    k->work_bytes = s->parts + (size_t)k->threads * s->each;
    lp_kernel_own(s, drop_chain_final, run_chain_final, k);
    return LP_OK;
}
