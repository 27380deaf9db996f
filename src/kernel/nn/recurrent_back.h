/* The gradient of recurrent layers in two parts: the steps from the last to the
 * first (recurrent_back.c), and the sums over steps (recurrent_sum.c).
 *
 * Chunks. Sums over steps are made chunk by chunk: the gradients of a chunk's
 * gates are written, multiplied and summed while they are in the cache, and the
 * next chunk overwrites them. */
#ifndef LP_KERNEL_NN_RECURRENT_BACK_H
#define LP_KERNEL_NN_RECURRENT_BACK_H

#include "src/kernel/nn/recurrent_plan.h"

enum { /* products */
       LP_RNN_CARRY_STEP,
       LP_RNN_PROJECT,
       LP_RNN_FOR_X,
       LP_RNN_FOR_W_IH,
       LP_RNN_FOR_W_HH,
       LP_RNN_FOR_W_HR
};
enum { /* scratch; n: rows of a chunk */
       LP_RNN_ZERO,
       LP_RNN_CARRY,
       LP_RNN_DIRECT,
       LP_RNN_D_X,      /* of the input's share, [n, rows] */
       LP_RNN_D_H,      /* of the state's share */
       LP_RNN_BEFORE,   /* the states before each step, [n, out] */
       LP_RNN_D_OUTPUT, /* projected: the whole gradient of the output */
       LP_RNN_D_STATE,  /* projected: of one step's state */
       LP_RNN_STATE,    /* projected: states of all steps */
       LP_RNN_PACKED,
       LP_RNN_PACKED_HR,
       LP_RNN_PACKED_IH,
       LP_RNN_SUMS, /* of lookups: D_X summed by rows of the table */
       LP_RNN_BIAS  /* of a chunk */
};

/* Operands by what they are; NULL: holes. */
typedef struct LpRnnBack {
    void *const *in;   /* of the forward */
    const int64_t *at; /* of lookups */
    const char *dy, *dh, *dc, *output, *gates, *cells, *h0, *c0;
    void *const *out;
    char *work, *inner;
    const void *hh, *hr, *ih; /* weights, ready */
    int64_t step, place;      /* the first ones of the chunk */
} LpRnnBack;

static inline bool lp_rnn_wants(const LpRnn *r, int role)
{
    return r->need >> role & 1;
}

static inline char *lp_rnn_scratch(const LpRnn *r, const LpRnnBack *a, int i)
{
    return a->work + r->space[i];
}

static inline void *lp_rnn_result(const LpRnn *r, const LpRnnBack *a, int role)
{
    return a->out[r->info->at[role]];
}

/* Chooses the chunk; products and scratch of the sums. */
LpStatus lp_rnn_plan_sums(LpRnn *r, LpErr *e);
/* Before the first chunk, after each, after the last. */
LpStatus lp_rnn_start_sums(const LpRnn *r, LpRnnBack *a, LpErr *e);
LpStatus lp_rnn_add_chunk(const LpRnn *r, const LpRnnBack *a, LpErr *e);
LpStatus lp_rnn_finish_sums(const LpRnn *r, const LpRnnBack *a, LpErr *e);

#endif
