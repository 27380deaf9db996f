/* Automatic casting, as PyTorch's on the CPU: while it is on, what a script
 * calls runs in a narrower floating type where that is quick and safe
 * (products, convolutions), in float32 where it is not (losses, solvers), and
 * in the types of its operands otherwise. What an operator is made of, and
 * backward passes, keep the types that they get. */
#ifndef LP_AUTODIFF_AUTOCAST_H
#define LP_AUTODIFF_AUTOCAST_H

#include "src/autodiff/op_call.h"
#include "src/ops/ops.h"

/* LP_DT_NONE: off. */
LpDtype lp_autocast_get(void);

/* Rules of a front end that take the place of the records': an LpCast for each
 * operator by its id, LP_N_CASTS if it has none. `mixed` comes first where
 * operands are of float32 and of the scope's type; without a rule a product
 * runs in that, anything else as it is. */
typedef struct LpCastRules {
    uint8_t of[LP_N_OPS], mixed[LP_N_OPS];
} LpCastRules;

/* NULL: the records' hold. They are copied. */
const LpCastRules *lp_autocast_rules(void);
void lp_autocast_set(LpDtype t, const LpCastRules *rules);

/* lp_op_call with operands cast as the operator wants them. */
LpStatus lp_autocast_call(const LpOp *op, const LpArg *in, int n_in,
                          const LpAttr *attr, LpTensor **out, int *n_out,
                          LpErr *e);

#endif
