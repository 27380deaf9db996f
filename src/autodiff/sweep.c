#include "src/autodiff/sweep.h"

#include <string.h>

#include "src/ops/ops.h"

typedef struct Sweep {
    LpGraph *g;
    LpGraphBuilder gb;
    LpArena mem;
    bool *flows;    /* per value: depends on something in wrt */
    LpVal *grad;    /* per value */
    size_t n_value; /* before the sweep */
    size_t n_node;
    LpErr *err;
} Sweep;

/* The backward twin of an origin. */
static LpStatus set_origin(Sweep *s, LpOriginId id)
{
    LpOrigin o = s->g->origin[id];
    o.backward = true;
    s->gb.origin = lp_graph_origin(s->g, &o, s->err);
    return s->err->code;
}

static bool value_flows(const Sweep *s, LpVal v)
{
    return v != LP_NOVAL && !lp_is_imm(v) && s->flows[v];
}

static void mark(Sweep *s)
{
    for (size_t i = 0; i < s->n_node; i++) {
        const LpGraphNode *n = &s->g->node[i];
        bool any = false;
        for (uint32_t k = 0; k < n->n_in; k++)
            any |= value_flows(s, n->in[k]);
        if (!n->op->grad)
            continue;
        for (uint32_t k = 0; any && k < n->n_out; k++)
            s->flows[n->out + k] =
                lp_is_float(lp_graph_type(s->g, n->out + k)->dtype);
    }
}

/* grad[v] += d, placed where v is made. */
static LpStatus gather(Sweep *s, LpVal v, LpVal d)
{
    if (s->grad[v] == LP_NOVAL) {
        s->grad[v] = d;
        return LP_OK;
    }
    LpOriginId was = s->gb.origin;
    LpNodeId from = s->g->value[v].node;
    if (from != LP_NO_NODE)
        LP_TRY(set_origin(s, s->g->node[from].origin));
    s->grad[v] = lp_add(&s->gb.b, s->grad[v], d);
    s->gb.origin = was;
    return s->err->code;
}

static LpStatus visit(Sweep *s, LpNodeId id)
{
    LpGraphNode n = s->g->node[id]; /* the array grows under us */
    LpBuilder *b = &s->gb.b;
    LpVal out[LP_MAX_OUT], dout[LP_MAX_OUT];
    bool any = false;
    for (uint32_t i = 0; i < n.n_out; i++) {
        out[i] = n.out + i;
        dout[i] = s->grad[out[i]];
        any |= dout[i] != LP_NOVAL;
    }
    if (!any || !n.op->grad)
        return LP_OK;
    LpVal *din = lp_arena_calloc(&s->mem, (n.n_in + 1) * sizeof *din);
    bool *need = lp_arena_calloc(&s->mem, n.n_in + 1);
    LP_FAIL_IF(!din || !need, s->err, LP_E_MEMORY, "out of memory");
    bool wanted = false;
    for (uint32_t i = 0; i < n.n_in; i++) {
        need[i] = value_flows(s, n.in[i]);
        wanted |= need[i];
    }
    if (!wanted)
        return LP_OK;
    LP_TRY(set_origin(s, n.origin));
    LpGrad rule = {.b = b,
                   .op = n.op,
                   .attr = n.attr,
                   .n_in = (int)n.n_in,
                   .n_out = (int)n.n_out,
                   .in = n.in,
                   .out = out,
                   .dout = dout,
                   .din = din,
                   .need = need,
                   .site = n.site};
    n.op->grad(&rule);
    for (uint32_t i = 0; i < n.n_in && !lp_failed(b); i++) {
        if (!need[i] || din[i] == LP_NOVAL)
            continue;
        LpVal d = lp_sum_to(b, din[i], lp_graph_type(s->g, n.in[i]));
        if (!lp_failed(b))
            gather(s, n.in[i], d);
    }
    if (lp_failed(b))
        lp_err_context(s->err, "in the gradient of %s", n.op->name);
    return s->err->code;
}

LpStatus lp_sweep(LpGraph *g, const LpVal *root, const LpVal *seed, int n_root,
                  const LpVal *wrt, int n_wrt, LpVal *grad, LpErr *e)
{
    Sweep s = {.g = g, .n_value = g->n_value, .n_node = g->n_node, .err = e};
    s.flows = lp_arena_calloc(&s.mem, s.n_value * sizeof *s.flows);
    s.grad = lp_arena_calloc(&s.mem, s.n_value * sizeof *s.grad);
    if (!s.flows || !s.grad) {
        lp_arena_fini(&s.mem);
        return lp_fail(e, LP_E_MEMORY, "out of memory");
    }
    lp_graph_builder_init(&s.gb, g, e);
    for (int i = 0; i < n_wrt; i++)
        s.flows[wrt[i]] = true;
    mark(&s);
    for (int i = 0; i < n_root && e->code == LP_OK; i++) {
        LpNodeId from = g->value[root[i]].node;
        if (from != LP_NO_NODE)
            set_origin(&s, g->node[from].origin);
        if (s.flows[root[i]])
            gather(&s, root[i], seed[i]);
    }
    for (size_t i = s.n_node; i-- > 0 && e->code == LP_OK;)
        visit(&s, (LpNodeId)i);
    for (int i = 0; i < n_wrt; i++)
        grad[i] = s.grad[wrt[i]];
    lp_graph_builder_fini(&s.gb);
    lp_arena_fini(&s.mem);
    return e->code;
}
