/* Batch normalisation over blocked channels: a position's `block` channels are
 * one vector, so sums run down the positions, in four vectors for the adder's
 * latency. Compiled once per instruction set. */
#include <string.h>

#include "src/kernel/loops/loops.h"
#include "src/kernel/nn/norm_blocked.h"

enum { WAYS = 4 };

#define LOAD(v, p) memcpy(&(v), p, sizeof(v))
#define STORE(p, v) memcpy(p, &(v), sizeof(v))
/* v where the comparison gives zeros (it gives masks of all ones), else 0 */
#define CUT(V, I, v, off) (V)(~(off) & (I)(v))
#define ALWAYS static inline __attribute__((always_inline))

/* Vectors are written as such: gcc 12 unrolls a loop over the block into
 * scalars. Position i adds to part i % WAYS of a sum. */
#define LOOPS(B)                                                               \
    typedef float V##B __attribute__((vector_size(B * 4)));                    \
    typedef int32_t I##B __attribute__((vector_size(B * 4)));                  \
    static void stats_##B(int64_t n, const float *x, float *mean, float *m2)   \
    {                                                                          \
        V##B m, s[WAYS] = {{0}}, q[WAYS] = {{0}}, v;                           \
        int64_t i = 0;                                                         \
        for (; i + WAYS <= n; i += WAYS)                                       \
            _Pragma("GCC unroll 4") for (int w = 0; w < WAYS; w++)             \
            {                                                                  \
                LOAD(v, x + (i + w) * B);                                      \
                s[w] += v;                                                     \
            }                                                                  \
        for (; i < n; i++) {                                                   \
            LOAD(v, x + i * B);                                                \
            s[0] += v;                                                         \
        }                                                                      \
        m = ((s[0] + s[1]) + (s[2] + s[3])) / (float)n;                        \
        for (i = 0; i + WAYS <= n; i += WAYS)                                  \
            _Pragma("GCC unroll 4") for (int w = 0; w < WAYS; w++)             \
            {                                                                  \
                LOAD(v, x + (i + w) * B);                                      \
                q[w] += (v - m) * (v - m);                                     \
            }                                                                  \
        for (; i < n; i++) {                                                   \
            LOAD(v, x + i * B);                                                \
            q[0] += (v - m) * (v - m);                                         \
        }                                                                      \
        q[0] = (q[0] + q[1]) + (q[2] + q[3]);                                  \
        STORE(mean, m);                                                        \
        STORE(m2, q[0]);                                                       \
    }                                                                          \
    ALWAYS void scale_as_##B(int64_t n, const float *x, const float *mean,     \
                             const float *k, const float *shift,               \
                             const float *add, bool relu, float *y)            \
    {                                                                          \
        V##B m, f, c, v, a;                                                    \
        LOAD(m, mean);                                                         \
        LOAD(f, k);                                                            \
        LOAD(c, shift);                                                        \
        for (int64_t i = 0; i < n; i++) {                                      \
            LOAD(v, x + i * B);                                                \
            v = (v - m) * f + c;                                               \
            if (add) {                                                         \
                LOAD(a, add + i * B);                                          \
                v = v + a;                                                     \
            }                                                                  \
            if (relu)                                                          \
                v = CUT(V##B, I##B, v, v < 0);                                 \
            STORE(y + i * B, v);                                               \
        }                                                                      \
    }                                                                          \
    static void scale_##B(int64_t n, const float *x, const float *mean,        \
                          const float *k, const float *shift,                  \
                          const float *add, bool relu, float *y)               \
    {                                                                          \
        if (add && relu)                                                       \
            scale_as_##B(n, x, mean, k, shift, add, true, y);                  \
        else if (add)                                                          \
            scale_as_##B(n, x, mean, k, shift, add, false, y);                 \
        else if (relu)                                                         \
            scale_as_##B(n, x, mean, k, shift, NULL, true, y);                 \
        else                                                                   \
            scale_as_##B(n, x, mean, k, shift, NULL, false, y);                \
    }                                                                          \
    ALWAYS void sums_as_##B(int64_t n, const float *dy, const float *x,        \
                            const float *r, const float *mean, float *s,       \
                            float *sx)                                         \
    {                                                                          \
        V##B m, a[WAYS] = {{0}}, b[WAYS] = {{0}}, g, v, z;                     \
        LOAD(m, mean);                                                         \
        int64_t i = 0;                                                         \
        for (; i + WAYS <= n; i += WAYS)                                       \
            _Pragma("GCC unroll 4") for (int w = 0; w < WAYS; w++)             \
            {                                                                  \
                LOAD(g, dy + (i + w) * B);                                     \
                LOAD(v, x + (i + w) * B);                                      \
                if (r) {                                                       \
                    LOAD(z, r + (i + w) * B);                                  \
                    g = CUT(V##B, I##B, g, z <= 0);                            \
                }                                                              \
                a[w] += g;                                                     \
                b[w] += g * (v - m);                                           \
            }                                                                  \
        for (; i < n; i++) {                                                   \
            LOAD(g, dy + i * B);                                               \
            LOAD(v, x + i * B);                                                \
            if (r) {                                                           \
                LOAD(z, r + i * B);                                            \
                g = CUT(V##B, I##B, g, z <= 0);                                \
            }                                                                  \
            a[0] += g;                                                         \
            b[0] += g * (v - m);                                               \
        }                                                                      \
        a[0] = (a[0] + a[1]) + (a[2] + a[3]);                                  \
        b[0] = (b[0] + b[1]) + (b[2] + b[3]);                                  \
        STORE(s, a[0]);                                                        \
        STORE(sx, b[0]);                                                       \
    }                                                                          \
    static void sums_##B(int64_t n, const float *dy, const float *x,           \
                         const float *r, const float *mean, float *s,          \
                         float *sx)                                            \
    {                                                                          \
        if (r)                                                                 \
            sums_as_##B(n, dy, x, r, mean, s, sx);                             \
        else                                                                   \
            sums_as_##B(n, dy, x, NULL, mean, s, sx);                          \
    }                                                                          \
    ALWAYS void back_as_##B(int64_t n, const float *dy, const float *x,        \
                            const float *r, const float *mean,                 \
                            const float *ka, const float *kb, const float *kc, \
                            float *dx)                                         \
    {                                                                          \
        V##B m, a, b, c, g, v, z;                                              \
        LOAD(m, mean);                                                         \
        LOAD(a, ka);                                                           \
        LOAD(b, kb);                                                           \
        LOAD(c, kc);                                                           \
        for (int64_t i = 0; i < n; i++) {                                      \
            LOAD(g, dy + i * B);                                               \
            LOAD(v, x + i * B);                                                \
            if (r) {                                                           \
                LOAD(z, r + i * B);                                            \
                g = CUT(V##B, I##B, g, z <= 0);                                \
            }                                                                  \
            g = g * a + (v - m) * b + c;                                       \
            STORE(dx + i * B, g);                                              \
        }                                                                      \
    }                                                                          \
    static void back_##B(int64_t n, const float *dy, const float *x,           \
                         const float *r, const float *mean, const float *ka,   \
                         const float *kb, const float *kc, float *dx)          \
    {                                                                          \
        if (r)                                                                 \
            back_as_##B(n, dy, x, r, mean, ka, kb, kc, dx);                    \
        else                                                                   \
            back_as_##B(n, dy, x, NULL, mean, ka, kb, kc, dx);                 \
    }
LOOPS(8)
LOOPS(16)

static void stats(int block, int64_t n, const float *x, float *mean, float *m2)
{
    (block == 16 ? stats_16 : stats_8)(n, x, mean, m2);
}

static void scale(int block, int64_t n, const float *x, const float *mean,
                  const float *k, const float *shift, const float *add,
                  bool relu, float *y)
{
    (block == 16 ? scale_16 : scale_8)(n, x, mean, k, shift, add, relu, y);
}

static void sums(int block, int64_t n, const float *dy, const float *x,
                 const float *r, const float *mean, float *s, float *sx)
{
    (block == 16 ? sums_16 : sums_8)(n, dy, x, r, mean, s, sx);
}

static void back(int block, int64_t n, const float *dy, const float *x,
                 const float *r, const float *mean, const float *ka,
                 const float *kb, const float *kc, float *dx)
{
    (block == 16 ? back_16 : back_8)(n, dy, x, r, mean, ka, kb, kc, dx);
}

LpNormBlockedLoops LP_SIMD_NAME(lp_norm_blocked) = {
    {.stats = stats, .scale = scale, .sums = sums, .back = back}};
