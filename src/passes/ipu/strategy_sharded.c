/* Stages run one after another, a micro-batch at a time: one row. A value goes
 * straight to each reader and stays until its last one. Variables off the chip
 * come for the first micro-batch of a weight update and stay until the last. */
#include "src/passes/ipu/strategy.h"

static LpStatus turn(LpSchedule *s, const LpIpuPlan *p, int64_t number)
{
    for (int r = 0; r < p->n_pass; r++)
        lp_schedule_run(s, r);
    return lp_schedule_row(s, (LpRow){.kind = LP_ROW_PHASE,
                                      .order = LP_ORDER_IN_TURN,
                                      .first = number});
}

static LpStatus rows(const LpIpuPlan *p LP_UNUSED, LpSchedule *s)
{
    return lp_schedule_turns(s, turn);
}

const LpStrategyOps lp_strategy_sharded = {
    .name = "sharded", .keeps = true, .rows = rows};
