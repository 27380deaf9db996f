/* Recurrent layers whose input is looked up in a table. The product of a row
 * with the weights is the same wherever the row stands, and the gradients of
 * rows looked up alike are summed before they are multiplied:
 *
 *   %x = embedding(%table, %ids)                %y, … = lstm_rows(%table, …,
 *   %y, … = lstm(%x, …)                     ->                    %ids)
 *   %d, … = lstm_backward(%g, …, %x, …)         %t, … = lstm_rows_backward(%g,
 *   %t = embedding_backward(%d, %ids)                   …, %table, …, %ids)
 *
 * (ids and rows may be transposed between: batch_first). Three of the six
 * products of a layer then have the table's rows instead of the batch's; where
 * those are not fewer by a factor of LESS, everything stays. Sums are made in
 * another order than the step's nodes make them, and halves that are not made
 * are not rounded. What nobody reads any more goes. Linear in operands. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/nn/recurrent.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

enum { LESS = 2 };

/* A recurrent layer, or its gradient, that reads rows of a table. */
typedef struct Look {
    LpVal table, ids; /* LP_NOVAL: it is none such */
    LpVal grad;       /* of the table, in the place of the input's; or none */
    bool swapped;     /* ids lie [batch, steps] */
} Look;

typedef struct Looks {
    const LpGraph *g;
    LpReaders read;
    Look *of;   /* per node */
    bool *gone; /* per node: the layer's gradient makes what it made */
    LpArena mem;
} Looks;

/* Which operand of n is the input; its gradient is result 0. */
static uint32_t input_of(const LpGraphNode *n)
{
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(n->op, n->attr));
    bool back = n->n_in > (uint32_t)k->n_in;
    return (uint32_t)((back ? 1 + k->n_state : 0) + k->at[LP_RNN_X]);
}

/* permute of [a, b, c] to [b, a, c] */
static bool swaps(const LpGraphNode *n)
{
    if (n->op != &op_permute)
        return false;
    const LpAttr *dims = &n->attr[LP_PERMUTE_DIMS];
    return dims->n == 3 && dims->v[0] == 1 && dims->v[1] == 0;
}

/* Is v rows of a table, worth a lookup? */
static bool looked_up(const LpGraph *g, LpVal v, Look *k)
{
    const LpGraphNode *n = lp_graph_maker(g, v);
    if (n && swaps(n)) {
        k->swapped = true;
        n = lp_graph_maker(g, n->in[0]);
    }
    if (!n || n->op != &op_embedding || !lp_is_value(n->in[0]) ||
        !lp_is_value(n->in[1]))
        return false;
    k->table = n->in[0];
    k->ids = n->in[1];
    const LpType *ids = lp_graph_type(g, k->ids);
    return ids->ndim == 2 &&
           lp_numel(ids) >= LESS * lp_graph_type(g, k->table)->shape[0];
}

/* Is dx, the gradient of the input, only summed to that of the table? What lies
 * between goes. */
static bool sums_up(Looks *x, LpVal dx, Look *k)
{
    LpNodeId id = lp_only_reader(&x->read, dx), swap = LP_NO_NODE;
    if (id != LP_NO_NODE && k->swapped && swaps(&x->g->node[id])) {
        swap = id;
        id = lp_only_reader(&x->read, x->g->node[id].out);
    } else if (k->swapped) {
        return false;
    }
    if (id == LP_NO_NODE)
        return false;
    const LpGraphNode *n = &x->g->node[id];
    if (n->op != &op_embedding_backward || n->in[1] != k->ids ||
        n->attr[LP_EMBEDDING_BACK_PADDING_IDX].kind ==
            LP_ATTR_INT || /* a row without gradient */
        !lp_type_eq(lp_graph_type(x->g, n->out), lp_graph_type(x->g, k->table)))
        return false;
    x->gone[id] = true;
    if (swap != LP_NO_NODE)
        x->gone[swap] = true;
    k->grad = n->out;
    return true;
}

static bool consider(Looks *x, LpNodeId id)
{
    const LpGraphNode *n = &x->g->node[id];
    Look k = {0};
    if (lp_rnn_rows(n->op) < 0 || !looked_up(x->g, n->in[input_of(n)], &k))
        return false;
    bool wanted = input_of(n) > 0 && (lp_rnn_need(n->op, n->attr) & 1);
    if (wanted && !sums_up(x, n->out, &k))
        return false;
    x->of[id] = k;
    return true;
}

/* ---- the new graph ------------------------------------------------------- */
static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const Looks *x = rw->ctx;
    const LpGraphNode *n = &x->g->node[id];
    const Look *k = &x->of[id];
    LpVal arg[LP_MAX_IN], ids;
    if (x->gone[id])
        return true;
    if (k->table == LP_NOVAL)
        return false;
    ids = lp_rewrite_value(rw, k->ids);
    if (k->swapped)
        ids = lp_transpose(&rw->gb.b, ids, 0, 1);
    memcpy(arg, in, n->n_in * sizeof *in);
    arg[input_of(n)] = lp_rewrite_value(rw, k->table);
    arg[n->n_in] = ids;
    lp_emit_n(&rw->gb.b, lp_rnn_rows(n->op), arg, (int)n->n_in + 1, n->attr,
              out);
    lp_rewrite_rounds(rw, out[0], n->site);
    if (k->grad != LP_NOVAL) {
        lp_rewrite_becomes(rw, k->grad, out[0]);
        out[0] = LP_NOVAL;
    }
    return true;
}

static LpStatus run(Looks *x, LpGraph **g, LpErr *e)
{
    bool any = false;
    x->of = lp_arena_calloc(&x->mem, x->g->n_node * sizeof *x->of);
    x->gone = lp_arena_calloc(&x->mem, x->g->n_node * sizeof *x->gone);
    LP_FAIL_IF(!x->of || !x->gone, e, LP_E_MEMORY, "out of memory");
    LP_TRY(lp_find_readers(x->g, x->g->output, x->g->n_output, &x->mem,
                           &x->read, e));
    for (LpNodeId i = 0; i < x->g->n_node; i++)
        any |= consider(x, i);
    if (!any)
        return LP_OK;
    LP_TRY(lp_rewrite(g, visit, x, e));
    return lp_pass_dce(g, e);
}

LpStatus lp_host_embedding_hoist(LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    Looks x = {.g = *g};
    LpStatus s = o->embedding_hoist ? run(&x, g, e) : LP_OK;
    lp_arena_fini(&x.mem);
    return s;
}
