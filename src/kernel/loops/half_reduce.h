/* Sums and means of float16 whose running sum is a half (half_sums.h). */
#ifndef LP_KERNEL_LOOPS_HALF_REDUCE_H
#define LP_KERNEL_LOOPS_HALF_REDUCE_H

#include "src/ir/op.h"

/* Over the dimensions that `dims` lists, as lp_reduce_prepare. */
LpStatus lp_half_reduce_prepare(const LpKernelReq *r, bool mean,
                                const LpAttr *dims, LpKernel *k, LpErr *e);

#endif
