/* The kinds of recurrent layers: which operand is what. */
#include "src/kernel/nn/recurrent_kind.h"

#define PLAIN                                                                  \
    {                                                                          \
        .gates = 1, .kept = 1, .n_in = 6, .at = {0, 1, -1, 2, 3, 4, 5, -1},    \
        .n_state = 1                                                           \
    }

const LpRnnKindInfo *lp_rnn_info(LpRnnKind k)
{
    static const LpRnnKindInfo info[LP_RNN_KINDS] = {
        [LP_RNN_LSTM] = {.gates = 4,
                         .kept = 4,
                         .n_in = 8,
                         .at = {0, 1, 2, 3, 4, 5, 6, 7},
                         .n_state = 2,
                         .n_kept = 2},
        [LP_RNN_GRU] = {.gates = 3,
                        .kept = 4,
                        .n_in = 6,
                        .at = {0, 1, -1, 2, 3, 4, 5, -1},
                        .n_state = 1,
                        .n_kept = 1},
        [LP_RNN_TANH] = PLAIN,
        [LP_RNN_RELU] = PLAIN,
    };
    return &info[k];
}

LpRnnKind lp_rnn_kind(const LpOp *op, const LpAttr *attr)
{
    LpRnnKind k = ((const LpRnnFacts *)op->data)->kind;
    return k == LP_RNN_TANH && attr[LP_RNN_IS_RELU].i ? LP_RNN_RELU : k;
}
