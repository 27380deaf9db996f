/* Bytes that each run moves to and from the host and streaming memory. */
#include "src/passes/ipu/traffic.h"

#include <string.h>

#include "src/ops/cost_ctx.h"
#include "src/ops/ops.h"
#include "src/passes/ipu/strategy.h"

int lp_ipu_run_making(const LpIpuPlan *p, LpVal v)
{
    const LpGraph *g = p->step->micro;
    LpNodeId n = g->value[v].node;
    bool back = n != LP_NO_NODE && lp_origin_of(g, n)->backward;
    int stage = p->val_stage[v] < 0 ? 0 : p->val_stage[v];
    return lp_run_of(p, stage, back);
}

/* Values that a marker asks to move while the IPU computes: inputs that it
 * reads, outputs that it makes. */
static bool asks_overlap(const LpGraphNode *d, uint16_t marker)
{
    return d->op->id == marker && strcmp(d->attr[0].str, "no_overlap") != 0;
}

static void find_overlap(const LpIpuPlan *p, bool *hidden)
{
    const LpGraph *g = p->step->micro;
    for (LpNodeId n = 0; n < g->n_node && p->o.io_tiles > 0; n++) {
        const LpGraphNode *d = &g->node[n];
        if (asks_overlap(d, LP_OP_set_overlap_for_input))
            hidden[d->in[0]] = true;
        if (asks_overlap(d, LP_OP_set_overlap_for_output))
            hidden[d->out] = true;
    }
}

static void streams(const LpIpuPlan *p, LpTraffic *t, const bool *hidden)
{
    for (size_t i = 0; i < p->step->n_var && !p->o.synthetic_data; i++) {
        const LpVariable *v = &p->step->var[i];
        int64_t bytes = lp_type_bytes(&v->type);
        if (v->role == LP_VAR_STREAM_IN && v->micro_in != LP_NOVAL) {
            LpTraffic *r = &t[lp_ipu_run_making(p, v->micro_in)];
            *(hidden[v->micro_in] ? &r->hidden_in : &r->host_in) += bytes;
        }
        if (v->role == LP_VAR_STREAM_OUT && v->micro_out != LP_NOVAL) {
            LpTraffic *r = &t[lp_ipu_run_making(p, v->micro_out)];
            *(hidden[v->micro_out] ? &r->hidden_out : &r->host_out) += bytes;
        }
    }
}

/* Parameters that a run reads, once each. */
static void weights(const LpIpuPlan *p, LpTraffic *t, int run, int *mark)
{
    const LpGraph *g = p->step->micro;
    const LpRun *r = &p->run[run];
    for (uint32_t i = 0; i < r->n; i++) {
        const LpGraphNode *d = &g->node[r->entry[i].node];
        for (uint32_t k = 0; k < d->n_in; k++) {
            LpVal v = d->in[k];
            if (!lp_is_value(v) || p->var_of[v] < 0 || mark[v] == run)
                continue;
            mark[v] = run;
            const LpVariable *var = &p->step->var[p->var_of[v]];
            int64_t size = (int64_t)lp_dtype_size(var->type.dtype);
            int64_t kept = lp_ipu_kept(p, var), all = lp_numel(&var->type);
            if (var->role == LP_VAR_ACCUM && lp_ipu_off_chip(p, var)) {
                t->load += all * size;
                t->store += all * size;
            }
            if (var->role != LP_VAR_PARAM)
                continue;
            if (lp_ipu_off_chip(p, var)) {
                t->load += kept * size;
                t->weights += kept * size;
            }
            if (kept < all)
                t->gather[lp_cost_type(var->type.dtype)] += all * size;
        }
    }
}

LpStatus lp_ipu_traffic(LpIpuPlan *p, LpTraffic *t)
{
    const LpGraph *g = p->step->micro;
    bool *hidden = lp_arena_calloc(&p->mem, g->n_value * sizeof *hidden);
    int *mark = lp_arena_alloc(&p->mem, g->n_value * sizeof *mark);
    LP_FAIL_IF(!hidden || !mark, p->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < g->n_value; i++)
        mark[i] = -1;
    find_overlap(p, hidden);
    streams(p, t, hidden);
    for (int r = 0; r < p->n_run; r++)
        weights(p, &t[r], r, mark);
    for (size_t i = 0; i < p->n_stash; i++) {
        const LpStash *s = &p->stash[i];
        int64_t bytes = lp_type_bytes(lp_graph_type(g, s->v));
        if (!s->off_chip)
            continue;
        t[lp_run_of(p, s->stage, false)].store += bytes;
        t[lp_run_of(p, s->stage, true)].load += bytes;
    }
    for (size_t i = 0; i < p->n_move; i++) {
        const LpMove *m = &p->move[i];
        int64_t bytes = lp_type_bytes(lp_graph_type(g, m->v));
        if (!m->off_chip)
            continue;
        t[m->from].store += bytes;
        t[m->to].load += bytes;
    }
    return LP_OK;
}

/* I/O tiles load and store while the others compute. */
bool lp_ipu_overlaps(const LpIpuPlan *p)
{
    bool io = false;
    for (int i = 0; i < LP_N_LOCATIONS; i++)
        io |= p->o.location[i].io_load || p->o.location[i].io_store;
    io = io && p->o.io_tiles > 0;
    return p->how->streams_beside ? p->how->streams_beside(p, io) : io;
}
