/* The product hands each part of its result, while a cache has it, to the chain
 * of pointwise steps. */
#include "src/kernel/product/mm_chain.h"

#include "src/base/mem.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/product/tiles.h"
#include "src/kernel/state.h"

bool lp_mm_chain_is_fast(const LpType *a, const LpType *b, int pieces)
{
    const LpGemmArgs g = {
        .m = a->shape[0], .n = b->shape[1], .k = a->shape[1], .a_cs = 1};
    return a->dtype == LP_F32 && b->dtype == LP_F32 && g.m >= g.n &&
           (lp_tiles_split(&g, pieces) > 0 || lp_gemm_is_fast(&g, LP_F32));
}

/* Scratch: the product's, then the chain's of each thread. */
typedef struct Both {
    LpKernel product, chain;
    int at, n_ext;
    int64_t cols; /* of the product */
    size_t off, each;
} Both;

typedef struct Told {
    const Both *b;
    void *const *in, *const *out;
    char *work;
    const LpRunCtx *rc;
} Told;

static void run_part(const LpGemmThen *then, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1, int thread)
{
    const Told *t = then->with;
    const Both *b = t->b;
    void *work = t->work + (size_t)thread * b->each;
    if (j1 - j0 == b->cols) {
        lp_fused_part(&b->chain, t->in, t->out, work, t->rc, i0 * b->cols,
                      i1 * b->cols);
        return;
    }
    for (int64_t i = i0; i < i1; i++)
        lp_fused_part(&b->chain, t->in, t->out, work, t->rc, i * b->cols + j0,
                      i * b->cols + j1);
}

LP_KERNEL_RUN(run)
{
    const Both *b = k->state;
    char *scratch = (char *)work + b->off;
    Told t = {b, in, out, scratch, rc};
    LpGemmThen then = {.run = run_part, .with = &t};
    bool told;
    LP_TRY(lp_mm_run_then(&b->product, in + b->n_ext, in + b->at, &then, &told,
                          work, rc, e));
    return told ? LP_OK : b->chain.run(&b->chain, in, out, scratch, rc, e);
}

static void drop(void *state)
{
    Both *b = state;
    lp_kernel_fini(&b->product);
    lp_kernel_fini(&b->chain);
    lp_free(b);
}

LpStatus lp_mm_chain_prepare(const LpKernelReq *mm, const LpFusedReq *chain,
                             int at, LpKernel *k, LpErr *e)
{
    Both *b = lp_calloc(1, sizeof *b);
    LP_FAIL_IF(!b, e, LP_E_MEMORY, "out of memory");
    b->product.threads = mm->threads;
    b->at = at;
    b->n_ext = chain->n_ext;
    b->cols = mm->out[0].shape[1];
    LpStatus s = lp_mm_prepare(mm, &b->product, e);
    if (s == LP_OK)
        s = lp_fused_prepare(chain, &b->chain, e);
    if (s != LP_OK) {
        drop(b);
        return s;
    }
    int threads = b->product.threads > b->chain.threads ? b->product.threads
                                                        : b->chain.threads;
    b->each = (lp_fused_work(&b->chain) + 63) / 64 * 64;
    b->off = (b->product.work_bytes + 63) / 64 * 64;
    lp_kernel_own(b, drop, run, k);
    k->threads = threads;
    k->work_bytes = b->off + (size_t)threads * b->each;
    return LP_OK;
}
