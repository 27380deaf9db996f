/* The loops of roundloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. All on integers, 4 to 16 numbers at once. */
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "src/base/half.h"
#include "src/kernel/roundloops.h"

#define PAIR(i) i + 1, i, i, i + 1
#define SPREAD_8 PAIR(0), PAIR(2), PAIR(4), PAIR(6)
#if defined(__AVX512F__)
#define LANES 16
#define SPREAD SPREAD_8, PAIR(8), PAIR(10), PAIR(12), PAIR(14)
#elif defined(__AVX2__)
#define LANES 8
#define SPREAD SPREAD_8
#else
#define LANES 4
#define SPREAD PAIR(0), PAIR(2)
#endif

typedef uint32_t U __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef float F __attribute__((vector_size(4 * LANES)));
typedef uint16_t H __attribute__((vector_size(2 * LANES)));
typedef uint16_t P __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))
#define CHOOSE(c, a, b) (((U)(c) & (a)) | (~(U)(c) & (b)))

/* Of numbers from 0 to below 2^32. */
INLINE U bits(F x)
{
#if defined(__AVX512F__)
    return (U)_mm512_cvttps_epu32((__m512)x);
#else
    U high = (U)(x >= 0x1p31f);
    F low = x - (F)(high & 0x4f000000);
    return (U) __builtin_convertvector(low, I) ^ high << 31;
#endif
}

/* Draws of 32 bits: of each its own 16 above those of the one beside it. */
INLINE U draws(const uint16_t *draw)
{
#if defined(__AVX2__) && !defined(__AVX512F__) /* no words across its halves */
    const __m256i byte = _mm256_setr_epi8(
        2, 3, 0, 1, 0, 1, 2, 3, 6, 7, 4, 5, 4, 5, 6, 7, /* draws 0 to 3 */
        10, 11, 8, 9, 8, 9, 10, 11, 14, 15, 12, 13, 12, 13, 14, 15);
    __m128i d = _mm_loadu_si128((const void *)draw);
    return (U)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(d), byte);
#else
    P p = {0};
    memcpy(&p, draw, 2 * LANES);
    return (U)__builtin_shuffle(p, (P){SPREAD});
#endif
}

/* Of numbers below 2^16. */
INLINE H narrow(U x)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return (H)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                               _mm256_extracti128_si256((__m256i)x, 1));
#else
    return __builtin_convertvector(x, H);
#endif
}

/* Magnitudes below 2^-14: multiples of 2^-24, the next one if the draw and what
 * is cut off, its first 32 bits, carry. In floats, which have all of it. */
INLINE U small(U m, U draw)
{
    F x = (F)m * 0x1p24f;
    I whole = __builtin_convertvector(x, I);
    F cut = (x - __builtin_convertvector(whole, F)) * 0x1p32f;
    return (U)whole + ((U)(draw > ~bits(cut)) & 1);
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

INLINE H to_f16(U u, U draw)
{
    U m = u & 0x7fffffff;
    U r = ((m + (draw >> 19)) >> 13) - (112 << 10);
    U is_small = (U)(m < 0x38800000), is_large = (U)(m >= 0x477fe000);
    if (any(is_small & m))
        r = CHOOSE(is_small, small(m, draw), r);
    else
        r = CHOOSE(is_small, (U){0}, r);
    if (any(is_large))
        r = CHOOSE(is_large, large(m), r);
    return narrow(r | (u >> 16 & 0x8000));
}

INLINE H to_bf16(U u, U draw)
{
    U m = u & 0x7fffffff, is_large = (U)(m >= 0x7f7f0000);
    U r = (u + (draw >> 16)) >> 16;
    if (any(is_large)) {
        U top = CHOOSE(m < 0x7f7f8000, (U){0} + 0x7f7f, (U){0} + 0x7f80);
        top = CHOOSE(m > 0x7f800000, m >> 16 | 0x40, top);
        r = CHOOSE(is_large, top | (u >> 16 & 0x8000), r);
    }
    return narrow(r);
}

#define LOOP(name, one)                                                        \
    static void name(int64_t n, const float *x, const uint16_t *draw,          \
                     uint16_t *to)                                             \
    {                                                                          \
        U u = {0};                                                             \
        H y;                                                                   \
        for (; n >= LANES; n -= LANES) {                                       \
            memcpy(&u, x, sizeof u);                                           \
            y = one(u, draws(draw));                                           \
            memcpy(to, &y, sizeof y);                                          \
            x += LANES;                                                        \
            draw += LANES;                                                     \
            to += LANES;                                                       \
        }                                                                      \
        if (n == 0)                                                            \
            return;                                                            \
        u = (U){0};                                                            \
        memcpy(&u, x, (size_t)n * sizeof *x);                                  \
        y = one(u, draws(draw));                                               \
        memcpy(to, &y, (size_t)n * sizeof *to);                                \
    }
LOOP(round_f16, to_f16)
LOOP(round_bf16, to_bf16)

LpRoundLoopsOf LP_SIMD_NAME(lp_round_loops) = {
    {.f16 = round_f16, .bf16 = round_bf16}};
