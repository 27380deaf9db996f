/* Large gradients of parameters that are made of little are made last, after
 * the rest of the micro graph: what they are made of is kept meanwhile, and
 * they lie where larger values have died (memory.c gives them the arena),
 * instead of beside those. In a convolutional network these are the last
 * layers' gradients, which come first in the backward half. */
#include "src/ops/control.h"
#include "src/passes/host/lower_impl.h"

enum {
    LEAST = 4 << 20, /* bytes of the gradient */
    TIMES = 2        /* what it is made of, at least */
};

static int64_t bytes_of(const LpLower *l, LpVal v)
{
    return lp_type_bytes(lp_graph_type(l->g, v));
}

bool lp_sinks(const LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id];
    if (l->update || n->n_out != 1 || l->read.uses[n->out] != 1 ||
        l->target[n->out] == UINT32_MAX ||
        !lp_may_be_in_arena(l, l->target[n->out]) ||
        l->partner[id] != LP_NO_NODE || n->op == &op_chain ||
        n->op->flags & LP_OPF_VIEW)
        return false;
    int64_t of = 0, bytes = bytes_of(l, n->out);
    for (uint32_t i = 0; i < n->n_in; i++)
        of += lp_is_value(n->in[i]) ? bytes_of(l, n->in[i]) : 0;
    return bytes >= LEAST && bytes >= TIMES * of;
}
