/* Sums of products with half partials (LpNumerics.half_partials): every
 * element of a result is a running sum of its products in the order of their
 * index, in float32, that is rounded to float16 after each 16 products. What is
 * left over (less than 16) is rounded where the result is stored, with an
 * addend if there is one. Where the store rounds at random, the last 16 are
 * left to it as well.
 *
 * The index counts all products, also those with zeros of padding: of a matrix
 * product the contracted dimension; of a convolution the weights of an output
 * channel, of its gradient to the input those of an input channel, to the
 * weights the gradients of an output channel, of a reduction the elements;
 * each in the order of memory (of the last one without its batch: batch, then
 * position). Nothing else enters: no thread, tile, or CPU changes a bit.
 *
 * All three families are one product c[i, j] = sum of a[i, q] b[q, j] whose
 * operands are float32 numbers at offsets that add: a[at.a_i[i] + at.a_k[q]],
 * b[at.b_k[q] + at.b_j[j]], c[at.c_i[i] + at.c_j[j]]. */
#ifndef LP_KERNEL_PRODUCT_HALF_SUMS_H
#define LP_KERNEL_PRODUCT_HALF_SUMS_H

#include "src/ir/op.h"

typedef struct LpHalfSums {
    int64_t batch, m, n, k;
    /* offsets of elements: the caller's to fill, zeros before */
    int64_t *a_batch, *b_batch, *c_batch; /* batch */
    int64_t *a_i, *c_i;                   /* m */
    int64_t *a_k, *b_k;                   /* k */
    int64_t *b_j, *c_j;                   /* n */
    bool *dense;                          /* panels of b are */
    bool turned;                          /* a and b have changed places */
    int64_t rounds;                       /* runs that end rounded */
    int threads;
    int64_t panels, piece, pieces; /* how the work is cut */
    size_t packed;                 /* bytes of all of a */
    size_t work;                   /* scratch of a run */
    int64_t table[];
} LpHalfSums;

/* Sizes and threads are those of the request's kernel. */
LpStatus lp_half_sums_new(const LpKernelReq *r, int64_t batch, int64_t m,
                          int64_t n, int64_t k, LpHalfSums **out, LpErr *e);
/* After the tables are filled. */
LpStatus lp_half_sums_ready(LpHalfSums *h, LpErr *e);
void lp_half_sums_run(const LpHalfSums *h, const float *a, const float *b,
                      float *c, void *work);

/* to[i]: where element i of row-major `size` lies by `stride`, plus `from`. */
void lp_half_sums_axes(int64_t *to, int n, const int64_t *size,
                       const int64_t *stride, int64_t from);

LpPrepare lp_half_mm_prepare;

#endif
