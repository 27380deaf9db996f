/* Transposes in registers, for files compiled with AVX-512. */
#ifndef LP_OPS_KERNEL_SIMD_TURN_H
#define LP_OPS_KERNEL_SIMD_TURN_H

#include <immintrin.h>
#include <stdint.h>

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
