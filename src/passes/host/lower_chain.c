/* The kernel of a chain: its body as the driver of fused pointwise operators
 * reads it, by itself or behind a product. */
#include "src/kernel/nn/conv_chain.h"
#include "src/kernel/product/mm_chain.h"
#include "src/ops/control.h"
#include "src/ops/ops.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

static LpFusedArg operand(const LpGraph *body, LpVal v)
{
    if (lp_is_imm(v))
        return (LpFusedArg){.from = LP_FUSED_IMM,
                            .imm = lp_graph_scalar(body, v)};
    const LpValue *x = &body->value[v];
    if (x->node == LP_NO_NODE)
        return (LpFusedArg){.from = LP_FUSED_EXT, .at = (int)x->nr};
    return (LpFusedArg){.from = LP_FUSED_NODE, .at = (int)x->node};
}

static void read_body(const LpGraph *b, LpFusedNode *f)
{
    for (size_t k = 0; k < b->n_node; k++) {
        const LpGraphNode *n = &b->node[k];
        const LpType *t = lp_graph_type(b, n->out);
        f[k] = (LpFusedNode){.op = n->op,
                             .attr = n->attr,
                             .n_in = (int)n->n_in,
                             .dtype = t->dtype,
                             .ndim = t->ndim,
                             .out = -1,
                             .site = n->site}; /* none draws: they round */
        for (uint32_t i = 0; i < n->n_in; i++)
            f[k].in[i] = operand(b, n->in[i]);
    }
    for (size_t i = 0; i < b->n_output; i++)
        f[b->value[b->output[i]].node].out = (int)i;
}

/* A pointwise node by itself. */
static void read_node(const LpKernelReq *r, LpFusedNode *f)
{
    *f = (LpFusedNode){.op = r->op,
                       .attr = r->attr,
                       .n_in = r->n_in,
                       .dtype = r->out->dtype,
                       .ndim = r->out->ndim,
                       .site = r->site};
    for (int i = 0; i < r->n_in; i++)
        f->in[i] =
            (LpFusedArg){.from = r->in[i].is_imm ? LP_FUSED_IMM : LP_FUSED_EXT,
                         .at = i,
                         .imm = r->in[i].imm};
}

static LpFusedReq request(const LpKernelReq *r, LpFusedNode *node)
{
    const LpGraph *b = r->op == &op_chain ? r->attr[LP_CALL_BODY].graph : NULL;
    if (b)
        read_body(b, node);
    else
        read_node(r, node);
    return (LpFusedReq){.node = node,
                        .n_node = b ? (int)b->n_node : 1,
                        .ext = r->in,
                        .n_ext = r->n_in,
                        .out = r->out,
                        .n_out = r->n_out,
                        .threads = r->threads};
}

LpStatus lp_prepare_chain(const LpKernelReq *r, bool blocks, LpKernel *k,
                          LpErr *e)
{
    LpFusedNode node[LP_FUSED_MAX_NODE];
    LpFusedReq f = request(r, node);
    f.blocks = blocks;
    return lp_fused_prepare(&f, k, e);
}

LpStatus lp_prepare_epilogue(LpLower *l, LpNodeId product, const LpGraphNode *n,
                             const LpKernelReq *chain,
                             const LpValueLocation **in, LpKernel *k)
{
    const LpGraphNode *p = &l->g->node[product];
    bool conv = p->op == &op_convolution;
    LpFusedNode node[LP_FUSED_MAX_NODE];
    LpFusedReq f = request(chain, node);
    LpDesc d[2];
    int at = 0;
    while (!lp_in_place_of(l, n->in[at], p->out))
        at++;
    for (int i = 0; i < 2; i++) {
        LP_TRY(conv ? lp_layout_dense(l, p->in[i], &in[i])
                    : lp_layout_place(l, p->in[i], 0, NULL, &in[i]));
        d[i] = in[i]->desc;
    }
    LpKernelReq r = {.op = p->op,
                     .attr = p->attr,
                     .n_in = 2,
                     .n_out = 1,
                     .in = d,
                     .out = &l->location[p->out].desc,
                     .numerics = lp_node_numerics(l->step->numerics, p),
                     .fast = l->o->fast,
                     .keeps = conv && lp_keeps(l, p),
                     .split = l->o->split};
    r.threads = lp_width_of(&r, l->o->threads);
    return conv ? lp_conv_chain_prepare(&r, &f, at, k, l->err)
                : lp_mm_chain_prepare(&r, &f, at, k, l->err);
}
