/* How many threads a kernel is prepared for: all, or one where the work is so
 * small that waking others costs more than they save. The eager path, compiled
 * code and the replay ask here, and the answer depends on shapes and dtypes
 * alone, so that a width, and with it the bits, is the same for all of them.
 * Kernels may still use fewer threads than they were prepared for. */
#ifndef LP_OPS_WIDTH_H
#define LP_OPS_WIDTH_H

#include "src/ir/op.h"

/* Of a request whose other fields are set; `width` for large work. */
int lp_width_of(const LpKernelReq *r, int width);
/* Of a kernel that moves `elements` elements once. */
int lp_width_of_copy(double elements, int width);

#endif
