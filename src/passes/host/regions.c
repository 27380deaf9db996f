/* Inlined fused operators that run by their own kernel become a node.
 *
 *   region 1 = attention(%q, %k, %v, _)
 *     %s = bmm(…)  %p = softmax(%s)     ->    %o = attention(%q, %k, %v, _)
 *     %o = bmm(%p, %v)
 *
 * A region is run whole if it is intact (passes drop the label of one that they
 * changed) and what it computes between is read by nobody but itself and
 * regions that are run whole too (its own backward half, which computes it
 * again). Its results must not be read before its last node, where the operator
 * stands: the scores between never get memory. And none of its nodes draws or
 * rounds at random: the step says where that happens. No region is left: the
 * labels have served. Time: linear in operands, for each look. */
#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

typedef struct Regions {
    const LpGraph *g;
    bool *whole;    /* per region */
    LpNodeId *last; /* per region: of its nodes */
    LpArena mem;
} Regions;

static bool is_result(const LpRegion *r, LpVal v)
{
    for (uint32_t i = 0; i < r->n_out; i++)
        if (r->out[i] == v)
            return true;
    return false;
}

/* The whole region that makes v, 0 if none does. */
static uint32_t maker(const Regions *x, LpVal v)
{
    LpNodeId id = lp_is_value(v) ? x->g->value[v].node : LP_NO_NODE;
    uint32_t r = id == LP_NO_NODE ? 0 : x->g->node[id].region;
    return x->whole[r] ? r : 0;
}

/* Something at node `at` reads v: a node of `region`, or if `self` what runs in
 * its place. Whole regions that it keeps from being so are none; false if there
 * is none. */
static bool check_read(Regions *x, LpVal v, LpNodeId at, uint32_t region,
                       bool self)
{
    uint32_t from = maker(x, v);
    if (!from || from == region)
        return false;
    /* a reader inside a whole region does not read by itself */
    bool hidden = x->whole[region] && !self;
    bool fits = is_result(&x->g->region[from], v) ? at > x->last[from] : hidden;
    x->whole[from] = fits;
    return !fits;
}

/* One look at all reads; false if all regions stayed whole. */
static bool check_reads(Regions *x)
{
    const LpGraph *g = x->g;
    bool changed = false;
    for (LpNodeId i = 0; i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        for (uint32_t k = 0; k < n->n_in; k++)
            changed |= check_read(x, n->in[k], i, n->region, false);
    }
    for (uint32_t r = 1; r < g->n_region; r++)
        for (uint32_t k = 0; x->whole[r] && k < g->region[r].n_in; k++)
            changed |= check_read(x, g->region[r].in[k], x->last[r], r, true);
    return changed;
}

static LpStatus choose(Regions *x, const LpHostOptions *o, LpErr *e)
{
    const LpGraph *g = x->g;
    x->whole = lp_arena_calloc(&x->mem, g->n_region * sizeof *x->whole);
    x->last = lp_arena_calloc(&x->mem, g->n_region * sizeof *x->last);
    LP_FAIL_IF(!x->whole || !x->last, e, LP_E_MEMORY, "out of memory");
    for (LpNodeId i = 0; i < g->n_node; i++)
        x->last[g->node[i].region] = i;
    for (size_t r = 1; r < g->n_region; r++)
        x->whole[r] = o->fuse && g->region[r].op->prepare;
    for (size_t i = 0; i < g->n_node; i++)
        if (g->node[i].site || g->node[i].half_partials)
            x->whole[g->node[i].region] = false;
    for (size_t i = 0; i < g->n_output; i++) {
        uint32_t r = maker(x, g->output[i]);
        x->whole[r] = x->whole[r] && is_result(&g->region[r], g->output[i]);
    }
    while (check_reads(x))
        ;
    return LP_OK;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const Regions *x = rw->ctx;
    const LpGraphNode *n = &x->g->node[id];
    const LpRegion *r = &x->g->region[n->region];
    LpVal from[LP_MAX_IN], to[LP_MAX_OUT];
    (void)in, (void)out;
    rw->broken[n->region] = true;
    if (!x->whole[n->region])
        return false;
    if (x->last[n->region] != id)
        return true;
    for (uint32_t i = 0; i < r->n_in; i++)
        from[i] = lp_rewrite_value(rw, r->in[i]);
    if (lp_failed(&rw->gb.b) ||
        !rw->gb.b.emit(&rw->gb.b, r->op, from, (int)r->n_in, r->attr, to))
        return true;
    for (uint32_t i = 0; i < r->n_out; i++)
        if (r->out[i] != LP_NOVAL)
            lp_rewrite_becomes(rw, r->out[i], to[i]);
    return true;
}

LpStatus lp_host_regions(LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    Regions x = {.g = *g};
    if ((*g)->n_region < 2)
        return LP_OK;
    LpStatus s = choose(&x, o, e);
    if (s == LP_OK)
        s = lp_rewrite(g, visit, &x, e);
    lp_arena_fini(&x.mem);
    return s;
}
