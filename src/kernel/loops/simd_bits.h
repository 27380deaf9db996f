/* Floating-point numbers as bits, and the fused multiply-add, for the functions
 * of simd_math.h and simd_wide.h. */
#ifndef LP_KERNEL_LOOPS_SIMD_BITS_H
#define LP_KERNEL_LOOPS_SIMD_BITS_H

#include <stdint.h>
#include <string.h>

/* Where the instruction does not exist, fma() is a slow call. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FMAD(a, b, c) __builtin_fma(a, b, c)
#else
#define FMAF(a, b, c) ((a) * (b) + (c))
#define FMAD(a, b, c) ((a) * (b) + (c))
#endif

static inline uint32_t bits_of_f(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint64_t bits_of_d(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

static inline double d_of_bits(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

/* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
#define MAGIC_F 12582912.0f
#define MAGIC_D 6755399441055744.0

#endif
