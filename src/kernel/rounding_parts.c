/* See rounding_parts.h. Two kernels are prepared, of a whole part and of what
 * is left over. */
#include "src/kernel/rounding_parts.h"

#include <omp.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/loops.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

enum { PART = 4096, MOST = LP_MAX_IN + LP_MAX_OUT };

typedef struct Parts {
    LpKernel whole, rest;
    uint64_t site;
    int64_t n;
    int n_in, n_all, threads;
    size_t each, off; /* scratch of a thread; of the kernels in it */
    LpDtype type[MOST];
    bool line[MOST]; /* n elements; others are passed as they are */
    bool wide[MOST]; /* float32 for the kernel */
} Parts;

static const LpDesc *tensor(const LpKernelReq *r, int i)
{
    return i < r->n_in ? &r->in[i] : &r->out[i - r->n_in];
}

static bool is_number(const LpDesc *d)
{
    return d->dtype == LP_DT_NONE || d->is_imm;
}

bool lp_rounds_in_parts(const LpKernelReq *r)
{
    int64_t n = lp_desc_numel(&r->out[0]);
    bool fits = r->op->flags & LP_OPF_ELEMENTWISE && n > 1 &&
                r->n_in <= LP_MAX_IN && r->n_out <= LP_MAX_OUT;
    for (int i = 0; i < r->n_in + r->n_out && fits; i++) {
        const LpDesc *d = tensor(r, i);
        if (is_number(d))
            continue;
        int64_t m = lp_desc_numel(d);
        bool line = m == n && lp_desc_contiguous(d);
        fits = !d->block && !d->layout &&
               (line || m == 0 || (m == 1 && !lp_is_half(d->dtype)));
    }
    return fits;
}

/* ---- running ------------------------------------------------------------- */
static LpStatus run_part(const Parts *p, void *const *own, int64_t part,
                         char *scratch, const LpRunCtx *rc, LpErr *e)
{
    int64_t at = part * PART, n = lp_min(PART, p->n - at);
    const LpKernel *k = n == PART ? &p->whole : &p->rest;
    void *ptr[MOST];
    float *x = (float *)(void *)scratch;
    for (int i = 0; i < p->n_all; i++) {
        size_t size = p->line[i] ? lp_dtype_size(p->type[i]) : 0;
        ptr[i] = p->line[i] ? (char *)own[i] + (size_t)at * size : own[i];
        if (!p->wide[i])
            continue;
        if (i < p->n_in)
            lp_convert_loop(p->type[i], LP_F32)(n, x, 4, ptr[i], 2);
        ptr[i] = x;
        x += PART;
    }
    LP_TRY(k->run(k, ptr, ptr + p->n_in, scratch + p->off, rc, e));
    for (int i = p->n_in; i < p->n_all; i++) {
        LpRandom r = lp_rounding_stream(rc, p->site, i - p->n_in);
        if (p->wide[i])
            lp_store_at_random(&r, p->type[i], (uint64_t)at, n, ptr[i],
                               (uint16_t *)own[i] + at);
    }
    return LP_OK;
}

LP_KERNEL_RUN(run)
{
    const Parts *p = k->state;
    int64_t parts = (p->n + PART - 1) / PART;
    void *own[MOST];
    memcpy(own, in, (size_t)p->n_in * sizeof *own);
    memcpy(own + p->n_in, out, (size_t)(p->n_all - p->n_in) * sizeof *own);
    int bad = 0;
#pragma omp parallel for num_threads(p->threads) schedule(static)              \
    reduction(+ : bad) if (p->threads > 1)
    for (int64_t i = 0; i < parts; i++) {
        LpErr mine = {0};
        char *scratch = (char *)work + (size_t)omp_get_thread_num() * p->each;
        bad += run_part(p, own, i, scratch, rc, &mine) != LP_OK;
    }
    LP_FAIL_IF(bad, e, LP_E_INTERNAL, "a part of an update failed");
    return LP_OK;
}

/* ---- preparing ----------------------------------------------------------- */
static void drop(void *state)
{
    Parts *p = state;
    lp_kernel_fini(&p->whole);
    lp_kernel_fini(&p->rest);
    lp_free(p);
}

static LpStatus prepare_part(const LpKernelReq *r, const Parts *p, int64_t n,
                             LpKernel *k, LpErr *e)
{
    LpDesc seen[MOST];
    LpKernelReq q = *r;
    for (int i = 0; i < p->n_all; i++) {
        seen[i] = *tensor(r, i);
        if (p->wide[i])
            seen[i].dtype = LP_F32;
        if (p->line[i]) {
            seen[i].ndim = 1;
            seen[i].shape[0] = n;
            seen[i].strides[0] = 1;
        }
    }
    q.in = seen;
    q.out = seen + r->n_in;
    q.threads = k->threads = 1;
    return n ? r->op->prepare(&q, k, e) : LP_OK;
}

LP_KERNEL_PREPARE(lp_rounding_parts_prepare)
{
    Parts *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "%s: out of memory", r->op->name);
    p->site = r->site;
    p->n = lp_desc_numel(&r->out[0]);
    p->n_in = r->n_in;
    p->n_all = r->n_in + r->n_out;
    p->threads = r->threads < 1 ? 1 : r->threads;
    for (int i = 0; i < p->n_all; i++) {
        const LpDesc *d = tensor(r, i);
        p->type[i] = d->dtype;
        p->line[i] = !is_number(d) && lp_desc_numel(d) == p->n;
        p->wide[i] = p->line[i] && lp_is_half(d->dtype);
        p->off += p->wide[i] ? PART * sizeof(float) : 0;
    }
    LpStatus s = prepare_part(r, p, lp_min(PART, p->n), &p->whole, e);
    if (s == LP_OK)
        s = prepare_part(r, p, p->n % PART, &p->rest, e);
    if (s != LP_OK) {
        drop(p);
        return s;
    }
    size_t inner = p->whole.work_bytes > p->rest.work_bytes
                       ? p->whole.work_bytes
                       : p->rest.work_bytes;
    p->each = p->off + (inner + 63) / 64 * 64;
    k->work_bytes = p->each * (size_t)p->threads;
    lp_kernel_own(p, drop, run, k);
    return LP_OK;
}
