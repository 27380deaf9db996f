/* The loops of the matrix product (gemm.h), compiled once per instruction set
 * (simd_gemm.c) and chosen once by the CPU. Everything runs on one thread;
 * each element of a result is summed along k in order, whatever the tile. */
#ifndef LP_KERNEL_PRODUCT_GEMMLOOPS_H
#define LP_KERNEL_PRODUCT_GEMMLOOPS_H

#include "src/kernel/loops/loops.h"

/* A tile of a product: c[rows, cols] = left[rows, k] panel[k, width], or is
 * added to. Strides in elements. While it is computed, `n_ahead` rows of k
 * neighbours from `ahead` on, l_rs apart, are asked for. */
typedef struct LpGemmTile {
    int64_t rows, cols, k; /* at most `rows` and `width` of the loops */
    int64_t l_rs, l_cs, c_rs, c_cs;
    int64_t n_ahead;
    const void *ahead;
    bool add;
} LpGemmTile;

/* pack_panel: [k][width] of b's first `cols` columns, then zeros.
 * pack_rows: [k][rows]. */
#define LP_GEMM_LOOPS(T)                                                       \
    int64_t rows, width;                                                       \
    void (*tile)(const LpGemmTile *x, const T *left, const T *panel, T *c);    \
    void (*pack_panel)(const T *b, int64_t rs, int64_t cs, int64_t k,          \
                       int64_t cols, T *panel);                                \
    void (*pack_rows)(const T *a, int64_t rs, int64_t cs, int64_t k,           \
                      int64_t rows, T *packed);

typedef struct LpGemmLoopsF32 {
    LP_GEMM_LOOPS(float)
} LpGemmLoopsF32;
typedef struct LpGemmLoopsF64 {
    LP_GEMM_LOOPS(double)
} LpGemmLoopsF64;

/* The same from halves. */
typedef struct LpGemmPack {
    void (*panel)(const uint16_t *b, int64_t rs, int64_t cs, int64_t k,
                  int64_t cols, float *panel);
    void (*rows)(const uint16_t *a, int64_t rs, int64_t cs, int64_t k,
                 int64_t rows, float *packed);
} LpGemmPack;

typedef struct LpGemmLoops {
    const LpGemmLoopsF32 *f32;
    const LpGemmLoopsF64 *f64;
    const LpGemmPack *f16, *bf16;
} LpGemmLoops;

typedef const LpGemmLoops LpGemmLoopsOf[1];
LP_SIMD_EXTERN(LpGemmLoopsOf, lp_gemm);

#endif
