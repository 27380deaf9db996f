/* Dead code: nodes that no output needs go. Nodes with an effect stay, and
 * what they read; inputs stay, they are the signature. Markers stay as long
 * as their result is read.
 *
 *   %2 = neg(%1)                 %2 = exp(%1)
 *   %3 = exp(%1)          ->     output %2
 *   output %3
 *
 * A region that loses results gets holes in their place; one that loses all of
 * them is gone. Its operands are kept while a node of it lives.
 *
 * Runs last: every other pass leaves dead nodes to it. Linear. */
#include "src/passes/pass.h"

typedef struct Live {
    bool *node;
    bool *region; /* one of its nodes lives */
} Live;

static void mark(const LpGraph *g, Live *live, LpVal v)
{
    if (v != LP_NOVAL && !lp_is_imm(v) && g->value[v].node != LP_NO_NODE)
        live->node[g->value[v].node] = true;
}

/* Users come after what they read: one sweep from the end. A region's
 * operands are older than its nodes, so they are marked in time. */
static void mark_all(const LpGraph *g, Live *live)
{
    for (size_t i = 0; i < g->n_output; i++)
        mark(g, live, g->output[i]);
    for (size_t i = g->n_node; i-- > 0;) {
        const LpGraphNode *n = &g->node[i];
        live->node[i] |= (n->op->flags & LP_OPF_EFFECT) != 0;
        if (!live->node[i])
            continue;
        for (uint32_t k = 0; k < n->n_in; k++)
            mark(g, live, n->in[k]);
        if (n->region == 0 || live->region[n->region])
            continue;
        const LpRegion *r = &g->region[n->region];
        live->region[n->region] = true;
        for (uint32_t k = 0; k < r->n_in; k++)
            mark(g, live, r->in[k]);
    }
}

/* Results of a dead node stay LP_NOVAL. */
static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const Live *live = rw->ctx;
    (void)in, (void)out;
    return !live->node[id];
}

LpStatus lp_pass_dce(LpGraph **g, LpErr *e)
{
    Live live = {lp_calloc((*g)->n_node, 1), lp_calloc((*g)->n_region, 1)};
    LpStatus st = LP_E_MEMORY;
    if (live.node && live.region) {
        mark_all(*g, &live);
        st = lp_rewrite(g, visit, &live, e);
    } else {
        lp_fail(e, st, "out of memory");
    }
    lp_free(live.node);
    lp_free(live.region);
    return st;
}
