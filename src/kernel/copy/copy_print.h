/* The kernel of print_tensor (src/ops/marker.c): copies its operand and writes
 * it to stderr. */
#ifndef LP_KERNEL_COPY_COPY_PRINT_H
#define LP_KERNEL_COPY_COPY_PRINT_H

#include "src/ir/op.h"

LpStatus lp_print_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

#endif
