/* The loops of binary.def, for one instruction set (LP_SIMD). A loop of two
 * operands has three bodies, so that a number stays in a register. */
#include "src/kernel/loops/simd_loop.h"

#define LOOP(name, R, T, field, e)                                             \
    static void name(int64_t n, void *out, const void *const *in,              \
                     unsigned splat, const LpNum *p)                           \
    {                                                                          \
        const T *a = in[0], *b = in[1];                                        \
        R *r = out;                                                            \
        PARAMS(T, field);                                                      \
        if (splat & 1) {                                                       \
            const T x = *a, c = *b;                                            \
            const bool both = (splat & 2) != 0;                                \
            (void)x;                                                           \
            EACH(n)                                                            \
            {                                                                  \
                const T y = both ? c : b[i];                                   \
                (void)y;                                                       \
                r[i] = (R)(e);                                                 \
            }                                                                  \
        } else if (splat & 2) {                                                \
            const T y = *b;                                                    \
            (void)y;                                                           \
            EACH(n)                                                            \
            {                                                                  \
                const T x = a[i];                                              \
                (void)x;                                                       \
                r[i] = (R)(e);                                                 \
            }                                                                  \
        } else {                                                               \
            EACH(n)                                                            \
            {                                                                  \
                const T x = a[i], y = b[i];                                    \
                (void)x, (void)y;                                              \
                r[i] = (R)(e);                                                 \
            }                                                                  \
        }                                                                      \
    }

/* Of three operands; FIRST is the type and NAME the name of the first one. One
 * or both of the others may be numbers; what else is one is read again and
 * again. */
#define LOOP_OF_3(name, FIRST, NAME, T, field, e)                              \
    static void name(int64_t n, void *out, const void *const *in,              \
                     unsigned splat, const LpNum *p)                           \
    {                                                                          \
        const FIRST *a = in[0];                                                \
        const T *b = in[1], *c = in[2];                                        \
        T *r = out;                                                            \
        PARAMS(T, field);                                                      \
        const int64_t sa = !(splat & 1), sb = !(splat & 2), sc = !(splat & 4); \
        const T b0 = *b, c0 = *c;                                              \
        if (splat == 0)                                                        \
            BODY_OF_3(FIRST, NAME, T, a[i], b[i], c[i], e)                     \
        else if (splat == 2)                                                   \
            BODY_OF_3(FIRST, NAME, T, a[i], b0, c[i], e)                       \
        else if (splat == 4)                                                   \
            BODY_OF_3(FIRST, NAME, T, a[i], b[i], c0, e)                       \
        else if (splat == 6)                                                   \
            BODY_OF_3(FIRST, NAME, T, a[i], b0, c0, e)                         \
        else                                                                   \
            BODY_OF_3(FIRST, NAME, T, a[i * sa], b[i * sb], c[i * sc], e)      \
    }
#define BODY_OF_3(FIRST, NAME, T, va, vb, vc, e)                               \
    EACH(n)                                                                    \
    {                                                                          \
        const FIRST NAME = va;                                                 \
        const T y = vb, z = vc;                                                \
        (void)NAME, (void)y, (void)z;                                          \
        r[i] = (T)(e);                                                         \
    }

/* What fmod leaves of n elements, n at most PIECE. The quotient q is rounded,
 * upwards to the next integer at worst, where the rest gets the other sign and
 * the divisor is added; both products are exact. Where q is too large or no
 * number the rest is no number at first, and the C library's after that. */
enum { PIECE = 256 };
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define WHOLE(q, most) trunc(q)
#else
#define WHOLE(q, most) (double)(int32_t)((q) < (most) ? (q) : 0.0)
#endif
#define REST(T, most, times)                                                   \
    int none = 0;                                                              \
    EACH(n)                                                                    \
    {                                                                          \
        const double a = (double)x[i], b = (double)y[i];                       \
        const double q = fabs(a / b), w = WHOLE(q, most);                      \
        double r = times(-w, fabs(b), fabs(a));                                \
        r += r < 0.0 ? fabs(b) : 0.0;                                          \
        r = w < 1.0 ? a : copysign(r, a);                                      \
        rest[i] = (T)(q < (most) ? r : (double)NAN);                           \
    }                                                                          \
    for (int64_t i = 0; i < n; i++)                                            \
        none |= rest[i] != rest[i];

static void rests_f32(int64_t n, const float *x, const float *y, float *rest)
{
#define TIMES(a, b, c) ((a) * (b) + (c))
    REST(float, 0x1p29, TIMES)
    for (int64_t i = 0; none && i < n; i++)
        if (rest[i] != rest[i])
            rest[i] = fmodf(x[i], y[i]);
}

static void rests_f64(int64_t n, const double *x, const double *y, double *rest)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    REST(double, 0x1p53, FMAD)
#else
    int none = 1;
    EACH(n) rest[i] = NAN;
#endif
    for (int64_t i = 0; none && i < n; i++)
        if (rest[i] != rest[i])
            rest[i] = fmod(x[i], y[i]);
}

/* e reads `rest`, too. */
#define LOOP_OF_REST(name, T, field, e)                                        \
    static void name(int64_t n, void *out, const void *const *in,              \
                     unsigned splat, const LpNum *p)                           \
    {                                                                          \
        const T *a = in[0], *b = in[1];                                        \
        T *r = out, xs[PIECE], ys[PIECE], rests[PIECE];                        \
        PARAMS(T, field);                                                      \
        for (int64_t k = 0; k < n; k += PIECE) {                               \
            const int64_t m = n - k < PIECE ? n - k : PIECE;                   \
            if (splat & 1)                                                     \
                EACH(m) xs[i] = *a;                                            \
            else                                                               \
                EACH(m) xs[i] = a[k + i];                                      \
            if (splat & 2)                                                     \
                EACH(m) ys[i] = *b;                                            \
            else                                                               \
                EACH(m) ys[i] = b[k + i];                                      \
            M(rests)(m, xs, ys, rests);                                        \
            EACH(m)                                                            \
            {                                                                  \
                const T x = xs[i], y = ys[i], rest = rests[i];                 \
                (void)x, (void)y;                                              \
                r[k + i] = (T)(e);                                             \
            }                                                                  \
        }                                                                      \
    }

static inline int64_t div_i64(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? NEGI(x) : x / y;
}
#define DIVI(x, y) div_i64(x, y)

static inline int64_t rem_i64(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

static inline int64_t floor_div_i64(int64_t x, int64_t y)
{
    int64_t r = rem_i64(x, y);
    return div_i64(x, y) - (r != 0 && (r < 0) != (y < 0));
}

static inline int64_t floor_mod_i64(int64_t x, int64_t y)
{
    int64_t r = rem_i64(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* A negative exponent truncates the fraction. */
static inline int64_t pow_i64(int64_t x, int64_t n)
{
    if (n < 0)
        return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)x;
    for (; n; n >>= 1, b *= b)
        if (n & 1)
            r *= b;
    return (int64_t)r;
}

static inline int64_t gcd_i64(int64_t x, int64_t y)
{
    uint64_t a = (uint64_t)(x < 0 ? NEGI(x) : x);
    uint64_t b = (uint64_t)(y < 0 ? NEGI(y) : y);
    while (b != 0) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return (int64_t)a;
}

static inline int64_t lcm_i64(int64_t x, int64_t y)
{
    int64_t d = gcd_i64(x, y);
    int64_t v = d == 0 ? 0 : MULI(div_i64(x, d), y);
    return v < 0 ? NEGI(v) : v;
}

/* Functions that only these loops use, in both types. */
#define T float
#define M(f) f##_f32
#include "src/kernel/loops/simd_pair.h"
#undef T
#undef M
#define T double
#define M(f) f##_f64
#include "src/kernel/loops/simd_pair.h"
#undef T
#undef M

#define CLIP3(x, lo, hi) M(clip)(x, lo, hi)

#define T float
#define M(f) f##_f32
#define BINARY(name, tail, policy, cost, e, ...)                               \
    LOOP(f32_##name, float, float, f, e)
#define BINARYR(name, tail, policy, cost, e, ...)                              \
    LOOP_OF_REST(f32_##name, float, f, e)
#define LOOP2R(name, e, ie) LOOP_OF_REST(f32_##name, float, f, e)
#define COMPARE(name, tail, cost, e, ie, marks)                                \
    LOOP(f32_##name, uint8_t, float, f, e)
#define LOOP2(name, e, ie) LOOP(f32_##name, float, float, f, e)
#define TERNARY(name, tail, policy, cost, e, ...)                              \
    LOOP_OF_3(f32_##name, float, x, float, f, e)
#define SELECT(name, tail, policy, cost, e, ...)                               \
    LOOP_OF_3(f32_##name, uint8_t, m, float, f, e)
#include "src/kernel/loops/binary.def"
#undef T
#undef M

#define T double
#define M(f) f##_f64
#define BINARY(name, tail, policy, cost, e, ...)                               \
    LOOP(f64_##name, double, double, f, e)
#define BINARYR(name, tail, policy, cost, e, ...)                              \
    LOOP_OF_REST(f64_##name, double, f, e)
#define LOOP2R(name, e, ie) LOOP_OF_REST(f64_##name, double, f, e)
#define COMPARE(name, tail, cost, e, ie, marks)                                \
    LOOP(f64_##name, uint8_t, double, f, e)
#define LOOP2(name, e, ie) LOOP(f64_##name, double, double, f, e)
#define TERNARY(name, tail, policy, cost, e, ...)                              \
    LOOP_OF_3(f64_##name, double, x, double, f, e)
#define SELECT(name, tail, policy, cost, e, ...)                               \
    LOOP_OF_3(f64_##name, uint8_t, m, double, f, e)
#include "src/kernel/loops/binary.def"
#undef T
#undef M

#define T int64_t
#define BINARY(...)
#define BINARYI(name, tail, policy, cost, e, ie, ...)                          \
    LOOP(i64_##name, int64_t, int64_t, i, ie)
#define COMPARE(name, tail, cost, e, ie, marks)                                \
    LOOP(i64_##name, uint8_t, int64_t, i, ie)
#define LOOP2(name, e, ie) LOOP(i64_##name, int64_t, int64_t, i, ie)
#define TERNARY(name, tail, policy, cost, e, ie, ...)                          \
    LOOP_OF_3(i64_##name, int64_t, x, int64_t, i, ie)
#define SELECT(name, tail, policy, cost, e, ie, ...)                           \
    LOOP_OF_3(i64_##name, uint8_t, m, int64_t, i, ie)
#include "src/kernel/loops/binary.def"
#undef T

LpBinaryLoops LP_SIMD_NAME(lp_loops_binary) = {
#define BINARY(name, ...) {f32_##name, f64_##name, NULL, 2, false},
#define BINARYI(name, ...) {f32_##name, f64_##name, i64_##name, 2, false},
#define COMPARE(name, ...) {f32_##name, f64_##name, i64_##name, 2, true},
#define LOOP2(name, ...) {f32_##name, f64_##name, i64_##name, 2, false},
#define TERNARY(name, ...) {f32_##name, f64_##name, i64_##name, 3, false},
#include "src/kernel/loops/binary.def"
};
