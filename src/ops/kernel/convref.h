/* Direct convolution in float64 on contiguous operands: the reference, and
 * what runs where the library cannot. */
#ifndef LP_OPS_KERNEL_CONVREF_H
#define LP_OPS_KERNEL_CONVREF_H

#include "src/ops/kernel/nn.h"

void lp_conv_ref(const LpConvGeom *g, const double *src, const double *w,
                 double *dst, int threads);
void lp_conv_ref_data(const LpConvGeom *g, const double *dst, const double *w,
                      double *src, int threads);
void lp_conv_ref_weights(const LpConvGeom *g, const double *src,
                         const double *dst, double *w, int threads);

#endif
