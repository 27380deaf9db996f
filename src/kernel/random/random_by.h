/* Kernels of random operators whose operands are the distributions' parameters
 * (src/ops/random/random_by.c). Each element draws from a stream of its own, so
 * methods that reject may take as many numbers as they need, and the bits do
 * not depend on threads. */
#ifndef LP_KERNEL_RANDOM_RANDOM_BY_H
#define LP_KERNEL_RANDOM_RANDOM_BY_H

#include "src/ir/op.h"

/* operand: rates, >= 0 */
LpPrepare lp_poisson_prepare;
/* operands: counts and probabilities, which broadcast to result 0 */
LpPrepare lp_binomial_prepare;
/* operand: shapes, > 0; the scale is 1 */
LpPrepare lp_standard_gamma_prepare;

#endif
