/* Recurrent layers whose input is looked up in a table. The product of a row
 * with the weights is the same wherever the row stands, and the gradients of
 * rows looked up alike are summed before they are multiplied:
 *
 *   %x = embedding(%table, %ids)                lstm(%table, …, %ids)
 *   %y, … = lstm(%x, …)                     ->
 *   %d, … = lstm_backward(%g, …, %x, …)         lstm_backward(…, %table, …,
 *   %t = embedding_backward(%d, %ids)               %ids), whose first result
 *                                               is %t
 *
 * (ids and rows may be transposed between: batch_first). Three of the six
 * products of a layer then have the table's rows instead of the batch's; where
 * those are not fewer by a factor of LESS, everything stays. Sums are made in
 * another order than the step's nodes make them. */
#include <string.h>

#include "src/ops/attrs.h"
#include "src/ops/ops.h"
#include "src/ops/recurrent.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

enum { LESS = 2 };

static bool is_backward(const LpOp *op)
{
    return lp_rnn_way(op) == LP_RNN_BACKWARD;
}

/* Which operand of n, a recurrent layer or its gradient, is the input. */
static uint32_t input_of(const LpGraphNode *n)
{
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(n->op, n->attr));
    int first = is_backward(n->op) ? 1 + k->n_state : 0;
    return (uint32_t)(first + k->at[LP_RNN_X]);
}

/* The node outside of regions that makes v; NULL: none. */
static const LpGraphNode *maker(const LpLower *l, LpVal v)
{
    if (!lp_is_value(v) || l->g->value[v].node == LP_NO_NODE)
        return NULL;
    const LpGraphNode *n = &l->g->node[l->g->value[v].node];
    return n->region ? NULL : n;
}

/* permute of [a, b, c] to [b, a, c] */
static bool swaps(const LpGraphNode *n)
{
    return n->op == &op_permute && n->attr[LP_PERMUTE_DIMS].n == 3 &&
           n->attr[LP_PERMUTE_DIMS].v[0] == 1 &&
           n->attr[LP_PERMUTE_DIMS].v[1] == 0;
}

/* Is v rows of a table, worth a lookup? */
static bool looked_up(const LpLower *l, LpVal v, LpTableRead *k)
{
    const LpGraphNode *n = maker(l, v);
    if (n && swaps(n)) {
        k->swapped = true;
        n = maker(l, n->in[0]);
    }
    if (!n || n->op != &op_embedding || !lp_is_value(n->in[0]) ||
        !lp_is_value(n->in[1]))
        return false;
    k->table = n->in[0];
    k->ids = n->in[1];
    const LpType *ids = lp_graph_type(l->g, k->ids);
    if (l->step->numerics.stochastic &&
        lp_is_half(lp_graph_type(l->g, k->table)->dtype))
        return false; /* the step says where a half is rounded */
    return ids->ndim == 2 &&
           lp_numel(ids) >= LESS * lp_graph_type(l->g, k->table)->shape[0];
}

/* Is dx, the gradient of the input, only summed to that of the table? *sum is
 * the node that does it. */
static bool sums_up(const LpLower *l, LpVal dx, LpTableRead *k, LpNodeId *sum)
{
    LpNodeId id = lp_only_reader(l, dx);
    if (id != LP_NO_NODE && k->swapped && swaps(&l->g->node[id]))
        id = lp_only_reader(l, l->g->node[id].out);
    else if (k->swapped)
        return false;
    if (id == LP_NO_NODE)
        return false;
    const LpGraphNode *n = &l->g->node[id];
    if (n->op != &op_embedding_backward || n->region || n->in[1] != k->ids ||
        n->attr[LP_EMBEDDING_BACK_PADDING_IDX].kind ==
            LP_ATTR_INT || /* a row without gradient */
        !lp_type_eq(lp_graph_type(l->g, n->out), lp_graph_type(l->g, k->table)))
        return false;
    *sum = id;
    k->grad = n->out;
    return true;
}

/* `by` readers of v more. */
static void count(const LpLower *l, LpVal v, int by)
{
    l->uses[v] += (uint32_t)by;
    if (l->place[v].buf != LP_NO_BUF)
        l->buf[l->place[v].buf].reads_left += (uint32_t)by;
}

/* One reader of v less; what is made for nobody is left out. */
static void drop(LpLower *l, LpVal v)
{
    count(l, v, -1);
    const LpGraphNode *n = maker(l, v);
    if (l->uses[v] > 0 || !n || is_backward(n->op))
        return;
    l->lookups.left_out[l->g->value[v].node] = true;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (lp_is_value(n->in[i]))
            drop(l, n->in[i]);
}

static void consider(LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id];
    LpNodeId sum = LP_NO_NODE;
    LpTableRead k = {.used = true};
    LpVal x = n->in[input_of(n)];
    if (n->region || !looked_up(l, x, &k))
        return;
    if (is_backward(n->op) && lp_rnn_need(n->op, n->attr) & 1 &&
        !sums_up(l, n->out, &k, &sum))
        return;
    l->lookups.of[id] = k;
    count(l, k.table, 1);
    count(l, k.ids, 1);
    drop(l, x);
    if (sum == LP_NO_NODE)
        return;
    l->lookups.left_out[sum] = true;
    drop(l, l->g->node[sum].in[0]);
    drop(l, l->g->node[sum].in[1]);
}

LpStatus lp_find_lookups(LpLower *l)
{
    const LpGraph *g = l->g;
    bool any = false;
    for (size_t i = 0; i < g->n_node && !any; i++)
        any = lp_rnn_way(g->node[i].op) != LP_RNN_NONE;
    if (!any || !l->o->look)
        return LP_OK;
    LpTableReads *x = &l->lookups;
    x->of = lp_arena_calloc(&l->mem, g->n_node * sizeof *x->of);
    x->left_out = lp_arena_calloc(&l->mem, g->n_node * sizeof *x->left_out);
    LP_FAIL_IF(!x->of || !x->left_out, l->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < g->n_node; i++)
        if (lp_rnn_way(g->node[i].op))
            consider(l, (LpNodeId)i);
    return LP_OK;
}

/* ---- lowering ----------------------------------------------------------- */
typedef struct Req {
    LpDesc in[LP_MAX_IN], out[LP_MAX_OUT];
    LpPlace at[LP_MAX_IN];
    const LpPlace *pin[LP_MAX_IN], *pout[LP_MAX_OUT];
} Req;

static LpStatus operand(LpLower *l, LpVal v, uint32_t i, Req *q)
{
    const LpPlace *p;
    q->in[i].dtype = LP_DT_NONE;
    if (!lp_is_value(v)) /* a hole: recurrent layers take no numbers */
        return LP_OK;
    LP_TRY(lp_layout_place(l, v, 0, NULL, &p));
    q->at[i] = *p;
    q->pin[i] = &q->at[i];
    q->in[i] = p->desc;
    return LP_OK;
}

static void swap(int64_t *v)
{
    int64_t first = v[0];
    v[0] = v[1];
    v[1] = first;
}

LpStatus lp_lower_lookup(LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id];
    const LpTableRead *look = &l->lookups.of[id];
    Req q = {0};
    LpVal in[LP_MAX_IN];
    uint32_t n_in = n->n_in + 1, ids = n->n_in;
    memcpy(in, n->in, n->n_in * sizeof *in);
    in[input_of(n)] = look->table;
    in[ids] = look->ids;
    for (uint32_t i = 0; i < n->n_out; i++) {
        LpVal v = i == 0 && look->grad != LP_NOVAL ? look->grad : n->out + i;
        LP_TRY(lp_lower_result(l, n, v));
        q.pout[i] = &l->place[v];
        q.out[i] = q.pout[i]->desc;
    }
    for (uint32_t i = 0; i < n_in; i++)
        LP_TRY(operand(l, in[i], i, &q));
    if (look->swapped) {
        swap(q.in[ids].shape);
        swap(q.in[ids].strides);
    }
    LpKernel *k;
    LP_TRY(lp_lower_new_kernel(l, &k));
    LpKernelReq r = {.op = n->op,
                     .attr = n->attr,
                     .n_in = (int)n_in,
                     .n_out = (int)n->n_out,
                     .in = q.in,
                     .out = q.out,
                     .numerics = l->step->numerics};
    r.threads = k->threads = lp_width_of(&r, l->o->threads);
    LP_TRY(lp_lower_finish(l, n->op->prepare(&r, k, l->err), id, k, q.pin,
                           (int)n_in, q.pout, (int)n->n_out));
    for (uint32_t i = 0; i < n_in; i++)
        if (lp_is_value(in[i]))
            l->buf[l->place[in[i]].buf].reads_left--;
    return LP_OK;
}
