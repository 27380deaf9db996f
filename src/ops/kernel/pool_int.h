/* Pooling of integers: exact, sums wrap as int64 does. */
#ifndef LP_OPS_KERNEL_POOL_INT_H
#define LP_OPS_KERNEL_POOL_INT_H

#include "src/ops/kernel/nn.h"
#include "src/ops/kernel/nnloops.h"

/* One plane; `index` is flat in the input plane. */
void lp_max_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y,
                      int64_t *index);
/* Quotients are rounded towards zero. */
void lp_avg_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y);

#endif
