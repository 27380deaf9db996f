/* The sizes, products and scratch of one layer, as both kernels of recurrent
 * layers keep them.
 *
 * Slices. Rows of a batch do not meet before the gradients of the weights. A
 * batch is cut into equal slices, one for each thread, which takes its own
 * through all steps without waiting for the others.
 *
 * Lookups. Where the input is rows of a table, the same row is multiplied by
 * the same weights wherever it stands. With one operand more, indices [T, B] at
 * the end, operand x is the table [n, in], and so is its gradient: the products
 * are of its rows, and steps look up products. */
#ifndef LP_KERNEL_NN_RECURRENT_PLAN_H
#define LP_KERNEL_NN_RECURRENT_PLAN_H

#include <string.h>

#include "src/kernel/nn/recurrent_kind.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/product.h"

enum { LP_RNN_MAX_PRODUCT = 6, LP_RNN_MAX_SPACE = 16 };
enum { LP_RNN_STEP_PRODUCTS = 2 }; /* the first ones: of one step's slice */

typedef struct LpRnn {
    LpRnnKind kind;
    const LpRnnKindInfo *info;
    const LpRnnLoops *loops;
    int64_t steps, batch, in, hidden, out;
    int64_t rows, kept; /* columns of weight gradients' rows, of `gates` */
    size_t size;        /* of an element */
    LpDtype t;
    int64_t table; /* rows that the input is looked up in; 0: it is not */
    int ids;       /* operand of the indices */
    bool reverse, projects;
    uint32_t need; /* backward: roles */
    int threads;
    int slices;
    int64_t chunk; /* backward: steps that are summed at once */
    LpProduct product[LP_RNN_MAX_PRODUCT]; /* named by each kernel */
    LpProduct *twin;                       /* owned: of slices 1, 2, … */
    size_t space[LP_RNN_MAX_SPACE];        /* offsets in the scratch */
    size_t work;         /* bytes of the scratch before the products' own */
    size_t inner, apart; /* offset of slice 0's, bytes between them */
} LpRnn;

/* Reads sizes and attributes; `in` are the operands of the forward, `ids` the
 * operand of indices or -1. */
LpStatus lp_rnn_fill(LpRnn *r, const LpKernelReq *q, const LpDesc *in, int ids,
                     LpErr *e);

/* Product i: c[m, n] = a b; ta, tb: transposed as they lie. */
LpStatus lp_rnn_product(LpRnn *r, int i, int64_t m, int64_t n, int64_t k,
                        bool ta, bool tb, int flags, LpErr *e);

/* Products 0 and 1: of each slice of a step; b serves many steps. */
LpStatus lp_rnn_step_product(LpRnn *r, int i, int64_t n, int64_t k, bool tb,
                             LpErr *e);
static inline const LpProduct *lp_rnn_of_slice(const LpRnn *r, int i, int slice)
{
    return slice == 0 ? &r->product[i]
                      : &r->twin[(slice - 1) * LP_RNN_STEP_PRODUCTS + i];
}

/* walk(r, slice, ctx, …) of all slices, each on a thread. */
typedef LpStatus (*LpRnnWalk)(const LpRnn *r, int slice, const void *ctx,
                              LpErr *e);
LpStatus lp_rnn_walk(const LpRnn *r, LpRnnWalk walk, const void *ctx, LpErr *e);

/* The indices, which must be rows of the table; *at is NULL without. */
LpStatus lp_rnn_lookups(const LpRnn *r, void *const *in, const int64_t **at,
                        LpErr *e);

/* `n` elements of scratch under name i. */
void lp_rnn_space(LpRnn *r, int i, int64_t n);

/* Takes what lp_rnn_fill and the rest made into a kernel of `core`, which
 * owns it; `s` is what they came to: frees it on any failure. */
LpStatus lp_rnn_finish(LpRnn *r, LpStatus s, const LpKernelReq *q, LpKernel *k,
                       LpPlainCore core, LpErr *e);

/* part(r, step, a, b) of rows a … b - 1 of all `rows` of one step, by as many
 * threads as pay. */
typedef void (*LpRnnPart)(const LpRnn *r, const void *step, int64_t a,
                          int64_t b);
void lp_rnn_pass(const LpRnn *r, LpRnnPart part, const void *step,
                 int64_t rows);

/* Element `n` of an array of the layer's type. */
static inline void *lp_rnn_at(const LpRnn *r, const void *p, int64_t n)
{
    return (char *)(uintptr_t)p + n * (int64_t)r->size;
}

/* The place in the sequence of step s. */
static inline int64_t lp_rnn_place(const LpRnn *r, int64_t s)
{
    return r->reverse ? r->steps - 1 - s : s;
}

/* An operand by its role; NULL: a hole. */
static inline void *lp_rnn_operand(const LpRnn *r, void *const *in, int role)
{
    return r->info->at[role] < 0 ? NULL : in[r->info->at[role]];
}

#endif
