/* Requests of kernels from the types of a graph. */
#include "src/ops/request.h"

#include "src/kernel/copy/copy.h"

LpDesc lp_desc_of_operand(const LpGraph *g, LpVal v)
{
    if (v == LP_NOVAL)
        return (LpDesc){.dtype = LP_DT_NONE};
    if (!lp_is_imm(v))
        return lp_desc_of(lp_graph_type(g, v));
    return (LpDesc){.dtype = lp_graph_operand_type(g, v).dtype,
                    .is_imm = true,
                    .imm = lp_graph_scalar(g, v)};
}

LpKernelReq lp_req_of_node(const LpGraph *g, const LpGraphNode *n, LpDesc *desc)
{
    LpDesc *out = desc + n->n_in;
    for (uint32_t i = 0; i < n->n_in; i++)
        desc[i] = lp_desc_of_operand(g, n->in[i]);
    for (uint32_t i = 0; i < n->n_out; i++)
        out[i] = lp_desc_of(lp_graph_type(g, n->out + i));
    return (LpKernelReq){.op = n->op,
                         .attr = n->attr,
                         .n_in = (int)n->n_in,
                         .n_out = (int)n->n_out,
                         .in = desc,
                         .out = out,
                         .site = n->site};
}
