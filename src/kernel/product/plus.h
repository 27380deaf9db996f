/* A product with an addend that is rounded once: the product is computed and
 * kept in float32 where the result is narrower, and meets the addend there. */
#ifndef LP_KERNEL_PRODUCT_PLUS_H
#define LP_KERNEL_PRODUCT_PLUS_H

#include "src/ir/op.h"

/* The record's `data`: the pointwise operators of the sum. */
typedef struct LpPlusOps {
    const LpOp *mul, *add, *cast;
} LpPlusOps;

/* Operands: those of mm, bmm or convolution, then an addend that broadcasts to
 * the result. The last two attributes of the products are beta and alpha: the
 * result is beta addend + alpha product, of whatever beta is not 0. */
LpPrepare lp_mm_plus_prepare, lp_conv_plus_prepare;

#endif
