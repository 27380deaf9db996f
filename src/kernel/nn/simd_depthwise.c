/* See depthwise.h. Compiled once per instruction set. */
#include <string.h>

#include "src/kernel/loops/loops.h"
#include "src/kernel/nn/depthwise.h"

#define LOAD(v, p) memcpy(&(v), p, sizeof(v))
#define ALWAYS static inline __attribute__((always_inline))

/* Results [*lo, *hi) of a row all of whose places from + 0 … taps - 1 lie in
 * the input. */
ALWAYS void inner(const LpDepthwise *d, const LpDepthwiseTask *t, int64_t *lo,
                  int64_t *hi)
{
    int64_t s = d->stride[1], first = t->from * d->dilation[1] - d->pad[1];
    int64_t last = d->src[1] - 1 - first - (t->taps - 1) * d->dilation[1];
    *lo = first < 0 ? (s - 1 - first) / s : 0;
    *hi = last < 0 ? 0 : last / s + 1;
    *hi = *hi > d->dst[1] ? d->dst[1] : *hi;
    *lo = *lo > *hi ? *hi : *lo;
}

/* Vectors are written as such: gcc 12 unrolls a loop over the block into
 * scalars. N is a constant where this is inlined, so the sums are registers. */
#define ROWS(B)                                                                \
    typedef float V##B __attribute__((vector_size(B * 4)));                    \
    ALWAYS void edge_##B(const LpDepthwise *d, const LpDepthwiseTask *t,       \
                         int N, int64_t from, int64_t to, const float *x,      \
                         const float *y, V##B *acc)                            \
    {                                                                          \
        V##B g, v;                                                             \
        for (int64_t o = from; o < to; o++) {                                  \
            int64_t at = o * d->stride[1] - d->pad[1];                         \
            LOAD(g, y + o * B);                                                \
            _Pragma("GCC unroll 8") for (int k = 0; k < N; k++)                \
            {                                                                  \
                int64_t i = at + (t->from + k) * d->dilation[1];               \
                if (i < 0 || i >= d->src[1])                                   \
                    continue;                                                  \
                LOAD(v, x + i * B);                                            \
                acc[k] += g * v;                                               \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    ALWAYS void row_##B(const LpDepthwise *d, const LpDepthwiseTask *t, int N, \
                        int64_t lo, int64_t hi, const float *x,                \
                        const float *y, V##B *acc)                             \
    {                                                                          \
        int64_t step = d->dilation[1] * B;                                     \
        V##B g, v;                                                             \
        edge_##B(d, t, N, 0, lo, x, y, acc);                                   \
        for (int64_t o = lo; o < hi; o++) {                                    \
            const float *at =                                                  \
                x +                                                            \
                (o * d->stride[1] - d->pad[1] + t->from * d->dilation[1]) * B; \
            LOAD(g, y + o * B);                                                \
            _Pragma("GCC unroll 8") for (int k = 0; k < N; k++)                \
            {                                                                  \
                LOAD(v, at + k * step);                                        \
                acc[k] += g * v;                                               \
            }                                                                  \
        }                                                                      \
        edge_##B(d, t, N, hi, d->dst[1], x, y, acc);                           \
    }                                                                          \
    ALWAYS void image_##B(const LpDepthwise *d, const LpDepthwiseTask *t,      \
                          int N, int64_t lo, int64_t hi, const float *x,       \
                          const float *y, float *sum)                          \
    {                                                                          \
        V##B acc[LP_DEPTHWISE_TAPS] = {{0}}, all;                              \
        for (int64_t o = 0; o < d->dst[0]; o++) {                              \
            int64_t i =                                                        \
                o * d->stride[0] - d->pad[0] + t->row * d->dilation[0];        \
            if (i >= 0 && i < d->src[0])                                       \
                row_##B(d, t, N, lo, hi, x + i * d->src[1] * B,                \
                        y + o * d->dst[1] * B, acc);                           \
        }                                                                      \
        _Pragma("GCC unroll 8") for (int k = 0; k < N; k++)                    \
        {                                                                      \
            LOAD(all, sum + k * B);                                            \
            all += acc[k];                                                     \
            memcpy(sum + k * B, &all, sizeof all);                             \
        }                                                                      \
    }                                                                          \
    ALWAYS void images_##B(const LpDepthwise *d, const LpDepthwiseTask *t,     \
                           int N, float *sum)                                  \
    {                                                                          \
        int64_t lo, hi;                                                        \
        int64_t x = d->channels * d->src[0] * d->src[1];                       \
        int64_t y = d->channels * d->dst[0] * d->dst[1];                       \
        inner(d, t, &lo, &hi);                                                 \
        memset(sum, 0, (size_t)(N * B) * sizeof *sum);                         \
        for (int64_t n = 0; n < d->n; n++)                                     \
            image_##B(d, t, N, lo, hi, t->src + n * x, t->dst + n * y, sum);   \
    }                                                                          \
    static void sum_##B(const LpDepthwise *d, const LpDepthwiseTask *t,        \
                        float *sum)                                            \
    {                                                                          \
        switch (t->taps) {                                                     \
        case 1:                                                                \
            images_##B(d, t, 1, sum);                                          \
            break;                                                             \
        case 3:                                                                \
            images_##B(d, t, 3, sum);                                          \
            break;                                                             \
        case 5:                                                                \
            images_##B(d, t, 5, sum);                                          \
            break;                                                             \
        case 7:                                                                \
            images_##B(d, t, 7, sum);                                          \
            break;                                                             \
        case LP_DEPTHWISE_TAPS:                                                \
            images_##B(d, t, LP_DEPTHWISE_TAPS, sum);                          \
            break;                                                             \
        default:                                                               \
            images_##B(d, t, t->taps, sum);                                    \
        }                                                                      \
    }
ROWS(8)
ROWS(16)

static void sum(const LpDepthwise *d, const LpDepthwiseTask *t, float *out)
{
    if (d->block == 16)
        sum_16(d, t, out);
    else
        sum_8(d, t, out);
}

LpDepthwiseOf LP_SIMD_NAME(lp_depthwise) = {{.sum = sum}};
