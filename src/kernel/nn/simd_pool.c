/* Pooling over blocked channels: a position holds `block` channels side by
 * side, which are one vector. Compiled once per instruction set. */
#include <math.h>
#include <string.h>

#include "src/kernel/loops/loops.h"
#include "src/kernel/nn/pool_blocked.h"

#define BOUNDS(o, i)                                                           \
    int64_t lo_##i = (o)*g->stride[i] - g->pad[i], k0_##i = 0,                 \
            k1_##i = g->kernel[i];                                             \
    while (k0_##i < k1_##i && lo_##i + k0_##i * g->dilation[i] < 0)            \
        k0_##i++;                                                              \
    while (k1_##i > k0_##i &&                                                  \
           lo_##i + (k1_##i - 1) * g->dilation[i] >= g->in[i])                 \
    k1_##i--

/* Vectors are written as such: gcc 12 unrolls a loop over the block into
 * scalars. A comparison gives masks of all ones. */
#define TAKE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

#define MAX(B)                                                                 \
    typedef float F##B __attribute__((vector_size(B * 4)));                    \
    typedef int32_t I##B __attribute__((vector_size(B * 4)));                  \
    typedef int64_t L##B __attribute__((vector_size(B * 8)));                  \
    static void max_##B(const LpPoolGeom *g, const float *x, float *y,         \
                        int64_t *index)                                        \
    {                                                                          \
        for (int64_t oh = 0; oh < g->out[1]; oh++) {                           \
            BOUNDS(oh, 1);                                                     \
            for (int64_t ow = 0; ow < g->out[2]; ow++) {                       \
                BOUNDS(ow, 2);                                                 \
                int32_t first =                                                \
                    (int32_t)((lo_1 + k0_1 * g->dilation[1]) * g->in[2] +      \
                              lo_2 + k0_2 * g->dilation[2]);                   \
                F##B best = (F##B){0} - INFINITY, v;                           \
                I##B at = (I##B){0} + first;                                   \
                for (int64_t kh = k0_1; kh < k1_1; kh++)                       \
                    for (int64_t kw = k0_2; kw < k1_2; kw++) {                 \
                        int64_t pos =                                          \
                            (lo_1 + kh * g->dilation[1]) * g->in[2] + lo_2 +   \
                            kw * g->dilation[2];                               \
                        memcpy(&v, x + pos * B, sizeof v);                     \
                        I##B take = (v > best) | (v != v);                     \
                        best = (F##B)TAKE(take, (I##B)v, (I##B)best);          \
                        at = TAKE(take, (I##B){0} + (int32_t)pos, at);         \
                    }                                                          \
                memcpy(y, &best, sizeof best);                                 \
                L##B wide = __builtin_convertvector(at, L##B);                 \
                memcpy(index, &wide, sizeof wide);                             \
                y += B;                                                        \
                index += B;                                                    \
            }                                                                  \
        }                                                                      \
    }
MAX(8)
MAX(16)

static void max_plane(const LpPoolGeom *g, int block, const float *x, float *y,
                      int64_t *index)
{
    if (block == 16)
        max_16(g, x, y, index);
    else
        max_8(g, x, y, index);
}

LpPoolBlockedLoops LP_SIMD_NAME(lp_pool_blocked) = {{.max_plane = max_plane}};
