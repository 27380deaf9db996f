/* Kernels of random operators (src/ops/random/random.c). Element e of a result
 * takes its number from the counter e, so the bits depend on seed, site and run
 * context only, never on the number of threads. */
#ifndef LP_KERNEL_RANDOM_RANDOM_H
#define LP_KERNEL_RANDOM_RANDOM_H

#include "src/ir/op.h"

typedef enum {
    LP_DRAW_UNIFORM,     /* [a, b) */
    LP_DRAW_NORMAL,      /* mean a, deviation b */
    LP_DRAW_LOG_NORMAL,  /* exp of that */
    LP_DRAW_EXPONENTIAL, /* rate a */
    LP_DRAW_CAUCHY,      /* median a, scale b */
    LP_DRAW_GEOMETRIC,   /* trials to success of probability a */
    LP_DRAW_BERNOULLI,   /* 1 with probability a */
    LP_DRAW_TRUNCATED,   /* normal (a, b) within [c, d] */
    LP_DRAW_INTEGER,     /* [low, high) */
} LpDraw;

typedef struct LpDrawReq {
    LpDraw draw;
    double a, b, c, d;
    int64_t low, high;
} LpDrawReq;

/* Fills result 0. */
LpStatus lp_draw_prepare(const LpKernelReq *r, const LpDrawReq *q, LpKernel *k,
                         LpErr *e);

/* operand: probabilities; result 0 of their shape */
LpPrepare lp_bernoulli_prepare;
/* result 0: 0 … n - 1 in random order */
LpPrepare lp_randperm_prepare;
/* operand: weights [n] or [m, n]; attributes: number of samples, replacement */
LpPrepare lp_multinomial_prepare;

/* By parameters (random_by_kernel.c). Each element draws from a stream of its
 * own, so methods that reject may take as many numbers as they need. */
/* operand: rates, >= 0 */
LpPrepare lp_poisson_prepare;
/* operands: counts and probabilities, which broadcast to result 0 */
LpPrepare lp_binomial_prepare;
/* operand: shapes, > 0; the scale is 1 */
LpPrepare lp_standard_gamma_prepare;

#endif
