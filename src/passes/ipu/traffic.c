/* Bytes that each run moves to and from the host. */
#include "src/passes/ipu/traffic.h"

#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/ops.h"
#include "src/passes/ipu/strategy.h"

int lp_ipu_pass_making(const LpIpuPlan *p, LpVal v)
{
    int stage = p->val_stage[v] < 0 ? 0 : p->val_stage[v];
    return lp_pass_of(p, stage, lp_is_backward(p, v));
}

/* Where there is nothing to go ahead to, nothing does. */
static LpAhead ahead_of(const LpIpuPlan *p, const LpGraphNode *d)
{
    const char *mode = d->attr[LP_OVERLAP_MODE].str;
    if (strcmp(mode, "overlap_accumulation_loop") == 0 && p->accumulation > 1)
        return LP_AHEAD_MICRO_BATCH;
    if (strcmp(mode, "overlap_device_iteration_loop") == 0 &&
        (p->loops > 1 || p->micro_batches > 1))
        return LP_AHEAD_UPDATE;
    return LP_AHEAD_NONE;
}

/* Inputs that a marker reads, outputs that it makes. */
static LpStatus find_overlap(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    LpAhead *of = lp_ipu_scratch(p, g->n_value, sizeof *of);
    p->ahead = lp_ipu_alloc(p, p->step->n_var, sizeof *p->ahead);
    LP_TRY(p->err->code);
    for (LpNodeId n = 0; n < g->n_node && p->o.io_tiles > 0; n++) {
        const LpGraphNode *d = &g->node[n];
        if (d->op->id == LP_OP_set_overlap_for_input)
            of[d->in[0]] = ahead_of(p, d);
        if (d->op->id == LP_OP_set_overlap_for_output)
            of[d->out] = ahead_of(p, d);
    }
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        LpVal x = v->role == LP_VAR_STREAM_IN    ? v->micro_in
                  : v->role == LP_VAR_STREAM_OUT ? v->micro_out
                                                 : LP_NOVAL;
        if (lp_is_value(x))
            p->ahead[i] = of[x];
    }
    return LP_OK;
}

static void host(const LpIpuPlan *p, LpTraffic *t)
{
    for (size_t i = 0; i < p->step->n_var && !p->o.synthetic_data; i++) {
        const LpVariable *v = &p->step->var[i];
        int64_t bytes = lp_type_bytes(&v->type);
        if (v->role == LP_VAR_STREAM_IN && v->micro_in != LP_NOVAL) {
            LpTraffic *r = &t[lp_ipu_pass_making(p, v->micro_in)];
            r->host_in[p->ahead[i]] += bytes;
        }
        if (v->role == LP_VAR_STREAM_OUT && v->micro_out != LP_NOVAL) {
            LpTraffic *r = &t[lp_ipu_pass_making(p, v->micro_out)];
            r->host_out[p->ahead[i]] += bytes;
        }
    }
}

void lp_ipu_gathered(const LpIpuPlan *p, const LpStagePass *r, size_t first,
                     bool beside, int64_t bytes[LP_COST_N_TYPES])
{
    for (uint32_t i = 0; i < r->n_read; i++) {
        int var = p->var_of[r->read[i]];
        const LpVariable *v = &p->step->var[var < 0 ? 0 : var];
        if (var >= 0 && v->role == LP_VAR_PARAM &&
            lp_ipu_grouped_with(p, (size_t)var, first) &&
            lp_ipu_kept(p, v) < lp_numel(&v->type) &&
            lp_ipu_gathers_beside(p, v) == beside)
            bytes[lp_cost_type(v->type.dtype)] += lp_type_bytes(&v->type);
    }
}

LpStatus lp_ipu_traffic(LpIpuPlan *p, LpTraffic *t)
{
    LP_TRY(find_overlap(p));
    host(p, t);
    return LP_OK;
}
