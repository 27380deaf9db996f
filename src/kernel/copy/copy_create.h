/* Kernels of the operators that make tensors (src/ops/view/create.c). */
#ifndef LP_KERNEL_COPY_COPY_CREATE_H
#define LP_KERNEL_COPY_COPY_CREATE_H

#include "src/ir/op.h"

LpStatus lp_empty_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_fill_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_arange_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* linspace; logspace has the attribute base before dtype */
LpStatus lp_linspace_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_eye_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_tri_indices_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

/* How many of `cols` columns row r of a triangle has; they are the first ones
 * of a lower triangle, the last ones of an upper. */
static inline int64_t lp_tri_columns(bool lower, int64_t r, int64_t cols,
                                     int64_t offset)
{
    const int64_t far = INT64_C(1) << 60; /* longer than any side */
    offset = offset > far ? far : offset < -far ? -far : offset;
    int64_t n = lower ? r + offset + 1 : cols - r - offset;
    return n < 0 ? 0 : n > cols ? cols : n;
}

#endif
