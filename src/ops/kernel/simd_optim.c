/* The loops of the optimizers' updates, for one instruction set (LP_SIMD) and
 * for float and double. c[] is named where it is read; each product and sum
 * is rounded on its own (no contraction), so all instruction sets agree. */
#include <math.h>

#include "src/ops/kernel/optim.h"

#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)

#define T float
#define SQRT sqrtf
#define NAME(x) PASTE(x, float)
#include "src/ops/kernel/optim_loops.h"
#undef T
#undef SQRT
#undef NAME

#define T double
#define SQRT sqrt
#define NAME(x) PASTE(x, double)
#include "src/ops/kernel/optim_loops.h"

#define TABLE(t)                                                               \
    {                                                                          \
        .sgd = sgd_##t, .popart_sgd = popart_sgd_##t,                          \
        .popart_combined = popart_combined_##t, .adam = adam_##t,              \
        .rmsprop = rmsprop_##t, .lamb = lamb_##t,                              \
    }
const LpOptimLoops PASTE(lp_optim, LP_SIMD)[2] = {TABLE(float), TABLE(double)};
