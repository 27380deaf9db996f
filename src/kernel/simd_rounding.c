/* The loops of roundloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. All on integers, 4 to 16 numbers at once. */
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "src/base/half.h"
#include "src/kernel/roundloops.h"

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef uint32_t U __attribute__((vector_size(4 * LANES)));
typedef uint16_t H __attribute__((vector_size(2 * LANES)));

#define INLINE static inline __attribute__((always_inline))
#define WIDE(h) __builtin_convertvector(h, U)
#define CHOOSE(c, a, b) (((U)(c) & (a)) | (~(U)(c) & (b)))

/* A draw of 32 bits from one of 16 and the one beside it in its pair. */
INLINE U whole(H own)
{
    typedef uint32_t P __attribute__((vector_size(2 * LANES)));
    H beside = (H)((P)own << 16 | (P)own >> 16);
    return WIDE(own) << 16 | WIDE(beside);
}

/* Magnitudes below 2^-14: multiples of 2^-24, the next one if the draw and what
 * is cut off carry. */
INLINE U small(U m, U draw)
{
    U exp = m >> 23, one = (U){0} + 1;
    exp = CHOOSE(exp == 0, one, exp);
    U man = (m & 0x7fffff) | CHOOSE(m >> 23 == 0, (U){0}, (U){0} + 0x800000);
    U cut = 126 - exp, far = cut - 32;
    U low = CHOOSE(cut < 32, man << ((32 - cut) & 31),
                   man >> CHOOSE(far < 31, far, (U){0} + 31));
    low = CHOOSE(cut == 32, man, low);
    U high = man >> CHOOSE(cut < 31, cut, (U){0} + 31);
    return high + CHOOSE(draw > ~low, one, (U){0});
}

/* Nearest beyond the largest number of float16: it, infinity, a NaN. */
INLINE U large(U m)
{
    U nan = (m >> 13 & 0x3ff) | 0x7e00;
    U r = CHOOSE(m > 0x7f800000, nan, (U){0} + 0x7c00);
    return CHOOSE(m < 0x477ff000, (U){0} + 0x7bff, r);
}

INLINE bool any(U x)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
#else
    return ((x[0] | x[1]) | (x[2] | x[3])) != 0;
#endif
}

INLINE H to_f16(U u, H draw)
{
    U m = u & 0x7fffffff;
    U r = ((m + (WIDE(draw) >> 3)) >> 13) - (112 << 10);
    U is_small = (U)(m < 0x38800000), is_large = (U)(m >= 0x477fe000);
    if (any(is_small & m))
        r = CHOOSE(is_small, small(m, whole(draw)), r);
    else
        r = CHOOSE(is_small, (U){0}, r);
    if (any(is_large))
        r = CHOOSE(is_large, large(m), r);
    return __builtin_convertvector(r | (u >> 16 & 0x8000), H);
}

INLINE H to_bf16(U u, H draw)
{
    U m = u & 0x7fffffff, is_large = (U)(m >= 0x7f7f0000);
    U r = (u + WIDE(draw)) >> 16;
    if (any(is_large)) {
        U top = CHOOSE(m < 0x7f7f8000, (U){0} + 0x7f7f, (U){0} + 0x7f80);
        top = CHOOSE(m > 0x7f800000, m >> 16 | 0x40, top);
        r = CHOOSE(is_large, top | (u >> 16 & 0x8000), r);
    }
    return __builtin_convertvector(r, H);
}

#define LOOP(name, one)                                                        \
    static void name(int64_t n, const float *x, const uint16_t *draw,          \
                     uint16_t *to)                                             \
    {                                                                          \
        U u = {0};                                                             \
        H d = {0}, y;                                                          \
        for (; n >= LANES; n -= LANES) {                                       \
            memcpy(&u, x, sizeof u);                                           \
            memcpy(&d, draw, sizeof d);                                        \
            y = one(u, d);                                                     \
            memcpy(to, &y, sizeof y);                                          \
            x += LANES;                                                        \
            draw += LANES;                                                     \
            to += LANES;                                                       \
        }                                                                      \
        if (n == 0)                                                            \
            return;                                                            \
        u = (U){0};                                                            \
        memcpy(&u, x, (size_t)n * sizeof *x);                                  \
        memcpy(&d, draw, sizeof d);                                            \
        y = one(u, d);                                                         \
        memcpy(to, &y, (size_t)n * sizeof *to);                                \
    }
LOOP(round_f16, to_f16)
LOOP(round_bf16, to_bf16)

LpRoundLoopsOf LP_SIMD_NAME(lp_round_loops) = {
    {.f16 = round_f16, .bf16 = round_bf16}};
