/* Operators with bodies: their attributes, by which the host and the passes
 * tell them apart.
 *
 *   loop    operands: carried, scanned, captured; results: carried, emitted.
 *           The body maps [carried, a slice of each scanned, captured] to
 *           [carried, emitted]; it runs `count` times, on slice 0, 1, … of the
 *           scanned (reverse: the last first), and its emitted values become
 *           slices of the results.
 *   branch  operands: a condition (one element), then those of `then`, `split`
 *           in number, and those of `otherwise`; runs one of them.
 *   call    runs its body once.
 *   chain   the same, of the host only: pointwise nodes over one shape, that
 *           run as one (src/passes/host/chains.c). */
#ifndef LP_OPS_CONTROL_H
#define LP_OPS_CONTROL_H

#include "src/ir/graph.h"
#include "src/ops/ops.h"

/* loop */
enum {
    LP_LOOP_BODY,
    LP_LOOP_COUNT,
    LP_LOOP_CARRIED,
    LP_LOOP_SCANNED,
    LP_LOOP_REVERSE,
    LP_LOOP_N_ATTR
};
/* branch */
enum { LP_BRANCH_THEN, LP_BRANCH_OTHERWISE, LP_BRANCH_SPLIT, LP_BRANCH_N_ATTR };
/* call */
enum { LP_CALL_BODY, LP_CALL_N_ATTR };

static inline bool lp_has_bodies(const LpOp *op)
{
    return op == &op_loop || op == &op_branch || op == &op_call ||
           op == &op_chain;
}

#endif
