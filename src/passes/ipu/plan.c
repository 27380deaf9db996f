/* What every IPU pass asks of the plan: the simulated machine as the options
 * describe it, and where a variable lives on it. */
#include <string.h>

#include "src/base/checked.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/ops.h"
#include "src/passes/ipu/strategy.h"

const char *const lp_row_names[LP_N_ROWS] = {"fill",  "steady", "flush",
                                             "phase", "update", "output"};
const char *const lp_act_names[LP_N_ACTS] = {"compute",    "copy",  "host_in",
                                             "host_out",   "load",  "store",
                                             "collective", "update"};
const char *const lp_ahead_names[LP_N_AHEAD] = {"none", "micro_batch",
                                                "update"};
const char *const lp_location_names[LP_N_LOCATIONS] = {
    "activation", "weight", "optimizer", "accumulator"};
const char *const lp_part_order_names[] = {"in_turn", "overlap_io",
                                           "overlap_compute", NULL};
const char *const lp_update_order_names[] = {"interleaving", "batch", NULL};
const char *const lp_mem_names[LP_N_MEM] = {
#define MEMORY(id, name, in_code) name,
#include "src/passes/ipu/memory.def"
#undef MEMORY
};

LpIpuOptions lp_ipu_options(void)
{
    LpIpuOptions o = {.chip = lp_chip_find("ipu2"),
                      .strategy = lp_strategy_find(lp_strategy_names[0]),
                      .partials = LP_F32,
                      .host_sync = -1};
    o.system = lp_system_find(o.chip->version);
    for (int i = 0; i < LP_N_LOCATIONS; i++)
        o.location[i] = (LpLocation){.on_chip = true};
    o.location[LP_LOC_OPTIMIZER].on_demand = true;
    LpCostCtx x = lp_cost_ctx(o.chip);
    for (int i = 0; i < LP_MAX_IPUS; i++)
        o.proportion[i] = x.proportion;
    return o;
}

static void *zeros(LpIpuPlan *p, LpArena *of, size_t n, size_t size)
{
    size_t all;
    bool fits = lp_add_size(n, 1, &n) && lp_mul_size(n, size, &all);
    void *v = fits ? lp_arena_calloc(of, all) : NULL;
    if (!v)
        lp_no_memory(p->err);
    return v;
}

void *lp_ipu_alloc(LpIpuPlan *p, size_t n, size_t size)
{
    return zeros(p, &p->mem, n, size);
}

void *lp_ipu_scratch(LpIpuPlan *p, size_t n, size_t size)
{
    return zeros(p, &p->scratch, n, size);
}

void *lp_ipu_space(LpIpuPlan *p, size_t n, size_t size)
{
    size_t all;
    bool fits = lp_mul_size(n, size, &all);
    void *v = fits ? lp_arena_alloc(&p->mem, all) : NULL;
    if (!v)
        lp_no_memory(p->err);
    return v;
}

int *lp_ipu_marks(LpIpuPlan *p, size_t n)
{
    int *v = lp_ipu_scratch(p, n, sizeof *v);
    return v ? memset(v, 0xff, n * sizeof *v) : NULL;
}

void *lp_ipu_keep(LpIpuPlan *p, const void *list, size_t n, size_t size)
{
    void *copy = lp_arena_memdup(&p->mem, list, n * size);
    if (!copy)
        lp_no_memory(p->err);
    return copy;
}

int lp_ipu_tiles(const LpIpuPlan *p)
{
    return (p->o.tiles ? p->o.tiles : p->o.chip->tiles) - p->o.io_tiles;
}

LpCostCtx lp_ipu_ctx(const LpIpuPlan *p, int ipu)
{
    LpCostCtx x = lp_cost_ctx(p->o.chip);
    x.tiles = lp_ipu_tiles(p);
    x.proportion = p->o.proportion[ipu];
    x.partials = lp_cost_type(p->o.partials);
    if (p->o.host_sync >= 0)
        x.host_sync = p->o.host_sync;
    x.cache = p->cache;
    return x;
}

bool lp_ipu_first_partial(const LpIpuPlan *p, size_t i)
{
    const LpPartialGrad *x = &p->partial[i];
    if (p->pass[x->run].ipu == p->var_ipu[x->var])
        return false;
    for (size_t k = 0; k < i; k++)
        if (p->partial[k].var == x->var &&
            p->pass[p->partial[k].run].ipu == p->pass[x->run].ipu)
            return false;
    return true;
}

bool lp_ipu_has(const LpIpuPlan *p, int var, int ipu)
{
    bool has = p->var_ipu[var] == ipu;
    for (size_t i = 0; i < p->n_replicated && !has; i++)
        has = p->replicated[i].var == var && p->replicated[i].ipu == ipu;
    return has;
}

int64_t lp_ipu_together(const LpIpuPlan *p)
{
    return p->strategy->keeps ? p->micro_batches : lp_ipu_serial(p);
}

int lp_ipu_transfer(const LpIpuPlan *p, LpTransferOf of, size_t at, int run,
                    bool load)
{
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *t = &p->transfer[i];
        if (t->of == of && t->at == at && t->run == run && t->load == load)
            return (int)i;
    }
    return -1;
}

bool lp_ipu_leaves(const LpIpuPlan *p, const LpVariable *v)
{
    return v->role == LP_VAR_ACCUM && v->micro_in == LP_NOVAL &&
           lp_is_value(v->micro_out) && !lp_ipu_is_sum(p, v->micro_out) &&
           lp_ipu_off_chip(p, v);
}

bool lp_ipu_holds(const LpIpuPlan *p, size_t var, int run)
{
    const LpStagePass *r = &p->pass[run];
    return r->backward && p->step->var[var].role == LP_VAR_PARAM &&
           lp_ipu_transfer(p, LP_TRANSFER_VAR, var,
                           lp_pass_of(p, r->stage, false), true) >= 0;
}

bool lp_ipu_moves(const LpIpuPlan *p, const LpTransfer *t, int64_t mb,
                  LpStreamWhen *when)
{
    int64_t n = lp_ipu_together(p);
    bool edge = mb % n == (t->load ? 0 : n - 1);
    bool ends = t->load ? mb < n : mb >= p->micro_batches - n;
    *when = !edge ? t->when : t->wraps && ends ? LP_STREAM_ALONE : t->edge;
    return edge || t->of != LP_TRANSFER_VAR;
}

bool lp_ipu_update_is_phase(const LpIpuPlan *p)
{
    return p->strategy->one_row && p->step->update &&
           p->micro_batches == lp_ipu_serial(p);
}

bool lp_ipu_comes_early(const LpTransfer *t)
{
    return t->load && !t->io &&
           (t->edge == LP_STREAM_BETWEEN || t->edge == LP_STREAM_BESIDE);
}

bool lp_ipu_turns(const LpIpuPlan *p, int run)
{
    int forward = lp_pass_of(p, p->pass[run].stage, false);
    return !p->strategy->at_once && p->pass[run].row == p->pass[forward].row;
}

int64_t lp_ipu_serial(const LpIpuPlan *p)
{
    return p->strategy->one_row && p->o.batch_serial > 1 ? p->o.batch_serial
                                                         : 1;
}

bool lp_ipu_is_linear(const LpGraphNode *d)
{
    return d->op->id == LP_OP_add || d->op->id == LP_OP_cast ||
           (d->op->id == LP_OP_mul && lp_is_imm(d->in[1]));
}

bool lp_ipu_gathers_beside(const LpIpuPlan *p, const LpVariable *v)
{
    const LpLocation *l = lp_ipu_location(p, v);
    bool in_turn = p->strategy->streaming &&
                   p->strategy->streaming(p) == LP_STREAMING_IN_TURN;
    bool late = p->strategy->streaming && l && l->on_demand;
    return p->o.io_tiles > 0 && !in_turn && !late && l &&
           (l->io_load || l->io_store);
}

bool lp_ipu_gathers_ahead(const LpIpuPlan *p, int run, int64_t mb)
{
    return p->strategy->streaming &&
           (p->pass[run].row > 0 || mb >= lp_ipu_serial(p));
}

int64_t lp_ipu_kept_bytes(const LpIpuPlan *p, const LpVariable *v)
{
    return lp_ipu_kept(p, v) * (int64_t)lp_dtype_size(v->type.dtype);
}

void lp_ipu_plan_free(LpIpuPlan *p)
{
    if (!p)
        return;
    lp_step_release((LpStep *)(uintptr_t)p->step); /* it only read it */
    lp_free(p->stash);
    lp_free(p->copy);
    lp_free(p->replicated);
    lp_free(p->partial);
    lp_free(p->transfer);
    lp_free(p->row);
    lp_free(p->loop);
    lp_cost_memo_release(p->memo);
    lp_arena_fini(&p->mem);
    lp_arena_fini(&p->scratch);
    lp_free(p);
}
