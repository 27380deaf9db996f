/* The loops of rounding.h, compiled once per instruction set
 * (simd_rounding.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_ROUNDLOOPS_H
#define LP_KERNEL_ROUNDLOOPS_H

#include "src/base/random.h"
#include "src/kernel/loops/loops.h"

/* to[i] = the half that x[i], element at + i of a result, becomes. */
typedef void (*LpRoundLoop)(const LpRandom *r, uint64_t at, int64_t n,
                            const float *x, uint16_t *to);
/* The same in float32; to may be x. */
typedef void (*LpRoundWide)(const LpRandom *r, uint64_t at, int64_t n,
                            const float *x, float *to);

typedef struct LpRoundLoops {
    LpRoundLoop f16, bf16;
    LpRoundWide f16_wide, bf16_wide;
    /* to[j][i] = x[i][j]; rows and columns of x */
    void (*turn)(int64_t rows, int64_t cols, const float *x, float *to);
} LpRoundLoops;

typedef const LpRoundLoops LpRoundLoopsOf[1];
LP_SIMD_EXTERN(LpRoundLoopsOf, lp_round_loops);

#endif
