/* Batch normalisation of blocked operands (LpDesc.block), float32, with the
 * addition and the ReLU that follow it (batch_norm_relu). */
#ifndef LP_KERNEL_NN_NORM_BLOCKED_H
#define LP_KERNEL_NN_NORM_BLOCKED_H

#include "src/ir/op.h"

/* One plane: n positions of `block` channels. Vectors of `block` elements:
 * mean, m2 (sum of squares about the plane's own mean), k, s, …
 *
 * stats: mean and m2 of the plane.
 * scale: y = (x - mean) k + shift (+ add, unless NULL), cut at 0 if relu.
 * sums: s = sum dy, sx = sum dy (x - mean); where r (unless NULL) is at most
 *   0, dy counts as 0, here and in back.
 * back: dx = dy ka + (x - mean) kb + kc. */
typedef struct LpNormBlocked {
    void (*stats)(int block, int64_t n, const float *x, float *mean, float *m2);
    void (*scale)(int block, int64_t n, const float *x, const float *mean,
                  const float *k, const float *shift, const float *add,
                  bool relu, float *y);
    void (*sums)(int block, int64_t n, const float *dy, const float *x,
                 const float *r, const float *mean, float *s, float *sx);
    void (*back)(int block, int64_t n, const float *dy, const float *x,
                 const float *r, const float *mean, const float *ka,
                 const float *kb, const float *kc, float *dx);
} LpNormBlocked;
typedef const LpNormBlocked LpNormBlockedLoops[1];

/* Does the norm of operand i, a half or one that is widened for the kernel,
 * have half statistics (norm_kernel.c)? */
bool lp_half_statistics(const LpKernelReq *r, int i);

/* Prepare for requests whose images are blocked. */
LpPrepare lp_batch_norm_blocked, lp_batch_norm_back_blocked;

#endif
