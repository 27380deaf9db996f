/* What the records of recurrent layers tell passes. */
#ifndef LP_OPS_NN_RECURRENT_H
#define LP_OPS_NN_RECURRENT_H

#include "src/kernel/nn/recurrent_kind.h"

/* The operator over rows of a table that does what op, a recurrent layer or
 * its gradient, does after an embedding: the same operands with the table for
 * the input and the indices at the end; -1: op is none of these. */
int lp_rnn_rows(const LpOp *op);

#endif
