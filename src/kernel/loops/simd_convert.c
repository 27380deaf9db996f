/* Conversions between stored types, for one instruction set (LP_SIMD). The
 * contiguous bodies vectorise; half precision uses F16C where it exists, NEON's
 * conversions on arm64. */
#include <math.h>
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "src/base/half.h"
#include "src/kernel/loops/loops.h"

/* x86 gives the least integer for what does not fit; so do these. */
static inline int32_t whole32(double v)
{
    return v >= -0x1p31 && v < 0x1p31 ? (int32_t)v : INT32_MIN;
}

static inline int64_t whole(double v)
{
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

#define LOOP(name, S, D, e)                                                    \
    static void name(int64_t n, void *dst, int64_t dstep, const void *src,     \
                     int64_t sstep)                                            \
    {                                                                          \
        if (dstep == (int64_t)sizeof(D) && sstep == (int64_t)sizeof(S)) {      \
            const S *s = src;                                                  \
            D *d = dst;                                                        \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)               \
            {                                                                  \
                const S x = s[i];                                              \
                d[i] = (D)(e);                                                 \
            }                                                                  \
            return;                                                            \
        }                                                                      \
        const char *s = src;                                                   \
        char *d = dst;                                                         \
        for (int64_t i = 0; i < n; i++, s += sstep, d += dstep) {              \
            const S x = *(const S *)s;                                         \
            *(D *)d = (D)(e);                                                  \
        }                                                                      \
    }

/* Copies of one element size. */
LOOP(copy1, uint8_t, uint8_t, x)
LOOP(copy2, uint16_t, uint16_t, x)
LOOP(copy4, uint32_t, uint32_t, x)
LOOP(copy8, uint64_t, uint64_t, x)

/* Into and out of the three types of loops, from and to everything stored. */
#define INTO(T, ct)                                                            \
    LOOP(i32_to_##ct, int32_t, T, x)                                           \
    LOOP(i16_to_##ct, int16_t, T, x)                                           \
    LOOP(i8_to_##ct, int8_t, T, x)                                             \
    LOOP(u8_to_##ct, uint8_t, T, x)
INTO(float, f32)
INTO(double, f64)
INTO(int64_t, i64)
LOOP(f64_to_f32, double, float, x)
LOOP(i64_to_f32, int64_t, float, x)
LOOP(f32_to_f64, float, double, x)
LOOP(i64_to_f64, int64_t, double, x)
LOOP(f64_to_i64, double, int64_t, whole(x))
LOOP(f32_to_i64, float, int64_t, whole((double)x))
LOOP(bf16_to_f32, uint16_t, float, lp_bf16_to_float(x))
LOOP(bf16_to_f64, uint16_t, double, lp_bf16_to_float(x))
LOOP(bf16_to_i64, uint16_t, int64_t, whole((double)lp_bf16_to_float(x)))

#define OUT_OF(T, ct, to_int, to_int32)                                        \
    LOOP(ct##_to_i32, T, int32_t, to_int32)                                    \
    LOOP(ct##_to_i16, T, int16_t, (int16_t)to_int)                             \
    LOOP(ct##_to_i8, T, int8_t, (int8_t)to_int)                                \
    LOOP(ct##_to_u8, T, uint8_t, (uint8_t)to_int)                              \
    LOOP(ct##_to_bool, T, uint8_t, x != 0)
OUT_OF(float, f32, whole((double)x), whole32((double)x))
OUT_OF(double, f64, whole(x), whole32(x))
OUT_OF(int64_t, i64, x, (int32_t)x)
LOOP(f64_to_f16, double, uint16_t, lp_double_to_half(x))
LOOP(i64_to_f16, int64_t, uint16_t, lp_float_to_half((float)x))
LOOP(f32_to_bf16_each, float, uint16_t, lp_float_to_bf16(x))
LOOP(f64_to_bf16, double, uint16_t, lp_double_to_bf16(x))
LOOP(i64_to_bf16, int64_t, uint16_t, lp_float_to_bf16((float)x))

#if defined(__F16C__)
LOOP(f16_to_f32_each, uint16_t, float, _cvtsh_ss(x))
LOOP(f32_to_f16_each, float, uint16_t, _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))
#else
LOOP(f16_to_f32_each, uint16_t, float, lp_half_to_float(x))
LOOP(f32_to_f16_each, float, uint16_t, lp_float_to_half(x))
#endif

#if defined(__F16C__)
enum { HALVES = 8 };
static inline void f16_to_f32_some(const uint16_t *s, float *d)
{
    _mm256_storeu_ps(d, _mm256_cvtph_ps(_mm_loadu_si128((const void *)s)));
}

static inline void f32_to_f16_some(const float *s, uint16_t *d)
{
    __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(s), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((void *)d, h);
}

#if defined(__AVX2__)
/* lp_float_to_bf16 of eight, each in 32 bits */
static inline __m256i to_bf16(const float *s)
{
    const __m256i one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
    __m256 x = _mm256_loadu_ps(s);
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i up = _mm256_add_epi32(half, _mm256_and_si256(high, one));
    __m256i y = _mm256_srli_epi32(_mm256_add_epi32(u, up), 16);
    __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(y, nan, is_nan);
}

enum { BF16S = 16 };
static inline void f32_to_bf16_some(const float *s, uint16_t *d)
{
    __m256i both = _mm256_packus_epi32(to_bf16(s), to_bf16(s + 8));
    _mm256_storeu_si256((void *)d, _mm256_permute4x64_epi64(both, 0xd8));
}
#endif
#elif defined(__ARM_NEON)
enum { HALVES = 4 };
static inline void f16_to_f32_some(const uint16_t *s, float *d)
{
    vst1q_f32(d, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(s))));
}

static inline void f32_to_f16_some(const float *s, uint16_t *d)
{
    vst1_u16(d, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(s))));
}
#endif

#if defined(__F16C__) || defined(__ARM_NEON)
/* Elements that lie together several at once, the others one by one. */
#define SOME_LOOP(name, S, D, SOME)                                            \
    static void name(int64_t n, void *dst, int64_t dstep, const void *src,     \
                     int64_t sstep)                                            \
    {                                                                          \
        const S *s = src;                                                      \
        D *d = dst;                                                            \
        int64_t i = 0;                                                         \
        if (dstep == sizeof *d && sstep == sizeof *s)                          \
            for (; i + SOME <= n; i += SOME)                                   \
                name##_some(s + i, d + i);                                     \
        name##_each(n - i, (char *)dst + i * dstep, dstep,                     \
                    (const char *)src + i * sstep, sstep);                     \
    }
SOME_LOOP(f16_to_f32, uint16_t, float, HALVES)
SOME_LOOP(f32_to_f16, float, uint16_t, HALVES)
#else
#define f16_to_f32 f16_to_f32_each
#define f32_to_f16 f32_to_f16_each
#endif
#if defined(__AVX2__)
SOME_LOOP(f32_to_bf16, float, uint16_t, BF16S)
#else
#define f32_to_bf16 f32_to_bf16_each
#endif

/* From a half by float32, some at a time: exact. */
#define BY_FLOAT(to)                                                           \
    static void f16_to_##to(int64_t n, void *dst, int64_t dstep,               \
                            const void *src, int64_t sstep)                    \
    {                                                                          \
        enum { SOME = 256 };                                                   \
        float f[SOME];                                                         \
        const char *s = src;                                                   \
        char *d = dst;                                                         \
        for (int64_t m; n > 0; n -= m, s += m * sstep, d += m * dstep) {       \
            m = n < SOME ? n : SOME;                                           \
            f16_to_f32(m, f, sizeof *f, s, sstep);                             \
            f32_to_##to(m, d, dstep, f, sizeof *f);                            \
        }                                                                      \
    }
BY_FLOAT(f64)
BY_FLOAT(i64)

#define ROW_OF(ct)                                                             \
    [LP_F16] = ct##_to_f16, [LP_BF16] = ct##_to_bf16, [LP_I32] = ct##_to_i32,  \
    [LP_I16] = ct##_to_i16, [LP_I8] = ct##_to_i8, [LP_U8] = ct##_to_u8,        \
    [LP_BOOL] = ct##_to_bool
#define ROW_TO_3(t, self, copy)                                                \
    [LP_F32] = t##_to_f32, [LP_F64] = t##_to_f64, [LP_I64] = t##_to_i64,       \
    [self] = copy

LpConvertLoops LP_SIMD_NAME(lp_loops_convert) = {
    [LP_F64] = {ROW_OF(f64), [LP_F64] = copy8, [LP_F32] = f64_to_f32,
                [LP_I64] = f64_to_i64},
    [LP_F32] = {ROW_OF(f32), [LP_F64] = f32_to_f64, [LP_F32] = copy4,
                [LP_I64] = f32_to_i64},
    [LP_I64] = {ROW_OF(i64), [LP_F64] = i64_to_f64, [LP_F32] = i64_to_f32,
                [LP_I64] = copy8},
    [LP_F16] = {ROW_TO_3(f16, LP_F16, copy2)},
    [LP_BF16] = {ROW_TO_3(bf16, LP_BF16, copy2)},
    [LP_I32] = {ROW_TO_3(i32, LP_I32, copy4)},
    [LP_I16] = {ROW_TO_3(i16, LP_I16, copy2)},
    [LP_I8] = {ROW_TO_3(i8, LP_I8, copy1)},
    [LP_U8] = {ROW_TO_3(u8, LP_U8, copy1)},
    [LP_BOOL] = {ROW_TO_3(u8, LP_BOOL, copy1)},
};
