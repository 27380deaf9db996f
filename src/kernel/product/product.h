/* A matrix product inside a larger kernel: the library's, or ours where that
 * is quicker or the only one (gemm.h). Weights that meet many left operands
 * may be brought into the library's own layout once. float32 and float64. */
#ifndef LP_KERNEL_PRODUCT_PRODUCT_H
#define LP_KERNEL_PRODUCT_PRODUCT_H

#include "src/kernel/product/dnn.h"
#include "src/kernel/product/gemm.h"

typedef struct LpProduct {
    LpGemmArgs g;
    LpDtype t;
    int threads;
    LpDnnPrim *prim, *pack; /* owned; prim is NULL: ours */
    size_t work_bytes;      /* scratch of a run and of packing */
    size_t packed_bytes;    /* 0: weights are used as they lie */
} LpProduct;

enum {
    LP_PRODUCT_REPEAT = 1, /* b serves many runs */
    LP_PRODUCT_ADD = 2,    /* c += a b; the library's only */
    LP_PRODUCT_PART = 4,   /* rows of a product that is the library's */
};

/* c = a b, or what `flags` say. */
LpStatus lp_product_init(LpProduct *p, LpDtype t, const LpGemmArgs *g,
                         int threads, int flags, LpErr *e);
/* Is a product of this size the library's? */
bool lp_product_library(LpDtype t, int64_t m, int64_t n, int64_t k);
void lp_product_fini(LpProduct *p); /* a zeroed one is fine */

/* *ready: b itself, or its packed form in `space` (packed_bytes). */
LpStatus lp_product_weights(const LpProduct *p, const void *b, void *space,
                            void *work, const void **ready, LpErr *e);
LpStatus lp_product_run(const LpProduct *p, const void *a, const void *ready,
                        void *c, void *work, LpErr *e);

#endif
