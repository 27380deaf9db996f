/* Operators whose gradient rule is a script's (torch.autograd.Function).
 *
 * The forward half has run already. Eagerly a node is recorded for it; in a
 * trace the operator `custom_function` is emitted, whose results are its first
 * operands. Both ask lp_function_rule (src/ops/function.h) for gradients. */
#ifndef LP_AUTODIFF_FUNCTION_H
#define LP_AUTODIFF_FUNCTION_H

#include "src/autodiff/op_call.h"
#include "src/ir/builder.h"

typedef struct LpFunctionCall {
    const LpAttr *attr;   /* of op_custom_function */
    LpTensor *const *in;  /* the operands; they may have been written since */
    LpTensor *const *out; /* the results: without history so far */
    /* result i is operand dirty[i] after the call wrote it; -1: a new tensor */
    const int *dirty;
    const bool *keep_in, *keep_out; /* what the rule reads */
    int n_in, n_out;
    void (*release)(void *ctx); /* when the rule is not needed any more */
    void *ctx;
} LpFunctionCall;

/* Makes the call the history of its results. Takes over ctx in any case. */
LpStatus lp_record_function(const LpFunctionCall *c, LpErr *e);

/* For the rule: a value of its builder as a tensor (owned; NULL for a value
 * that is not kept, or no value), and a tensor as a value. In a sweep a
 * resumed trace must run. */
LpStatus lp_rule_tensor(LpBuilder *b, LpVal v, LpTensor **out, LpErr *e);
LpVal lp_rule_value(LpBuilder *b, LpTensor *t);
bool lp_rule_is_eager(LpBuilder *b);

#endif
