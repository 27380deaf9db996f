/* The loops of attnloops.h for one instruction set. Scores are held
 * transposed, keys x queries: a vector's lanes are queries, so that maxima,
 * sums and the causal edge are vertical, and the second operand of every
 * product is a short block that stays in the first cache.
 *
 * exp is 2^n e^r with |r| <= ln 2 / 2 and the Taylor series of e^r, whose
 * remainder is below a tenth of the last place. Arguments are at most 0: what
 * would be subnormal is 0. */
#include "src/kernel/nn/attnloops.h"

#include <float.h>
#include <math.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define STREAMS 4 /* rows of keys or values that are read side by side */
#define MIX 8     /* vectors of a row of values that are summed at once */

#if defined(__AVX512F__)
#define VBYTES 64
#define MR 12 /* rows of a tile of two vectors: 24 of 32 registers */
#define MAX_f32(a, b) _mm512_max_ps(a, b)
#define MAX_f64(a, b) _mm512_max_pd(a, b)
#define FMA_f32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FMA_f64(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif defined(__AVX2__)
#define VBYTES 32
#define MR 6
#define MAX_f32(a, b) _mm256_max_ps(a, b)
#define MAX_f64(a, b) _mm256_max_pd(a, b)
#define FMA_f32(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FMA_f64(a, b, c) _mm256_fmadd_pd(a, b, c)
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define VBYTES 16
#define MR 12
#define MAX_f32(a, b) PICK(f32, (a) > (b), a, b)
#define MAX_f64(a, b) PICK(f64, (a) > (b), a, b)
#define FMA_f32(a, b, c) vfmaq_f32(c, a, b)
#define FMA_f64(a, b, c) vfmaq_f64(c, a, b)
#else
#define VBYTES 16
#define MR 4
#define MAX_f32(a, b) PICK(f32, (a) > (b), a, b)
#define MAX_f64(a, b) PICK(f64, (a) > (b), a, b)
#define FMA_f32(a, b, c) ((a) * (b) + (c))
#define FMA_f64(a, b, c) ((a) * (b) + (c))
#endif

typedef float V_f32 __attribute__((vector_size(VBYTES)));
typedef int32_t I_f32 __attribute__((vector_size(VBYTES)));
typedef double V_f64 __attribute__((vector_size(VBYTES)));
typedef int64_t I_f64 __attribute__((vector_size(VBYTES)));

/* Lanes of a where the comparison holds, of b elsewhere. */
#define PICK(S, m, a, b)                                                       \
    ((V_##S)(((I_##S)(m) & (I_##S)(a)) | (~(I_##S)(m) & (I_##S)(b))))

/* 1 / 13!, … 1 / 1! */
static const double series[] = {1.0 / 6227020800,
                                1.0 / 479001600,
                                1.0 / 39916800,
                                1.0 / 3628800,
                                1.0 / 362880,
                                1.0 / 40320,
                                1.0 / 5040,
                                1.0 / 720,
                                1.0 / 120,
                                1.0 / 24,
                                1.0 / 6,
                                1.0 / 2,
                                1.0};

#define T float
#define F(name) name##_f32
#define VMAX MAX_f32
#define VFMA FMA_f32
#define TERMS 7
#define LOWEST -87.33f
#define MAGIC 12582912.0f /* 1.5 * 2^23: rounds to an integer */
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
#define LANE int32_t
#define MANTISSA 23
#define BIAS 127
#include "src/kernel/nn/attnloops_t.h"
#undef T
#undef F
#undef VMAX
#undef VFMA
#undef TERMS
#undef LOWEST
#undef MAGIC
#undef LN2_HIGH
#undef LN2_LOW
#undef LANE
#undef MANTISSA
#undef BIAS

#define T double
#define F(name) name##_f64
#define VMAX MAX_f64
#define VFMA FMA_f64
#define TERMS 13
#define LOWEST -708.39
#define MAGIC 6755399441055744.0 /* 1.5 * 2^52 */
#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW 1.90821492927058770002e-10
#define LANE int64_t
#define MANTISSA 52
#define BIAS 1023
#include "src/kernel/nn/attnloops_t.h"

LpAttnLoopsPair LP_SIMD_NAME(lp_attn_loops) = {
    {work_f32, forward_f32, backward_f32},
    {work_f64, forward_f64, backward_f64},
};
