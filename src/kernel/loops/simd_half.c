/* Loops over float16 as it is stored, for one instruction set (LP_SIMD): an
 * element becomes a float, is computed and rounded once, without a buffer
 * between. None where nothing converts in a register. */
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "src/kernel/loops/loops.h"

#if defined(__F16C__)
enum { WIDTH = 8 };
typedef float Floats __attribute__((vector_size(WIDTH * sizeof(float))));

static inline Floats load(const uint16_t *p)
{
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

static inline Floats spread(uint16_t h)
{
    return (Floats)_mm256_set1_ps(_cvtsh_ss(h));
}

static inline void store(uint16_t *p, Floats v)
{
    __m128i h = _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((void *)p, h);
}

#define LOOP(name, e)                                                          \
    static void name(int64_t n, void *out, const void *const *in,              \
                     unsigned splat, const LpNum *p)                           \
    {                                                                          \
        const uint16_t *a = in[0], *b = in[1];                                 \
        uint16_t *r = out;                                                     \
        const bool one = (splat & 1) != 0, other = (splat & 2) != 0;           \
        const Floats v = spread(*a), w = spread(*b);                           \
        int64_t i = 0;                                                         \
        (void)p;                                                               \
        for (; i + WIDTH <= n; i += WIDTH) {                                   \
            const Floats x = one ? v : load(a + i);                            \
            const Floats y = other ? w : load(b + i);                          \
            store(r + i, e);                                                   \
        }                                                                      \
        for (; i < n; i++) {                                                   \
            const float x = _cvtsh_ss(a[one ? 0 : i]);                         \
            const float y = _cvtsh_ss(b[other ? 0 : i]);                       \
            r[i] = _cvtss_sh(e, _MM_FROUND_TO_NEAREST_INT);                    \
        }                                                                      \
    }
LOOP(add, x + y)
LOOP(sub, x - y)
LOOP(mul, x *y)
LOOP(quotient, x / y)

#define AT(name) [LP_LOOP_##name - LP_N_UNARY_LOOPS]
LpStoredHalfLoops LP_SIMD_NAME(lp_loops_stored_half) = {
    AT(add) = add, AT(sub) = sub, AT(mul) = mul, AT(div) = quotient};
#else
LpStoredHalfLoops LP_SIMD_NAME(lp_loops_stored_half) = {0};
#endif
