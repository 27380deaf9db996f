/* The loops of roundloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. All on integers, 4 to 16 numbers at once. */
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>

#include "src/kernel/loops/simd_turn.h"
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

/* Nearest beyond the largest number of float16: it, infinity, a NaN. */
INLINE U large(U m)
{
    U nan = (m >> 13 & 0x3ff) | 0x7e00;
    U r = CHOOSE(m > 0x7f800000, nan, (U){0} + 0x7c00);
    return CHOOSE(m < 0x477ff000, (U){0} + 0x7bff, r);
}

/* What large() gives, as float32. */
INLINE U widen_large(U r)
{
    return CHOOSE(r == 0x7bff, (U){0} + 0x477fe000,
                  (r & 0x3ff) << 13 | 0x7f800000);
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

#if defined(__AVX2__) && !defined(__AVX512F__)
#define SHIFT(way, x, by)                                                      \
    ((U)_mm256_##way##v_epi32((__m256i)(x), (__m256i)(by)))

/* A magnitude in multiples of 2^(e - 137), the distance of two halves there, e
 * its exponent or the least of normal ones; less 1 unless the draw and what is
 * cut off, its first 32 bits, carry. Numbers small and normal alike, as they
 * come mixed and a branch would often be taken wrong. With few constants: all
 * stay in registers. */
INLINE U multiples(U m, U draw, U *e)
{
    U own = m >> 23, man = m << 8 | 0x80000000;
    *e = (U)_mm256_max_epu32((__m256i)own, _mm256_set1_epi32(113));
    U far = *e - own; /* shifts of 32 and more leave 0 */
    U cut = SHIFT(sll, man, 11 - far) | SHIFT(srl, man, far - 11);
    U sum = cut + draw;
    U most = (U)_mm256_max_epu32((__m256i)sum, (__m256i)draw);
    return SHIFT(srl, man >> 21, far) + (U)(most == sum);
}

INLINE U f16_bits(U m, U draw)
{
    U e, n = multiples(m, draw, &e);
    return n + (e << 10) - ((113 << 10) - 1);
}

#else
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

/* Magnitudes below 2^-14: multiples of 2^-24, the next one if the draw and what
 * is cut off, its first 32 bits, carry. In floats, which have all of it. */
INLINE U small(U m, U draw)
{
    F x = (F)m * 0x1p24f;
    I whole = __builtin_convertvector(x, I);
    F cut = (x - __builtin_convertvector(whole, F)) * 0x1p32f;
    return (U)whole + ((U)(draw > ~bits(cut)) & 1);
}

INLINE U f16_bits(U m, U draw)
{
    U r = ((m + (draw >> 19)) >> 13) - (112 << 10);
    U is_small = (U)(m < 0x38800000);
    if (any(is_small & m))
        return CHOOSE(is_small, small(m, draw), r);
    return CHOOSE(is_small, (U){0}, r);
}
#endif

INLINE H to_f16(U u, U draw)
{
    U m = u & 0x7fffffff;
    U r = f16_bits(m, draw), is_large = (U)((I)m >= 0x477fe000);
    if (any(is_large))
        r = CHOOSE(is_large, large(m), r);
    return narrow(r | (u & 0x80000000) >> 16);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
INLINE U wide_f16(U u, U draw)
{
    U m = u & 0x7fffffff, is_large = (U)((I)m >= 0x477fe000), e;
    I n = (I)multiples(m, draw, &e) + 1;
    U r = (U)(__builtin_convertvector(n, F) * (F)((e << 23) - (10 << 23)));
    if (any(is_large))
        r = CHOOSE(is_large, widen_large(large(m)), r);
    return r | (u & 0x80000000);
}
#else
INLINE U wide_f16(U u, U draw)
{
    U m = u & 0x7fffffff, h = f16_bits(m, draw), is_large;
    U few = (U)(__builtin_convertvector((I)h, F) * 0x1p-24f);
    U r = CHOOSE(h < 0x400, few, (h << 13) + (112 << 23));
    is_large = (U)((I)m >= 0x477fe000);
    if (any(is_large))
        r = CHOOSE(is_large, widen_large(large(m)), r);
    return r | (u & 0x80000000);
}
#endif

INLINE U bf16_bits(U u, U draw)
{
    U m = u & 0x7fffffff, is_large = (U)((I)m >= 0x7f7f0000);
    U r = (u + (draw >> 16)) >> 16;
    if (any(is_large)) {
        U top = CHOOSE(m < 0x7f7f8000, (U){0} + 0x7f7f, (U){0} + 0x7f80);
        top = CHOOSE(m > 0x7f800000, m >> 16 | 0x40, top);
        r = CHOOSE(is_large, top | (u >> 16 & 0x8000), r);
    }
    return r;
}

INLINE H to_bf16(U u, U draw)
{
    return narrow(bf16_bits(u, draw));
}

INLINE U wide_bf16(U u, U draw)
{
    return bf16_bits(u, draw) << 16;
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

#define WIDE(name, one)                                                        \
    static void name(int64_t n, float *x, const uint16_t *draw)                \
    {                                                                          \
        U u = {0};                                                             \
        for (; n >= LANES; n -= LANES) {                                       \
            memcpy(&u, x, sizeof u);                                           \
            u = one(u, draws(draw));                                           \
            memcpy(x, &u, sizeof u);                                           \
            x += LANES;                                                        \
            draw += LANES;                                                     \
        }                                                                      \
        if (n == 0)                                                            \
            return;                                                            \
        u = (U){0};                                                            \
        memcpy(&u, x, (size_t)n * sizeof *x);                                  \
        u = one(u, draws(draw));                                               \
        memcpy(x, &u, (size_t)n * sizeof *x);                                  \
    }
WIDE(wide_f16_loop, wide_f16)
WIDE(wide_bf16_loop, wide_bf16)

static void turn_rows(int64_t rows, int64_t cols, const float *x, float *to)
{
    int64_t i = 0;
#ifdef __AVX2__
    for (; i + 8 <= rows; i += 8) {
        int64_t j = 0;
        for (; j + 8 <= cols; j += 8) {
            __m256 v[8];
#pragma GCC unroll 8
            for (int64_t k = 0; k < 8; k++)
                v[k] = _mm256_loadu_ps(x + (i + k) * cols + j);
            turn_eight(v);
#pragma GCC unroll 8
            for (int64_t k = 0; k < 8; k++)
                _mm256_storeu_ps(to + (j + k) * rows + i, v[k]);
        }
        for (; j < cols; j++)
            for (int64_t k = 0; k < 8; k++)
                to[j * rows + i + k] = x[(i + k) * cols + j];
    }
#endif
    for (; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = x[i * cols + j];
}

LpRoundLoopsOf LP_SIMD_NAME(lp_round_loops) = {{.f16 = round_f16,
                                                .bf16 = round_bf16,
                                                .f16_wide = wide_f16_loop,
                                                .bf16_wide = wide_bf16_loop,
                                                .turn = turn_rows}};
