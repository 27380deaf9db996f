/* Tiles from which convolutions are laid out. A plan that needs fewer than all
 * begins at the first tile, and weights at the last one downwards; one that
 * dithers begins at a pair of tiles drawn from the shapes of the forward
 * convolution, the same for its gradients, upwards or downwards, and weights
 * with it (PL poplin/ConvPlan.cpp getStartTile, poplin/Convolution.cpp). What
 * an optimizer has for weights lies as they do. */
#include "src/passes/ipu/ipu.h"

#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/kernel/attrs.h"

/* Of the input and the weights of the forward convolution. */
static void shapes(const LpGraph *g, const LpGraphNode *d, LpType *x, LpType *w)
{
    *x = lp_graph_operand_type(g, d->in[0]);
    *w = lp_graph_operand_type(g, d->in[1]);
    if (d->op->product == LP_PRODUCT_CONV_INPUT)
        *x = *lp_graph_type(g, d->out);
    if (d->op->product == LP_PRODUCT_CONV_WEIGHT) {
        *x = *w;
        *w = *lp_graph_type(g, d->out);
    }
}

static LpStart drawn(const LpIpuPlan *p, const LpGraphNode *d)
{
    LpType x, w;
    shapes(p->step->micro, d, &x, &w);
    bool forward = d->op->product == LP_PRODUCT_CONV;
    uint64_t h = lp_mix64(
        (uint64_t)d->attr[forward ? LP_CONV_GROUPS : LP_CONV_BACK_GROUPS].i);
    for (int i = 2; i < x.ndim; i++)
        h = lp_mix64_pair(h, (uint64_t)x.shape[i]);
    h = lp_mix64_pair(h, (uint64_t)x.shape[0] * (uint64_t)w.shape[0] *
                             (uint64_t)w.shape[1]);
    uint64_t pairs = (uint64_t)(lp_ipu_tiles(p) + 1) / 2;
    return (LpStart){.kind = h & 1 ? LP_START_DOWN : LP_START_UP,
                     .tile = (int)((h >> 1) % pairs) * 2};
}

static const LpStart first = {.kind = LP_START_UP};
static const LpStart last = {.kind = LP_START_DOWN};

/* What is kept for a variable lies as that does. */
static void follow_variables(LpIpuPlan *p)
{
    const LpVariable *var = p->step->var;
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &var[i];
        bool of = v->role == LP_VAR_STATE || v->role == LP_VAR_ACCUM;
        if (of && v->param >= 0 &&
            lp_numel(&v->type) == lp_numel(&var[v->param].type))
            p->var_start[i] = p->var_start[v->param];
    }
}

/* Weights, through what rearranges them. */
static void set_weights(LpIpuPlan *p, LpVal v, LpStart s)
{
    const LpGraph *g = p->step->micro;
    while (lp_is_value(v)) {
        p->val_start[v] = s;
        if (p->var_of[v] >= 0)
            p->var_start[p->var_of[v]] = s;
        const LpGraphNode *d = lp_graph_maker(g, v);
        if (!d || !lp_ipu_rearranges(d->op) || !d->n_in)
            return;
        v = d->in[0];
    }
}

LpStatus lp_ipu_starts(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    p->val_start = lp_ipu_alloc(p, g->n_value, sizeof *p->val_start);
    p->var_start = lp_ipu_alloc(p, p->step->n_var, sizeof *p->var_start);
    LP_TRY(p->err->code);
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        if (d->op->product < LP_PRODUCT_CONV)
            continue;
        bool dithers = p->share[n].dithers;
        LpStart s = dithers ? drawn(p, d) : first;
        p->val_start[d->out] = s;
        if (d->op->product == LP_PRODUCT_CONV)
            set_weights(p, d->in[1], dithers ? s : last);
    }
    follow_variables(p);
    return LP_OK;
}
