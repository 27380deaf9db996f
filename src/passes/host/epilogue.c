/* Epilogues: pointwise nodes that run with the product, or the convolution,
 * whose result they alone read:
 *
 *   %3 = mm(%1, %2)             one instruction that reads %1, %2, %4 and
 *   %5 = add(%3, %4)      ->    writes %5 and %6: what a thread has multiplied
 *   %6 = gelu(%5)               it reads again while its cache has it
 *
 * The product waits for them, which are a chain or a single node. Reshapes
 * between the two do not matter. */
#include "src/kernel/copy/copy.h"
#include "src/kernel/nn/conv_chain.h"
#include "src/kernel/product/mm_chain.h"
#include "src/ops/control.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"

static bool may_have_epilogue(const LpLower *l, const LpGraphNode *n)
{
    if (n->op == &op_convolution)
        return lp_keeps(l, n) && !n->half_partials &&
               lp_conv_chain_pays(lp_graph_type(l->g, n->in[0]), n->attr);
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

/* n, which reads v, is pointwise and alone in that (so no variable receives v);
 * its results have v's shape and memory of no variable. */
static bool meets(const LpLower *l, const LpGraphNode *n, LpVal v)
{
    uint32_t reads = 0;
    bool fits = n->op == &op_chain || lp_can_fuse(n);
    for (uint32_t i = 0; i < n->n_out && fits; i++)
        fits = l->target[n->out + i] == UINT32_MAX &&
               lp_shape_eq(lp_graph_type(l->g, n->out + i),
                           lp_graph_type(l->g, v));
    for (uint32_t k = 0; k < n->n_in; k++)
        reads += n->in[k] == v;
    return fits && reads == l->read.uses[v];
}

/* The last of several products is taken: it waits least. */
static void find(LpLower *l, LpNodeId id)
{
    LpVal v = reshaped(l, l->g->node[id].out);
    LpNodeId reader = l->read.reader[v];
    if (reader == LP_NO_NODE || !meets(l, &l->g->node[reader], v))
        return;
    if (l->partner[reader] != LP_NO_NODE)
        l->partner[l->partner[reader]] = LP_NO_NODE;
    l->partner[reader] = id;
    l->partner[id] = reader;
}

LpStatus lp_lower_epilogues(LpLower *l)
{
    bool any = l->o->fuse && l->o->epilogues;
    for (LpNodeId i = 0; any && i < l->g->n_node; i++)
        if (may_have_epilogue(l, &l->g->node[i]))
            find(l, i);
    return LP_OK;
}

/* Not if a result would lie over another operand, which it must not if the
 * product may have to be made again: memory comes first. */
bool lp_epilogue_fits(const LpLower *l, const LpGraphNode *n, LpVal product)
{
    uint32_t over = 0, own = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        bool may = false;
        for (uint32_t r = 0; r < n->n_out; r++) {
            LpDesc d = lp_desc_of(lp_graph_type(l->g, n->out + r));
            may |= lp_lower_fits(l, n, r, i, &d);
        }
        over += may;
        if (lp_in_place_of(l, n->in[i], product))
            own = may;
    }
    return l->block[n->out] == l->block[product] &&
           !lp_weight_layout_results(l, n) && (over <= own || n->n_out <= own);
}
