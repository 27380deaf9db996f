/* Running sums, products and extremes where elements lie well (scan.c). */
#ifndef LP_KERNEL_LOOPS_SCAN_H
#define LP_KERNEL_LOOPS_SCAN_H

#include "src/kernel/loops/reduce_kernel.h"

/* Of operators whose geometry is `g`; false: line.c runs it. */
bool lp_scan_prepare(const LpKernelReq *r, LpLineKind kind,
                     const LpReduceGeo *g, LpKernel *k);

#endif
