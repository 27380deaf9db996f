/* float32 products with a right operand that is kept as panels (lp_gemm_pack):
 * it is read once, in order, while what is to come is asked for; a block of the
 * left one stays in the second cache. The library packs both in each call. */
#ifndef LP_KERNEL_PRODUCT_PANELS_H
#define LP_KERNEL_PRODUCT_PANELS_H

#include "src/kernel/product/gemm.h"

/* Does this CPU compute the product sooner so than in the library? */
bool lp_panels_pay(const LpGemmArgs *g);

size_t lp_panels_work(const LpGemmArgs *g, int threads);

/* c = a b. The bits do not depend on `threads`. */
void lp_panels_product(const LpGemmArgs *g, const float *a, const float *panels,
                       float *c, void *work, int threads);

/* b, as it was before it was packed. */
void lp_panels_unpack(const LpGemmArgs *g, const float *panels, float *b);

#endif
