/* Copies of graphs. Parts are added in their own order, so ids stay. */
#include "src/ir/graph.h"

static bool copy_names(LpGraph *to, const LpGraph *g, LpVal v, LpErr *e)
{
    const LpValue *x = &g->value[v];
    if (x->name && !lp_graph_add_name(to, v, x->name, e))
        return false;
    for (const LpName *n = x->more; n; n = n->next)
        if (!lp_graph_add_name(to, v, n->text, e))
            return false;
    return true;
}

static bool copy_node(LpGraph *to, const LpGraph *g, const LpGraphNode *n,
                      LpErr *e)
{
    LpType fixed[LP_MAX_OUT], *type = fixed;
    if (n->n_out > LP_MAX_OUT)
        type = lp_alloc(n->n_out * sizeof *type);
    for (uint32_t i = 0; type && i < n->n_out; i++)
        type[i] = *g->value[n->out + i].type;
    bool ok = type && lp_graph_add(to, n, type, e) != LP_NOVAL;
    if (type != fixed)
        lp_free(type);
    return ok;
}

static bool copy_inputs(LpGraph *to, const LpGraph *g, LpVal before, LpErr *e)
{
    while (to->n_input < g->n_input && g->input[to->n_input] < before) {
        LpVal v = g->input[to->n_input];
        if (lp_graph_input(to, g->value[v].type, NULL, e) == LP_NOVAL)
            return false;
    }
    return true;
}

static bool copy_all(LpGraph *to, const LpGraph *g, LpErr *e)
{
    to->differentiated = g->differentiated;
    for (size_t i = 0; i < g->n_imm; i++)
        if (lp_graph_imm(to, g->imm[i], e) == LP_NOVAL)
            return false;
    for (size_t i = 1; i < g->n_origin; i++)
        if (!lp_graph_origin(to, &g->origin[i], e))
            return false;
    for (size_t i = 0; i < g->n_node; i++)
        if (!copy_inputs(to, g, g->node[i].out, e) ||
            !copy_node(to, g, &g->node[i], e))
            return false;
    if (!copy_inputs(to, g, (LpVal)g->n_value, e))
        return false;
    for (LpVal v = 1; v < g->n_value; v++)
        if (!copy_names(to, g, v, e))
            return false;
    for (size_t i = 1; i < g->n_region; i++)
        if (!lp_graph_region(to, &g->region[i], e))
            return false;
    for (size_t i = 0; i < g->n_output; i++)
        if (!lp_graph_output(to, g->output[i], e))
            return false;
    return true;
}

LpGraph *lp_graph_clone(const LpGraph *g, LpErr *e)
{
    LpGraph *to = lp_graph_new();
    if (to && copy_all(to, g, e))
        return to;
    lp_graph_free(to);
    lp_fail(e, LP_E_MEMORY, "out of memory");
    return NULL;
}
