/* Pooling of blocked operands (LpDesc.block): float32, two spatial axes. */
#ifndef LP_KERNEL_NN_POOL_BLOCKED_H
#define LP_KERNEL_NN_POOL_BLOCKED_H

#include "src/ir/op.h"
#include "src/kernel/nn/nnloops.h"

/* One plane of `block` channels; index is flat in the input plane. */
typedef struct LpPoolBlocked {
    void (*max_plane)(const LpPoolGeom *g, int block, const float *x, float *y,
                      int64_t *index);
} LpPoolBlocked;
typedef const LpPoolBlocked LpPoolBlockedLoops[1];

/* Prepare for requests whose operands are blocked. */
LpStatus lp_max_pool_blocked(const LpKernelReq *r, const LpPoolGeom *g,
                             LpKernel *k, LpErr *e);
LpPrepare lp_max_pool_scatter_blocked;

#endif
