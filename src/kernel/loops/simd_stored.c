/* Loops over elements as they are stored, for one instruction set (LP_SIMD):
 * halves become floats in a register, are computed and rounded once; narrow
 * integers wrap and bools stay a byte. The bits are those of the loops of
 * float and int64_t around which the driver converts. */
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#define HALVES
#endif

#include "src/base/half.h"
#include "src/kernel/loops/simd_loop.h"

#define ARGS                                                                   \
    int64_t n, void *out, const void *const *in, unsigned splat, const LpNum *p

/* ---- halves -------------------------------------------------------------- */
#if defined(HALVES)
enum { WIDTH = 8 };
typedef float Floats __attribute__((vector_size(WIDTH * sizeof(float))));

static inline Floats load_f16(const uint16_t *p)
{
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

static inline void store_f16(uint16_t *p, Floats v)
{
    __m128i h = _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((void *)p, h);
}

static inline float one_of_f16(uint16_t h)
{
    return _cvtsh_ss(h);
}

static inline uint16_t to_f16(float v)
{
    return _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT);
}

static inline Floats load_bf16(const uint16_t *p)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return (Floats)_mm256_slli_epi32(u, 16);
}

/* As lp_float_to_bf16. */
static inline void store_bf16(uint16_t *p, Floats v)
{
    const __m256i u = _mm256_castps_si256((__m256)v);
    const __m256i high = _mm256_srli_epi32(u, 16);
    __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i h = _mm256_add_epi32(u, _mm256_set1_epi32(0x7fff));
    h = _mm256_srli_epi32(_mm256_add_epi32(h, even), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256 nan = _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    h = _mm256_blendv_epi8(h, quiet, _mm256_castps_si256(nan));
    _mm_storeu_si128((void *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(h),
                                      _mm256_extracti128_si256(h, 1)));
}

#define one_of_bf16 lp_bf16_to_float
#define to_bf16 lp_float_to_bf16

#define HALF2(kind, name, e)                                                   \
    static void kind##_##name(ARGS)                                            \
    {                                                                          \
        const uint16_t *a = in[0], *b = in[1];                                 \
        uint16_t *r = out;                                                     \
        const bool one = (splat & 1) != 0, other = (splat & 2) != 0;           \
        const float c = one_of_##kind(*a), d = one_of_##kind(*b);              \
        const Floats v = (Floats)_mm256_set1_ps(c);                            \
        const Floats w = (Floats)_mm256_set1_ps(d);                            \
        int64_t i = 0;                                                         \
        (void)p;                                                               \
        for (; i + WIDTH <= n; i += WIDTH) {                                   \
            const Floats x = one ? v : load_##kind(a + i);                     \
            const Floats y = other ? w : load_##kind(b + i);                   \
            store_##kind(r + i, e);                                            \
        }                                                                      \
        for (; i < n; i++) {                                                   \
            const float x = one ? c : one_of_##kind(a[i]);                     \
            const float y = other ? d : one_of_##kind(b[i]);                   \
            r[i] = to_##kind(e);                                               \
        }                                                                      \
    }
#define ARITHMETIC(kind)                                                       \
    HALF2(kind, add, x + y)                                                    \
    HALF2(kind, sub, x - y)                                                    \
    HALF2(kind, mul, x *y)                                                     \
    HALF2(kind, div, x / y)
ARITHMETIC(f16)
ARITHMETIC(bf16)
#endif

/* By bits: a NaN comes out quiet, as from a conversion. */
#define BITS(kind, name, inf, quiet, e)                                        \
    static void kind##_##name(ARGS)                                            \
    {                                                                          \
        const uint16_t *a = in[0];                                             \
        uint16_t *r = out;                                                     \
        (void)splat, (void)p;                                                  \
        EACH(n)                                                                \
        {                                                                      \
            const uint16_t h = a[i], m = (uint16_t)(h & 0x7fff);               \
            const uint16_t x = (uint16_t)(m > (inf) ? h | (quiet) : h);        \
            const uint16_t below = h > 0x8000 && m <= (inf);                   \
            (void)below;                                                       \
            r[i] = (uint16_t)(e);                                              \
        }                                                                      \
    }
#define SIGNS(kind, inf, quiet)                                                \
    BITS(kind, relu, inf, quiet, below ? 0 : x)                                \
    BITS(kind, neg, inf, quiet, x ^ 0x8000)                                    \
    BITS(kind, abs, inf, quiet, x & 0x7fff)
SIGNS(f16, 0x7c00, 0x200)
SIGNS(bf16, 0x7f80, 0x40)

/* ---- integers and bools -------------------------------------------------- */
#define WHOLE2(kind, name, T, R, e)                                            \
    static void kind##_##name(ARGS)                                            \
    {                                                                          \
        const T *a = in[0], *b = in[1];                                        \
        R *r = out;                                                            \
        const T c = *a, d = *b;                                                \
        (void)p;                                                               \
        if (splat == 0)                                                        \
            EACH(n)                                                            \
            {                                                                  \
                const T x = a[i], y = b[i];                                    \
                r[i] = (R)(e);                                                 \
            }                                                                  \
        else                                                                   \
            EACH(n)                                                            \
            {                                                                  \
                const T x = splat & 1 ? c : a[i], y = splat & 2 ? d : b[i];    \
                r[i] = (R)(e);                                                 \
            }                                                                  \
    }
#define WHOLE(kind, T)                                                         \
    WHOLE2(kind, add, T, T, (uint32_t)x + (uint32_t)y)                         \
    WHOLE2(kind, sub, T, T, (uint32_t)x - (uint32_t)y)                         \
    WHOLE2(kind, mul, T, T, (uint32_t)x *(uint32_t)y)                          \
    WHOLE2(kind, maximum, T, T, x > y ? x : y)                                 \
    WHOLE2(kind, minimum, T, T, x < y ? x : y)                                 \
    WHOLE2(kind, bitwise_and, T, T, x &y)                                      \
    WHOLE2(kind, bitwise_or, T, T, x | y)                                      \
    WHOLE2(kind, bitwise_xor, T, T, x ^ y)                                     \
    WHOLE2(kind, eq, T, uint8_t, x == y)                                       \
    WHOLE2(kind, ne, T, uint8_t, x != y)                                       \
    WHOLE2(kind, lt, T, uint8_t, x < y)                                        \
    WHOLE2(kind, le, T, uint8_t, x <= y)                                       \
    WHOLE2(kind, gt, T, uint8_t, x > y)                                        \
    WHOLE2(kind, ge, T, uint8_t, x >= y)
WHOLE(i32, int32_t)
WHOLE(i16, int16_t)
WHOLE(i8, int8_t)
WHOLE(u8, uint8_t)
WHOLE2(bool, and, uint8_t, uint8_t, (x != 0) & (y != 0))
WHOLE2(bool, or, uint8_t, uint8_t, (x != 0) | (y != 0))
WHOLE2(bool, xor, uint8_t, uint8_t, (x != 0) ^ (y != 0))
WHOLE2(bool, eq, uint8_t, uint8_t, (x != 0) == (y != 0))

static void bool_not(ARGS)
{
    const uint8_t *a = in[0];
    uint8_t *r = out;
    (void)splat, (void)p;
    EACH(n) r[i] = a[i] == 0;
}

/* ---- the tables ---------------------------------------------------------- */
#define AT(kind, name) [LP_LOOP_##name] = kind##_##name
#define AS(name, fn) [LP_LOOP_##name] = fn
#if defined(HALVES)
#define HALF_ROW(kind)                                                         \
    AT(kind, add), AT(kind, sub), AT(kind, mul), AT(kind, div),                \
        AT(kind, relu), AT(kind, neg), AT(kind, abs)
#else
#define HALF_ROW(kind) AT(kind, relu), AT(kind, neg), AT(kind, abs)
#endif
#define WHOLE_ROW(kind)                                                        \
    AT(kind, add), AT(kind, sub), AT(kind, mul), AT(kind, maximum),            \
        AT(kind, minimum), AT(kind, bitwise_and), AT(kind, bitwise_or),        \
        AT(kind, bitwise_xor), AT(kind, eq), AT(kind, ne), AT(kind, lt),       \
        AT(kind, le), AT(kind, gt), AT(kind, ge)

static const LpLoop f16[LP_N_LOOPS] = {HALF_ROW(f16)};
static const LpLoop bf16[LP_N_LOOPS] = {HALF_ROW(bf16)};
static const LpLoop i32[LP_N_LOOPS] = {WHOLE_ROW(i32)};
static const LpLoop i16[LP_N_LOOPS] = {WHOLE_ROW(i16)};
static const LpLoop i8[LP_N_LOOPS] = {WHOLE_ROW(i8)};
static const LpLoop u8[LP_N_LOOPS] = {WHOLE_ROW(u8)};
static const LpLoop truths[LP_N_LOOPS] = {
    AS(logical_and, bool_and), AS(bitwise_and, bool_and),
    AS(mul, bool_and),         AS(minimum, bool_and),
    AS(logical_or, bool_or),   AS(bitwise_or, bool_or),
    AS(add, bool_or),          AS(maximum, bool_or),
    AS(logical_xor, bool_xor), AS(bitwise_xor, bool_xor),
    AS(ne, bool_xor),          AS(eq, bool_eq),
    AS(logical_not, bool_not),
};

LpStoredLoops LP_SIMD_NAME(lp_loops_stored) = {
    [LP_F16] = f16, [LP_BF16] = bf16, [LP_I32] = i32,    [LP_I16] = i16,
    [LP_I8] = i8,   [LP_U8] = u8,     [LP_BOOL] = truths};
