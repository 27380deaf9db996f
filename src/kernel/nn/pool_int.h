/* Pooling of integers: exact, sums wrap as int64 does. */
#ifndef LP_KERNEL_NN_POOL_INT_H
#define LP_KERNEL_NN_POOL_INT_H

#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"

/* One plane; `index` is flat in the input plane. */
void lp_max_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y,
                      int64_t *index);
/* Quotients are rounded towards zero. */
void lp_avg_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y);

#endif
