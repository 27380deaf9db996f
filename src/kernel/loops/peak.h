/* What this machine can do at most: the measures that profiles compare with.
 * Measured when asked, in about 30 ms each. */
#ifndef LP_KERNEL_LOOPS_PEAK_H
#define LP_KERNEL_LOOPS_PEAK_H

#include <stdint.h>

#include "src/kernel/loops/loops.h"

typedef struct LpPeakLoop {
    int chains; /* floats that are multiplied and added to in each round */
    float (*run)(int64_t rounds);
} LpPeakLoop;
typedef const LpPeakLoop LpPeakLoops[1];
LP_SIMD_EXTERN(LpPeakLoops, lp_peak_loop);

/* float32 operations a second of a loop of fused multiply-adds. */
double lp_peak_flops(int threads);
/* Bytes a second, read and written, of copies beyond the caches. 0 when memory
 * is short. */
double lp_peak_copy(int threads);

#endif
