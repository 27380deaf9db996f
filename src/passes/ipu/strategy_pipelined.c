/* A pipeline: stages work at the same time, on successive micro-batches.
 *
 * It runs in slots. Run r works in slot t on micro-batch t - offset(r), if
 * there is one; with M micro-batches and offsets 0..S-1 there are M + S - 1
 * slots: S - 1 fill, M - S + 1 in the steady state, S - 1 flush. The last
 * forward and the first backward stage share a slot, so S = 2N - 1 in training
 * (PopART, transforms/pipeline; TensorFlow's grouped schedule is the same with
 * these two apart). A slot lasts as long as its slowest IPU, then all copies
 * go at once. Training fills and flushes for every weight update, inference
 * once a call. */
#include <inttypes.h>
#include <stdio.h>

#include "src/passes/ipu/strategy.h"

static int offset(const LpIpuPlan *p, int stage, bool backward)
{
    return backward ? 2 * (p->n_stage - 1) - stage : stage;
}

static int stash_depth(const LpIpuPlan *p, int stage)
{
    return offset(p, stage, true) - offset(p, stage, false) + 1;
}

/* One a slot, also through stages that do not read it, as PopART's contiguous
 * copies do. */
static LpRoute route(const LpIpuPlan *p LP_UNUSED,
                     const LpStagePass *from LP_UNUSED,
                     const LpStagePass *to LP_UNUSED)
{
    return LP_ROUTE_HOPS;
}

/* Between the two runs of a stage other micro-batches pass, but for the last
 * stage. */
static bool stays(const LpIpuPlan *p, const LpStagePass *r,
                  const LpLiveRange *h)
{
    return h->kind == LP_RANGE_STASH && r->stage == p->n_stage - 1;
}

static LpStatus rows(const LpIpuPlan *p, LpSchedule *s)
{
    int64_t m = p->micro_batches;
    int depth = 0;
    bool made;
    LP_TRY(lp_schedule_slots(s, &made));
    if (made)
        return LP_OK;
    for (int r = 0; r < p->n_pass; r++)
        if (p->pass[r].offset >= depth)
            depth = p->pass[r].offset + 1;
    for (int64_t t = 0; t < m + depth - 1;) {
        for (int r = 0; r < p->n_pass; r++)
            if (t >= p->pass[r].offset && t - p->pass[r].offset < m)
                lp_schedule_run(s, r);
        bool steady = t >= depth - 1 && t < m;
        int64_t count = steady ? m - depth + 1 : 1;
        LpRow row = {.kind = steady          ? LP_ROW_STEADY
                             : t < depth - 1 ? LP_ROW_FILL
                                             : LP_ROW_FLUSH,
                     .order = LP_ORDER_AT_ONCE,
                     .first = t};
        LP_TRY(lp_schedule_row(s, row));
        LP_TRY(lp_schedule_loop(s, count));
        t += count;
    }
    return LP_OK;
}

/* ---- rules --------------------------------------------------------------- */
static LpStatus check_ipus(const LpBlockLocation *a, const LpBlockLocation *b,
                           LpErr *e)
{
    return lp_fail(
        e, LP_E_POPTORCH, "stage %d is on two IPUs: %s on %d, %s on %d",
        a->stage, lp_place_name(a).text, a->ipu, lp_place_name(b).text, b->ipu);
}

static LpStatus check_return(const LpBlockLocation *reader,
                             const LpBlockLocation *maker, LpErr *e)
{
    return lp_fail_hint(e, LP_E_POPTORCH, "stage_order",
                        "%s (stage %d, IPU %d) reads what %s (stage %d, IPU "
                        "%d) makes: stage ids must ascend in the order of "
                        "execution",
                        lp_place_name(reader).text, reader->stage, reader->ipu,
                        lp_place_name(maker).text, maker->stage, maker->ipu);
}

/* Every stage must hold a micro-batch; forward and backward share the last. A
 * pipeline starts on IPU 0: where the model does not, there is a stage more. */
static LpStatus check_batches(const LpIpuPlan *p, LpErr *e)
{
    bool late = p->stage[0].ipu != 0;
    int stages = p->n_stage + late;
    int need = p->training ? 2 * stages - 1 : stages;
    char parts[64] = "", first[64] = "";
    if (p->micro_batches >= need)
        return LP_OK;
    if (p->training)
        snprintf(parts, sizeof parts, " (%d forward, %d backward)", stages,
                 stages - 1);
    if (late)
        snprintf(first, sizeof first,
                 "; the first is IPU 0, the model starts on IPU %d",
                 p->stage[0].ipu);
    const char *of =
        p->step->update ? "gradient_accumulation" : "device_iterations";
    return lp_fail_hint(e, LP_E_POPTORCH, of,
                        "the pipeline has %d stages%s: %s must be at least "
                        "%d, got %" PRId64 "%s",
                        need, parts, of, need, p->micro_batches, first);
}

const LpStrategyOps lp_strategy_pipelined = {.name = "pipelined",
                                             .alone = &lp_strategy_sharded,
                                             .at_once = true,
                                             .recompute = true,
                                             .offset = offset,
                                             .stash_depth = stash_depth,
                                             .route = route,
                                             .stays = stays,
                                             .rows = rows,
                                             .check_ipus = check_ipus,
                                             .check_return = check_return,
                                             .check_batches = check_batches};
