/* Kernels of views and of the operators that write through one
 * (src/ops/view/view_put.c), whose record's `data` is the view's record. */
#ifndef LP_KERNEL_COPY_COPY_VIEW_H
#define LP_KERNEL_COPY_COPY_VIEW_H

#include "src/ir/op.h"

/* The prepare hook of every view operator: copies the view's elements. */
LpPrepare lp_view_prepare;

LpPrepare lp_scatter_prepare, lp_view_backward_prepare;
/* Attributes of the adjoint operators: sizes, then from here the view's own. */
enum { LP_VIEW_BACK_OWN = 1 };

/* Adds n elements of `src` (step ss) to `dst` (step ds) of the same type,
 * no half type, one after the other: the two may meet an element often. */
void lp_add_strided(LpDtype t, const void *src, int64_t ss, void *dst,
                    int64_t ds, int64_t n);

#endif
