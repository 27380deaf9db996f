/* Epilogues: pointwise nodes that run with the product whose result they alone
 * read:
 *
 *   %3 = mm(%1, %2)             one instruction that reads %1, %2, %4 and
 *   %5 = add(%3, %4)      ->    writes %5 and %6: what a thread has multiplied
 *   %6 = gelu(%5)               it reads again while its cache has it
 *
 * The product waits for the group, which is one of several nodes or a single
 * one. Reshapes between the two do not matter. */
#include "src/kernel/loops/fused.h"
#include "src/kernel/product/mm_chain.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"

static bool may_have_epilogue(const LpLower *l, const LpGraphNode *n)
{
    return n->op == &op_mm &&
           lp_mm_chain_is_fast(lp_graph_type(l->g, n->in[0]),
                               lp_graph_type(l->g, n->in[1]), l->o->split);
}

/* v as its readers see it, which is not through a reshape (what else views all
 * elements in their order, canonicalise has made one). */
static LpVal reshaped(const LpLower *l, LpVal v)
{
    for (;;) {
        LpNodeId id = lp_only_reader(&l->read, v);
        if (id == LP_NO_NODE || l->g->node[id].op != &op_reshape)
            return v;
        v = l->g->node[id].out;
    }
}

static bool is_alone(const LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id];
    return l->fusion.of[id] < 0 && lp_can_fuse(n);
}

/* All that read v are of the group (so no variable receives it), whose results
 * have v's shape and memory of no variable. */
static bool meets(const LpLower *l, const LpFuseGroup *p, LpVal v)
{
    const LpType *t = lp_graph_type(l->g, v);
    uint32_t reads = 0;
    for (int i = 0; i < p->n; i++) {
        const LpGraphNode *n = &l->g->node[p->member[i]];
        if (l->target[n->out] != UINT32_MAX ||
            !lp_shape_eq(lp_graph_type(l->g, n->out), t))
            return false;
        for (uint32_t k = 0; k < n->n_in; k++)
            reads += n->in[k] == v;
    }
    return reads == l->read.uses[v];
}

/* The last of several products is taken: it waits least. */
static LpStatus find(LpLower *l, LpNodeId id)
{
    LpFusion *f = &l->fusion;
    LpVal v = reshaped(l, l->g->node[id].out);
    LpNodeId reader = l->read.reader[v];
    if (reader == LP_NO_NODE || (f->of[reader] < 0 && !is_alone(l, reader)))
        return LP_OK;
    LpFuseGroup one = {.member = &reader, .n = 1};
    if (!meets(l, f->of[reader] < 0 ? &one : &f->group[f->of[reader]], v))
        return LP_OK;
    if (f->of[reader] < 0)
        LP_TRY(lp_fuse_alone(l, reader));
    LpFuseGroup *p = &f->group[f->of[reader]];
    if (p->product != LP_NO_NODE)
        f->of[p->product] = -1;
    p->product = id;
    f->of[id] = f->of[reader];
    return LP_OK;
}

LpStatus lp_lower_epilogues(LpLower *l)
{
    bool any = l->o->fuse && l->o->epilogues;
    for (size_t i = 0; any && i < l->g->n_node; i++)
        if (may_have_epilogue(l, &l->g->node[i]))
            LP_TRY(find(l, (LpNodeId)i));
    return LP_OK;
}
