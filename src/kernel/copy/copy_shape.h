/* Kernels of the operators of src/ops/view/shape.c: all are strided copies. */
#ifndef LP_KERNEL_COPY_COPY_SHAPE_H
#define LP_KERNEL_COPY_COPY_SHAPE_H

#include "src/ir/op.h"

LpStatus lp_cat_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_flip_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_tri_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_pad_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

#endif
