/* Products of float32 matrices by way of bfloat16, for CPUs that multiply
 * those much faster (AMX, AVX-512 with bf16). Sums are float32.
 *
 *   1 piece:  a ~ a1, rounded to 8 bits: a1 b1. An element is off by at most
 *             (2^-8 + 2^-18) sum |a||b| and what float32 sums lose.
 *   3 pieces: a ~ a1 + a2 with a2 = a - a1 rounded: a1 b1 + a1 b2 + a2 b1, as
 *             one product three times as deep. What is left out, a2 b2 and the
 *             rounding of a2 and b2, is at most 3 2^-18 sum |a||b|. */
#ifndef LP_OPS_KERNEL_BF16_MM_H
#define LP_OPS_KERNEL_BF16_MM_H

#include "src/ops/kernel/gemm.h"
#include "src/ops/kernel/loops.h"

/* 1 or 3 pieces at most where that is quicker than float32 here; else 0. */
int lp_bf16_pieces(int wanted, int64_t m, int64_t n, int64_t k);

typedef struct LpBf16Mm LpBf16Mm; /* owned by who made it */

/* `g` as for lp_gemm with a unit stride in each operand; batches lie a_step,
 * b_step, c_step elements apart (0: the same one). */
LpStatus lp_bf16_mm_new(const LpGemmArgs *g, const int64_t step[3],
                        int64_t batch, int pieces, int threads, LpBf16Mm **out,
                        LpErr *e);
size_t lp_bf16_mm_work(const LpBf16Mm *p);
/* *done: false if an operand has infinities or NaN that pieces would change:
 * nothing was computed then. */
LpStatus lp_bf16_mm_run(const LpBf16Mm *p, const float *a, const float *b,
                        float *c, void *work, bool *done, LpErr *e);
void lp_bf16_mm_free(LpBf16Mm *p); /* NULL is fine */

/* hi = x rounded to bfloat16; lo = x - hi rounded, if not NULL. Returns whether
 * all of hi is finite. */
typedef bool (*LpBf16Split)(int64_t n, const float *x, uint16_t *hi,
                            uint16_t *lo);
typedef const LpBf16Split LpBf16Splits[1];
LP_SIMD_EXTERN(LpBf16Splits, lp_bf16_split);

#endif
