/* Floating-point exceptions: a frame around any kernel that tells, by its
 * operands and results, whether it has made what IEEE 754 calls an invalid
 * operation, a division by zero or an overflow; a division by infinity and a
 * comparison with NaN count, too, as PopTorch documents. Of pointwise operators
 * each element is told by its own operands; of others NaN is new where no
 * operand has any, and likewise infinity. What moves elements raises none. */
#ifndef LP_KERNEL_TRAP_H
#define LP_KERNEL_TRAP_H

#include "src/ir/op.h"

/* What lp_prepare does where numerics.trap is set. */
LpStatus lp_trap_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

#endif
