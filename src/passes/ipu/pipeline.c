/* Runs the IPU passes in order. */
#include "src/passes/ipu/strategy.h"

#include "src/base/checked.h"

/* A sync with the host that takes longer is none. */
#define MOST_HOST_SYNC INT64_C(1000000000000)

static LpStatus check_options(const LpIpuOptions *o, LpErr *e)
{
    LP_FAIL_IF(!o->chip || !o->system, e, LP_E_VALUE, "no chip to simulate");
    LP_FAIL_IF(o->tiles < 0 || o->tiles > o->chip->tiles, e, LP_E_VALUE,
               "tiles: expected 0..%d, got %d", o->chip->tiles, o->tiles);
    int tiles = o->tiles ? o->tiles : o->chip->tiles;
    LP_FAIL_IF(o->io_tiles < 0 || o->io_tiles >= tiles, e, LP_E_VALUE,
               "io_tiles: expected 0..%d, got %d", tiles - 1, o->io_tiles);
    for (int i = 0; i < LP_MAX_IPUS; i++)
        LP_FAIL_IF(!(o->proportion[i] >= 0 && o->proportion[i] <= 1), e,
                   LP_E_VALUE,
                   "proportion: expected 0 to 1, got %g for "
                   "IPU %d",
                   o->proportion[i], i);
    LP_FAIL_IF(o->output_slices < 0 || o->input_groups < 0, e, LP_E_VALUE,
               "output_slices, input_groups: expected 0 or more, got %lld and "
               "%lld",
               (long long)o->output_slices, (long long)o->input_groups);
    LP_FAIL_IF(o->replicas < 0 || o->accumulation < 0, e, LP_E_VALUE,
               "replicas, accumulation: expected 0 or more, got %lld and %lld",
               (long long)o->replicas, (long long)o->accumulation);
    if (o->batch_serial < 0)
        return lp_fail_hint(e, LP_E_VALUE, "batch_serialization",
                            "batch_serialization: expected 0 or more, got %lld",
                            (long long)o->batch_serial);
    if (o->batch_serial > 1 && !o->strategy->by_phase)
        return lp_fail_hint(e, LP_E_POPTORCH, "batch_serialization",
                            "batch_serialization: expected 0 or 1 with the "
                            "strategy %s, which has no phases, got %lld",
                            o->strategy->name, (long long)o->batch_serial);
    LP_FAIL_IF(o->host_sync < -1 || o->host_sync > MOST_HOST_SYNC, e,
               LP_E_VALUE, "host_sync: expected -1..%lld cycles, got %lld",
               (long long)MOST_HOST_SYNC, (long long)o->host_sync);
    LP_FAIL_IF(o->liveness > o->strategy->most_liveness, e, LP_E_POPTORCH,
               "liveness: expected 0..%d with the strategy %s, got %d",
               (int)o->strategy->most_liveness, o->strategy->name,
               (int)o->liveness);
    LP_FAIL_IF(o->separate_backward && !o->strategy->by_phase, e, LP_E_POPTORCH,
               "separate_backward: expected false with the strategy %s, which "
               "has no phases, got true",
               o->strategy->name);
    return LP_OK;
}

/* What depends on the step's loops, or on what stands in their place. */
static LpStatus check_loops(const LpIpuPlan *p)
{
    const LpStep *s = p->step;
    int64_t groups = p->o.input_groups, all;
    LP_FAIL_IF(p->o.replicas && lp_step_grouped(s), p->err, LP_E_VALUE,
               "replicas: weights of the step belong to groups of its %lld "
               "replicas, there can be no other number",
               (long long)s->replicas);
    LP_FAIL_IF(groups && p->replicas % groups, p->err, LP_E_VALUE,
               "input_groups: expected a divisor of the %lld replicas, got "
               "%lld",
               (long long)p->replicas, (long long)groups);
    LP_FAIL_IF(!lp_mul_i64(p->accumulation, s->device_iterations, &all) ||
                   all > INT64_MAX / 4,
               p->err, LP_E_VALUE,
               "accumulation: %lld micro-batches of each of %lld weight "
               "updates cannot be counted",
               (long long)p->accumulation, (long long)s->device_iterations);
    return LP_OK;
}

static bool has_backward(const LpGraph *g)
{
    for (LpNodeId n = 0; n < g->n_node; n++)
        if (lp_origin_of(g, n)->backward)
            return true;
    return false;
}

LpStatus lp_ipu_analyse(const LpStep *step, const LpIpuOptions *o,
                        const LpPlacement *placement, LpIpuPlan **out, LpErr *e)
{
    *out = NULL;
    LP_TRY(check_options(o, e));
    LpIpuPlan *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->step = lp_step_retain(step);
    p->o = *o;
    p->err = e;
    if (placement)
        p->placement = *placement;
    p->training = step->update != NULL || has_backward(step->micro);
    p->replicas = o->replicas ? o->replicas : step->replicas;
    p->accumulation =
        o->accumulation ? o->accumulation : step->gradient_accumulation;
    p->loops = step->update ? step->device_iterations : 1;
    p->strategy = o->strategy;
    p->cache = o->plans ? o->plans : lp_plan_cache_new();
    static LpStatus (*const pass[])(LpIpuPlan * p) = {
#define PASS(name, text) lp_ipu_##name,
#include "src/passes/ipu/passes.def"
#undef PASS
    };
    p->memo = p->cache ? lp_cost_memo_of(p->cache) : NULL;
    LpStatus s = p->memo ? check_loops(p) : lp_no_memory(e);
    p->micro_batches =
        lp_mul_sat(p->accumulation, step->update ? 1 : step->device_iterations);
    for (size_t i = 0; i < sizeof pass / sizeof *pass && s == LP_OK; i++) {
        s = pass[i](p);
        lp_arena_reset(&p->scratch);
    }
    lp_arena_fini(&p->scratch);
    if (!o->plans)
        lp_plan_cache_free(p->cache);
    p->cache = p->o.plans = NULL;
    p->err = NULL;
    p->placement = (LpPlacement){NULL, NULL, NULL};
    if (s == LP_OK || s == LP_E_IPU_MEMORY || s == LP_E_IPU_CODE)
        *out = p;
    else
        lp_ipu_plan_free(p);
    return s;
}
