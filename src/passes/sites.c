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
    LpMap place; /* how many nodes had it */
} Sites;

static LpStatus give(LpGraph **at, void *ctx, LpErr *e)
{
    Sites *s = ctx;
    LpGraph *g = *at;
    for (size_t i = 0; g && i < g->n_node; i++) {
        LpGraphNode *n = &g->node[i];
        const LpOrigin *o = &g->origin[n->origin];
        if (n->site || !lp_node_rounds(g, n))
            continue;
        unsigned half = o->update ? 2 : o->backward;
        uint64_t salt = 4 * (uint64_t)s->time + half;
        uint64_t place = lp_mix64_pair(salt, lp_origin_location(o));
        uint32_t *before = lp_map_at(&s->place, place);
        LP_FAIL_IF(!before, e, LP_E_MEMORY, "out of memory");
        n->site = lp_mix64_pair(place, (*before)++);
    }
    return g ? lp_in_bodies(g, give, s, e) : LP_OK;
}

LpStatus lp_give_sites(LpGraph *g, int time, LpErr *e)
{
    Sites s = {.time = time};
    LpStatus st = give(&g, &s, e);
    lp_map_fini(&s.place);
    return st;
}
