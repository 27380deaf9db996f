/* Rounding at random around an operator of single elements (an optimizer): it
 * runs in parts that a cache holds, whose halves are widened before and rounded
 * behind it. */
#ifndef LP_KERNEL_ROUNDING_PARTS_H
#define LP_KERNEL_ROUNDING_PARTS_H

#include "src/ir/op.h"

/* Do all tensors of the call lie as one line of as many elements? */
bool lp_rounds_in_parts(const LpKernelReq *r);
LpPrepare lp_rounding_parts_prepare;

#endif
