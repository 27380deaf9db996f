/* Own matrix product: float64, integers, float32 too small to be worth a
 * library call and, where lp_gemm_is_fast says so, any float32. Any strides. */
#ifndef LP_KERNEL_PRODUCT_GEMM_H
#define LP_KERNEL_PRODUCT_GEMM_H

#include "src/ir/op.h"

/* c[m, n] = a[m, k] b[k, n]; rs, cs: strides of rows and columns. `half`: 0, or
 * what a and b are of, LP_F16 or LP_BF16, in a product of float32: they become
 * that on the way to the registers. */
typedef struct LpGemmArgs {
    int64_t m, n, k;
    int64_t a_rs, a_cs, b_rs, b_cs, c_rs, c_cs;
    LpDtype half;
} LpGemmArgs;

/* n in as few pieces of at most `most` as there must be, of nearly one size,
 * a multiple of `unit`; never 0. */
int64_t lp_gemm_piece(int64_t n, int64_t most, int64_t unit);

/* The product of the transposes: c' = b' a'. */
LpGemmArgs lp_gemm_turn(const LpGemmArgs *g);

/* Does this CPU compute the product sooner here than in the library? */
bool lp_gemm_is_fast(const LpGemmArgs *g, LpDtype t);

/* Does it compute one of these halves sooner than of what they are widened
 * to? */
bool lp_gemm_is_fast_of(LpDtype half);

/* Told of parts of c, rows i0 … i1 - 1 of columns j0 … j1 - 1, by the thread
 * that made them, which still has them in its cache. Of `strip` bytes
 * (lp_gemm_strip) c has that many for each thread in place of all rows: a
 * part's rows are its first ones. */
typedef struct LpGemmThen {
    void (*run)(const struct LpGemmThen *t, int64_t i0, int64_t i1, int64_t j0,
                int64_t j1, int thread);
    const void *with;
    size_t strip;
} LpGemmThen;

/* Scratch for one product; F32, F64 or I64. */
size_t lp_gemm_work(const LpGemmArgs *g, LpDtype t);
/* Does a product make its result in parts, of which `then` can be told? */
bool lp_gemm_tells(const LpGemmArgs *g, LpDtype t);
/* Bytes of the rows that are told of at once, if each part is made at once: c's
 * rows have no gaps. Else 0. */
size_t lp_gemm_strip(const LpGemmArgs *g, LpDtype t);
/* c = a b. `then`, if not NULL, is told of all of c once and may change it. The
 * bits do not depend on `threads`. */
void lp_gemm(const LpGemmArgs *g, LpDtype t, const void *a, const void *b,
             void *c, const LpGemmThen *then, void *work, int threads);

/* What c is for k = 0, which lp_gemm does not take: sums over nothing. */
void lp_gemm_zero(const LpGemmArgs *g, LpDtype t, void *c);

/* The same with b packed before, in lp_gemm_packed_bytes: for one b that meets
 * many a. Not for I64. */
size_t lp_gemm_packed_bytes(const LpGemmArgs *g, LpDtype t);
void lp_gemm_pack(const LpGemmArgs *g, LpDtype t, const void *b, void *packed,
                  int threads);
void lp_gemm_packed(const LpGemmArgs *g, LpDtype t, const void *a,
                    const void *packed, void *c, int threads);

#endif
