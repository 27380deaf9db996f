/* Phases follow one another: a row a phase, a micro-batch at a time or, with
 * batch serialisation, several of them, a row each, which have the weights of
 * the phase together and leave the chip between phases. Stages of a phase that
 * do not wait for each other run at the same time.
 *
 * Liveness says where tensors are between phases. If they leave the chip after
 * the forward pass, or if a separate backward phase is asked for, phases lie
 * between the last forward phase and the first backward phase; else these two
 * are one (PopTorch API reference, SerialPhasedExecution).
 *
 * A row loads what the next one needs. I/O tiles do so while it computes, from
 * turn to turn too, the others when it has, while it stores, each way at once;
 * in parallel phases the group of IPUs that does not compute does. The first
 * row of a turn has none before it (PopART, streamingmemoryopinserter.cpp:
 * loads for phase 0 are in phase -1 of the same micro-batch): only I/O tiles
 * load for it ahead. With OffChipAfterFwdNoOverlap and OffChipAfterEachPhase
 * phases that only load or store lie between those that compute, and each row
 * loads for itself; what is on demand does so always. */
#include <inttypes.h>

#include "src/passes/ipu/strategy.h"

static bool one_row(const LpIpuPlan *p, const LpStagePass *a,
                    const LpStagePass *b)
{
    bool apart = p->o.liveness != LP_ALWAYS_LIVE || p->o.separate_backward;
    return a->phase == b->phase && (a->backward == b->backward || !apart);
}

/* Is the stage's backward run in the row of its forward run? */
static bool turns(const LpIpuPlan *p, int stage)
{
    bool last = p->stage[stage].phase == p->stage[p->n_stage - 1].phase;
    return last && p->o.liveness == LP_ALWAYS_LIVE && !p->o.separate_backward;
}

static int stash_depth(const LpIpuPlan *p, int stage)
{
    return turns(p, stage) ? 1 : (int)lp_ipu_serial(p);
}

/* The forward phase f of phases 0..n is n - f before the backward pass, its
 * backward phase as far behind it. */
static bool far_apart(const LpIpuPlan *p, int stage)
{
    int last = p->stage[p->n_stage - 1].phase;
    return 2 * (last - p->stage[stage].phase) > 2;
}

static bool stash_off_chip(const LpIpuPlan *p, int stage)
{
    return (p->o.near && far_apart(p, stage)) ||
           p->o.liveness != LP_ALWAYS_LIVE || stash_depth(p, stage) > 1;
}

static LpRoute route(const LpIpuPlan *p, const LpStagePass *from,
                     const LpStagePass *to)
{
    bool off = p->o.liveness == LP_OFF_CHIP_AFTER_EACH_PHASE
                   ? from->phase != to->phase
                   : lp_ipu_serial(p) > 1 && from->row != to->row;
    return off ? LP_ROUTE_OFF_CHIP : LP_ROUTE_DIRECT;
}

static bool stays(const LpIpuPlan *p, const LpStagePass *r,
                  const LpLiveRange *h)
{
    return h->kind != LP_RANGE_STASH || stash_depth(p, r->stage) == 1;
}

static LpStreaming serial_streaming(const LpIpuPlan *p)
{
    return p->o.liveness >= LP_OFF_CHIP_AFTER_FWD_NO_OVERLAP
               ? LP_STREAMING_IN_TURN
               : LP_STREAMING_AHEAD;
}

static LpStreaming parallel_streaming(const LpIpuPlan *p LP_UNUSED)
{
    return LP_STREAMING_GROUPS;
}

/* The rows of a phase, one a micro-batch of those that pass it together. */
static LpStatus phase(LpSchedule *s, const LpIpuPlan *p, int first, int64_t at)
{
    for (int64_t part = 0; part < lp_ipu_serial(p); part++) {
        LpRow row = {.kind = LP_ROW_PHASE,
                     .order = LP_ORDER_WHEN_READY,
                     .first = at + part};
        for (int r = first; r < p->n_pass; r++)
            if (p->pass[r].row == p->pass[first].row)
                lp_schedule_run(s, r);
        lp_schedule_part(s, part);
        LP_TRY(lp_schedule_row(s, row));
    }
    return LP_OK;
}

static LpStatus turn(LpSchedule *s, const LpIpuPlan *p, int64_t number)
{
    for (int r = 0; r < p->n_pass; r++)
        if (r == 0 || p->pass[r].row != p->pass[r - 1].row)
            LP_TRY(phase(s, p, r, number));
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

static LpStatus check_batches(const LpIpuPlan *p, LpErr *e)
{
    if (p->micro_batches % lp_ipu_serial(p) == 0)
        return LP_OK;
    return lp_fail_hint(e, LP_E_POPTORCH, "batch_serialization",
                        "batch_serialization: %" PRId64 " micro-batches, of a "
                        "weight update or of a call, are no multiple of "
                        "%" PRId64 ", which pass a phase together",
                        p->micro_batches, lp_ipu_serial(p));
}

#define PHASED                                                                 \
    .by_phase = true, .check_return = check_return, .one_row = one_row,        \
    .stash_depth = stash_depth, .stash_off_chip = stash_off_chip,              \
    .route = route, .stays = stays, .rows = rows,                              \
    .check_batches = check_batches

const LpStrategyOps lp_strategy_serial_phased = {
    .name = "serial_phased",
    PHASED,
    .streaming = serial_streaming,
    .most_liveness = LP_OFF_CHIP_AFTER_EACH_PHASE};

const LpStrategyOps lp_strategy_parallel_phased = {
    .name = "parallel_phased",
    PHASED,
    .streaming = parallel_streaming,
    .default_ipu = parallel_ipu,
    .most_liveness = LP_OFF_CHIP_AFTER_FWD,
    .check_place = check_parity};
