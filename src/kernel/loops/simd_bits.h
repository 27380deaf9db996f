/* The fused multiply-add and rounding to integers, for the functions
 * of simd_math.h and simd_wide.h. */
#ifndef LP_KERNEL_LOOPS_SIMD_BITS_H
#define LP_KERNEL_LOOPS_SIMD_BITS_H

#include "src/base/half.h"

/* Where the instruction does not exist, fma() is a slow call. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FMAD(a, b, c) __builtin_fma(a, b, c)
#else
#define FMAF(a, b, c) ((a) * (b) + (c))
#define FMAD(a, b, c) ((a) * (b) + (c))
#endif

/* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
#define MAGIC_F 12582912.0f
#define MAGIC_D 6755399441055744.0

#endif
