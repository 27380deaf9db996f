/* The reverse sweep. Values that depend on `wrt` are marked going forward;
 * going back, each node whose results have a gradient runs its rule, which
 * emits into the same graph. Gradients of one value are summed where the value
 * is made, so that a sum belongs to the stage of the producer. A region's
 * backward nodes become a region of its own if the operator has a kernel for
 * it (`back`). */
#include "src/autodiff/sweep.h"

#include <string.h>

#include "src/autodiff/pending_grads.h"
#include "src/base/mem.h"
#include "src/ops/ops.h"

typedef struct Sweep {
    LpGraph *g;
    LpGraphBuilder gb;
    LpArena mem;
    bool *flows;           /* per value: depends on something in wrt */
    LpVal *grad;           /* per value */
    LpPendingGrads *piece; /* per value: of its gradient, still to be added */
    struct Back *back;     /* per region of the forward half */
    size_t n_region;
    size_t n_value; /* before the sweep */
    size_t n_node;
    LpErr *err;
} Sweep;

/* The backward half of a region: its nodes are a region themselves, which
 * stands for the operator's `back`. What they add to the region's operands is
 * summed inside. */
typedef struct Back {
    LpNodeId first; /* of the forward region's nodes */
    uint32_t id;    /* of the backward region; 0: none */
    LpVal *sum;     /* per operand of the forward region */
} Back;

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

/* A record without a gradient says why (no_grad) or is a constant to it. Fused
 * ones without either leave it to their expansion, which a graph no longer
 * has. */
static LpStatus mark(Sweep *s)
{
    for (size_t i = 0; i < s->n_node; i++) {
        const LpGraphNode *n = &s->g->node[i];
        bool any = false;
        for (uint32_t k = 0; k < n->n_in; k++)
            any |= value_flows(s, n->in[k]);
        LP_FAIL_IF(any && n->op->kind == LP_OP_FUSED && !n->op->grad &&
                       !n->op->no_grad,
                   s->err, LP_E_NOT_IMPLEMENTED,
                   "%s: its gradient is computed eagerly, not in a compiled "
                   "program",
                   n->op->name);
        if (!n->op->grad)
            continue;
        for (uint32_t k = 0; any && k < n->n_out; k++)
            s->flows[n->out + k] =
                lp_is_float(lp_graph_type(s->g, n->out + k)->dtype);
    }
    return LP_OK;
}

/* What is added next is placed where v is made, unless v is a variable. */
static LpStatus set_place(Sweep *s, LpVal v)
{
    LpNodeId from = s->g->value[v].node;
    return from == LP_NO_NODE ? LP_OK : set_origin(s, s->g->node[from].origin);
}

/* grad[v] += d */
static LpStatus add_to(Sweep *s, LpVal v, LpVal d)
{
    LpOriginId was = s->gb.origin;
    if (s->grad[v] == LP_NOVAL) {
        s->grad[v] = d;
        return LP_OK;
    }
    LP_TRY(set_place(s, v));
    s->grad[v] = lp_add(&s->gb.b, s->grad[v], d);
    s->gb.origin = was;
    return s->err->code;
}

/* grad[v] becomes the sum of all that was gathered. */
static LpStatus settle(Sweep *s, LpVal v)
{
    LpOriginId was = s->gb.origin;
    LpPendingGrads *p = &s->piece[v];
    if (p->n == 0)
        return LP_OK;
    s->gb.origin = s->g->node[s->g->value[p->v[p->n - 1]].node].origin;
    LP_TRY(set_place(s, v));
    s->grad[v] = lp_pending_sum(p, s->grad[v], s->g, &s->gb.b);
    s->gb.origin = was;
    return s->err->code;
}

/* grad[v] += d, at once or, if d is a piece, when settled. Sums keep their
 * order: only pieces that follow each other wait. */
static LpStatus gather(Sweep *s, LpVal v, LpVal d)
{
    bool may_wait = s->gb.region == 0;
    if (!may_wait || !lp_pending_fit(&s->piece[v], s->g, d))
        LP_TRY(settle(s, v));
    if (may_wait && lp_pending_fit(&s->piece[v], s->g, d))
        return lp_pending_add(&s->piece[v], s->g, d, s->err);
    return add_to(s, v, d);
}

/* ---- regions ------------------------------------------------------------ */
static LpStatus study_regions(Sweep *s)
{
    s->n_region = s->g->n_region;
    s->back = lp_arena_calloc(&s->mem, s->n_region * sizeof *s->back);
    LP_FAIL_IF(!s->back, s->err, LP_E_MEMORY, "out of memory");
    for (size_t i = s->n_node; i-- > 0;)
        s->back[s->g->node[i].region].first = (LpNodeId)i;
    return LP_OK;
}

/* Only the operands that `back` has gradients for may want one, each a value
 * of its own. */
static bool has_back(const Sweep *s, const LpRegion *r)
{
    if (!r->op->back)
        return false;
    for (uint32_t i = 0; i < r->n_in; i++) {
        if (i >= r->op->back->n_results && value_flows(s, r->in[i]))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (r->in[k] == r->in[i] && r->in[i] != LP_NOVAL)
                return false;
    }
    return true;
}

/* At the node that makes the region's result: its gradient is known now. */
static LpStatus open_back(Sweep *s, const LpGraphNode *n)
{
    Back *b = &s->back[n->region];
    LpRegion r = s->g->region[n->region];
    if (b->id || n->out != r.out[0] || !has_back(s, &r))
        return LP_OK;
    LpVal in[LP_MAX_IN], out[LP_MAX_OUT] = {0};
    in[0] = s->grad[r.out[0]];
    memcpy(in + 1, r.in, r.n_in * sizeof *in);
    LpRegion back = {.op = r.op->back,
                     .attr = r.attr,
                     .in = in,
                     .n_in = r.n_in + 1,
                     .out = out,
                     .n_out = r.op->back->n_results};
    b->id = lp_graph_region(s->g, &back, s->err);
    b->sum = lp_arena_calloc(&s->mem, (r.n_in + 1) * sizeof *b->sum);
    LP_FAIL_IF(!b->sum, s->err, LP_E_MEMORY, "out of memory");
    return s->err->code;
}

/* The operand of region `r` that v is, or -1. */
static int region_operand(const Sweep *s, uint32_t r, LpVal v)
{
    for (uint32_t i = 0; i < s->g->region[r].n_in; i++)
        if (s->g->region[r].in[i] == v)
            return (int)i;
    return -1;
}

/* All nodes of the forward region are done: its sums go on. */
static LpStatus close_back(Sweep *s, uint32_t r)
{
    Back *b = &s->back[r];
    if (!b->id)
        return LP_OK;
    LpVal out[LP_MAX_OUT] = {0};
    uint32_t n_in = s->g->region[r].n_in;
    for (uint32_t i = 0; i < n_in; i++)
        if (b->sum[i] != LP_NOVAL) {
            out[i] = b->sum[i];
            LP_TRY(gather(s, s->g->region[r].in[i], b->sum[i]));
        }
    LpRegion *back = &s->g->region[b->id];
    back->out = lp_arena_memdup(&s->g->arena, out, back->n_out * sizeof *out);
    LP_FAIL_IF(!back->out, s->err, LP_E_MEMORY, "out of memory");
    return LP_OK;
}

/* A gradient made inside a backward region, for v. */
static LpStatus gather_in(Sweep *s, uint32_t r, LpVal v, LpVal d)
{
    int i = region_operand(s, r, v);
    if (i < 0)
        return gather(s, v, d);
    LpVal *sum = &s->back[r].sum[i];
    *sum = *sum == LP_NOVAL ? d : lp_add(&s->gb.b, *sum, d);
    return s->err->code;
}

static LpStatus visit(Sweep *s, LpNodeId id)
{
    LpGraphNode n = s->g->node[id]; /* the array grows under us */
    LpBuilder *b = &s->gb.b;
    LpVal *out = lp_arena_calloc(&s->mem, (n.n_out + 1) * sizeof *out);
    LpVal *dout = lp_arena_calloc(&s->mem, (n.n_out + 1) * sizeof *dout);
    LP_FAIL_IF(!out || !dout, s->err, LP_E_MEMORY, "out of memory");
    bool any = false;
    for (uint32_t i = 0; i < n.n_out; i++) {
        out[i] = n.out + i;
        LP_TRY(settle(s, out[i]));
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
    if (n.region)
        LP_TRY(open_back(s, &n));
    uint32_t back = n.region ? s->back[n.region].id : 0;
    s->gb.region = back;
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
                   .site = n.site,
                   .sweep = lp_sweep};
    n.op->grad(&rule);
    for (uint32_t i = 0; i < n.n_in && !lp_failed(b); i++) {
        if (!need[i] || din[i] == LP_NOVAL)
            continue;
        LpVal d = lp_sum_to(b, din[i], lp_graph_type(s->g, n.in[i]));
        if (lp_failed(b))
            break;
        if (back)
            gather_in(s, n.region, n.in[i], d);
        else
            gather(s, n.in[i], d);
    }
    s->gb.region = 0;
    if (lp_failed(b))
        lp_err_context(s->err, "in the gradient of %s", n.op->name);
    return s->err->code;
}

static LpStatus start(Sweep *s)
{
    s->flows = lp_arena_calloc(&s->mem, s->n_value * sizeof *s->flows);
    s->grad = lp_arena_calloc(&s->mem, s->n_value * sizeof *s->grad);
    s->piece = lp_arena_calloc(&s->mem, s->n_value * sizeof *s->piece);
    LP_FAIL_IF(!s->flows || !s->grad || !s->piece, s->err, LP_E_MEMORY,
               "out of memory");
    return LP_OK;
}

static void finish(Sweep *s)
{
    for (size_t i = 0; s->piece && i < s->n_value; i++)
        lp_pending_fini(&s->piece[i]);
    lp_arena_fini(&s->mem);
}

LpStatus lp_sweep(LpGraph *g, const LpVal *root, const LpVal *seed, int n_root,
                  const LpVal *wrt, int n_wrt, LpVal *grad, LpErr *e)
{
    Sweep s = {.g = g, .n_value = g->n_value, .n_node = g->n_node, .err = e};
    if (start(&s) != LP_OK) {
        finish(&s);
        return e->code;
    }
    lp_graph_builder_init(&s.gb, g, e);
    for (int i = 0; i < n_wrt; i++)
        s.flows[wrt[i]] = true;
    if (e->code == LP_OK)
        mark(&s);
    for (int i = 0; i < n_root && e->code == LP_OK; i++) {
        LpNodeId from = g->value[root[i]].node;
        if (from != LP_NO_NODE)
            set_origin(&s, g->node[from].origin);
        if (s.flows[root[i]])
            gather(&s, root[i], seed[i]);
    }
    if (e->code == LP_OK)
        study_regions(&s);
    for (size_t i = s.n_node; i-- > 0 && e->code == LP_OK;) {
        uint32_t r = g->node[i].region;
        if (visit(&s, (LpNodeId)i) == LP_OK && r && s.back[r].first == i)
            close_back(&s, r);
    }
    for (int i = 0; i < n_wrt && e->code == LP_OK; i++) {
        settle(&s, wrt[i]);
        grad[i] = s.grad[wrt[i]];
    }
    lp_graph_builder_fini(&s.gb);
    finish(&s);
    return e->code;
}
