/* Direct convolution on contiguous operands, in float64 (the reference, and
 * what runs where the library cannot) or, of `integers`, in int64. */
#ifndef LP_KERNEL_NN_CONVREF_H
#define LP_KERNEL_NN_CONVREF_H

#include "src/kernel/nn/nn.h"

void lp_conv_ref(const LpConvGeom *g, bool integers, const void *src,
                 const void *w, void *dst, int threads);
void lp_conv_ref_data(const LpConvGeom *g, bool integers, const void *dst,
                      const void *w, void *src, int threads);
void lp_conv_ref_weights(const LpConvGeom *g, bool integers, const void *src,
                         const void *dst, void *w, int threads);

#endif
