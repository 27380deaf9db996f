/* Values that the backward half makes again instead of keeping them from the
 * forward one.
 *
 *   %2 = gelu(%1)                      %2 = gelu(%1)
 *   %3 = mm(%2, %w)                    %3 = mm(%2, %w)
 *   …                           ->     …          %2's memory is free
 *   %8 = mm(%2 transposed, %7)         %6 = gelu_backward(%5, %1)
 *   %9 = gelu_backward(%5, %1)         %2' = gelu(%1)
 *                                      %8 = mm(%2' transposed, %7)
 *
 * A value is made again if a cheap operator makes it (a pointwise one that
 * draws nothing, layer normalisation) of what the backward half reads anyway,
 * of parameters and of values made again likewise; if a product reads it there,
 * besides which the cheap operator costs little; and if it lives where most
 * memory is in use. The same kernel makes the same bits of the same operands.
 * A gradient that reads the same operand moves before it, so that the operand
 * dies there and lends its memory.
 *
 * What is in use where is estimated on nodes: without scratch and writing in
 * place. Time: linear in operands, for at most ROUNDS looks. */
#include <string.h>

#include "src/kernel/loops/fused.h"
#include "src/ops/request.h"
#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

enum {
    ROUNDS = 8,
    DEPTH = 4,         /* operators made again for one value */
    VIEWS = 16,        /* views on one of its values */
    LEAST_GAIN = 10,   /* percent of the memory in use at the peak */
    LEAST_PART = 1024, /* a value is at least this part of it */
    LEAST_FLOPS = 256  /* of the product, for an element of the value */
};

/* A value and its views share the entry of the value, its root. */
typedef struct Root {
    LpNodeId def;     /* LP_NO_NODE: an input */
    LpNodeId forward; /* last reader in the forward half; def if none */
    LpNodeId first;   /* reader in the backward half, LP_NO_NODE if none */
    LpNodeId last;    /* of all */
    uint64_t bytes;
    LpNodeId beside; /* gradient to move before it, or LP_NO_NODE */
    bool fixed;      /* an output, or viewed too often */
    bool product;    /* a product of the backward half reads it */
    bool remade;
    bool passing; /* made again for another one alone */
} Root;

typedef struct Remat {
    const LpGraph *g;
    Root *root;   /* per value: of roots */
    LpVal *of;    /* per value: its root */
    LpVal *copy;  /* per value: made again, in the new graph */
    LpVal *moved; /* per node: first result in the new graph, if it moved */
    bool *output; /* per value */
    int64_t *use; /* per node, with one more: change of bytes in use */
    LpArena mem;
} Remat;

static bool is_backward(const LpGraph *g, LpNodeId id)
{
    return g->origin[g->node[id].origin].backward;
}

static LpVal root_of(const Remat *x, LpVal v)
{
    return lp_is_value(v) ? x->of[v] : LP_NOVAL;
}

/* ---- what is in use where ----------------------------------------------- */
/* Operations of node n, if it is a product, for an element of v, its
 * operand. */
static double flops_for(const LpGraph *g, const LpGraphNode *n, LpVal v)
{
    if (n->op->product != LP_PRODUCT_MATRIX &&
        n->op->product != LP_PRODUCT_CONV_WEIGHT)
        return 0;
    LpDesc d[LP_MAX_IN + LP_MAX_OUT];
    LpKernelReq r = lp_req_of_node(g, n, d);
    double size = (double)lp_numel(lp_graph_type(g, v));
    return size > 0 ? 2 * n->op->work(&r) / size : 0;
}

/* Node id adds v to an accumulator, which it does right behind the node that
 * makes v (nodes.c). */
static bool accumulates(const Remat *x, LpNodeId id, LpVal v)
{
    const LpGraphNode *n = &x->g->node[id];
    if (n->n_out != 1 || !x->output[n->out] || !is_backward(x->g, id))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++) {
        LpVal w = root_of(x, n->in[k]);
        if (w != LP_NOVAL && w != x->of[v] && x->root[w].def != LP_NO_NODE)
            return false;
    }
    return true;
}

static void note_reader(Remat *x, LpNodeId id, LpVal v)
{
    const LpGraphNode *n = &x->g->node[id];
    Root *r = &x->root[x->of[v]];
    if (!accumulates(x, id, v))
        r->last = id;
    if (!is_backward(x->g, id)) {
        r->forward = id;
        return;
    }
    if (r->first == LP_NO_NODE)
        r->first = id;
    r->product = r->product || flops_for(x->g, n, v) >= LEAST_FLOPS;
}

static void note_results(Remat *x, LpNodeId id)
{
    const LpGraphNode *n = &x->g->node[id];
    for (LpVal v = n->out; v < n->out + n->n_out; v++) {
        const LpType *t = lp_graph_type(x->g, v);
        uint64_t bytes = (uint64_t)lp_type_bytes(t);
        x->of[v] = v;
        x->root[v] = (Root){.def = id,
                            .forward = id,
                            .first = LP_NO_NODE,
                            .last = id,
                            .bytes = bytes,
                            .beside = LP_NO_NODE};
    }
}

static void fix(Remat *x, LpVal v)
{
    if (lp_is_value(v))
        x->root[x->of[v]].fixed = true;
}

static void read_graph(Remat *x, uint8_t *views)
{
    const LpGraph *g = x->g;
    for (size_t i = 0; i < g->n_output; i++)
        x->output[g->output[i]] = true;
    for (size_t i = 0; i < g->n_input; i++) {
        x->of[g->input[i]] = g->input[i];
        x->root[g->input[i]] = (Root){.def = LP_NO_NODE, .fixed = true};
    }
    for (LpNodeId id = 0; id < g->n_node; id++) {
        const LpGraphNode *n = &g->node[id];
        if (n->op->flags & LP_OPF_VIEW && n->n_out == 1) {
            x->of[n->out] = x->of[n->in[0]];
            views[n->out] = (uint8_t)(views[n->in[0]] + 1);
            if (views[n->out] > VIEWS) {
                fix(x, n->out);
                views[n->out] = VIEWS;
            }
            continue;
        }
        for (uint32_t k = 0; k < n->n_in; k++)
            if (lp_is_value(n->in[k]))
                note_reader(x, id, n->in[k]);
        note_results(x, id);
    }
    for (size_t i = 0; i < g->n_output; i++) {
        fix(x, g->output[i]);
        x->root[x->of[g->output[i]]].bytes = 0; /* the variable's memory */
    }
}

static void add_life(Remat *x, LpNodeId first, LpNodeId last, uint64_t bytes)
{
    x->use[first] += (int64_t)bytes;
    x->use[last + 1] -= (int64_t)bytes;
}

/* Most bytes in use, and where. */
static uint64_t find_peak(Remat *x, LpNodeId *at)
{
    const LpGraph *g = x->g;
    memset(x->use, 0, (g->n_node + 1) * sizeof *x->use);
    for (size_t v = 1; v < g->n_value; v++) {
        const Root *r = &x->root[v];
        if (x->of[v] != v || r->def == LP_NO_NODE)
            continue;
        if (r->remade) {
            add_life(x, r->def, r->forward, r->bytes);
            if (!r->passing) /* fused with its reader, or overwritten */
                add_life(x, r->first, r->last, r->bytes);
        } else {
            add_life(x, r->def, r->last, r->bytes);
        }
    }
    return (uint64_t)lp_most_in_use(x->use, (uint32_t)g->n_node, at);
}

/* ---- the choice --------------------------------------------------------- */
static bool is_cheap(const LpGraph *g, LpVal v)
{
    const LpValue *value = &g->value[v];
    const LpGraphNode *n = &g->node[value->node];
    if (n->op->flags & LP_OPF_CHEAP)
        return value->nr == 0;
    return lp_fusable(n->op) && n->n_out == 1;
}

/* May root v be made again from operands that are there late? Not from what
 * the step is given alone. */
static bool can_make(const Remat *x, LpVal v, int depth)
{
    const LpGraph *g = x->g;
    const Root *r = &x->root[v];
    bool made = false;
    if (depth == 0 || r->fixed || is_backward(g, r->def) || !is_cheap(g, v))
        return false;
    const LpGraphNode *n = &g->node[r->def];
    for (uint32_t k = 0; k < n->n_in; k++) {
        LpVal w = root_of(x, n->in[k]);
        if (w == LP_NOVAL || x->root[w].def == LP_NO_NODE)
            continue;
        made = true;
        if ((x->root[w].remade || x->root[w].first == LP_NO_NODE) &&
            !can_make(x, w, depth - 1))
            return false;
    }
    return made;
}

/* Root v is made again where the backward half first reads it; so its operands
 * are read there. */
static void make(Remat *x, LpVal v)
{
    Root *r = &x->root[v];
    const LpGraphNode *n = &x->g->node[r->def];
    r->remade = true;
    for (uint32_t k = 0; k < n->n_in; k++) {
        LpVal w = root_of(x, n->in[k]);
        Root *from = &x->root[w];
        if (w == LP_NOVAL || from->def == LP_NO_NODE)
            continue;
        bool too = from->remade || from->first == LP_NO_NODE;
        from->passing = from->passing || from->first == LP_NO_NODE;
        if (from->first == LP_NO_NODE || from->first > r->first)
            from->first = r->first;
        if (from->last < r->first)
            from->last = r->first;
        if (too)
            make(x, w);
    }
}

/* Those that live at node `peak`. */
static bool choose(Remat *x, LpNodeId peak, uint64_t least)
{
    bool any = false;
    for (LpVal v = 1; v < x->g->n_value; v++) {
        const Root *r = &x->root[v];
        if (x->of[v] != v || r->fixed || r->remade || !r->product ||
            r->bytes < least || r->forward >= peak || r->first < peak ||
            r->first == LP_NO_NODE || !can_make(x, v, DEPTH))
            continue;
        make(x, v);
        any = true;
    }
    return any;
}

/* Node id, a gradient, reads nothing that is made at `first` or after it. */
static bool may_move(const Remat *x, LpNodeId id, LpNodeId first)
{
    const LpGraphNode *n = &x->g->node[id];
    if (n->n_out != 1 || !lp_fusable(n->op))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++) {
        LpVal v = root_of(x, n->in[k]);
        const Root *r = &x->root[v];
        if (v != LP_NOVAL &&
            (r->remade || (r->def != LP_NO_NODE && r->def >= first)))
            return false;
    }
    return true;
}

static LpStatus find_beside(Remat *x, LpErr *e)
{
    const LpGraph *g = x->g;
    LpVal *wanted = lp_arena_calloc(&x->mem, g->n_value * sizeof *wanted);
    LP_FAIL_IF(!wanted, e, LP_E_MEMORY, "out of memory");
    for (LpVal v = 1; v < g->n_value; v++) {
        if (x->of[v] != v || !x->root[v].remade)
            continue;
        const LpGraphNode *n = &g->node[x->root[v].def];
        for (uint32_t k = 0; k < n->n_in; k++)
            if (lp_is_value(n->in[k]))
                wanted[n->in[k]] = v;
    }
    for (LpNodeId id = 0; id < g->n_node; id++) {
        const LpGraphNode *n = &g->node[id];
        for (uint32_t k = 0; k < n->n_in && is_backward(g, id); k++) {
            LpVal v = lp_is_value(n->in[k]) ? wanted[n->in[k]] : LP_NOVAL;
            Root *r = &x->root[v];
            if (v != LP_NOVAL && r->beside == LP_NO_NODE && id > r->first &&
                lp_shape_eq(lp_graph_type(g, v), lp_graph_type(g, n->out)) &&
                may_move(x, id, r->first)) {
                r->beside = id;
                break;
            }
        }
    }
    return LP_OK;
}

/* ---- the new graph ------------------------------------------------------ */
static LpVal backward_value(LpRewrite *rw, LpVal v);

/* Node `id` over late operands; its first result. */
static LpVal add_backward(LpRewrite *rw, LpNodeId id)
{
    LpGraphNode n = rw->from->node[id];
    LpOrigin o = rw->from->origin[n.origin];
    LpArena scratch = {0};
    LpVal *in = lp_arena_calloc(&scratch, (n.n_in + 1) * sizeof *in);
    LpType *type = lp_arena_calloc(&scratch, n.n_out * sizeof *type);
    LpVal first = LP_NOVAL;
    if (!in || !type)
        lp_fail(rw->err, LP_E_MEMORY, "out of memory");
    for (uint32_t k = 0; k < n.n_in && rw->err->code == LP_OK; k++)
        in[k] = backward_value(rw, n.in[k]);
    if (rw->err->code == LP_OK) {
        for (uint32_t i = 0; i < n.n_out; i++)
            type[i] = *rw->from->value[n.out + i].type;
        o.backward = true;
        n.in = in;
        n.origin = lp_graph_origin(rw->to, &o, rw->err);
    }
    if (rw->err->code == LP_OK)
        first = lp_graph_add(rw->to, &n, type, rw->err);
    lp_arena_fini(&scratch);
    return first;
}

/* v as the backward half reads it. A view is made when it is first asked for:
 * the gradients that move need theirs. */
static LpVal backward_value(LpRewrite *rw, LpVal v)
{
    Remat *x = rw->ctx;
    if (v == LP_NOVAL || rw->err->code != LP_OK)
        return LP_NOVAL;
    if (lp_is_imm(v))
        return lp_graph_imm(rw->to, lp_graph_scalar(rw->from, v), rw->err);
    const Root *r = &x->root[x->of[v]];
    if (x->copy[v] != LP_NOVAL)
        return x->copy[v];
    if (!r->remade && rw->map[v] != LP_NOVAL)
        return rw->map[v];
    if (x->of[v] == v && r->beside != LP_NO_NODE)
        x->moved[r->beside] = add_backward(rw, r->beside);
    LpVal first = add_backward(rw, rw->from->value[v].node);
    if (first == LP_NOVAL)
        return LP_NOVAL;
    return x->copy[v] = first + rw->from->value[v].nr;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    Remat *x = rw->ctx;
    const LpGraphNode *n = &rw->from->node[id];
    bool changed = false;
    (void)in;
    if (!is_backward(rw->from, id))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        changed |= lp_is_value(n->in[k]) && x->root[x->of[n->in[k]]].remade;
    if (changed && n->op->flags & LP_OPF_VIEW)
        return true; /* made where it is read */
    LpVal first = x->moved[id];
    if (n->op->flags & LP_OPF_VIEW && first == LP_NOVAL)
        first = x->copy[n->out];
    if (!changed && first == LP_NOVAL)
        return false;
    if (first == LP_NOVAL)
        first = add_backward(rw, id);
    for (uint32_t i = 0; i < n->n_out && first != LP_NOVAL; i++)
        out[i] = first + i;
    return true;
}

static LpStatus run(Remat *x, LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    size_t n = x->g->n_value;
    x->root = lp_arena_calloc(&x->mem, n * sizeof *x->root);
    x->of = lp_arena_calloc(&x->mem, n * sizeof *x->of);
    x->copy = lp_arena_calloc(&x->mem, n * sizeof *x->copy);
    x->moved = lp_arena_calloc(&x->mem, (x->g->n_node + 1) * sizeof *x->moved);
    x->use = lp_arena_alloc(&x->mem, (x->g->n_node + 1) * sizeof *x->use);
    x->output = lp_arena_calloc(&x->mem, n);
    uint8_t *views = lp_arena_calloc(&x->mem, n);
    LP_FAIL_IF(!x->root || !x->of || !x->copy || !x->moved || !x->use ||
                   !x->output || !views,
               e, LP_E_MEMORY, "out of memory");
    read_graph(x, views);
    LpNodeId at;
    uint64_t before = find_peak(x, &at), peak = before;
    if (before < o->remat)
        return LP_OK;
    for (int i = 0; i < ROUNDS && choose(x, at, before / LEAST_PART); i++)
        peak = find_peak(x, &at);
    if (peak > before / 100 * (100 - LEAST_GAIN))
        return LP_OK;
    LP_TRY(find_beside(x, e));
    return lp_rewrite(g, visit, x, e);
}

LpStatus lp_host_remat(LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    Remat x = {.g = *g};
    LpStatus s = run(&x, g, o, e);
    lp_arena_fini(&x.mem);
    return s;
}
