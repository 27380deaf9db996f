/* Copies of graphs. Parts are added in their own order: the ids of a clone are
 * those of its original. */
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

/* `n` as it shall be in `to`; its results have the types of `like` of g. */
static bool copy_node(LpGraph *to, const LpGraph *g, const LpGraphNode *n,
                      LpVal like, LpErr *e)
{
    LpType fixed[LP_MAX_OUT], *type = fixed;
    if (n->n_out > LP_MAX_OUT)
        type = lp_alloc(n->n_out * sizeof *type);
    for (uint32_t i = 0; type && i < n->n_out; i++)
        type[i] = *g->value[like + i].type;
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
    to->host = g->host;
    for (size_t i = 0; i < g->n_imm; i++)
        if (lp_graph_imm(to, g->imm[i], e) == LP_NOVAL)
            return false;
    for (size_t i = 1; i < g->n_origin; i++)
        if (!lp_graph_origin(to, &g->origin[i], e))
            return false;
    for (size_t i = 0; i < g->n_node; i++)
        if (!copy_inputs(to, g, g->node[i].out, e) ||
            !copy_node(to, g, &g->node[i], g->node[i].out, e))
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
    lp_no_memory(e);
    return NULL;
}

/* ---- inlining ----------------------------------------------------------- */
typedef struct Inline {
    LpGraph *to;
    const LpGraph *from;
    LpVal *map; /* per value of `from` */
    LpErr *err;
} Inline;

static LpVal *mapped(Inline *x, LpArena *scratch, const LpVal *in, uint32_t n)
{
    LpVal *v = lp_arena_alloc(scratch, (n + 1) * sizeof *v);
    for (uint32_t i = 0; v && i < n; i++)
        v[i] =
            lp_is_imm(in[i])
                ? lp_graph_imm(x->to, lp_graph_scalar(x->from, in[i]), x->err)
                : x->map[in[i]];
    return v;
}

static bool inline_nodes(Inline *x, LpArena *scratch)
{
    uint32_t shift = (uint32_t)x->to->n_region - 1; /* regions follow */
    for (size_t i = 0; i < x->from->n_node; i++) {
        const LpGraphNode *d = &x->from->node[i];
        LpGraphNode n = *d;
        n.in = mapped(x, scratch, d->in, d->n_in);
        n.origin = lp_graph_origin(x->to, &x->from->origin[d->origin], x->err);
        n.region = d->region ? d->region + shift : 0;
        LpVal first = (LpVal)x->to->n_value;
        if (!n.in || !copy_node(x->to, x->from, &n, d->out, x->err))
            return false;
        for (uint32_t k = 0; k < d->n_out; k++)
            x->map[d->out + k] = first + k;
    }
    for (size_t i = 1; i < x->from->n_region; i++) {
        LpRegion r = x->from->region[i];
        r.in = mapped(x, scratch, r.in, r.n_in);
        r.out = mapped(x, scratch, r.out, r.n_out);
        if (!r.in || !r.out || !lp_graph_region(x->to, &r, x->err))
            return false;
    }
    return true;
}

bool lp_graph_inline(LpGraph *to, const LpGraph *from, const LpVal *in,
                     LpVal *out, LpErr *e)
{
    LpArena scratch = {0};
    Inline x = {.to = to, .from = from, .err = e};
    x.map = lp_arena_calloc(&scratch, from->n_value * sizeof *x.map);
    for (size_t i = 0; x.map && i < from->n_input; i++)
        x.map[from->input[i]] = in[i];
    bool ok = x.map && inline_nodes(&x, &scratch);
    for (size_t i = 0; ok && i < from->n_output; i++)
        out[i] = x.map[from->output[i]];
    lp_arena_fini(&scratch);
    if (!ok)
        lp_no_memory(e);
    return ok;
}
