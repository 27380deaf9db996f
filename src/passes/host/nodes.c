/* Every node in its place: what runs where, and copies at the end. */
#include "src/kernel/copy/copy.h"
#include "src/passes/host/lower_impl.h"

/* A product waits for its epilogue. */
static LpStatus lower_at(LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id];
    LpNodeId partner = l->partner[id];
    if (partner != LP_NO_NODE && partner > id)
        return lp_lower_result(l, n, n->out);
    if (partner < id && !lp_epilogue_fits(l, n, l->g->node[partner].out)) {
        l->partner[id] = l->partner[partner] = LP_NO_NODE;
        LP_TRY(lp_lower_node(l, partner));
    }
    return lp_lower_node(l, id);
}

/* The node that adds v to an accumulator, with nothing else made here; or
 * LP_NO_NODE. */
static LpNodeId accumulation(const LpLower *l, LpVal v)
{
    LpNodeId id = lp_only_reader(&l->read, v);
    if (id == LP_NO_NODE || l->update || l->partner[id] != LP_NO_NODE)
        return LP_NO_NODE;
    const LpGraphNode *n = &l->g->node[id];
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] != v && lp_graph_maker(l->g, n->in[i]))
            return LP_NO_NODE;
    uint32_t to = n->n_out ? l->target[n->out + n->n_out - 1] : UINT32_MAX;
    return to != UINT32_MAX && l->step->var[to].role == LP_VAR_ACCUM &&
                   l->step->var[to].micro_in != LP_NOVAL
               ? id
               : LP_NO_NODE;
}

/* Accumulations stand at the end of the graph. Each runs right behind its
 * gradient, which dies there, and the sum over replicas can start. */
static LpStatus lower_and_accumulate(LpLower *l, LpNodeId id, bool *done)
{
    const LpGraphNode *n = &l->g->node[id];
    if (done[id])
        return LP_OK;
    LP_TRY(lower_at(l, id));
    for (uint32_t i = 0; i < n->n_out; i++) {
        LpNodeId sum = accumulation(l, n->out + i);
        if (sum == LP_NO_NODE)
            continue;
        LP_TRY(lower_at(l, sum));
        done[sum] = true;
    }
    return LP_OK;
}

LpStatus lp_lower_nodes(LpLower *l)
{
    bool *done = lp_arena_calloc(&l->mem, l->g->n_node + 1);
    LP_FAIL_IF(!done, l->err, LP_E_MEMORY, "out of memory");
    for (int late = 0; late <= 1; late++)
        for (size_t i = 0; i < l->g->n_node; i++) {
            if (lp_sinks(l, (LpNodeId)i) != late)
                continue;
            LpStatus s = lower_and_accumulate(l, (LpNodeId)i, done);
            if (s != LP_OK) {
                lp_err_context(l->err, "lowering %s", l->g->node[i].op->name);
                return s;
            }
        }
    return LP_OK;
}

/* Values that did not land in their variable are copied now. A copy must not
 * overwrite a variable that a later copy still reads: such values were given
 * a buffer of their own first. */
LpStatus lp_lower_outputs(LpLower *l)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < l->step->n_var; i++) {
            LpVal out = l->out[i];
            if (out == LP_NOVAL)
                continue;
            LpValueLocation *p = &l->location[out];
            uint32_t from = l->buf[p->buf].var;
            if (from == i && p->offset == 0)
                continue;
            if (pass == 0) {
                if (from == UINT32_MAX)
                    continue; /* safe already */
                LpValueLocation apart = *p;
                apart.offset = 0;
                apart.desc = lp_desc_of(lp_graph_type(l->g, out));
                apart.desc.layout = p->desc.layout;
                LP_TRY(lp_lower_buffer(l, lp_weight_layout_bytes(&apart.desc),
                                       UINT32_MAX, &apart.buf));
                LP_TRY(lp_lower_copy(l, LP_NO_NODE, p, &apart));
                *p = apart;
            } else {
                LpValueLocation dst = {
                    .desc = lp_desc_of(lp_graph_type(l->g, out))};
                dst.desc.layout = lp_weight_layout_of_var(l, i);
                LP_TRY(lp_lower_buffer(l, 0, i, &dst.buf));
                LP_TRY(lp_lower_copy(l, LP_NO_NODE, p, &dst));
            }
        }
    }
    return LP_OK;
}
