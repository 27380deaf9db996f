/* Recurrent layers made of smaller operators, step by step: the reference of
 * the kernels and what gradients of gradients run. */
#ifndef LP_OPS_NN_RECURRENT_EXPAND_H
#define LP_OPS_NN_RECURRENT_EXPAND_H

#include "src/ops/nn/recurrent.h"

void lp_rnn_expand(LpBuilder *b, const LpOp *op, const LpAttr *attr,
                   const LpVal *in, LpVal *out);
void lp_rnn_expand_back(LpBuilder *b, const LpOp *op, const LpAttr *attr,
                        const LpVal *in, LpVal *out);

#endif
