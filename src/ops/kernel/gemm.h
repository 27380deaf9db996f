/* Own matrix product for what the library does not do or does slowly: float64,
 * integers, and float32 too small to be worth a library call. Any strides. */
#ifndef LP_OPS_KERNEL_GEMM_H
#define LP_OPS_KERNEL_GEMM_H

#include "src/ir/op.h"
#include "src/ops/kernel/nnloops.h"

/* Scratch for one product; F32, F64 or I64. */
size_t lp_gemm_work(const LpGemmArgs *g, LpDtype t);
/* c = a b. The bits do not depend on `threads`. */
void lp_gemm(const LpGemmArgs *g, LpDtype t, const void *a, const void *b,
             void *c, void *work, int threads);

/* The same with b packed before, in lp_gemm_work bytes: for one b that meets
 * many a. Not for I64. */
void lp_gemm_pack(const LpGemmArgs *g, LpDtype t, const void *b, void *packed);
void lp_gemm_packed(const LpGemmArgs *g, LpDtype t, const void *a,
                    const void *packed, void *c, int threads);

#endif
