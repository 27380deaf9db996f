/* Calls with a rule of the script on the tape, and values for such rules. */
#include "src/autodiff/function.h"

#include "src/autodiff/meta.h"
#include "src/autodiff/trace.h"
#include "src/ops/ops.h"

static LpStatus operands(LpNode *n, const LpFunctionCall *c, LpErr *e)
{
    for (int i = 0; i < c->n_in; i++) {
        LpEdge edge;
        n->in[i].type = lp_tensor_type(c->in[i]);
        LP_TRY(lp_edge_of(c->in[i], &edge, e));
        lp_edge_store(n, i, edge);
        if (c->keep_in[i])
            LP_TRY(lp_save_tensor(&n->in[i], c->in[i], NULL, e));
    }
    for (int i = 0; i < c->n_out; i++) {
        n->out[i].type = lp_tensor_type(c->out[i]);
        if (c->keep_out[i])
            LP_TRY(lp_save_tensor(&n->out[i], c->out[i], NULL, e));
    }
    return LP_OK;
}

static LpStatus rebase(LpTensor *t, LpTensor *now, LpErr *e)
{
    LpRebase r = {0};
    LpStatus s = lp_rebase_plan(t, now, &r, e);
    if (s == LP_OK)
        lp_rebase_commit(t, &r);
    lp_rebase_drop(&r);
    return s;
}

LpStatus lp_record_function(const LpFunctionCall *c, LpErr *e)
{
    LpNode *n = lp_node_new(&op_custom_function, c->attr, c->n_in, c->n_out, e);
    LpStatus s =
        n ? lp_hooks_keep(&n->hook, c->release, c->ctx, e) : LP_E_MEMORY;
    if (s != LP_OK) {
        c->release(c->ctx);
        lp_node_release(n);
        return s;
    }
    for (int i = 0; i < c->n_out; i++)
        if (c->dirty[i] >= 0)
            lp_reach_base(c->in[c->dirty[i]]);
    s = operands(n, c, e);
    for (int i = 0; i < c->n_out && s == LP_OK; i++)
        s = lp_set_history(c->out[i], n, (uint32_t)i, e);
    for (int i = 0; i < c->n_out && s == LP_OK; i++)
        if (c->dirty[i] >= 0)
            s = rebase(c->in[c->dirty[i]], c->out[i], e);
    lp_node_release(n);
    return s;
}

bool lp_rule_is_eager(LpBuilder *b)
{
    return lp_to_eager(b) != NULL;
}

LpStatus lp_rule_tensor(LpBuilder *b, LpVal v, LpTensor **out, LpErr *e)
{
    LpEager *g = lp_to_eager(b);
    *out = NULL;
    if (v == LP_NOVAL)
        return LP_OK;
    if (!g)
        return lp_trace_tensor(lp_trace_current(), v, out, e);
    LpTensor *t = lp_eager_get(g, v);
    *out = t ? lp_tensor_retain(t) : NULL;
    return b->err->code;
}

LpVal lp_rule_value(LpBuilder *b, LpTensor *t)
{
    LpEager *g = lp_to_eager(b);
    LpVal v = LP_NOVAL;
    if (g)
        return lp_eager_tensor(g, lp_tensor_retain(t));
    return lp_trace_value(lp_trace_current(), t, &v, b->err) == LP_OK
               ? v
               : LP_NOVAL;
}
