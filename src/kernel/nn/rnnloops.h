/* The vector loops of recurrent layers: what one step does beside its matrix
 * product. Compiled once per instruction set (simd_rnn.c) and chosen once by
 * the CPU. Every loop works on `rows` rows of contiguous data on one thread;
 * callers split the rows. */
#ifndef LP_KERNEL_NN_RNNLOOPS_H
#define LP_KERNEL_NN_RNNLOOPS_H

#include "src/kernel/loops/loops.h"

/* Rows of weights and columns kept for the gradient, each times the hidden
 * size: LSTM 4 (i f g o) and 4; GRU 3 (r z n) and 4, the last is the hidden
 * state's share of n before r; RNN 1 and 1, its output. */
typedef enum { LP_RNN_LSTM, LP_RNN_GRU, LP_RNN_TANH, LP_RNN_RELU } LpRnnKind;
enum { LP_RNN_KINDS = 4 };

/* `gates` gets the activations. `bias` has the kept columns (GRU: r and z of
 * both shares, n of the input's, n of the state's). c, c_prev: LSTM. h may be
 * `gates` for RNN. */
typedef struct LpRnnForward {
    int64_t rows, hidden;
    const void *share; /* of the hidden state: [rows, weight rows] */
    /* the input's share of row r: row `at[r]`, or r where `at` is NULL, of
     * rows `stride` elements apart; it may be `gates` */
    const void *input;
    const int64_t *at;
    int64_t stride;
    const void *bias, *h_prev, *c_prev;
    void *gates, *c, *h;
} LpRnnForward;

/* The output's gradient is dy + carry (+ direct for GRU). `direct` is the
 * gradient that does not pass the product: of the cell (LSTM), of the state
 * (GRU). dx, dh: of both shares; they are the same memory except for GRU. */
typedef struct LpRnnBackward {
    int64_t rows, hidden;
    const void *dy, *carry, *gates, *h_prev, *c, *c_prev;
    void *direct, *dx, *dh;
} LpRnnBackward;

typedef struct LpRnnLoops {
    void (*forward[LP_RNN_KINDS])(const LpRnnForward *f);
    void (*backward[LP_RNN_KINDS])(const LpRnnBackward *g);
    /* h = o tanh(c) of LSTM */
    void (*output)(int64_t rows, int64_t hidden, const void *gates,
                   const void *c, void *h);
    void (*add)(int64_t n, const void *x, const void *y, void *z);
    /* row at[r] of sum [?, cols] += row r of x [rows, cols], in their order;
     * columns first … last - 1 */
    void (*scatter)(int64_t rows, int64_t cols, int64_t first, int64_t last,
                    const void *x, const int64_t *at, void *sum);
    /* sums of columns first … last - 1 of x [rows, cols] */
    void (*columns)(int64_t rows, int64_t cols, int64_t first, int64_t last,
                    const void *x, void *sum);
} LpRnnLoops;

/* [0] of float, [1] of double */
typedef const LpRnnLoops LpRnnLoopsOf[2];
LP_SIMD_EXTERN(LpRnnLoopsOf, lp_rnn);

#endif
