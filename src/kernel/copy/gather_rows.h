/* Kernels of row operators (src/ops/index/index.c), set up for the driver of
 * gather.h. */
#ifndef LP_KERNEL_COPY_GATHER_ROWS_H
#define LP_KERNEL_COPY_GATHER_ROWS_H

#include "src/ir/op.h"

/* self, index; attribute 0 is the dimension */
LpStatus lp_index_select_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* self, index, source; attribute 0 is the dimension */
LpStatus lp_index_add_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* weight, indices */
LpStatus lp_embedding_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* grad, indices; attributes number of rows, padding_idx */
LpStatus lp_embedding_backward_prepare(const LpKernelReq *r, LpKernel *k,
                                       LpErr *e);
/* self, indices with holes */
LpStatus lp_index_get_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
/* self, values, indices with holes; attribute 0: accumulate */
LpStatus lp_index_set_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

/* Where the indices' broadcast shape goes: adjacent indexed dimensions are
 * replaced by it, else it leads. Holes have dtype LP_DT_NONE. Sets the shape
 * and its place; fails when the indices do not broadcast. */
LpStatus lp_index_place(const LpType *index, int n, LpType *place, int *at,
                        LpErr *e);

#endif
