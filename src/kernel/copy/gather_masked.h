/* Kernels of src/ops/index/index_masked.c. */
#ifndef LP_KERNEL_COPY_GATHER_MASKED_H
#define LP_KERNEL_COPY_GATHER_MASKED_H

#include "src/ir/op.h"

/* self, mask, source */
LpStatus lp_masked_unpack_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* self, mask */
LpStatus lp_masked_pack_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* self, start; attributes dim, size, step */
LpStatus lp_dynamic_slice_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* self, src, start; attributes dim, size */
LpStatus lp_dynamic_update_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

LpStatus lp_one_hot_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_one_hot_measure(const LpKernelReq *r, void *const *in, LpType *out,
                            LpErr *e);

#endif
