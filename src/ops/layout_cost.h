/* Cost rules of views, arrangements, look-ups, creation, random numbers and
 * updates on the device (see ir/cost.h). */
#ifndef LP_OPS_LAYOUT_COST_H
#define LP_OPS_LAYOUT_COST_H

#include "runtime/cost/cost.h"
#include "src/ir/cost.h"

/* Views name elements where they are: whoever reads them pays. */
LpCostRule lp_rule_view;
LpCostRule lp_rule_copy;       /* the result, once */
LpCostRule lp_rule_reverse;    /* element by element */
LpCostRule lp_rule_embed;      /* zeros, last operand */
LpCostRule lp_rule_select;     /* one pass of select */
LpCostRule lp_rule_lookup;     /* rows of operand 0 by elements of operand 1 */
LpCostRule lp_rule_lookup_add; /* rows added or written to result 0 */
LpCostRule lp_rule_fill, lp_rule_sort, lp_rule_random, lp_rule_update;

/* Does a rule above charge `op` for moving data, not for arithmetic? */
bool lp_moves_data(const LpOp *op);

#endif
