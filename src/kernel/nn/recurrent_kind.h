/* What the records, expansions and kernels of recurrent layers share: which
 * operand of each operator is what. */
#ifndef LP_KERNEL_NN_RECURRENT_KIND_H
#define LP_KERNEL_NN_RECURRENT_KIND_H

#include "src/ir/op.h"
#include "src/kernel/nn/rnnloops.h"

/* Operands and, under the same names, results of the backward operators. */
typedef enum {
    LP_RNN_X,    /* [T, B, in] */
    LP_RNN_H0,   /* [B, out]; a hole: zeros */
    LP_RNN_C0,   /* [B, hidden] */
    LP_RNN_W_IH, /* [gates hidden, in] */
    LP_RNN_W_HH, /* [gates hidden, out] */
    LP_RNN_B_IH, /* [gates hidden] or a hole */
    LP_RNN_B_HH,
    LP_RNN_W_HR, /* [out, hidden]; a hole: out is hidden */
    LP_RNN_ROLES
} LpRnnRole;

/* Backward operators: gradients of the results output, h_n (and c_n), then
 * the operands of the forward, then its results output, gates and cells as
 * far as there are. Attributes: those of the forward, then `need`: bit i is
 * set when the gradient of operand i is wanted; others are empty. */
typedef struct LpRnnKindInfo {
    int gates, kept;         /* weight rows, kept columns, by hidden */
    int n_in;                /* operands of the forward */
    int8_t at[LP_RNN_ROLES]; /* operand of a role; -1: none */
    int n_state;             /* h (and c) */
    int n_kept;              /* hidden results */
} LpRnnKindInfo;

/* What the records' `data` is. kind: LSTM, GRU, or TANH for both plain layers,
 * of which an attribute says which; back: of a forward, the operator of its
 * gradient. */
typedef struct LpRnnFacts {
    LpRnnKind kind;
    int back;
} LpRnnFacts;

const LpRnnKindInfo *lp_rnn_info(LpRnnKind k);
LpRnnKind lp_rnn_kind(const LpOp *op, const LpAttr *attr);
/* lstm, gru, rnn, lstm_rows, gru_rows, rnn_rows */
enum { LP_RNN_REVERSE, LP_RNN_IS_RELU };

/* Attribute `need` of a backward operator. */
static inline int64_t lp_rnn_need(const LpOp *op, const LpAttr *attr)
{
    return attr[op->n_attr - 1].i;
}

#endif
