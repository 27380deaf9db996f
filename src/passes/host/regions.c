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
 * stands: the scores between never get memory. Where its nodes
 * round at random, an operator that does so at their sites (LpOp.at_random)
 * takes its place, or it is not run whole. No region is left: the labels have
 * served. Time: linear in operands, for each look. */
#include <string.h>

#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

enum { MOST_SITES = 32 };

typedef struct Regions {
    const LpGraph *g;
    bool *whole;    /* per region */
    LpNodeId *last; /* per region: of its nodes */
    LpAttr *site;   /* per region: of its nodes, in order */
    LpVal *kept;    /* per region: what LpOp.at_random makes or reads beside */
    LpArena mem;
} Regions;

static bool is_result(const LpRegion *r, LpVal v)
{
    for (uint32_t i = 0; i < r->n_out; i++)
        if (r->out[i] == v)
            return true;
    return false;
}

/* Of the operator that takes its place. */
static bool makes(const Regions *x, uint32_t region, LpVal v)
{
    return is_result(&x->g->region[region], v) || x->kept[region] == v;
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
    bool fits = makes(x, from, v) ? at > x->last[from] : hidden;
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
    for (uint32_t r = 1; r < g->n_region; r++)
        if (x->whole[r] && x->kept[r] != LP_NOVAL)
            changed |= check_read(x, x->kept[r], x->last[r], r, true);
    return changed;
}

/* The region that makes what nodes of `region` read, but for results: what it
 * computes again. 0: none. */
static uint32_t again(const Regions *x, uint32_t region)
{
    const LpGraph *g = x->g;
    for (LpNodeId i = 0; i < g->n_node; i++)
        for (uint32_t k = 0; g->node[i].region == region && k < g->node[i].n_in;
             k++) {
            LpVal v = g->node[i].in[k];
            LpNodeId id = lp_is_value(v) ? g->value[v].node : LP_NO_NODE;
            uint32_t from = id == LP_NO_NODE ? 0 : g->node[id].region;
            if (from && from != region && !is_result(&g->region[from], v) &&
                g->region[from].op->back == g->region[region].op)
                return from;
        }
    return 0;
}

/* The sites of its nodes; *made: the result of the last but one of them. */
static int sites(const Regions *x, uint32_t region, int64_t *to, LpVal *made)
{
    const LpGraph *g = x->g;
    LpVal last = *made = LP_NOVAL;
    int n = 0;
    for (LpNodeId i = 0; i < g->n_node; i++)
        if (g->node[i].region == region && g->node[i].site && n < MOST_SITES) {
            to[n++] = (int64_t)g->node[i].site;
            *made = last;
            last = g->node[i].out;
        }
    return n;
}

/* Nodes of the region round at random: is there an operator that does? */
static LpStatus find_sites(Regions *x, uint32_t region, LpErr *e)
{
    const LpRegion *r = &x->g->region[region];
    const LpType *in[LP_MAX_IN] = {NULL};
    uint32_t before = again(x, region);
    int64_t ignored[MOST_SITES],
        *site = lp_arena_calloc(&x->mem, MOST_SITES * sizeof *site);
    LP_FAIL_IF(!site, e, LP_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < r->n_in; i++)
        if (r->in[i] != LP_NOVAL)
            in[i] = lp_graph_type(x->g, r->in[i]);
    int n = sites(x, region, site, &x->kept[region]);
    if (before)
        sites(x, before, ignored, &x->kept[region]);
    x->site[region] = lp_attr_ints(site, n);
    x->whole[region] = x->whole[region] && r->op->at_random &&
                       !r->op->back == !!before &&
                       r->op->sites(in, r->attr) == n;
    return LP_OK;
}

static LpStatus choose(Regions *x, const LpHostOptions *o, LpErr *e)
{
    const LpGraph *g = x->g;
    x->whole = lp_arena_calloc(&x->mem, g->n_region * sizeof *x->whole);
    x->last = lp_arena_calloc(&x->mem, g->n_region * sizeof *x->last);
    x->site = lp_arena_calloc(&x->mem, g->n_region * sizeof *x->site);
    x->kept = lp_arena_calloc(&x->mem, g->n_region * sizeof *x->kept);
    LP_FAIL_IF(!x->whole || !x->last || !x->site || !x->kept, e, LP_E_MEMORY,
               "out of memory");
    for (LpNodeId i = 0; i < g->n_node; i++)
        x->last[g->node[i].region] = i;
    for (size_t r = 1; r < g->n_region; r++)
        x->whole[r] = o->fuse && g->region[r].op->prepare;
    for (size_t i = 0; i < g->n_node; i++)
        if (g->node[i].half_partials)
            x->whole[g->node[i].region] = false;
        else if (g->node[i].site && g->node[i].region &&
                 x->site[g->node[i].region].kind == LP_ATTR_NONE)
            LP_TRY(find_sites(x, g->node[i].region, e));
    for (size_t i = 0; i < g->n_output; i++) {
        uint32_t r = maker(x, g->output[i]);
        x->whole[r] = x->whole[r] && makes(x, r, g->output[i]);
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
    LpAttr attr[LP_MAX_ATTR];
    (void)in, (void)out;
    rw->broken[n->region] = true;
    if (!x->whole[n->region])
        return false;
    if (x->last[n->region] != id)
        return true;
    for (uint32_t i = 0; i < r->n_in; i++)
        from[i] = lp_rewrite_value(rw, r->in[i]);
    const LpOp *op = r->op;
    memcpy(attr, r->attr, op->n_attr * sizeof *attr);
    if (x->site[n->region].kind == LP_ATTR_INTS) {
        attr[op->n_attr] = x->site[n->region];
        if (!op->back)
            from[r->n_in - 1] = lp_rewrite_value(rw, x->kept[n->region]);
        op = op->at_random;
    }
    if (lp_failed(&rw->gb.b) ||
        !rw->gb.b.emit(&rw->gb.b, op, from, (int)r->n_in, attr, to))
        return true;
    for (uint32_t i = 0; i < r->n_out; i++)
        if (r->out[i] != LP_NOVAL)
            lp_rewrite_becomes(rw, r->out[i], to[i]);
    if (op != r->op && r->op->back)
        lp_rewrite_becomes(rw, x->kept[n->region], to[r->n_out]);
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
