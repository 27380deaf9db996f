/* Convolution and pooling of integers: exact, wrapping as int64 does. */
#ifndef LP_OPS_KERNEL_WINDOW_INT_H
#define LP_OPS_KERNEL_WINDOW_INT_H

#include "src/ops/kernel/nn.h"
#include "src/ops/kernel/nnloops.h"

/* dst = the convolution of src with w. */
void lp_conv_int(const LpConvGeom *g, const int64_t *src, const int64_t *w,
                 int64_t *dst);
/* src = the transposed convolution of dst with w. */
void lp_conv_int_data(const LpConvGeom *g, const int64_t *dst, const int64_t *w,
                      int64_t *src);

/* One plane; `index` is flat in the input plane. */
void lp_max_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y,
                      int64_t *index);
/* Quotients are rounded towards zero. */
void lp_avg_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y);

#endif
