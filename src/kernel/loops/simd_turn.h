/* Transposes in registers, for files compiled with AVX2 or AVX-512. */
#ifndef LP_KERNEL_LOOPS_SIMD_TURN_H
#define LP_KERNEL_LOOPS_SIMD_TURN_H

#include <immintrin.h>
#include <stdint.h>

/* Turns 8 by 8: pairs, fours, then the halves of the vectors. */
static inline __attribute__((always_inline)) void turn_eight(__m256 x[8])
{
    __m256 t[8];
#define PD(a) ((__m256d)(a))
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            __m256d a = PD(t[i + h]), b = PD(t[i + 2 + h]);
            x[i + 2 * h] = (__m256)_mm256_unpacklo_pd(a, b);
            x[i + 2 * h + 1] = (__m256)_mm256_unpackhi_pd(a, b);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256 a = x[i], b = x[i + 4];
        x[i] = _mm256_permute2f128_ps(a, b, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(a, b, 0x31);
    }
#undef PD
}

#ifdef __AVX512F__
/* Four rows, ld apart, of 16: within each lane of four, 4 by 4 are turned. Row
 * j of the result, which has element j of each lane, goes to out + j * os. */
static inline __attribute__((always_inline)) void
turn_fours(const float *in, int64_t ld, float *out, int64_t os)
{
    __m512 a = _mm512_loadu_ps(in), b = _mm512_loadu_ps(in + ld);
    __m512 c = _mm512_loadu_ps(in + 2 * ld), d = _mm512_loadu_ps(in + 3 * ld);
    __m512d ab = (__m512d)_mm512_unpacklo_ps(a, b);
    __m512d ba = (__m512d)_mm512_unpackhi_ps(a, b);
    __m512d cd = (__m512d)_mm512_unpacklo_ps(c, d);
    __m512d dc = (__m512d)_mm512_unpackhi_ps(c, d);
    _mm512_storeu_pd(out, _mm512_unpacklo_pd(ab, cd));
    _mm512_storeu_pd(out + os, _mm512_unpackhi_pd(ab, cd));
    _mm512_storeu_pd(out + 2 * os, _mm512_unpacklo_pd(ba, dc));
    _mm512_storeu_pd(out + 3 * os, _mm512_unpackhi_pd(ba, dc));
}

/* Four rows of 16, one after the other: their lanes of four, 4 by 4, are
 * turned. */
static inline __attribute__((always_inline)) void turn_lanes(const float *in,
                                                             __m512 out[4])
{
    __m512 a = _mm512_loadu_ps(in), b = _mm512_loadu_ps(in + 16);
    __m512 c = _mm512_loadu_ps(in + 32), d = _mm512_loadu_ps(in + 48);
    __m512 even = _mm512_shuffle_f32x4(a, b, 0x88); /* lanes 0, 2 of a, of b */
    __m512 odd = _mm512_shuffle_f32x4(a, b, 0xdd);
    __m512 even2 = _mm512_shuffle_f32x4(c, d, 0x88);
    __m512 odd2 = _mm512_shuffle_f32x4(c, d, 0xdd);
    out[0] = _mm512_shuffle_f32x4(even, even2, 0x88);
    out[1] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
    out[2] = _mm512_shuffle_f32x4(even, even2, 0xdd);
    out[3] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
}

/* out[j][i] = in[i][j] of 16 by 16; strides ld and os. */
static inline __attribute__((always_inline)) void
turn(const float *in, int64_t ld, float *out, int64_t os)
{
    __m512 r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_ps(in + i * ld);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#define PAIR(low, a, b)                                                        \
    ((__m512)_mm512_unpack##low##_pd((__m512d)(a), (__m512d)(b)))
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        r[i] = PAIR(lo, t[i], t[i + 2]);
        r[i + 1] = PAIR(hi, t[i], t[i + 2]);
        r[i + 2] = PAIR(lo, t[i + 1], t[i + 3]);
        r[i + 3] = PAIR(hi, t[i + 1], t[i + 3]);
    }
#undef PAIR
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) { /* quarters 0 and 2, then 1 and 3 */
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[8 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++)
        for (int h = 0; h < 2; h++) {
            __m512 a = t[8 * h + i], b = t[8 * h + 4 + i];
            _mm512_storeu_ps(out + (4 * h + i) * os,
                             _mm512_shuffle_f32x4(a, b, 0x88));
            _mm512_storeu_ps(out + (8 + 4 * h + i) * os,
                             _mm512_shuffle_f32x4(a, b, 0xdd));
        }
}
#endif

#endif
