/* What the values of the micro graph are. */
#include "src/passes/ipu/ipu.h"

#include <string.h>

static void find_variables(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    memset(p->var_of, 0xff, g->n_value * sizeof *p->var_of);
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        LpVal in = v->micro_in;
        if (in == LP_NOVAL)
            continue;
        p->var_of[in] = (int)i;
        bool free = g->value[in].node == LP_NO_NODE &&
                    v->role != LP_VAR_STREAM_IN && !lp_var_carried(v);
        p->val_is[in] = free ? LP_VAL_FREE : 0;
    }
}

LpStatus lp_ipu_values(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    p->var_of = lp_ipu_space(p, g->n_value, sizeof *p->var_of);
    p->backward = lp_ipu_space(p, g->n_node, sizeof *p->backward);
    p->val_is = lp_ipu_alloc(p, g->n_value, sizeof *p->val_is);
    LP_TRY(p->err->code);
    find_variables(p);
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        p->backward[n] = lp_origin_of(g, n)->backward;
        for (uint32_t i = 0; p->backward[n] && i < d->n_out; i++)
            p->val_is[d->out + i] |= LP_VAL_BACKWARD;
    }
    return LP_OK;
}
