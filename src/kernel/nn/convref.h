/* Direct convolution on contiguous operands, in float64 (the reference, and
 * what runs where the library cannot) or, of `integers`, in int64. */
#ifndef LP_KERNEL_NN_CONVREF_H
#define LP_KERNEL_NN_CONVREF_H

#include "src/kernel/nn/nn.h"
#include "src/kernel/product/dnn.h"

/* side: src, weights, dst, of which the pass writes one. */
void lp_conv_ref(const LpConvGeom *g, LpDnnPass pass, bool integers,
                 void *const side[3], int threads);

#endif
