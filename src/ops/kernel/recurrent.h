/* The sizes, products and scratch of one layer, as both kernels of recurrent
 * layers keep them. */
#ifndef LP_OPS_KERNEL_RECURRENT_H
#define LP_OPS_KERNEL_RECURRENT_H

#include "src/ops/kernel/plain.h"
#include "src/ops/kernel/product.h"
#include "src/ops/recurrent.h"

enum { LP_RNN_MAX_PRODUCT = 6, LP_RNN_MAX_SPACE = 16 };

typedef struct LpRnn {
    LpRnnKind kind;
    const LpRnnKindInfo *info;
    const LpRnnLoops *loops;
    int64_t steps, batch, in, hidden, out;
    int64_t rows, kept; /* columns of weight gradients' rows, of `gates` */
    size_t size;        /* of an element */
    LpDtype t;
    bool reverse, projects;
    uint32_t need; /* backward: roles */
    int threads;
    LpProduct product[LP_RNN_MAX_PRODUCT]; /* named by each kernel */
    size_t space[LP_RNN_MAX_SPACE];        /* offsets in the scratch */
    size_t work, inner; /* bytes of the scratch, offset of the products' own */
} LpRnn;

/* Reads sizes and attributes; `in` are the operands of the forward. */
void lp_rnn_fill(LpRnn *r, const LpKernelReq *q, const LpDesc *in);

/* Product i: c[m, n] = a b; ta, tb: transposed as they lie. */
LpStatus lp_rnn_product(LpRnn *r, int i, int64_t m, int64_t n, int64_t k,
                        bool ta, bool tb, bool repeat, LpErr *e);

/* `n` elements of scratch under name i. */
void lp_rnn_space(LpRnn *r, int i, int64_t n);

/* Takes what lp_rnn_fill and the rest made into a kernel of `core`, which
 * finds it by lp_rnn_of. Frees it on failure. */
LpStatus lp_rnn_finish(LpRnn *r, const LpKernelReq *q, LpKernel *k,
                       LpPlainCore core, LpErr *e);
void lp_rnn_free(LpRnn *r);

static inline const LpRnn *lp_rnn_of(const LpPlain *p)
{
    const LpRnn *r;
    memcpy(&r, p->param, sizeof r);
    return r;
}

/* Threads for a pass over the rows of one step. */
static inline int lp_rnn_width(const LpRnn *r)
{
    return r->batch * r->kept < 8192 ? 1 : r->threads;
}

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
