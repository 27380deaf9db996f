/* Phases follow one another, a micro-batch at a time: a row a phase. Stages of
 * a phase that do not wait for each other run at the same time. In parallel
 * phases one group of IPUs moves its tensors while the other computes; else
 * serial and parallel ones are alike.
 *
 * Liveness says where tensors are between phases. If they leave the chip after
 * the forward pass, or if a separate backward phase is asked for, phases lie
 * between the last forward phase and the first backward phase; else these two
 * are one (PopTorch API reference, SerialPhasedExecution). */
#include "src/passes/ipu/strategy.h"

/* Are runs a and b, one after the other, of one phase? */
static bool one_phase(const LpIpuPlan *p, const LpStagePass *a,
                      const LpStagePass *b)
{
    bool apart = p->o.liveness != LP_ALWAYS_LIVE || p->o.separate_backward;
    return a->phase == b->phase && (a->backward == b->backward || !apart);
}

static bool stash_off_chip(const LpIpuPlan *p)
{
    return p->o.liveness != LP_ALWAYS_LIVE;
}

static LpRoute route(const LpIpuPlan *p, const LpStagePass *from,
                     const LpStagePass *to)
{
    return p->o.liveness == LP_OFF_CHIP_AFTER_EACH_PHASE &&
                   from->phase != to->phase
               ? LP_ROUTE_OFF_CHIP
               : LP_ROUTE_DIRECT;
}

static bool stays(const LpIpuPlan *p, const LpStagePass *r LP_UNUSED,
                  const LpLiveRange *h)
{
    return h->kind == LP_RANGE_STASH ||
           p->o.liveness != LP_OFF_CHIP_AFTER_EACH_PHASE;
}

static bool serial_streams(const LpIpuPlan *p, bool io)
{
    return p->o.liveness != LP_OFF_CHIP_AFTER_FWD_NO_OVERLAP && io;
}

static bool parallel_streams(const LpIpuPlan *p LP_UNUSED, bool io LP_UNUSED)
{
    return true;
}

static LpStatus turn(LpSchedule *s, const LpIpuPlan *p, int64_t number)
{
    LpRow row = {
        .kind = LP_ROW_PHASE, .order = LP_ORDER_WHEN_READY, .first = number};
    for (int r = 0; r < p->n_pass; r++) {
        lp_schedule_run(s, r);
        if (r + 1 == p->n_pass || !one_phase(p, &p->pass[r], &p->pass[r + 1]))
            LP_TRY(lp_schedule_row(s, row));
    }
    return LP_OK;
}

static LpStatus rows(const LpIpuPlan *p LP_UNUSED, LpSchedule *s)
{
    return lp_schedule_turns(s, turn);
}

/* ---- rules --------------------------------------------------------------- */
static int parallel_ipu(int stage, int phase)
{
    return 2 * stage + phase % 2;
}

static LpStatus check_parity(const LpBlockLocation *p, LpErr *e)
{
    const char *half = p->phase % 2 ? "odd" : "even";
    LP_FAIL_IF(p->phase % 2 != p->ipu % 2, e, LP_E_POPTORCH,
               "%s: phase %d is on IPU %d, but %s phases run on %s IPUs",
               lp_place_name(p).text, p->phase, p->ipu, half, half);
    return LP_OK;
}

static LpStatus check_return(const LpBlockLocation *reader,
                             const LpBlockLocation *maker, LpErr *e)
{
    LP_FAIL_IF(reader->phase != maker->phase, e, LP_E_POPTORCH,
               "%s (phase %d, IPU %d) reads what %s (phase %d, IPU %d) makes: "
               "phases must ascend in the order of execution",
               lp_place_name(reader).text, reader->phase, reader->ipu,
               lp_place_name(maker).text, maker->phase, maker->ipu);
    return LP_OK;
}

#define PHASED                                                                 \
    .by_phase = true, .check_return = check_return,                            \
    .stash_off_chip = stash_off_chip, .route = route, .stays = stays,          \
    .rows = rows

const LpStrategyOps lp_strategy_serial_phased = {
    .name = "serial_phased",
    PHASED,
    .streams_beside = serial_streams,
    .most_liveness = LP_OFF_CHIP_AFTER_EACH_PHASE};

const LpStrategyOps lp_strategy_parallel_phased = {
    .name = "parallel_phased",
    PHASED,
    .streams_beside = parallel_streams,
    .default_ipu = parallel_ipu,
    .most_liveness = LP_OFF_CHIP_AFTER_FWD,
    .check_place = check_parity};
