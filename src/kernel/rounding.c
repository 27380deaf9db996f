/* The one place that rounds at random. See rounding.h. */
#include "src/kernel/rounding.h"

#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/fused.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/product/gemm.h"
#include "src/kernel/roundloops.h"
#include "src/kernel/state.h"
#include "src/kernel/trap.h"

enum {
    BLOCK = 1024,       /* numbers that a thread takes at once */
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
static const LpRoundLoops *loops(void)
{
    return LP_SIMD_PICK(lp_round_loops);
}

void lp_store_at_random(const LpRandom *r, LpDtype to, uint64_t at, int64_t n,
                        const float *x, uint16_t *out)
{
    (to == LP_F16 ? loops()->f16 : loops()->bf16)(r, at, n, x, out);
}

void lp_round_at_random(const LpRandom *r, LpDtype to, uint64_t at, int64_t n,
                        float *x)
{
    (to == LP_F16 ? loops()->f16_wide : loops()->bf16_wide)(r, at, n, x, x);
}

void lp_round_planes_at_random(const LpRandom *r, LpDtype to, uint64_t at,
                               int64_t apart, int64_t planes, int64_t n,
                               float *x, float *work)
{
    loops()->turn(n, planes, x, work);
    for (int64_t i = 0; i < planes; i++)
        lp_round_at_random(r, to, at + (uint64_t)(i * apart), n, work + i * n);
    loops()->turn(planes, n, work, x);
}

/* ---- around a kernel ----------------------------------------------------- */
typedef struct Wide {
    bool is;         /* a half type, float32 for the kernel */
    LpCopyPlan plan; /* between the two */
    bool dense;      /* a result that is stored as it is rounded */
    size_t off;      /* of the float32 numbers in the scratch memory */
    LpDtype to;      /* of results */
    int64_t n;
    int64_t lanes, plane; /* channels and places of results in blocks; or 0 */
} Wide;

typedef struct Frame {
    LpKernel k;
    uint64_t site; /* 0: to nearest */
    size_t off;    /* of the kernel's own scratch */
    int n_in, n_out;
    Wide wide[]; /* operands, then results */
} Frame;         /* scratch: what the kernel is given, the numbers, its own */

/* Blocks of channels, some places at once. */
static void store_planes(const LpKernel *k, const Wide *w, const LpRandom *r,
                         float *x, uint16_t *out)
{
    int64_t block = w->lanes * w->plane, blocks = w->n / block;
    int threads = w->n < PARALLEL ? 1 : k->threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        float turned[BLOCK];
        for (int64_t p = 0, m; p < w->plane; p += m) {
            int64_t at = i * block + p * w->lanes;
            m = lp_min(w->plane - p, BLOCK / w->lanes);
            lp_round_planes_at_random(r, w->to, (uint64_t)(i * block + p),
                                      w->plane, w->lanes, m, x + at, turned);
            lp_convert_loop(LP_F32, w->to)(m * w->lanes, out + at, 2, x + at,
                                           4);
        }
    }
}

static void store_result(const LpKernel *k, const Wide *w, const LpRandom *r,
                         float *x, void *out)
{
    if (w->lanes) {
        store_planes(k, w, r, x, out);
        return;
    }
    int64_t blocks = (w->n + BLOCK - 1) / BLOCK;
    int threads = w->n < PARALLEL ? 1 : k->threads;
    uint16_t *y = out;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t at = i * BLOCK, n = lp_min(w->n - at, BLOCK);
        if (w->dense)
            lp_store_at_random(r, w->to, (uint64_t)at, n, x + at, y + at);
        else
            lp_round_at_random(r, w->to, (uint64_t)at, n, x + at);
    }
    if (!w->dense)
        lp_copy_run(&w->plan, x, out);
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
        if (w->is && !f->site)
            lp_copy_run(&w->plan, ptr[f->n_in + i], out[i]);
        if (!w->is || !f->site)
            continue;
        LpRandom r = lp_rounding_stream(rc, f->site, i);
        store_result(k, w, &r, ptr[f->n_in + i], out[i]);
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

/* Makes d float32 memory without gaps whose dimensions lie in the order that
 * they have, those that repeat (stride 0) still doing so: it is filled from end
 * to end, and turned by nobody. Returns its elements. */
static int64_t compact(LpDesc *d)
{
    int64_t at = 1;
    bool done[LP_MAX_DIMS] = {false};
    d->dtype = LP_F32;
    for (int i = 0; i < d->ndim; i++) {
        int next = -1;
        for (int k = d->ndim - 1; k >= 0; k--)
            if (!done[k] && (next < 0 || d->strides[k] < d->strides[next]))
                next = k;
        done[next] = true;
        if (d->strides[next] != 0) {
            d->strides[next] = at;
            at *= d->shape[next];
        }
    }
    return at;
}

/* d, an operand's or a result's, as the kernel sees it: in blocks, too, if it
 * may be. */
static bool widen(const LpDesc *d, bool result, bool blocks, int threads,
                  size_t *total, Wide *w, LpDesc *seen)
{
    *seen = *d;
    w->is = !d->is_imm && d->dtype != LP_DT_NONE && lp_is_half(d->dtype);
    if (!w->is)
        return true;
    bool plain = result || d->block || d->layout;
    for (int i = 0; i < d->ndim; i++)
        plain |= d->strides[i] < 0;
    int64_t n = lp_desc_numel(d);
    if (plain)
        *seen = lp_desc_plain(d, LP_F32);
    else
        n = compact(seen);
    LpDesc half = *d, wide = *seen;
    for (int i = 0; i < d->ndim && !plain; i++)
        if (d->strides[i] == 0)
            half.shape[i] = wide.shape[i] = 1;
    if (d->block && blocks) { /* from end to end */
        *seen = *d;
        seen->dtype = LP_F32;
        half = (LpDesc){.dtype = d->dtype, .ndim = 1, .shape = {n}};
        half.strides[0] = 1;
        wide = half;
        wide.dtype = LP_F32;
        w->lanes = result ? d->block : 0;
        w->plane = lp_elements(d->shape + 2, d->ndim - 2);
    } else if (d->block) {
        half = lp_desc_split(d, d->ndim, d->shape[1], d->block);
        wide = lp_desc_split(seen, d->ndim, d->shape[1], d->block);
    }
    lp_copy_plan(result ? &wide : &half, result ? &half : &wide, threads,
                 &w->plan);
    w->to = d->dtype;
    w->dense = result && !d->block && lp_desc_contiguous(d);
    w->n = lp_desc_numel(d);
    w->off = *total;
    return lp_add_size(*total, ((size_t)n * 4 + 63) / 64 * 64, total);
}

/* Does the kernel take operands as they are, and give what it is asked for? */
static bool takes_halves(const LpKernelReq *r)
{
    LpProductKind kind = r->op->product;
    return r->op->flags & LP_OPF_SUMS ||
           (kind != LP_PRODUCT_NONE && kind < LP_PRODUCT_CONV &&
            !r->numerics.half_partials && lp_gemm_is_fast_of(r->in[0].dtype));
}

static LpStatus prepare(const LpKernelReq *r, Frame *f, LpDesc *seen,
                        LpKernel *k, LpErr *e)
{
    LpKernelReq q = *r;
    size_t n = (size_t)r->n_in + (size_t)r->n_out;
    size_t total = (n * sizeof(void *) + 63) / 64 * 64;
    bool ok = true;
    bool blocks = r->op->flags & LP_OPF_BLOCKED && !r->op->product;
    q.widened = true;
    q.in = seen;
    q.out = seen + r->n_in;
    if (r->n_in > 0 && r->in[0].dtype != LP_F16)
        q.numerics.half_statistics = false;
    f->site = lp_call_rounds(r) ? r->site : 0;
    f->n_in = r->n_in;
    f->n_out = r->n_out;
    f->k.threads = r->threads;
    for (int i = 0; i < (int)n && ok; i++) {
        bool result = i >= r->n_in;
        const LpDesc *d = result ? &r->out[i - r->n_in] : &r->in[i];
        if (!result && takes_halves(r))
            seen[i] = *d;
        else
            ok = widen(d, result, blocks || !f->site, r->threads, &total,
                       &f->wide[i], &seen[i]);
    }
    f->off = total;
    LP_TRY(r->op->prepare(&q, &f->k, e));
    LP_FAIL_IF(!ok || !lp_add_size(total, f->k.work_bytes, &k->work_bytes), e,
               LP_E_MEMORY, "%s: scratch memory too large", r->op->name);
    return LP_OK;
}

/* A pointwise operator rounds block by block, as a chain of one. */
static bool is_pointwise(const LpKernelReq *r)
{
    bool fits = lp_fusable(r->op) && r->n_in <= LP_PW_MAX_IN && r->n_out == 1 &&
                lp_desc_contiguous(&r->out[0]);
    for (int i = 0; i < r->n_in; i++)
        fits &=
            r->in[i].dtype != LP_DT_NONE && !r->in[i].block && !r->in[i].layout;
    return fits;
}

static LpStatus prepare_pointwise(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LpFusedNode f = {.op = r->op,
                     .attr = r->attr,
                     .n_in = r->n_in,
                     .dtype = r->out->dtype,
                     .ndim = r->out->ndim,
                     .site = r->site};
    for (int i = 0; i < r->n_in; i++)
        f.in[i] =
            (LpFusedArg){.from = r->in[i].is_imm ? LP_FUSED_IMM : LP_FUSED_EXT,
                         .at = i,
                         .imm = r->in[i].imm};
    return lp_fused_prepare(&(LpFusedReq){.node = &f,
                                          .n_node = 1,
                                          .ext = r->in,
                                          .n_ext = r->n_in,
                                          .out = r->out,
                                          .n_out = 1,
                                          .threads = r->threads},
                            k, e);
}

bool lp_call_rounds(const LpKernelReq *r)
{
    bool half = false;
    for (int i = 0; i < r->n_out; i++)
        half |= lp_is_half(r->out[i].dtype);
    return r->numerics.stochastic && r->site && half &&
           !(r->op->flags & LP_OPF_EXACT);
}

/* A kernel of blocks, which knows float32 alone, beside whose image there may
 * be half weights. */
static bool has_half_blocks(const LpKernelReq *r)
{
    bool half = false, blocks = false;
    for (int i = 0; i < r->n_in; i++) {
        half |= lp_is_half(r->in[i].dtype);
        blocks |= r->in[i].block != 0;
    }
    for (int i = 0; i < r->n_out; i++) {
        half |= lp_is_half(r->out[i].dtype);
        blocks |= r->out[i].block != 0;
    }
    return half && blocks && r->op->flags & LP_OPF_BLOCKED && !r->op->product;
}

/* A product's kernel and an optimizer's have what they round in a cache. */
static bool rounds_itself(const LpKernelReq *r)
{
    return (r->op->product == LP_PRODUCT_MATRIX && lp_mm_rounds(r)) ||
           r->op->flags & LP_OPF_ELEMENTWISE;
}

LP_KERNEL_PREPARE(lp_prepare)
{
    k->threads = r->threads;
    if (r->numerics.trap && !(r->op->flags & LP_OPF_EXACT))
        return lp_trap_prepare(r, k, e);
    bool rounds = lp_call_rounds(r);
    if (rounds ? rounds_itself(r) : !has_half_blocks(r))
        return r->op->prepare(r, k, e);
    LpErr probe = {0};
    if (rounds && is_pointwise(r) && prepare_pointwise(r, k, &probe) == LP_OK)
        return LP_OK;
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
