/* The one place that rounds at random. See rounding.h. */
#include "src/kernel/rounding.h"

#include <math.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/half.h"
#include "src/base/mem.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/state.h"

enum {
    WORDS = 1024,       /* of a block; a multiple of 4 */
    PARALLEL = 1 << 14, /* elements that pay for waking a thread */
};

/* Apart from what an operator draws itself at its site. */
#define LP_ROUNDING 0x726f756e64696e67u

LpRandom lp_rounding_stream(const LpRunCtx *rc, uint64_t site, int result)
{
    site = lp_mix64_pair(site, LP_ROUNDING + (uint64_t)result);
    return lp_random(rc->seed, site, rc->iteration, rc->replica,
                     rc->micro_batch);
}

/* ---- numbers ------------------------------------------------------------- */
/* Adds w, below the last place that is kept, to the magnitude, and cuts: `drop`
 * bits of the significand go. A carry moves into the exponent. */
static inline uint32_t cut(uint32_t u, uint32_t w, int drop)
{
    uint32_t low = ((uint32_t)1 << drop) - 1;
    return (u + (w >> (32 - drop))) & ~low;
}

/* float16 below 2^-14: multiples of 2^-24. */
static float round_small(float x, uint32_t w)
{
    double m = fabs((double)x) * 0x1p24, whole = floor(m);
    whole += m - whole > (double)w * 0x1p-32;
    return copysignf((float)(whole * 0x1p-24), x);
}

static void round_f16(int64_t n, float *x, const uint32_t *w)
{
    int small = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = lp_float_bits(x[i]), m = u & 0x7fffffff;
        bool fits = m >= 0x38800000 && m < 0x477fe000; /* 2^-14, 65504 */
        small |= m < 0x38800000 && m != 0;
        x[i] = lp_bits_float(fits ? cut(u, w[i], 13) : u);
    }
    for (int64_t i = 0; small && i < n; i++)
        if (fabsf(x[i]) < 0x1p-14f)
            x[i] = round_small(x[i], w[i]);
}

static void round_bf16(int64_t n, float *x, const uint32_t *w)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = lp_float_bits(x[i]);
        bool fits = (u & 0x7fffffff) < 0x7f7f0000; /* the largest */
        x[i] = lp_bits_float(fits ? cut(u, w[i], 16) : u);
    }
}

void lp_round_at_random(const LpRandom *r, LpDtype to, uint64_t at, int64_t n,
                        float *x)
{
    uint32_t w[WORDS + 4];
    while (n > 0) {
        int64_t skip = (int64_t)(at % 4), m = n < WORDS - 4 ? n : WORDS - 4;
        const uint32_t ctr[4] = {(uint32_t)(at / 4), r->iteration, r->replica,
                                 r->micro_batch};
        lp_nn()->philox(r->key, ctr, (skip + m + 3) / 4, w);
        (to == LP_F16 ? round_f16 : round_bf16)(m, x, w + skip);
        at += (uint64_t)m;
        x += m;
        n -= m;
    }
}

/* ---- around a kernel ----------------------------------------------------- */
typedef struct Wide {
    bool is;         /* a half type, float32 for the kernel */
    LpCopyPlan plan; /* between the two */
    size_t off;      /* of the float32 numbers in the scratch memory */
    LpDtype to;      /* of results */
    int64_t n;
} Wide;

typedef struct Frame {
    LpKernel k;
    uint64_t site;
    size_t off; /* of the kernel's own scratch */
    int n_in, n_out;
    Wide wide[]; /* operands, then results */
} Frame;         /* scratch: what the kernel is given, the numbers, its own */

static void round_result(const LpKernel *k, const Wide *w, const LpRandom *r,
                         float *x)
{
    int64_t blocks = (w->n + WORDS - 1) / WORDS;
    int threads = w->n < PARALLEL ? 1 : k->threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t at = i * WORDS, left = w->n - at;
        lp_round_at_random(r, w->to, (uint64_t)at, left < WORDS ? left : WORDS,
                           x + at);
    }
}

static LpStatus run(const LpKernel *k, void *const *in, void *const *out,
                    void *work, const LpRunCtx *rc, LpErr *e)
{
    const Frame *f = k->state;
    char *scratch = work;
    void **ptr = work;
    for (int i = 0; i < f->n_in + f->n_out; i++) {
        const Wide *w = &f->wide[i];
        void *own = i < f->n_in ? in[i] : out[i - f->n_in];
        ptr[i] = w->is ? scratch + w->off : own;
        if (w->is && i < f->n_in)
            lp_copy_run(&w->plan, own, ptr[i]);
    }
    LP_TRY(f->k.run(&f->k, ptr, ptr + f->n_in, scratch + f->off, rc, e));
    for (int i = 0; i < f->n_out; i++) {
        const Wide *w = &f->wide[f->n_in + i];
        if (!w->is)
            continue;
        LpRandom r = lp_rounding_stream(rc, f->site, i);
        round_result(k, w, &r, ptr[f->n_in + i]);
        lp_copy_run(&w->plan, ptr[f->n_in + i], out[i]);
    }
    return LP_OK;
}

static void fini(LpKernel *k)
{
    Frame *f = k->state;
    if (f)
        lp_kernel_fini(&f->k);
    lp_free(f);
    k->state = NULL;
}

/* d, an operand's or a result's, as the kernel sees it. */
static bool widen(const LpDesc *d, bool result, int threads, size_t *total,
                  Wide *w, LpDesc *seen)
{
    *seen = *d;
    w->is = !d->is_imm && d->dtype != LP_DT_NONE && lp_is_half(d->dtype);
    if (!w->is)
        return true;
    LpType t = {.dtype = LP_F32, .ndim = d->ndim};
    memcpy(t.shape, d->shape, sizeof t.shape);
    *seen = lp_desc_of(&t);
    lp_copy_plan(result ? seen : d, result ? d : seen, threads, &w->plan);
    w->to = d->dtype;
    w->n = lp_desc_numel(d);
    w->off = *total;
    return lp_add_size(*total, ((size_t)w->n * 4 + 63) / 64 * 64, total);
}

static LpStatus prepare(const LpKernelReq *r, Frame *f, LpDesc *seen,
                        LpKernel *k, LpErr *e)
{
    LpKernelReq q = *r;
    size_t n = (size_t)r->n_in + (size_t)r->n_out;
    size_t total = (n * sizeof(void *) + 63) / 64 * 64;
    bool ok = true;
    q.in = seen;
    q.out = seen + r->n_in;
    f->site = r->site;
    f->n_in = r->n_in;
    f->n_out = r->n_out;
    f->k.threads = r->threads;
    for (int i = 0; i < (int)n && ok; i++) {
        bool result = i >= r->n_in;
        const LpDesc *d = result ? &r->out[i - r->n_in] : &r->in[i];
        ok = widen(d, result, r->threads, &total, &f->wide[i], &seen[i]);
    }
    f->off = total;
    LP_TRY(r->op->prepare(&q, &f->k, e));
    LP_FAIL_IF(!ok || !lp_add_size(total, f->k.work_bytes, &k->work_bytes), e,
               LP_E_MEMORY, "%s: scratch memory too large", r->op->name);
    return LP_OK;
}

bool lp_call_rounds(const LpKernelReq *r)
{
    bool half = false;
    for (int i = 0; i < r->n_out; i++)
        half |= lp_is_half(r->out[i].dtype);
    return r->numerics.stochastic && r->site && half &&
           !(r->op->flags & LP_OPF_EXACT);
}

LP_KERNEL_PREPARE(lp_prepare)
{
    k->threads = r->threads;
    if (!lp_call_rounds(r))
        return r->op->prepare(r, k, e);
    size_t n = (size_t)r->n_in + (size_t)r->n_out;
    Frame *f = lp_calloc(1, sizeof *f + n * sizeof *f->wide);
    LpDesc *seen = lp_calloc(n, sizeof *seen);
    LpStatus s =
        f && seen ? prepare(r, f, seen, k, e)
                  : lp_fail(e, LP_E_MEMORY, "%s: out of memory", r->op->name);
    lp_free(seen);
    k->state = f;
    k->run = run;
    k->fini = fini;
    if (s != LP_OK)
        fini(k);
    return s;
}
