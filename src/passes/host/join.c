/* Results of a region that a concatenation joins with nothing but others of
 * the same region are made in their parts of the joined one:
 *
 *   region 1 = attention_backward(…) -> %dq, %dk, %dv
 *   %a = permute(%dq, …)  %b = permute(%dk, …)     ->   nothing is copied
 *   %x = cat([%a, %b, …], dim=2)
 *
 * So it is where queries, keys and values are parts of one product. */
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"

/* The result of a region that `operand` is, alone or permuted; or LP_NOVAL. */
static LpVal result_of(const LpLower *l, const LpRegion *r, LpVal operand)
{
    LpNodeId id = lp_is_value(operand) ? l->g->value[operand].node : LP_NO_NODE;
    if (lp_is_result(r, operand))
        return operand;
    if (id == LP_NO_NODE || l->g->node[id].op != &op_permute ||
        !lp_is_result(r, l->g->node[id].in[0]))
        return LP_NOVAL;
    return l->g->node[id].in[0];
}

static bool joins(const LpLower *l, const LpRegion *r, const LpGraphNode *cat)
{
    const LpType *t = lp_graph_type(l->g, cat->out);
    for (uint32_t i = 0; i < cat->n_in; i++) {
        LpVal v = result_of(l, r, cat->in[i]);
        if (v == LP_NOVAL || lp_only_reader(l, v) == LP_NO_NODE ||
            lp_only_reader(l, cat->in[i]) == LP_NO_NODE ||
            lp_graph_type(l->g, v)->dtype != t->dtype ||
            lp_graph_type(l->g, v)->ndim != t->ndim)
            return false;
    }
    return true;
}

/* The part of the joined value that operand `at` of the concatenation is. */
static LpPlace part_of(const LpLower *l, const LpGraphNode *cat, LpVal at)
{
    LpPlace p = l->place[cat->out];
    int64_t dim = cat->attr[0].i;
    const LpType *t = lp_graph_type(l->g, at);
    for (uint32_t i = 0; cat->in[i] != at; i++)
        p.offset +=
            p.desc.strides[dim] * lp_graph_type(l->g, cat->in[i])->shape[dim];
    p.desc.shape[dim] = t->shape[dim];
    return p;
}

LpStatus lp_join_place(LpLower *l, const LpRegion *r, LpVal v, bool *placed)
{
    LpNodeId id = lp_only_reader(l, v);
    const LpGraphNode *turn = NULL, *cat;
    LpVal operand = v;
    *placed = false;
    if (id != LP_NO_NODE && l->g->node[id].op == &op_permute &&
        !l->regions.of[id]) {
        turn = &l->g->node[id];
        operand = turn->out;
        id = lp_only_reader(l, operand);
    }
    if (id == LP_NO_NODE || l->regions.of[id])
        return LP_OK;
    cat = &l->g->node[id];
    if (cat->op != &op_cat || !joins(l, r, cat))
        return LP_OK;
    if (l->place[cat->out].buf == LP_NO_BUF)
        LP_TRY(lp_lower_result(l, cat, cat->out));
    LpPlace p = part_of(l, cat, operand), q = p;
    for (int d = 0; turn && d < p.desc.ndim; d++) {
        q.desc.shape[turn->attr[0].v[d]] = p.desc.shape[d];
        q.desc.strides[turn->attr[0].v[d]] = p.desc.strides[d];
    }
    l->place[v] = q;
    *placed = true;
    return LP_OK;
}

bool lp_joined(const LpLower *l, const LpGraphNode *n)
{
    return n->op == &op_cat && l->place[n->out].buf != LP_NO_BUF;
}
