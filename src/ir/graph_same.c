/* Bodies: those of a node, and when two graphs are the same. Graphs are
 * compared as they stand, values by number; scopes, files and lines do not
 * matter, nor do names. */
#include <string.h>

#include "src/base/random.h"
#include "src/ir/graph.h"

const LpGraph *lp_node_body(const LpGraphNode *n, int *i)
{
    while (*i < n->op->n_attr)
        if (n->attr[(*i)++].kind == LP_ATTR_GRAPH)
            return n->attr[*i - 1].graph;
    return NULL;
}

void lp_graph_set_body(LpGraph *g, LpNodeId id, int i, LpGraph *body)
{
    LpAttr *a = (LpAttr *)(uintptr_t)&g->node[id].attr[i];
    lp_graph_free(a->graph);
    a->graph = body;
}

uint32_t lp_node_flags(const LpGraphNode *n)
{
    uint32_t flags = n->op->flags;
    int at = 0;
    for (const LpGraph *body; (body = lp_node_body(n, &at));)
        for (size_t i = 0; i < body->n_node; i++)
            flags |=
                lp_node_flags(&body->node[i]) & (LP_OPF_RANDOM | LP_OPF_EFFECT);
    return flags;
}

bool lp_node_may_overwrite(const LpGraphNode *n, uint32_t i)
{
    if (!(n->op->flags & LP_OPF_INPLACE_OK))
        return false;
    if (n->op->flags & LP_OPF_POINTWISE)
        return true;
    for (uint32_t k = 1; k < n->n_in; k++)
        if (n->in[k] == n->in[0])
            return false;
    return i == 0;
}

/* ---- sameness ----------------------------------------------------------- */
bool lp_same_values(const LpGraph *a, const LpVal *x, const LpGraph *b,
                    const LpVal *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (lp_is_imm(x[i]) != lp_is_imm(y[i]))
            return false;
        if (lp_is_imm(x[i]) ? !lp_scalar_eq(lp_graph_scalar(a, x[i]),
                                            lp_graph_scalar(b, y[i]))
                            : x[i] != y[i])
            return false;
    }
    return true;
}

bool lp_same_attrs(const LpOp *op, const LpAttr *x, const LpAttr *y)
{
    for (int i = 0; i < op->n_attr; i++)
        if (!lp_attr_eq(&x[i], &y[i]))
            return false;
    return true;
}

static bool same_place(const LpOrigin *x, const LpOrigin *y)
{
    return strcmp(x->block, y->block) == 0 && lp_origin_same_stage(x, y) &&
           strcmp(x->multi_conv, y->multi_conv) == 0 &&
           x->backward == y->backward && x->update == y->update;
}

static bool same_node(const LpGraph *a, const LpGraphNode *x, const LpGraph *b,
                      const LpGraphNode *y)
{
    return x->op == y->op && x->n_in == y->n_in && x->n_out == y->n_out &&
           x->out == y->out && x->region == y->region && x->site == y->site &&
           x->half_partials == y->half_partials &&
           same_place(&a->origin[x->origin], &b->origin[y->origin]) &&
           lp_same_values(a, x->in, b, y->in, x->n_in) &&
           lp_same_attrs(x->op, x->attr, y->attr);
}

static bool same_region(const LpGraph *a, const LpRegion *x, const LpGraph *b,
                        const LpRegion *y)
{
    return x->op == y->op && x->n_in == y->n_in && x->n_out == y->n_out &&
           lp_same_values(a, x->in, b, y->in, x->n_in) &&
           lp_same_values(a, x->out, b, y->out, x->n_out) &&
           lp_same_attrs(x->op, x->attr, y->attr);
}

static bool same_ends(const LpGraph *a, const LpGraph *b)
{
    if (a->n_input != b->n_input || a->n_output != b->n_output ||
        a->differentiated != b->differentiated || a->host != b->host)
        return false;
    for (size_t i = 0; i < a->n_input; i++)
        if (a->input[i] != b->input[i] ||
            !lp_type_eq(lp_graph_type(a, a->input[i]),
                        lp_graph_type(b, b->input[i])))
            return false;
    return lp_same_values(a, a->output, b, b->output, (uint32_t)a->n_output);
}

bool lp_graph_same(const LpGraph *a, const LpGraph *b)
{
    if (a == b)
        return true;
    bool same =
        a->n_node == b->n_node && a->n_region == b->n_region && same_ends(a, b);
    for (size_t i = 0; same && i < a->n_node; i++)
        same = same_node(a, &a->node[i], b, &b->node[i]);
    for (size_t i = 1; same && i < a->n_region; i++)
        same = same_region(a, &a->region[i], b, &b->region[i]);
    return same;
}

uint64_t lp_hash_attrs(const LpOp *op, const LpAttr *attr, uint64_t h)
{
    for (int i = 0; i < op->n_attr; i++)
        h = lp_mix64_pair(h, lp_attr_hash(&attr[i]));
    return h;
}

uint64_t lp_graph_hash(const LpGraph *g)
{
    uint64_t h = lp_mix64_pair(g->n_input, g->n_output);
    for (size_t i = 0; i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        h = lp_mix64_pair(lp_mix64_pair(h, n->op->id), n->site);
        for (uint32_t k = 0; k < n->n_in; k++)
            h = lp_mix64_pair(h, lp_is_imm(n->in[k]) ? 1 : n->in[k]);
        h = lp_hash_attrs(n->op, n->attr, h);
    }
    return h;
}
