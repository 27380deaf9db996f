/* See depthwise.h. */
#include "src/kernel/nn/depthwise.h"

#include "src/base/cpu.h"
#include "src/kernel/loops/loops.h"

LP_SIMD_EXTERN(LpDepthwiseOf, lp_depthwise);

bool lp_depthwise_takes(const LpConvGeom *g, LpDepthwise *d)
{
    enum { LIBRARY = 3 }; /* what its own code goes up to */
    if (g->n_spatial > 2 || g->groups != g->c_src || g->groups != g->c_dst)
        return false;
    *d = (LpDepthwise){.n = g->n,
                       .channels = g->groups,
                       .src = {1, 1},
                       .dst = {1, 1},
                       .kernel = {1, 1},
                       .stride = {1, 1},
                       .dilation = {1, 1}};
    bool wide = false;
    for (int i = 0; i < g->n_spatial; i++) {
        int to = i + 2 - g->n_spatial;
        d->src[to] = g->src[i];
        d->dst[to] = g->dst[i];
        d->kernel[to] = g->kernel[i];
        d->stride[to] = g->stride[i];
        d->dilation[to] = g->dilation[i];
        d->pad[to] = g->pad_l[i];
        wide = wide || g->kernel[i] > LIBRARY;
    }
    d->block = lp_cpu_simd() == LP_SIMD_AVX512 ? 16 : 8;
    return wide && g->groups % d->block == 0;
}

/* Channel c of a block has lane c of each sum. */
static void put(const LpDepthwise *d, const LpDepthwiseTask *t,
                const float *sum, float *w)
{
    int64_t window = d->kernel[0] * d->kernel[1];
    float *at = w + t->row * d->kernel[1] + t->from;
    for (int c = 0; c < d->block; c++)
        for (int i = 0; i < t->taps; i++)
            at[c * window + i] = sum[i * d->block + c];
}

void lp_depthwise_run(const LpDepthwise *d, int threads, const float *src,
                      const float *dst, float *w)
{
    enum { TAPS = LP_DEPTHWISE_TAPS };
    const LpDepthwiseLoops *loops = LP_SIMD_PICK(lp_depthwise);
    int64_t parts = (d->kernel[1] + TAPS - 1) / TAPS;
    int64_t tasks = d->channels / d->block * d->kernel[0] * parts;
    int64_t window = d->kernel[0] * d->kernel[1];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++) {
        float sum[TAPS * 16] __attribute__((aligned(64)));
        int64_t part = i % parts, first = i / parts / d->kernel[0] * d->block;
        int64_t left = d->kernel[1] - part * TAPS;
        LpDepthwiseTask t = {.row = i / parts % d->kernel[0],
                             .from = part * TAPS,
                             .taps = left < TAPS ? (int)left : TAPS,
                             .src = src + first * d->src[0] * d->src[1],
                             .dst = dst + first * d->dst[0] * d->dst[1]};
        loops->sum(d, &t, sum);
        put(d, &t, sum, w + first * window);
    }
}
