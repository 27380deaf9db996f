/* Where the cost rules of operators and the passes of the simulated system
 * start from: a request's tiles and settings, and what an element type costs
 * as. */
#ifndef LP_OPS_COST_CTX_H
#define LP_OPS_COST_CTX_H

#include "runtime/cost/cost.h"
#include "src/ir/cost.h"

/* Half has units of its own; whatever else floats goes through those of
 * single precision. */
static inline LpCostType lp_cost_type(LpDtype t)
{
    return t == LP_F16 || t == LP_BF16 ? LP_COST_HALF
           : lp_is_float(t)            ? LP_COST_FLOAT
                                       : LP_COST_INT;
}

static inline LpCostCtx lp_cost_ctx_of(const LpCostReq *r)
{
    LpCostCtx x = lp_cost_ctx(r->chip);
    x.tiles = r->tiles;
    x.proportion = r->memory_proportion;
    x.partials = lp_cost_type(r->partials);
    x.stable_norm = r->stable_norm;
    x.host_sync = r->host_sync;
    x.cache = r->cache;
    return x;
}

#endif
