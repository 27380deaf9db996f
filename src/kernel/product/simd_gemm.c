/* The loops of gemmloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. A tile's sums stay in registers; with 14 rows of two
 * vectors AVX-512 spends 14 + 2 loads on 28 multiply-adds. */
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "src/base/half.h"
#include "src/kernel/product/gemmloops.h"
#ifdef __AVX2__
#include "src/kernel/loops/simd_turn.h"
#endif

#define INLINE static inline __attribute__((always_inline))
#define NV 2

#if defined(__AVX512F__)
#define VBYTES 64
#define MR 14
#define SET_f32(x) _mm512_set1_ps(x)
#define SET_f64(x) _mm512_set1_pd(x)
#define FMA_f32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FMA_f64(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif defined(__AVX2__)
#define VBYTES 32
#define MR 6
#define SET_f32(x) _mm256_set1_ps(x)
#define SET_f64(x) _mm256_set1_pd(x)
#define FMA_f32(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FMA_f64(a, b, c) _mm256_fmadd_pd(a, b, c)
#elif defined(__ARM_NEON)
/* 24 sums, two vectors of a panel and a factor are 27 of 32 registers. */
#include <arm_neon.h>
#define VBYTES 16
#define MR 12
#define SET_f32(x) vdupq_n_f32(x)
#define SET_f64(x) vdupq_n_f64(x)
#define FMA_f32(a, b, c) vfmaq_f32(c, a, b)
#define FMA_f64(a, b, c) vfmaq_f64(c, a, b)
#else
#define VBYTES 32
#define MR 6
#define SET_f32(x) ((x) - (V_f32){0})
#define SET_f64(x) ((x) - (V_f64){0})
#define FMA_f32(a, b, c) ((a) * (b) + (c))
#define FMA_f64(a, b, c) ((a) * (b) + (c))
#endif

#ifdef __AVX512F__
/* Stores a tile whose rows have stride 1; false: it has not. */
static bool put_turned(const LpGemmTile *x, float *t, float *c)
{
    if (x->c_rs != 1)
        return false;
    _Alignas(64) float u[32 * 16];
    turn(t, 32, u, 16);
    turn(t + 16, 32, u + 16 * 16, 16);
    __mmask16 rows = (__mmask16)((1u << x->rows) - 1);
    for (int64_t j = 0; j < x->cols; j++) {
        float *d = c + j * x->c_cs;
        __m512 v = _mm512_load_ps(u + j * 16);
        if (x->add)
            v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(rows, d));
        _mm512_mask_storeu_ps(d, rows, v);
    }
    return true;
}

/* Rows that are neighbours; false: they are not. */
static bool pack_rows(const float *a, int64_t rs, int64_t cs, int64_t k,
                      int64_t rows, float *packed)
{
    if (rs != 1)
        return false;
    __mmask16 m = (__mmask16)((1u << rows) - 1);
    for (int64_t q = 0; q < k; q++)
        _mm512_mask_storeu_ps(packed + q * rows, m,
                              _mm512_maskz_loadu_ps(m, a + q * cs));
    return true;
}

/* A whole panel whose columns lie along k; false: it is not one. */
static bool pack_turned(const float *b, int64_t rs, int64_t cs, int64_t k,
                        int64_t cols, float *panel)
{
    if (rs != 1 || cols != 32)
        return false;
    int64_t q = 0;
    for (; q + 16 <= k; q += 16) {
        turn(b + q, cs, panel + q * 32, 32);
        turn(b + 16 * cs + q, cs, panel + q * 32 + 16, 32);
    }
    for (; q < k; q++)
        for (int64_t j = 0; j < 32; j++)
            panel[q * 32 + j] = b[j * cs + q];
    return true;
}
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
/* Rows that are neighbours; false: they are not, or few. */
static bool pack_rows(const float *a, int64_t rs, int64_t cs, int64_t k,
                      int64_t rows, float *packed)
{
    if (rs != 1 || rows < 4)
        return false;
    for (int64_t q = 0; q < k; q++, a += cs, packed += rows) {
        _mm_storeu_ps(packed, _mm_loadu_ps(a));
        if (rows == 6)
            _mm_storel_pi(
                (void *)(packed + 4),
                _mm_loadl_pi(_mm_setzero_ps(), (const void *)(a + 4)));
        else if (rows == 5)
            packed[4] = a[4];
    }
    return true;
}

/* A whole panel whose columns lie along k; false: it is not one. */
static bool pack_turned(const float *b, int64_t rs, int64_t cs, int64_t k,
                        int64_t cols, float *panel)
{
    if (rs != 1 || cols != 16 || k % 8)
        return false;
    for (int64_t q = 0; q < k; q += 8)
        for (int64_t j = 0; j < 16; j += 8) {
            __m256 x[8];
#pragma GCC unroll 8
            for (int64_t i = 0; i < 8; i++)
                x[i] = _mm256_loadu_ps(b + (j + i) * cs + q);
            turn_eight(x);
#pragma GCC unroll 8
            for (int64_t i = 0; i < 8; i++)
                _mm256_storeu_ps(panel + (q + i) * 16 + j, x[i]);
        }
    return true;
}
#endif

#define T float
#define F(name) name##_f32
#define VSET SET_f32
#define VFMA FMA_f32
#ifdef __AVX512F__
#define PUT_TURNED put_turned
#define PACK_TURNED pack_turned
#define PACK_ROWS pack_rows
#else
#define PUT_TURNED(...) false
#ifdef __AVX2__
#define PACK_TURNED pack_turned
#define PACK_ROWS pack_rows
#else
#define PACK_TURNED(...) false
#define PACK_ROWS(...) false
#endif
#endif
typedef LpGemmLoopsF32 Loops_f32;
#include "src/kernel/product/gemmloops_t.h"
#undef T
#undef F
#undef VSET
#undef VFMA
#undef PUT_TURNED
#undef PACK_TURNED
#undef PACK_ROWS

#define T double
#define F(name) name##_f64
#define VSET SET_f64
#define VFMA FMA_f64
#define PUT_TURNED(...) false
#define PACK_TURNED(...) false
#define PACK_ROWS(...) false
typedef LpGemmLoopsF64 Loops_f64;
#include "src/kernel/product/gemmloops_t.h"

/* ---- halves -------------------------------------------------------------- */
#define LP_GEMM_WIDTH (NV * VBYTES / (int64_t)sizeof(float))
#if defined(__AVX2__) && !defined(__AVX512F__)
INLINE __m256 eight_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

INLINE __m256 eight_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return (__m256)_mm256_slli_epi32(x, 16);
}
#define EIGHT eight_f16
#endif

#define H(name) f16_##name
#ifdef EIGHT
#define ONE(x) _cvtsh_ss(x)
#else
#define ONE(x) lp_half_to_float(x)
#endif
#include "src/kernel/product/gemmpack_t.h"
#undef H
#undef ONE

#ifdef EIGHT
#undef EIGHT
#define EIGHT eight_bf16
#endif
#define H(name) bf16_##name
#define ONE(x) lp_bf16_to_float(x)
#include "src/kernel/product/gemmpack_t.h"

LpGemmLoopsOf LP_SIMD_NAME(lp_gemm) = {
    {&loops_f32, &loops_f64, &f16_pack, &bf16_pack}};
