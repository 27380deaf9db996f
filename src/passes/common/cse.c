/* Equal nodes become one: same operator, attributes, operands and place
 * (block, stage, IPU, phase, backward, update). Random operators draw anew at
 * every site, as do nodes that round at random; effects happen as often as they
 * are written, markers mark where they stand: these never merge.
 *
 *   %2 = exp(%1)                   %2 = exp(%1)
 *   %3 = exp(%1)            ->     %3 = add(%2, %2)
 *   %4 = add(%2, %3)
 *
 * Regions: a node merges only with nodes of its own region, so every region
 * keeps all it had. A region whose operator, attributes, operands and place
 * are those of an earlier one merges with it as a whole; if it turns out to
 * differ inside it loses its label.
 *
 * After canonicalise and fold, which make more nodes equal. Linear (expected:
 * hashing). */
#include <string.h>

#include "src/base/random.h"
#include "src/passes/pass.h"

static bool is_kept(const LpGraphNode *n)
{
    return n->site ||
           lp_node_flags(n) & (LP_OPF_RANDOM | LP_OPF_EFFECT | LP_OPF_MARKER);
}

typedef struct Cse {
    LpMap node;          /* of the new graph, by hash */
    LpMap region;        /* of the old graph, an earlier one, by hash */
    bool *met, *aliased; /* by region of the old graph */
    bool *plain;         /* nothing random in it, all in one place */
    uint32_t *label;     /* the region it merges with, or itself */
    LpOriginId *place;   /* of its nodes, in the old graph */
} Cse;

/* ---- keys ---------------------------------------------------------------- */
static uint64_t hash_operands(const LpGraph *g, const LpVal *in, uint32_t n,
                              uint64_t h)
{
    for (uint32_t i = 0; i < n; i++) {
        LpAttr imm = {0};
        if (lp_is_imm(in[i]))
            imm = lp_attr_scalar(lp_graph_scalar(g, in[i]));
        h = lp_mix64_pair(h, lp_is_imm(in[i]) ? lp_attr_hash(&imm) : in[i]);
    }
    return h;
}

/* ---- regions ------------------------------------------------------------- */
static void study_regions(const LpGraph *g, Cse *c)
{
    for (size_t i = 0; i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        uint32_t r = n->region;
        if (r == 0)
            continue;
        if (c->place[r] == 0) {
            c->place[r] = n->origin;
            c->plain[r] = true;
        }
        if (is_kept(n) || !lp_origin_same_location(&g->origin[n->origin],
                                                   &g->origin[c->place[r]]))
            c->plain[r] = false;
    }
}

static bool same_region(LpRewrite *rw, uint32_t a, const LpVal *in_a,
                        uint32_t b, LpVal *in_b)
{
    const LpGraph *g = rw->from;
    const Cse *c = rw->ctx;
    const LpRegion *x = &g->region[a], *y = &g->region[b];
    return x->op == y->op && x->n_in == y->n_in &&
           lp_same_attrs(x->op, x->attr, y->attr) &&
           lp_origin_same_location(&g->origin[c->place[a]],
                                   &g->origin[c->place[b]]) &&
           lp_rewrite_values(rw, y->in, y->n_in, in_b) &&
           lp_same_values(rw->to, in_a, rw->to, in_b, x->n_in);
}

/* At the first node of region `id`: is it an earlier one again? */
static void meet_region(LpRewrite *rw, uint32_t id)
{
    Cse *c = rw->ctx;
    const LpRegion *r = &rw->from->region[id];
    LpArena *a = &rw->gb.scratch;
    LpVal *in = lp_arena_alloc(a, (r->n_in + 1) * sizeof *in);
    LpVal *other = lp_arena_alloc(a, (r->n_in + 1) * sizeof *other);
    c->met[id] = true;
    c->label[id] = id;
    if (!in || !other) {
        lp_fail(rw->err, LP_E_MEMORY, "out of memory");
        return;
    }
    if (!c->plain[id] || !lp_rewrite_values(rw, r->in, r->n_in, in))
        return;
    uint64_t h = hash_operands(rw->to, in, r->n_in, r->op->id);
    h = lp_hash_attrs(r->op, r->attr, h);
    for (const uint32_t *at = lp_map_first(&c->region, h); at;
         at = lp_map_next(&c->region, at))
        if (same_region(rw, id, in, *at, other)) {
            c->label[id] = *at;
            c->aliased[id] = true;
            return;
        }
    if (!lp_map_add(&c->region, h, id))
        lp_fail(rw->err, LP_E_MEMORY, "out of memory");
}

/* ---- nodes --------------------------------------------------------------- */
static bool same_node(const LpRewrite *rw, const LpGraphNode *n,
                      const LpVal *in, uint32_t label, const LpGraphNode *m)
{
    const LpGraph *g = rw->to;
    return m->op == n->op && m->region == label && m->n_out == n->n_out &&
           n->n_in == m->n_in && n->half_partials == m->half_partials &&
           lp_same_values(g, in, g, m->in, n->n_in) &&
           lp_same_attrs(n->op, n->attr, m->attr) &&
           lp_origin_same_location(&g->origin[rw->gb.origin],
                                   &g->origin[m->origin]);
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    Cse *c = rw->ctx;
    const LpGraphNode *n = &rw->from->node[id];
    if (n->region && !c->met[n->region])
        meet_region(rw, n->region);
    if (is_kept(n))
        return false;
    uint32_t label = n->region ? c->label[n->region] : 0;
    uint64_t h = hash_operands(rw->to, in, n->n_in, n->op->id);
    h = lp_mix64_pair(lp_hash_attrs(n->op, n->attr, h), label);
    for (const uint32_t *at = lp_map_first(&c->node, h); at;
         at = lp_map_next(&c->node, at)) {
        const LpGraphNode *m = &rw->to->node[*at];
        if (!same_node(rw, n, in, label, m))
            continue;
        for (uint32_t k = 0; k < n->n_out; k++)
            out[k] = m->out + k;
        return true;
    }
    if (n->region && c->aliased[n->region])
        rw->broken[n->region] = true;
    /* the copy will be that */
    if (!lp_map_add(&c->node, h, (uint32_t)rw->to->n_node))
        lp_fail(rw->err, LP_E_MEMORY, "out of memory");
    return false;
}

LpStatus lp_pass_cse(LpGraph **g, LpErr *e)
{
    LpArena a = {0};
    size_t r = (*g)->n_region;
    Cse c = {.met = lp_arena_calloc(&a, r),
             .aliased = lp_arena_calloc(&a, r),
             .plain = lp_arena_calloc(&a, r),
             .label = lp_arena_calloc(&a, r * sizeof *c.label),
             .place = lp_arena_calloc(&a, r * sizeof *c.place)};
    LpStatus st = LP_E_MEMORY;
    if (c.met && c.aliased && c.plain && c.label && c.place) {
        study_regions(*g, &c);
        st = lp_rewrite(g, visit, &c, e);
    } else {
        lp_fail(e, st, "out of memory");
    }
    lp_map_fini(&c.node);
    lp_map_fini(&c.region);
    lp_arena_fini(&a);
    return st;
}
