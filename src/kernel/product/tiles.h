/* Products of float32 matrices from bfloat16 pieces, for CPUs that multiply
 * tiles of those much faster than float32 (AMX: 16 times). Sums are float32.
 * An operand is cut as a ~ a1 + a2 + a3, each the rest rounded to bfloat16's 8
 * bits, which leaves at most u = 2^-8 of it.
 *
 *   3 pieces: all 24 bits. Products of pieces i and j with i + j <= 4 are
 *             summed, six. What is left out, a2 b3 + a3 b2 + a3 b3, is at most
 *             (2 u^3 + u^4) |a||b|: two roundings of float32. A product that
 *             float32 has exactly is exact here.
 *   2 pieces: a1 b1 + a1 b2 + a2 b1; off by at most (3 u^2 + 2 u^3) |a||b|.
 *   1 piece:  a1 b1; off by at most (2 u + u^2) |a||b|.
 *
 * Beside that a sum loses what float32 sums lose, with a sixth of the roundings
 * of one by one. Where the largest
 * numbers of 32 rows and 32 columns have products of 2^-90 and more, sums
 * within lose nothing to the range of normal numbers that shows beside those;
 * where not, a product is not taken. Operands below 2^-134 count as 0 unless
 * there are 3 pieces. */
#ifndef LP_KERNEL_PRODUCT_TILES_H
#define LP_KERNEL_PRODUCT_TILES_H

#include "src/kernel/product/gemm.h"

/* 1, 2 or 3 pieces of at least the `wanted` precision where a product of such
 * pieces is the quickest here; else 0. */
int lp_tiles_split(const LpGemmArgs *g, int wanted);

/* Scratch for one product. */
size_t lp_tiles_work(const LpGemmArgs *g, int pieces, int threads);
/* c = a b; the stride of c along its rows is 1. `then`, if not NULL, is told of
 * all of c once and may change it. The bits do not depend on `threads`. False:
 * an operand has infinities, NaN or numbers too large or small for pieces, or
 * an element of c is not finite; c is unspecified then. */
bool lp_tiles(const LpGemmArgs *g, int pieces, const float *a, const float *b,
              float *c, const LpGemmThen *then, void *work, int threads);

#endif
