/* Sites of the nodes that round, in a step whose numerics are stochastic. A
 * site is a mix of the node's place in the program (for the update: of the
 * variable's name), of the half it stands in and of its number among the nodes
 * of that place: where a node runs and what else there is do not matter. A copy
 * of a node keeps its site and rounds alike. The nodes of bodies are counted
 * with those around them.
 *
 * Given before the common passes, which neither merge nor fold what has one;
 * and once more after them, to what they made of several nodes. */
#include "src/base/random.h"
#include "src/passes/pass.h"

typedef struct Sites {
    int time;
    LpMap at; /* index into `count`, by place */
    uint64_t *count;
    size_t n, cap;
} Sites;

static LpStatus next(Sites *s, uint64_t place, uint64_t *site, LpErr *e)
{
    const uint32_t *at = lp_map_first(&s->at, place);
    size_t i = at ? *at : s->n;
    if (!at) {
        LP_FAIL_IF(!LP_GROW(s->count, s->cap, i) ||
                       !lp_map_add(&s->at, place, (uint32_t)i),
                   e, LP_E_MEMORY, "out of memory");
        s->count[s->n++] = 0;
    }
    *site = lp_mix64_pair(place, s->count[i]++);
    return LP_OK;
}

static LpStatus give(LpGraph **at, void *ctx, LpErr *e)
{
    Sites *s = ctx;
    LpGraph *g = *at;
    LpStatus st = LP_OK;
    for (size_t i = 0; g && i < g->n_node && st == LP_OK; i++) {
        LpGraphNode *n = &g->node[i];
        const LpOrigin *o = &g->origin[n->origin];
        if (n->site || !lp_node_rounds(g, n))
            continue;
        unsigned half = o->update ? 2 : o->backward;
        uint64_t salt = 4 * (uint64_t)s->time + half;
        st = next(s, lp_mix64_pair(salt, lp_origin_location(o)), &n->site, e);
    }
    return st == LP_OK && g ? lp_in_bodies(g, give, s, e) : st;
}

LpStatus lp_give_sites(LpGraph *g, int time, LpErr *e)
{
    Sites s = {.time = time};
    LpStatus st = give(&g, &s, e);
    lp_map_fini(&s.at);
    lp_free(s.count);
    return st;
}
