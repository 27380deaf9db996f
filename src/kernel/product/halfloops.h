/* The loops of products whose running sums are halves (half_sums.h), compiled
 * once per instruction set (simd_half_sums.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_PRODUCT_HALFLOOPS_H
#define LP_KERNEL_PRODUCT_HALFLOOPS_H

#include "src/kernel/loops/loops.h"

#define LP_HALF_RUN 16 /* products from one rounding to the next */

typedef struct LpHalfLoops {
    int64_t rows, width; /* of a tile, at most */
    /* t[rows][width] += a b of packed a [k][rows] and b [k][width], product by
     * product; after each of the first `rounds` runs of products the sums are
     * rounded to float16 */
    void (*tile)(int64_t rows, int64_t k, int64_t rounds, const float *a,
                 const float *b, float *t);
    /* to[q][j] = x[at_k[q] + at_j[j]] of `width` j, which are neighbours in
     * memory if `dense` */
    void (*pack)(int64_t k, const float *x, const int64_t *at_k,
                 const int64_t *at_j, bool dense, float *to);
    /* one element: the sum of a[at_a[q]] b[at_b[q]], rounded likewise */
    float (*line)(int64_t k, int64_t rounds, const float *a,
                  const int64_t *at_a, const float *b, const int64_t *at_b);
} LpHalfLoops;

typedef const LpHalfLoops LpHalfLoopsOf[1];
LP_SIMD_EXTERN(LpHalfLoopsOf, lp_half_loops);

#endif
