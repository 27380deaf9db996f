/* The loops of rounding.h, compiled once per instruction set
 * (simd_rounding.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_ROUNDLOOPS_H
#define LP_KERNEL_ROUNDLOOPS_H

#include "src/kernel/loops/loops.h"

/* to[i] = the half that x[i] becomes by draw i, which are 16 bits; the first
 * two, the next two and so on are pairs. 16 draws past the last are read. */
typedef void (*LpRoundLoop)(int64_t n, const float *x, const uint16_t *draw,
                            uint16_t *to);
/* The same in place, in float32. */
typedef void (*LpRoundWide)(int64_t n, float *x, const uint16_t *draw);

typedef struct LpRoundLoops {
    LpRoundLoop f16, bf16;
    LpRoundWide f16_wide, bf16_wide;
    /* to[j][i] = x[i][j]; rows and columns of x */
    void (*turn)(int64_t rows, int64_t cols, const float *x, float *to);
} LpRoundLoops;

typedef const LpRoundLoops LpRoundLoopsOf[1];
LP_SIMD_EXTERN(LpRoundLoopsOf, lp_round_loops);

#endif
