/* The loops of the optimizers' updates, for one instruction set (LP_SIMD) and
 * for float and double. Each product and sum is rounded on its own (no
 * contraction), so all instruction sets agree. */
#include <math.h>

#include "src/kernel/loops/optim.h"

#define T float
#define SQRT sqrtf
#define NAME(x) LP_SIMD_PASTE(x, float)
#include "src/kernel/loops/optim_loops.h"
#undef T
#undef SQRT
#undef NAME

#define T double
#define SQRT sqrt
#define NAME(x) LP_SIMD_PASTE(x, double)
#include "src/kernel/loops/optim_loops.h"

#define FLOAT(name) .name = name##_float,
#define DOUBLE(name) .name = name##_double,
LpOptimLoopsOf LP_SIMD_NAME(lp_optim) = {{LP_OPTIMIZERS(FLOAT)},
                                         {LP_OPTIMIZERS(DOUBLE)}};
