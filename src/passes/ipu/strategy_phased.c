/* Phases follow one another, a micro-batch at a time: a row a phase. Stages of
 * a phase that do not wait for each other run at the same time. In parallel
 * phases one group of IPUs moves its tensors while the other computes; else
 * serial and parallel ones are alike.
 *
 * Liveness says where tensors are between phases, and gives phases numbers:
 * forward phase i has the number i * stride; tensors that leave the chip after
 * the forward pass take three numbers before the backward pass, a separate
 * backward phase one; without either the last forward phase and the first
 * backward phase are one (PopTorch API reference, SerialPhasedExecution). */
#include "src/passes/ipu/strategy.h"

static int number_of(const LpIpuPlan *p, const LpRun *r)
{
    static const int stride[] = {1, 1, 2, 4};
    int last = p->stage[p->n_stage - 1].phase * stride[p->o.liveness];
    int gap = p->o.liveness == LP_ALWAYS_LIVE ? 0 : 3;
    gap += p->o.separate_backward;
    int turn = last + (gap > 0 ? gap + 1 : 0);
    int number = r->phase * stride[p->o.liveness];
    return r->backward ? turn + last - number : number;
}

static bool stash_off_chip(const LpIpuPlan *p)
{
    return p->o.liveness != LP_ALWAYS_LIVE;
}

static LpRoute route(const LpIpuPlan *p, const LpRun *from, const LpRun *to)
{
    return p->o.liveness == LP_OFF_CHIP_AFTER_EACH_PHASE &&
                   from->phase != to->phase
               ? LP_ROUTE_OFF_CHIP
               : LP_ROUTE_DIRECT;
}

static bool stays(const LpIpuPlan *p, const LpRun *r, const LpHold *h)
{
    (void)r;
    return h->kind == LP_HOLD_STASH ||
           p->o.liveness != LP_OFF_CHIP_AFTER_EACH_PHASE;
}

static bool serial_streams(const LpIpuPlan *p, bool io)
{
    return p->o.liveness != LP_OFF_CHIP_AFTER_FWD_NO_OVERLAP && io;
}

static bool parallel_streams(const LpIpuPlan *p, bool io)
{
    (void)io;
    return p->o.liveness != LP_OFF_CHIP_AFTER_FWD_NO_OVERLAP;
}

static LpStatus rows(const LpIpuPlan *p, LpSchedule *s)
{
    LpRow row = {.kind = LP_ROW_PHASE, .order = LP_ORDER_WHEN_READY};
    for (int r = 0; r < p->n_run; r++) {
        lp_schedule_run(s, r);
        if (r + 1 == p->n_run ||
            number_of(p, &p->run[r]) != number_of(p, &p->run[r + 1]))
            LP_TRY(lp_schedule_row(s, row));
    }
    return lp_schedule_loop(s, p->micro_batches);
}

#define PHASED(id, streams)                                                    \
    const LpStrategyOps lp_strategy_##id = {.name = #id,                       \
                                            .by_phase = true,                  \
                                            .may_return = true,                \
                                            .less_activations =                \
                                                LESS_ACTIVATIONS,              \
                                            .stash_off_chip = stash_off_chip,  \
                                            .route = route,                    \
                                            .stays = stays,                    \
                                            .streams_beside = streams,         \
                                            .rows = rows}

#define LESS_ACTIVATIONS                                                       \
    "a smaller micro-batch with more gradientAccumulation, or a pipeline "     \
    "(which recomputes)"
PHASED(serial_phased, serial_streams);
PHASED(parallel_phased, parallel_streams);
