/* Cost rules of views, arrangements, look-ups, creation, random numbers and
 * updates on the device (see ir/cost.h). */
#ifndef LP_OPS_LAYOUT_COST_H
#define LP_OPS_LAYOUT_COST_H

#include "runtime/cost/cost.h"
#include "src/ir/cost.h"

/* Views name elements where they are: whoever reads them pays. */
void lp_rule_view(const LpCostReq *r, LpCost *out);
void lp_rule_copy(const LpCostReq *r, LpCost *out);    /* the result, once */
void lp_rule_reverse(const LpCostReq *r, LpCost *out); /* element by element */
void lp_rule_embed(const LpCostReq *r, LpCost *out);   /* zeros, last operand */
void lp_rule_fill(const LpCostReq *r, LpCost *out);
void lp_rule_select(const LpCostReq *r, LpCost *out); /* one pass of select */
/* Rows of operand 0 by the elements of operand 1. */
void lp_rule_lookup(const LpCostReq *r, LpCost *out);
/* Rows added or written to result 0. */
void lp_rule_lookup_add(const LpCostReq *r, LpCost *out);
void lp_rule_sort(const LpCostReq *r, LpCost *out);
void lp_rule_random(const LpCostReq *r, LpCost *out);
void lp_rule_update(const LpCostReq *r, LpCost *out);

/* Does a rule above charge `op` for moving data, not for arithmetic? */
bool lp_moves_data(const LpOp *op);

#endif
