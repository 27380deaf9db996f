/* A product of matrices that runs with the chain of pointwise operators
 * (fused.h) on its result: what a thread has multiplied meets the chain while
 * the cache has it. The same bits as one after the other. */
#ifndef LP_KERNEL_PRODUCT_MM_CHAIN_H
#define LP_KERNEL_PRODUCT_MM_CHAIN_H

#include "src/kernel/loops/fused.h"

/* A product of two matrices, of these types, for which that is quicker. */
bool lp_mm_chain_is_fast(const LpType *a, const LpType *b, int pieces);

/* run: in[] are the chain's externals, of which number `at` is the product's
 * result, then the operands of the product; out[] the chain's results, which
 * may lie exactly over the product, over no other external. The product, the
 * chain's external and its results are contiguous. */
LpStatus lp_mm_chain_prepare(const LpKernelReq *mm, const LpFusedReq *chain,
                             int at, LpKernel *k, LpErr *e);

#endif
