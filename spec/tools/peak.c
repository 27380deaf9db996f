/* Prints what the processor reaches on this machine now, for `make bench`:
 * GFLOP/s of a loop of fused multiply-adds of single precision, per width of
 * the vectors, and GB/s (read and written bytes) of memory copies of several
 * sizes. Each figure is the best of short trials by all threads at once.
 *     peak THREADS    prints `fma_WIDTH`, `fma` (the widest), `copy_MB` */
#include "src/base/cpu.h"
#include "src/base/mem.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { TRIALS = 100, COPIES = 12, ROUNDS = 500000, CHAINS = 12 };
/* MB that a copy reads and writes: caches are faster than memory. */
static const int copy_mb[] = {1, 8, 64, 512};

/* Twelve chains: more than latency times issue width of any CPU known. A
 * chain's values stay finite: x = x * 0.5 + 1, or x + 0.5 * 1. */
#define LOOP(TYPE, SET, FMA, SUM)                                              \
    TYPE x[CHAINS], half = SET(0.5F), one = SET(1.0F);                         \
    _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) x[i] =           \
        SET((float)i);                                                         \
    for (long n = 0; n < rounds; n++)                                          \
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) x[i] =       \
            FMA(x[i], half, one);                                              \
    _Pragma("GCC unroll 12") for (int i = 1; i < CHAINS; i++) x[0] =           \
        FMA(x[i], half, x[0]);                                                 \
    SUM

typedef float (*Kernel)(long rounds);

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static float fma_avx2(long rounds)
{
    LOOP(__m256, _mm256_set1_ps, _mm256_fmadd_ps,
         return _mm256_cvtss_f32(x[0]));
}

__attribute__((target("avx512f"))) static float fma_avx512(long rounds)
{
    LOOP(__m512, _mm512_set1_ps, _mm512_fmadd_ps,
         return _mm512_cvtss_f32(x[0]));
}
#endif

/* Four lanes, as the compiler has them for the machine at hand. */
typedef float F4 __attribute__((vector_size(16)));
static inline F4 set4(float v)
{
    return (F4){v, v, v, v};
}
/* One multiply-add; which operand is the chain does not matter. */
static inline F4 muladd4(F4 a, F4 b, F4 c)
{
#if defined(__ARM_NEON)
    return vfmaq_f32(a, b, c); /* fmla adds to what it overwrites */
#else
    return a * b + c;
#endif
}

static float fma_plain(long rounds)
{
    LOOP(F4, set4, muladd4, return x[0][0]);
}

static volatile float sink;

static double gflops(Kernel kernel, int lanes, int threads)
{
    double best = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double t = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        sink = kernel(ROUNDS);
        t = omp_get_wtime() - t;
        double rate = 2.0 * lanes * CHAINS * ROUNDS * threads / t / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static double copy_rate(int threads, int mb)
{
    size_t bytes = (size_t)mb << 19, part = bytes / (size_t)threads;
    char *from = lp_alloc(bytes), *to = lp_alloc(bytes);
    if (!from || !to) {
        fprintf(stderr, "peak: not enough memory for the copy\n");
        exit(1);
    }
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    double best = 0;
    for (int trial = 0; trial < COPIES; trial++) {
        double t = omp_get_wtime();
#pragma omp parallel for num_threads(threads)
        for (int i = 0; i < threads; i++)
            memcpy(to + (size_t)i * part, from + (size_t)i * part, part);
        t = omp_get_wtime() - t;
        double rate = 2.0 * (double)part * threads / t / 1e9;
        best = rate > best ? rate : best;
    }
    lp_free(from);
    lp_free(to);
    return best;
}

int main(int argc, char **argv)
{
    int threads = argc == 2 ? atoi(argv[1]) : 0;
    if (threads < 1) {
        fprintf(stderr, "usage: peak THREADS\n");
        return 2;
    }
    double best = gflops(fma_plain, 4, threads);
    printf("fma_plain %.6g\n", best);
#if defined(__x86_64__)
    static const Kernel wide[LP_N_SIMD] = {NULL, fma_avx2, fma_avx512};
    for (int s = LP_SIMD_AVX2; s <= (int)lp_cpu_simd(); s++) {
        double rate = gflops(wide[s], s == LP_SIMD_AVX2 ? 8 : 16, threads);
        printf("fma_%s %.6g\n", lp_simd_name((LpSimd)s), rate);
        best = rate > best ? rate : best;
    }
#endif
    printf("fma %.6g\n", best);
    for (size_t i = 0; i < sizeof copy_mb / sizeof *copy_mb; i++)
        printf("copy_%d %.6g\n", copy_mb[i], copy_rate(threads, copy_mb[i]));
    return 0;
}
