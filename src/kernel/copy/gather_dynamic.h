/* Kernels of src/ops/index/index_dynamic.c: `measure` sets the results' sizes
 * from the operands' data, then the kernel is prepared for these and run. */
#ifndef LP_KERNEL_COPY_GATHER_DYNAMIC_H
#define LP_KERNEL_COPY_GATHER_DYNAMIC_H

#include "src/ir/op.h"

LpStatus lp_nonzero_measure(const LpKernelReq *r, void *const *in, LpType *out,
                            LpErr *e);
LpStatus lp_nonzero_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_unique_measure(const LpKernelReq *r, void *const *in, LpType *out,
                           LpErr *e);
LpStatus lp_unique_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_bincount_measure(const LpKernelReq *r, void *const *in, LpType *out,
                             LpErr *e);
LpStatus lp_bincount_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

#endif
