/* Attributes as values: equality and a hash that agrees with it. Floats are
 * compared by bits: NaN equals itself, 0.0 differs from -0.0. Graphs by what
 * they do (graph_same.c). */
#include <string.h>

#include "src/base/random.h"
#include "src/ir/graph.h"

bool lp_attr_eq(const LpAttr *a, const LpAttr *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case LP_ATTR_NONE:
        return true;
    case LP_ATTR_INTS:
        return a->n == b->n &&
               (a->n == 0 ||
                memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0);
    case LP_ATTR_SCALAR:
        return lp_scalar_eq(a->s, b->s);
    case LP_ATTR_STR:
        return strcmp(a->str, b->str) == 0;
    case LP_ATTR_GRAPH:
        return lp_graph_same(a->graph, b->graph);
    default: /* INT, BOOL, DTYPE; FLOAT by its bits */
        return a->i == b->i;
    }
}

uint64_t lp_attr_hash(const LpAttr *a)
{
    uint64_t h = lp_mix64((uint64_t)a->kind);
    switch (a->kind) {
    case LP_ATTR_NONE:
        return h;
    case LP_ATTR_INTS:
        for (int i = 0; i < a->n; i++)
            h = lp_mix64_pair(h, (uint64_t)a->v[i]);
        return lp_mix64_pair(h, (uint64_t)a->n);
    case LP_ATTR_SCALAR:
        return lp_mix64_pair(h + (uint64_t)a->s.kind, (uint64_t)a->s.i);
    case LP_ATTR_STR:
        for (const char *s = a->str; *s; s++)
            h = lp_mix64_pair(h, (unsigned char)*s);
        return h;
    case LP_ATTR_GRAPH:
        return lp_mix64_pair(h, lp_graph_hash(a->graph));
    default:
        return lp_mix64_pair(h, (uint64_t)a->i);
    }
}
