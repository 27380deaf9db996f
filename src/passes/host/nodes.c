/* Every node in its place: what runs where, and copies at the end. */
#include "src/kernel/copy/copy.h"
#include "src/passes/host/lower_impl.h"

/* A member of a group waits for the last one, and so does the product whose
 * epilogue it is. */
static LpStatus lower_at(LpLower *l, LpNodeId id)
{
    int32_t at = lp_fuse_group_of(l, id);
    if (at < 0)
        return lp_lower_node(l, id);
    const LpFuseGroup *group = &l->fusion.group[at];
    if (group->product == id)
        return lp_lower_result(l, &l->g->node[id], l->g->node[id].out);
    return group->member[group->n - 1] == id ? lp_lower_group(l, group) : LP_OK;
}

LpStatus lp_lower_nodes(LpLower *l)
{
    for (int late = 0; late <= 1; late++)
        for (size_t i = 0; i < l->g->n_node; i++) {
            if (lp_sinks(l, (LpNodeId)i) != late)
                continue;
            LpStatus s = lower_at(l, (LpNodeId)i);
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
