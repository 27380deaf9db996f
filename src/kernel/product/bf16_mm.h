/* Products of float32 matrices rounded to bfloat16, a ~ a1, for CPUs with
 * AVX-512's instructions for those (with AMX: tiles.h). Sums are float32. An
 * element is off by at most (2^-8 + 2^-18) sum |a||b| and what float32 sums
 * lose. */
#ifndef LP_KERNEL_PRODUCT_BF16_MM_H
#define LP_KERNEL_PRODUCT_BF16_MM_H

#include "src/kernel/loops/loops.h"
#include "src/kernel/product/gemm.h"

/* Is that quicker than float32 here? */
bool lp_bf16_is_fast(int64_t m, int64_t n, int64_t k);

typedef struct LpBf16Mm LpBf16Mm; /* owned by who made it */

/* `g` as for lp_gemm with a unit stride in each operand; batches lie a_step,
 * b_step, c_step elements apart (0: the same one). */
LpStatus lp_bf16_mm_new(const LpGemmArgs *g, const int64_t step[3],
                        int64_t batch, int threads, LpBf16Mm **out, LpErr *e);
size_t lp_bf16_mm_work(const LpBf16Mm *p);
LpStatus lp_bf16_mm_run(const LpBf16Mm *p, const float *a, const float *b,
                        float *c, void *work, LpErr *e);
void lp_bf16_mm_free(LpBf16Mm *p); /* NULL is fine */

/* y = x rounded to bfloat16. */
typedef void (*LpBf16Round)(int64_t n, const float *x, uint16_t *y);
typedef const LpBf16Round LpBf16Rounds[1];
LP_SIMD_EXTERN(LpBf16Rounds, lp_bf16_round);

#endif
