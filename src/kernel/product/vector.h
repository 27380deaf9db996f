/* float32 products in which one factor is a vector: too little arithmetic for a
 * packed copy of the other, which is read once. */
#ifndef LP_KERNEL_PRODUCT_VECTOR_H
#define LP_KERNEL_PRODUCT_VECTOR_H

#include "src/kernel/loops/loops.h"
#include "src/kernel/product/gemm.h"

/* dots: y[i y_step] = the sum of a[i rs + j] x[j] over j < n. sums: y[j] = that
 * of x[k x_step] a[k rs + j] over k < rows, in order, for j < n. */
typedef struct LpVectorLoops {
    void (*dots)(int64_t rows, int64_t n, const float *a, int64_t rs,
                 const float *x, float *y, int64_t y_step);
    void (*sums)(int64_t rows, int64_t n, const float *a, int64_t rs,
                 const float *x, int64_t x_step, float *y);
} LpVectorLoops;
typedef const LpVectorLoops LpVectorLoopsOf[1];
LP_SIMD_EXTERN(LpVectorLoopsOf, lp_vector);

/* Has the product this form, and strides that suit? */
bool lp_vector_takes(const LpGemmArgs *g);
/* c = a b. The bits do not depend on `threads`. */
void lp_vector_product(const LpGemmArgs *g, const float *a, const float *b,
                       float *c, int threads);

#endif
