/* Results of a node that a concatenation joins with nothing but others of the
 * same node are made in their parts of the joined one, if its kernel can:
 *
 *   %dq, %dk, %dv = attention_backward(…)
 *   %a = permute(%dq, …)  %b = permute(%dk, …)     ->   nothing is copied
 *   %x = cat([%a, %b, …], dim=2)
 *
 * So it is where queries, keys and values are parts of one product. */
#include "src/kernel/attrs.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"

/* What alone reads v, itself or permuted (*turn, else NULL), if it is a
 * concatenation; *operand is what that one reads. */
static const LpGraphNode *joined_by(const LpLower *l, LpVal v,
                                    const LpGraphNode **turn, LpVal *operand)
{
    LpNodeId id = lp_only_reader(&l->read, v);
    *turn = NULL;
    *operand = v;
    if (id != LP_NO_NODE && l->g->node[id].op == &op_permute) {
        *turn = &l->g->node[id];
        *operand = (*turn)->out;
        id = lp_only_reader(&l->read, *operand);
    }
    bool joins = id != LP_NO_NODE && l->g->node[id].op == &op_cat;
    return joins ? &l->g->node[id] : NULL;
}

/* `operand` of cat is a result of n, as cat's result is but for a size. */
static bool is_part(const LpLower *l, const LpGraphNode *n,
                    const LpGraphNode *cat, LpVal operand)
{
    const LpGraphNode *turn;
    LpVal at;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (joined_by(l, n->out + i, &turn, &at) == cat && at == operand) {
            const LpType *t = lp_graph_type(l->g, at);
            const LpType *all = lp_graph_type(l->g, cat->out);
            return t->dtype == all->dtype && t->ndim == all->ndim;
        }
    return false;
}

/* The part of the joined value that operand `at` of the concatenation is. */
static LpValueLocation part_of(const LpLower *l, const LpGraphNode *cat,
                               LpVal at)
{
    LpValueLocation p = l->location[cat->out];
    int64_t dim = cat->attr[LP_CAT_DIM].i;
    const LpType *t = lp_graph_type(l->g, at);
    for (uint32_t i = 0; cat->in[i] != at; i++)
        p.offset +=
            p.desc.strides[dim] * lp_graph_type(l->g, cat->in[i])->shape[dim];
    p.desc.shape[dim] = t->shape[dim];
    return p;
}

LpStatus lp_join_place(LpLower *l, const LpGraphNode *n, LpVal v)
{
    const LpGraphNode *turn, *cat = NULL;
    LpVal operand;
    if (n->op->flags & LP_OPF_STRIDED_OUT)
        cat = joined_by(l, v, &turn, &operand);
    for (uint32_t i = 0; cat && i < cat->n_in; i++)
        if (!is_part(l, n, cat, cat->in[i]))
            return LP_OK;
    if (!cat)
        return LP_OK;
    if (l->location[cat->out].buf == LP_NO_BUF)
        LP_TRY(lp_lower_result(l, cat, cat->out));
    LpValueLocation p = part_of(l, cat, operand), q = p;
    for (int d = 0; turn && d < p.desc.ndim; d++) {
        q.desc.shape[turn->attr[LP_PERMUTE_DIMS].v[d]] = p.desc.shape[d];
        q.desc.strides[turn->attr[LP_PERMUTE_DIMS].v[d]] = p.desc.strides[d];
    }
    l->location[v] = q;
    l->buf[q.buf].reads_left += l->read.uses[v];
    return LP_OK;
}

bool lp_joined(const LpLower *l, const LpGraphNode *n)
{
    return n->op == &op_cat && l->location[n->out].buf != LP_NO_BUF;
}
