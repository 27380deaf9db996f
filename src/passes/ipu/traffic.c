/* Bytes that each run moves to and from the host and streaming memory. */
#include "src/passes/ipu/traffic.h"

#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/ops.h"
#include "src/passes/ipu/strategy.h"

int lp_ipu_pass_making(const LpIpuPlan *p, LpVal v)
{
    int stage = p->val_stage[v] < 0 ? 0 : p->val_stage[v];
    return lp_pass_of(p, stage, lp_is_backward(p->step->micro, v));
}

/* Values that a marker asks to move while the IPU computes: inputs that it
 * reads, outputs that it makes. */
static bool asks_overlap(const LpGraphNode *d, uint16_t marker)
{
    return d->op->id == marker &&
           strcmp(d->attr[LP_OVERLAP_MODE].str, "no_overlap") != 0;
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

static void host(const LpIpuPlan *p, LpTraffic *t, const bool *hidden)
{
    for (size_t i = 0; i < p->step->n_var && !p->o.synthetic_data; i++) {
        const LpVariable *v = &p->step->var[i];
        int64_t bytes = lp_type_bytes(&v->type);
        if (v->role == LP_VAR_STREAM_IN && v->micro_in != LP_NOVAL) {
            LpTraffic *r = &t[lp_ipu_pass_making(p, v->micro_in)];
            *(hidden[v->micro_in] ? &r->hidden_in : &r->host_in) += bytes;
        }
        if (v->role == LP_VAR_STREAM_OUT && v->micro_out != LP_NOVAL) {
            LpTraffic *r = &t[lp_ipu_pass_making(p, v->micro_out)];
            *(hidden[v->micro_out] ? &r->hidden_out : &r->host_out) += bytes;
        }
    }
}

void lp_ipu_gathered(const LpIpuPlan *p, const LpStagePass *r, size_t first,
                     int64_t bytes[LP_COST_N_TYPES])
{
    for (uint32_t i = 0; i < r->n_read; i++) {
        int var = p->var_of[r->read[i]];
        const LpVariable *v = &p->step->var[var < 0 ? 0 : var];
        if (var >= 0 && v->role == LP_VAR_PARAM &&
            lp_ipu_grouped_with(p, (size_t)var, first) &&
            lp_ipu_kept(p, v) < lp_numel(&v->type))
            bytes[lp_cost_type(v->type.dtype)] += lp_type_bytes(&v->type);
    }
}

/* I/O tiles move what the location of its kind asks them to while the others
 * compute. */
static bool is_beside(const LpIpuPlan *p, const LpTransfer *s)
{
    const LpLocation *l = s->of == LP_TRANSFER_VAR
                              ? lp_ipu_location(p, &p->step->var[s->at])
                              : &p->o.location[LP_LOC_ACTIVATION];
    bool io = l && (l->io_load || l->io_store) && p->o.io_tiles > 0;
    return p->strategy->streams_beside ? p->strategy->streams_beside(p, io)
                                       : io;
}

static void streaming(const LpIpuPlan *p, LpTraffic *t)
{
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *s = &p->transfer[i];
        if (s->run < 0)
            continue;
        LpTraffic *r = &t[s->run];
        LpOffChipBytes *way = is_beside(p, s) ? &r->beside : &r->stream;
        *(s->load ? &way->load : &way->store) += s->bytes;
        if (s->of == LP_TRANSFER_VAR &&
            p->step->var[s->at].role == LP_VAR_PARAM)
            way->weights += s->bytes;
    }
}

LpStatus lp_ipu_traffic(LpIpuPlan *p, LpTraffic *t)
{
    bool *hidden = lp_ipu_scratch(p, p->step->micro->n_value, sizeof *hidden);
    LP_TRY(p->err->code);
    find_overlap(p, hidden);
    host(p, t, hidden);
    streaming(p, t);
    return LP_OK;
}
