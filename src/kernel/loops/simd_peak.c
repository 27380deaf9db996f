/* Independent chains of multiply-adds, enough to hide the latency of one (4 or
 * 5 cycles, two a cycle) within the registers there are. Compiled once per
 * instruction set. */
#include "src/kernel/loops/peak.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define V __m512
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define SET(x) _mm512_set1_ps(x)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#elif defined(__AVX2__)
#include <immintrin.h>
#define V __m256
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define SET(x) _mm256_set1_ps(x)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define V float32x4_t
#define FMA(a, b, c) vfmaq_f32(a, b, c) /* adds to what it overwrites */
#define SET(x) vdupq_n_f32(x)
#define STORE(p, v) vst1q_f32(p, v)
#else
/* What every CPU has: vectors of four, multiplied, then added to. */
typedef float V __attribute__((vector_size(16)));
#define FMA(a, b, c) ((a) * (b) + (c))
#define SET(x) ((V){(x), (x), (x), (x)})
#define STORE(p, v) __builtin_memcpy(p, &(v), sizeof(v))
#endif

#define CHAINS 12
#define LANES ((int)(sizeof(V) / sizeof(float)))

static float run(int64_t rounds)
{
    V a0 = SET(1), a1 = SET(2), a2 = SET(3), a3 = SET(4), a4 = SET(5),
      a5 = SET(6), a6 = SET(7), a7 = SET(8), a8 = SET(9), a9 = SET(10),
      a10 = SET(11), a11 = SET(12);
    const V b = SET(0.5f), c = SET(1);
    for (int64_t i = 0; i < rounds; i++) {
        a0 = FMA(a0, b, c), a1 = FMA(a1, b, c), a2 = FMA(a2, b, c);
        a3 = FMA(a3, b, c), a4 = FMA(a4, b, c), a5 = FMA(a5, b, c);
        a6 = FMA(a6, b, c), a7 = FMA(a7, b, c), a8 = FMA(a8, b, c);
        a9 = FMA(a9, b, c), a10 = FMA(a10, b, c), a11 = FMA(a11, b, c);
    }
    V sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11;
    float lane[sizeof(V) / sizeof(float)];
    STORE(lane, sum);
    return lane[0];
}

LpPeakLoops LP_SIMD_NAME(lp_peak_loop) = {{CHAINS * LANES, run}};
