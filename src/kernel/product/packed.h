/* Products with a weight in the library's own layout. The packed form is a
 * copy derived from plain rows; whoever keeps it derives it again when the
 * rows change. */
#ifndef LP_KERNEL_PRODUCT_PACKED_H
#define LP_KERNEL_PRODUCT_PACKED_H

#include "src/kernel/product/dnn.h"

/* k becomes a kernel that copies operand 0 to result 0; it owns `reorder`. */
void lp_reorder_kernel(LpDnnPrim *reorder, LpKernel *k);

/* y = x w for x [m, k], w [k, n] as it lies in plain memory, y [m, n]
 * contiguous, all float32. Fills `mm` (operands x and the packed weight) and
 * `pack` (operand w's memory, result the packed weight, *bytes large) and
 * `unpack`, its reverse. The layout depends on the three shapes. *same: the
 * plain memory is wanted anyway, nothing was filled. */
LpStatus lp_packed_mm_prepare(const LpDesc *x, const LpDesc *w, const LpDesc *y,
                              LpKernel *mm, LpKernel *pack, LpKernel *unpack,
                              size_t *bytes, bool *same, LpErr *e);

#endif
