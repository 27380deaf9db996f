/* The loops of unary.def, for one instruction set (LP_SIMD). */
#include "src/kernel/loops/simd_loop.h"

#define LOOP(name, R, T, field, e)                                             \
    static void name(int64_t n, void *out, const void *const *in,              \
                     unsigned splat, const LpNum *p)                           \
    {                                                                          \
        const T *a = in[0];                                                    \
        R *r = out;                                                            \
        PARAMS(T, field);                                                      \
        (void)splat;                                                           \
        EACH(n)                                                                \
        {                                                                      \
            const T x = a[i];                                                  \
            (void)x;                                                           \
            r[i] = (R)(e);                                                     \
        }                                                                      \
    }

/* Beyond SINE_MAX the reduction is not exact: those elements are done again by
 * the C library, from a copy (y may be x). Their greatest is found by bits,
 * which are ordered as the magnitudes are. */
enum { SINE, COSINE, TANGENT };
static inline void sine_loop(int64_t n, float *r, const float *a,
                             const uint32_t which)
{
    for (int64_t k = 0; k < n; k += 256) {
        int64_t m = n - k < 256 ? n - k : 256;
        float keep[256];
        uint32_t top = 0;
        EACH(m)
        {
            uint32_t t = lp_float_bits(a[k + i]) & 0x7fffffffu;
            keep[i] = a[k + i];
            top = t > top ? t : top;
        }
        if (which == TANGENT)
            EACH(m) r[k + i] = tan_f32(keep[i]);
        else
            EACH(m) r[k + i] = sine_f32(keep[i], which);
        if (top <= lp_float_bits(SINE_MAX))
            continue;
        for (int64_t i = 0; i < m; i++)
            if (fabsf(keep[i]) > SINE_MAX)
                r[k + i] = which == TANGENT  ? tanf(keep[i])
                           : which == COSINE ? cosf(keep[i])
                                             : sinf(keep[i]);
    }
}

static void f32_sin(int64_t n, void *y, const void *const *x, unsigned splat,
                    const LpNum *p)
{
    UNUSED3(splat, p, 0);
    sine_loop(n, y, x[0], SINE);
}

static void f32_cos(int64_t n, void *y, const void *const *x, unsigned splat,
                    const LpNum *p)
{
    UNUSED3(splat, p, 0);
    sine_loop(n, y, x[0], COSINE);
}

static void f32_tan(int64_t n, void *y, const void *const *x, unsigned splat,
                    const LpNum *p)
{
    UNUSED3(splat, p, 0);
    sine_loop(n, y, x[0], TANGENT);
}

#define T float
#define M(f) f##_f32
#define SIGNBIT(x) (lp_float_bits(x) >> 31)
#define UNARY(name, tail, policy, cost, e, ...)                                \
    LOOP(f32_##name, float, float, f, e)
#define UNARYH(...)
#define TEST(name, tail, e, ie) LOOP(f32_##name, uint8_t, float, f, e)
#define LOOP1(name, e, ie) LOOP(f32_##name, float, float, f, e)
#include "src/kernel/loops/unary.def"
#undef T
#undef M
#undef SIGNBIT

#define T double
#define M(f) f##_f64
#define SIGNBIT(x) (lp_double_bits(x) >> 63)
#define UNARY(name, tail, policy, cost, e, ...)                                \
    LOOP(f64_##name, double, double, f, e)
#define TEST(name, tail, e, ie) LOOP(f64_##name, uint8_t, double, f, e)
#define LOOP1(name, e, ie) LOOP(f64_##name, double, double, f, e)
#include "src/kernel/loops/unary.def"
#undef T
#undef M
#undef SIGNBIT

#define T int64_t
#define UNARY(...)
#define UNARYI(name, tail, policy, cost, e, ie, ...)                           \
    LOOP(i64_##name, int64_t, int64_t, i, ie)
#define TEST(name, tail, e, ie) LOOP(i64_##name, uint8_t, int64_t, i, ie)
#include "src/kernel/loops/unary.def"
#undef T

LpUnaryLoops LP_SIMD_NAME(lp_loops_unary) = {
#define UNARY(name, ...) {f32_##name, f64_##name, NULL, 1, false},
#define UNARYI(name, ...) {f32_##name, f64_##name, i64_##name, 1, false},
#define TEST(name, ...) {f32_##name, f64_##name, i64_##name, 1, true},
#define LOOP1(name, ...) {f32_##name, f64_##name, NULL, 1, false},
#include "src/kernel/loops/unary.def"
};
