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
    LpTally place;
} Sites;

LpStatus lp_tally(LpTally *t, uint64_t hash, uint64_t *before, LpErr *e)
{
    const uint32_t *at = lp_map_first(&t->at, hash);
    size_t i = at ? *at : t->n;
    if (!at) {
        LP_FAIL_IF(!LP_GROW(t->count, t->cap, i) ||
                       !lp_map_add(&t->at, hash, (uint32_t)i),
                   e, LP_E_MEMORY, "out of memory");
        t->count[t->n++] = 0;
    }
    *before = t->count[i]++;
    return LP_OK;
}

void lp_tally_fini(LpTally *t)
{
    lp_map_fini(&t->at);
    lp_free(t->count);
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
        uint64_t salt = 4 * (uint64_t)s->time + half, before = 0;
        uint64_t place = lp_mix64_pair(salt, lp_origin_location(o));
        st = lp_tally(&s->place, place, &before, e);
        n->site = lp_mix64_pair(place, before);
    }
    return st == LP_OK && g ? lp_in_bodies(g, give, s, e) : st;
}

LpStatus lp_give_sites(LpGraph *g, int time, LpErr *e)
{
    Sites s = {.time = time};
    LpStatus st = give(&g, &s, e);
    lp_tally_fini(&s.place);
    return st;
}
