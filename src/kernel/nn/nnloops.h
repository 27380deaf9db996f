/* The vector loops of the neural-network kernels, compiled once per
 * instruction set (simd_nn.c) and chosen once by the CPU. Every loop works on
 * contiguous data and on one thread; callers split the rows. Sums inside a
 * row are taken in an order fixed by the instruction set alone. */
#ifndef LP_KERNEL_NN_NNLOOPS_H
#define LP_KERNEL_NN_NNLOOPS_H

#include "src/kernel/loops/loops.h"

/* A pooling window over up to three axes (unused ones: 1, padding 0). */
typedef struct LpPoolGeom {
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int64_t divisor; /* of averages; 0: the size of the window */
    bool include_pad;
    bool adaptive; /* windows are what the sizes of both sides make them */
} LpPoolGeom;

/* softmax …: one row. _cols: the first axis of [n, inner] with `stride`
 *   between its rows, inner <= 64.
 * sum_diff2: sum of (x - mean)^2. dot2: s += sum dy, sx += sum dy (x - mean).
 * norm_row: y = (x - mean) rstd w + b; w, b may be NULL.
 * center: y = (x - mean) scale + shift.
 * center2: dx = dy a + (x - mean) b + c.
 * norm_back_sums: s = sum dy w, sx = sum dy w xhat (w may be NULL).
 * norm_back_params: dw += dy xhat, db += dy.
 * norm_back_row: dx = rstd (dy w - s - xhat sx).
 * max_plane: one plane; index is flat in the input plane.
 * avg_plane, avg_rows: one plane, by places of the window or (adaptive ones
 *   too) by rows; row is scratch of an input row; avg_rows_back adds to dx. */
#define LP_NN_LOOPS(T)                                                         \
    void (*softmax)(const T *x, int64_t n, T *y);                              \
    void (*log_softmax)(const T *x, int64_t n, T *y);                          \
    void (*softmax_back)(const T *dy, const T *y, int64_t n, T *dx);           \
    void (*log_softmax_back)(const T *dy, const T *y, int64_t n, T *dx);       \
    void (*softmax_cols)(const T *x, int64_t n, int64_t stride, int64_t inner, \
                         bool is_log, T *y);                                   \
    void (*softmax_cols_back)(const T *dy, const T *y, int64_t n,              \
                              int64_t stride, int64_t inner, bool is_log,      \
                              T *dx);                                          \
    T (*sum)(const T *x, int64_t n);                                           \
    T (*sum_diff2)(const T *x, int64_t n, T mean);                             \
    void (*dot2)(const T *dy, const T *x, int64_t n, T mean, T *s, T *sx);     \
    void (*norm_row)(const T *x, int64_t n, T mean, T rstd, const T *w,        \
                     const T *b, T *y);                                        \
    void (*center)(const T *x, int64_t n, T mean, T scale, T shift, T *y);     \
    void (*center2)(const T *dy, const T *x, int64_t n, T mean, T a, T b, T c, \
                    T *dx);                                                    \
    void (*norm_back_sums)(const T *dy, const T *x, const T *w, int64_t n,     \
                           T mean, T rstd, T *s, T *sx);                       \
    void (*norm_back_params)(const T *dy, const T *x, int64_t n, T mean,       \
                             T rstd, T *dw, T *db);                            \
    void (*norm_back_row)(const T *dy, const T *x, const T *w, int64_t n,      \
                          T mean, T rstd, T s, T sx, T *dx);                   \
    void (*max_plane)(const LpPoolGeom *g, const T *x, T *y, int64_t *index);  \
    void (*avg_plane)(const LpPoolGeom *g, const T *x, T *y);                  \
    void (*avg_rows)(const LpPoolGeom *g, const T *x, T *y, T *row);           \
    void (*avg_rows_back)(const LpPoolGeom *g, const T *dy, T *dx, T *row);

typedef struct LpNnLoopsF32 {
    LP_NN_LOOPS(float)
} LpNnLoopsF32;
typedef struct LpNnLoopsF64 {
    LP_NN_LOOPS(double)
} LpNnLoopsF64;

typedef struct LpNnLoops {
    const LpNnLoopsF32 *f32;
    const LpNnLoopsF64 *f64;
    /* the words of blocks ctr[0] … ctr[0] + blocks - 1, four each, as
     * lp_random_block gives them */
    void (*philox)(uint64_t key, const uint32_t ctr[4], int64_t blocks,
                   uint32_t *out);
} LpNnLoops;

typedef const LpNnLoops LpNnLoopsOf[1];
LP_SIMD_EXTERN(LpNnLoopsOf, lp_nn);
/* Of this CPU. */
static inline const LpNnLoops *lp_nn(void)
{
    return LP_SIMD_PICK(lp_nn);
}

#endif
