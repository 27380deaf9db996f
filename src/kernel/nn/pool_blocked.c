/* Planes of a block of channels are shared out over the threads. */
#include "src/kernel/nn/pool_blocked.h"

#include <string.h>

#include "src/kernel/loops/loops.h"

LP_SIMD_EXTERN(LpPoolBlockedLoops, lp_pool_blocked);

typedef struct State {
    LpPoolGeom g;
    int64_t planes, in_plane, out_plane; /* positions */
    int block;
} State;
_Static_assert(sizeof(State) <= sizeof(((LpKernel *)0)->inl), "State");

static State state_of(const LpDesc *in, const LpDesc *out)
{
    return (State){.planes = in->shape[0] * (in->shape[1] / in->block),
                   .in_plane = in->shape[2] * in->shape[3],
                   .out_plane = out->shape[2] * out->shape[3],
                   .block = in->block};
}

LP_KERNEL_RUN(run_max)
{
    const State *s = (const void *)k->inl;
    const LpPoolBlocked *loops = LP_SIMD_PICK(lp_pool_blocked);
    const float *x = in[0];
    float *y = out[0];
    int64_t *index = out[1];
    int64_t ib = s->in_plane * s->block, ob = s->out_plane * s->block;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t p = 0; p < s->planes; p++)
        loops->max_plane(&s->g, s->block, x + p * ib, y + p * ob,
                         index + p * ob);
    return LP_OK;
}

LpStatus lp_max_pool_blocked(const LpKernelReq *r, const LpPoolGeom *g,
                             LpKernel *k, LpErr *e LP_UNUSED)
{
    State *s = (void *)k->inl;
    *s = state_of(&r->in[0], &r->out[0]);
    s->g = *g;
    k->run = run_max;
    return LP_OK;
}

/* in: dy, index -> dx */
LP_KERNEL_RUN(run_scatter)
{
    const State *s = (const void *)k->inl;
    const float *dy = in[0];
    const int64_t *index = in[1];
    float *dx = out[0];
    int64_t ib = s->in_plane * s->block, ob = s->out_plane * s->block;
    int64_t bad = -1;
#pragma omp parallel for num_threads(k->threads) schedule(static)              \
    reduction(max                                                              \
              : bad)
    for (int64_t p = 0; p < s->planes; p++) {
        float *plane = dx + p * ib;
        memset(plane, 0, (size_t)ib * sizeof *plane);
        for (int64_t o = 0; o < ob; o += s->block)
            for (int c = 0; c < s->block; c++) {
                int64_t at = index[p * ob + o + c];
                if (at < 0 || at >= s->in_plane)
                    bad = p * ob + o + c;
                else
                    plane[at * s->block + c] += dy[p * ob + o + c];
            }
    }
    LP_FAIL_IF(bad >= 0, e, LP_E_INDEX,
               "max_pool_backward: `indices` must lie in 0 … %lld, got %lld",
               (long long)s->in_plane - 1, (long long)index[bad]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_max_pool_scatter_blocked)
{
    State *s = (void *)k->inl;
    *s = state_of(&r->out[0], &r->in[0]);
    k->run = run_scatter;
    return LP_OK;
}
