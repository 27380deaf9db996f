/* The operator of torch.autograd.Function: its results are its first
 * operands, its gradient is asked of the script. */
#ifndef LP_OPS_FUNCTION_H
#define LP_OPS_FUNCTION_H

#include "src/ir/op.h"

/* Its attributes: results; number of the rule; serial of the
 * trace that it was made in, 0: eager; results without a gradient get zeros.
 * The operands are in a trace the results of the forward half and then the
 * function's own; eagerly the latter alone. */
#define LP_FUNCTION_WRITTEN (-1) /* a rule: the gradient is operand 1's */
/* custom_function */
enum {
    LP_FUNCTION_RESULTS,
    LP_FUNCTION_RULE,
    LP_FUNCTION_TRACE,
    LP_FUNCTION_MATERIALIZE,
    LP_FUNCTION_N_ATTR
};

/* Gradient rule, set by the bindings; failures go to g->b->err. */
extern void (*lp_function_rule)(LpGrad *g);

#endif
