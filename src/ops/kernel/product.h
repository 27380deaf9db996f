/* A matrix product inside a larger kernel: the library's, or ours where that
 * is quicker or the only one (gemm.h). Weights that meet many left operands
 * may be brought into the library's own layout once. float32 and float64. */
#ifndef LP_OPS_KERNEL_PRODUCT_H
#define LP_OPS_KERNEL_PRODUCT_H

#include "src/ops/kernel/dnn.h"
#include "src/ops/kernel/gemm.h"

typedef struct LpProduct {
    LpGemmArgs g;
    LpDtype t;
    int threads;
    LpDnnPrim *prim, *pack; /* owned; prim is NULL: ours */
    size_t work_bytes;      /* scratch of a run and of packing */
    size_t packed_bytes;    /* 0: weights are used as they lie */
} LpProduct;

/* c = a b. `repeat`: b serves many runs. */
LpStatus lp_product_init(LpProduct *p, LpDtype t, const LpGemmArgs *g,
                         int threads, bool repeat, LpErr *e);
void lp_product_fini(LpProduct *p); /* a zeroed one is fine */

/* *ready: b itself, or its packed form in `space` (packed_bytes). */
LpStatus lp_product_weights(const LpProduct *p, const void *b, void *space,
                            void *work, const void **ready, LpErr *e);
LpStatus lp_product_run(const LpProduct *p, const void *a, const void *ready,
                        void *c, void *work, LpErr *e);

#endif
