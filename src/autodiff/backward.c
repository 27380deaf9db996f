/* The eager reverse pass. Nodes wait in a heap by number, newest first: all
 * users of a node have higher numbers, so a node that is popped has all its
 * gradients. A leaf's gradients are accumulated as they come, but when it has
 * hooks: these see their sum, at the end of the pass. Rules run through the
 * eager builder; with create_graph what they compute is recorded again. */
#include <math.h>
#include <string.h>

#include "src/autodiff/accumulate.h"
#include "src/autodiff/meta.h"
#include "src/autodiff/trace.h"
#include "src/base/mem.h"
#include "src/ops/ops.h"

typedef struct Target { /* torch.autograd.grad's inputs */
    LpTensor *t;
    LpEdge edge;
    LpTensor *grad; /* owned */
} Target;

typedef struct Late { /* a leaf with hooks */
    LpTensor *leaf;   /* owned */
    LpTensor *grad;   /* owned */
} Late;

typedef struct Pass {
    LpNode **heap; /* retained */
    size_t n, cap;
    Late *late;
    size_t n_sunk, cap_sunk;
    LpGrads grads;
    Target *target;
    int n_target;
    bool only_targets; /* leaves outside the targets get nothing */
    bool retain;
    LpErr *err;
} Pass;

/* ---- heap --------------------------------------------------------------- */
static void swap(Pass *p, size_t i, size_t j)
{
    LpNode *t = p->heap[i];
    p->heap[i] = p->heap[j];
    p->heap[j] = t;
}

static LpStatus push(Pass *p, LpNode *n)
{
    LP_FAIL_IF(!LP_GROW(p->heap, p->cap, p->n), p->err, LP_E_MEMORY,
               "out of memory");
    size_t i = p->n++;
    p->heap[i] = lp_node_retain(n);
    while (i && p->heap[(i - 1) / 2]->seq < p->heap[i]->seq) {
        swap(p, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
    return LP_OK;
}

static LpNode *pop(Pass *p)
{
    LpNode *top = p->heap[0];
    p->heap[0] = p->heap[--p->n];
    for (size_t i = 0;;) {
        size_t m = i;
        for (size_t c = 2 * i + 1; c <= 2 * i + 2 && c < p->n; c++)
            if (p->heap[c]->seq > p->heap[m]->seq)
                m = c;
        if (m == i)
            return top;
        swap(p, i, m);
        i = m;
    }
}

/* ---- accumulation ------------------------------------------------------- */
static LpStatus accumulate(Pass *p, LpTensor *leaf, LpTensor *g)
{
    for (int i = 0; i < p->n_target; i++)
        if (p->target[i].t == leaf)
            LP_TRY(lp_grad_sum(&p->target[i].grad, g, p->err));
    return p->only_targets ? LP_OK : lp_grads_add(&p->grads, leaf, g, p->err);
}

static bool is_target(const Pass *p, const LpTensor *t)
{
    for (int i = 0; i < p->n_target; i++)
        if (p->target[i].t == t)
            return true;
    return false;
}

static LpStatus into_leaf(Pass *p, LpTensor *leaf, LpTensor *g)
{
    if (p->only_targets && !is_target(p, leaf))
        return LP_OK;
    if (!leaf->meta || !leaf->meta->hook)
        return accumulate(p, leaf, g);
    for (size_t i = 0; i < p->n_sunk; i++)
        if (p->late[i].leaf == leaf)
            return lp_grad_sum(&p->late[i].grad, g, p->err);
    LP_FAIL_IF(!LP_GROW(p->late, p->cap_sunk, p->n_sunk), p->err, LP_E_MEMORY,
               "out of memory");
    p->late[p->n_sunk++] = (Late){lp_tensor_retain(leaf), lp_tensor_retain(g)};
    return LP_OK;
}

/* Hooks that see a leaf after accumulation. */
static LpStatus accumulated(Pass *p, LpTensor *leaf)
{
    LpTensor *t = lp_tensor_retain(leaf);
    LpStatus s = LP_OK;
    if (t->meta)
        s = lp_hooks_run(t->meta->hook, true, 0, &t, p->err);
    lp_tensor_release(t);
    return s;
}

/* The leaves that have waited for the end; with status `s` so far. */
static LpStatus run_sinking(Pass *p, LpStatus s)
{
    for (size_t i = 0; i < p->n_sunk; i++) {
        Late *l = &p->late[i];
        if (s == LP_OK && l->leaf->meta)
            s = lp_hooks_run(l->leaf->meta->hook, false, 0, &l->grad, p->err);
        if (s == LP_OK)
            s = accumulate(p, l->leaf, l->grad);
        lp_tensor_release(l->grad);
        s = lp_grads_settle(&p->grads, s, p->err);
        if (s == LP_OK && !p->only_targets)
            s = accumulated(p, l->leaf);
        lp_tensor_release(l->leaf);
    }
    lp_free(p->late);
    return s;
}

static LpStatus deliver(Pass *p, const LpEdge *edge, LpTensor *g)
{
    if (edge->leaf)
        return into_leaf(p, edge->leaf, g);
    LpNode *n = edge->node;
    bool waiting = false;
    for (int i = 0; i < n->n_out; i++)
        waiting |= n->dout[i] != NULL;
    LP_TRY(lp_grad_sum(&n->dout[edge->out_nr], g, p->err));
    return waiting ? LP_OK : push(p, n);
}

/* ---- one node ----------------------------------------------------------- */
static LpVal restore(Pass *p, LpEager *g, const LpNode *n, const LpSaved *s,
                     LpEdge edge)
{
    if (s->is_num)
        return lp_imm(&g->b, s->num);
    if (s->type.dtype == LP_DT_NONE)
        return LP_NOVAL;
    if (!s->t)
        return lp_eager_type(g, &s->type, s->turned);
    if (s->t->st->version != s->version) {
        lp_fail(p->err, LP_E_RUNTIME,
                "a tensor of shape %s that the gradient of %s needs has been "
                "modified by an in-place operation (it is at version %u, "
                "expected %u): clone() it before it is written",
                lp_shape_str(&s->type), n->op->name, s->t->st->version,
                s->version);
        return LP_NOVAL;
    }
    if (p->grads.create && edge.leaf)
        return lp_eager_tensor(g, lp_tensor_retain(edge.leaf));
    LpTensor *t = NULL;
    if (lp_tensor_over(s->t->st, &s->type, s->t->strides, s->t->offset, &t,
                       p->err) != LP_OK)
        return LP_NOVAL;
    if (p->grads.create && edge.node)
        lp_set_history(t, edge.node, edge.out_nr, p->err);
    return lp_eager_tensor(g, t);
}

static bool leads_anywhere(const LpEdge *e)
{
    return e->node || e->leaf;
}

/* ---- anomalies ---------------------------------------------------------- */
static bool detect_anomaly;

bool lp_detect_anomaly(void)
{
    return detect_anomaly;
}

void lp_set_detect_anomaly(bool on)
{
    detect_anomaly = on;
}

/* Fails when there is a NaN in the gradient of operand nr. */
static LpStatus check_numbers(LpTensor *g, const LpOp *op, int nr, LpErr *e)
{
    LpTensor *c = NULL;
    if (g->st->flags & (LP_ST_TRACED | LP_ST_META))
        return LP_OK;
    LP_TRY(lp_contiguous(g, &c, e));
    size_t size = lp_dtype_size(c->dtype);
    const char *p = lp_tensor_data(c);
    LpStatus s = LP_OK;
    for (int64_t i = lp_tensor_numel(c); i-- > 0 && s == LP_OK; p += size)
        if (isnan(lp_scalar_f(lp_scalar_load(c->dtype, p))))
            s = lp_fail(e, LP_E_RUNTIME,
                        "the gradient of %s by operand %d has a NaN "
                        "(detect_anomaly)",
                        op->name, nr);
    lp_tensor_release(c);
    return s;
}

/* Gradients of the node's operands, summed to their shapes, to their edges. */
static LpStatus send(Pass *p, LpEager *g, LpNode *n, LpVal *din)
{
    for (int i = 0; i < n->n_in; i++) {
        const LpType *type = &n->in[i].type;
        if (!leads_anywhere(&n->edge[i]))
            din[i] = LP_NOVAL;
        else
            din[i] = din[i] ? lp_sum_to(&g->b, din[i], type)
                            : lp_full(&g->b, type, lp_float(0));
        if (lp_failed(&g->b))
            return p->err->code;
    }
    LP_TRY(lp_eager_make_all(g, din, n->n_in));
    for (int i = 0; i < n->n_in; i++) {
        if (din[i] == LP_NOVAL)
            continue;
        LpTensor *t = lp_eager_get(g, din[i]);
        if (!t)
            return p->err->code;
        if (detect_anomaly)
            LP_TRY(check_numbers(t, n->op, i, p->err));
        LP_TRY(deliver(p, &n->edge[i], t));
    }
    return LP_OK;
}

static LpStatus run_rule(Pass *p, LpEager *g, LpNode *n)
{
    LpArena *arena = g->b.scratch;
    size_t ni = (size_t)n->n_in;
    LpVal *in = lp_arena_calloc(arena, (ni + 1) * sizeof *in);
    LpVal *din = lp_arena_calloc(arena, (ni + 1) * sizeof *din);
    bool *need = lp_arena_calloc(arena, ni + 1);
    LpVal out[LP_MAX_OUT], dout[LP_MAX_OUT];
    LP_FAIL_IF(!in || !din || !need, p->err, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n->n_in; i++) {
        in[i] = restore(p, g, n, &n->in[i], n->edge[i]);
        need[i] = leads_anywhere(&n->edge[i]);
    }
    for (int i = 0; i < n->n_out; i++) {
        LpEdge self = {.node = n, .out_nr = (uint32_t)i};
        out[i] = restore(p, g, n, &n->out[i], self);
        dout[i] = n->dout[i] ? lp_eager_tensor(g, lp_tensor_retain(n->dout[i]))
                             : LP_NOVAL;
    }
    if (lp_failed(&g->b))
        return p->err->code;
    LpGrad rule = {.b = &g->b,
                   .op = n->op,
                   .attr = n->attr,
                   .n_in = n->n_in,
                   .n_out = n->n_out,
                   .in = in,
                   .out = out,
                   .dout = dout,
                   .din = din,
                   .need = need,
                   .site = n->site};
    n->op->grad(&rule);
    if (lp_failed(&g->b))
        return p->err->code;
    return send(p, g, n, din);
}

static LpStatus visit(Pass *p, LpNode *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (n->hook && n->dout[i])
            LP_TRY(
                lp_hooks_run(n->hook, false, (uint32_t)i, &n->dout[i], p->err));
    for (int i = 0; i < p->n_target; i++) {
        LpEdge *e = &p->target[i].edge;
        if (e->node == n && n->dout[e->out_nr])
            LP_TRY(lp_grad_sum(&p->target[i].grad, n->dout[e->out_nr], p->err));
    }
    for (int i = 0; i < n->n_out; i++)
        if (n->keep[i] && n->dout[i])
            LP_TRY(lp_grads_add(&p->grads, n->keep[i], n->dout[i], p->err));
    LP_FAIL_IF(n->freed, p->err, LP_E_RUNTIME,
               "backward ran through this graph before and its saved tensors "
               "are gone; pass retain_graph = true the first time");
    LpEager g;
    lp_eager_init(&g, p->err);
    LpStatus s = run_rule(p, &g, n);
    if (s != LP_OK)
        lp_err_context(p->err, "in the gradient of %s", n->op->name);
    lp_eager_fini(&g);
    if (!p->retain)
        lp_node_drop_saved(n);
    return s;
}

static void clear_douts(LpNode *n)
{
    for (int i = 0; i < n->n_out; i++) {
        lp_tensor_release(n->dout[i]);
        n->dout[i] = NULL;
    }
}

/* ---- entry -------------------------------------------------------------- */
static LpStatus seed_root(Pass *p, LpTensor *root, LpTensor *grad)
{
    LpEdge edge;
    LP_TRY(lp_edge_of(root, &edge, p->err));
    LP_FAIL_IF(!leads_anywhere(&edge), p->err, LP_E_RUNTIME,
               "this tensor does not require grad and has no grad_fn: nothing "
               "that it was computed from requires a gradient");
    LpType type = lp_tensor_type(root);
    if (grad) {
        LpType gt = lp_tensor_type(grad);
        LP_FAIL_IF(!lp_shape_eq(&gt, &type), p->err, LP_E_RUNTIME,
                   "the gradient has shape %s, the tensor %s",
                   lp_shape_str(&gt), lp_shape_str(&type));
        return deliver(p, &edge, grad);
    }
    LP_FAIL_IF(lp_numel(&type) != 1, p->err, LP_E_RUNTIME,
               "without an explicit gradient backward starts from a single "
               "element, this tensor has shape %s",
               lp_shape_str(&type));
    LpEager g;
    lp_eager_init(&g, p->err);
    LpVal one = lp_full(&g.b, &type, lp_float(1));
    LpStatus s = p->err->code;
    if (s == LP_OK)
        s = deliver(p, &edge, lp_eager_get(&g, one));
    lp_eager_fini(&g);
    return s;
}

static LpStatus drive(Pass *p, LpTensor *const *roots, LpTensor *const *grads,
                      int n)
{
    bool was = lp_grad_enabled();
    lp_set_grad_enabled(p->grads.create);
    LpStatus s = LP_OK;
    for (int i = 0; i < n && s == LP_OK; i++)
        s = lp_grads_settle(
            &p->grads, seed_root(p, roots[i], grads ? grads[i] : NULL), p->err);
    while (p->n) {
        LpNode *node = pop(p);
        if (s == LP_OK)
            s = visit(p, node);
        clear_douts(node);
        lp_node_release(node);
        s = lp_grads_settle(&p->grads, s, p->err);
    }
    s = run_sinking(p, s);
    lp_set_grad_enabled(was);
    lp_grads_fini(&p->grads);
    lp_free(p->heap);
    return s;
}

static LpStatus set_targets(Pass *p, LpTensor *const *inputs, int n, LpErr *e)
{
    p->n_target = n;
    p->target = n ? lp_calloc((size_t)n, sizeof *p->target) : NULL;
    LP_FAIL_IF(n && !p->target, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        p->target[i].t = inputs[i];
        LP_TRY(lp_edge_of(inputs[i], &p->target[i].edge, e));
        LP_FAIL_IF(!leads_anywhere(&p->target[i].edge), e, LP_E_RUNTIME,
                   "input %d does not require grad", i);
    }
    return LP_OK;
}

static LpStatus check_not_traced(LpErr *e)
{
    if (!lp_tracing)
        return LP_OK;
    return lp_fail_hint(e, LP_E_RUNTIME, "gradients",
                        "backward() and torch.autograd.grad() cannot be "
                        "traced: a compiled program computes the gradients "
                        "that were asked for when it was made");
}

LpStatus lp_grad(LpTensor *const *roots, LpTensor *const *grads, int n,
                 LpTensor *const *inputs, int n_inputs, bool retain_graph,
                 bool create_graph, bool allow_unused, LpTensor **out, LpErr *e)
{
    Pass p = {.only_targets = true,
              .grads.create = create_graph,
              .retain = retain_graph || create_graph,
              .err = e};
    LP_TRY(check_not_traced(e));
    LpStatus s = set_targets(&p, inputs, n_inputs, e);
    if (s == LP_OK)
        s = drive(&p, roots, grads, n);
    for (int i = 0; i < n_inputs && s == LP_OK; i++)
        if (!p.target[i].grad && !allow_unused)
            s = lp_fail(e, LP_E_RUNTIME,
                        "input %d was not used to compute the outputs; pass "
                        "allow_unused = true if that is meant",
                        i);
    for (int i = 0; i < n_inputs && p.target; i++) {
        if (s == LP_OK)
            out[i] = p.target[i].grad;
        else
            lp_tensor_release(p.target[i].grad);
    }
    lp_free(p.target);
    return s;
}

LpStatus lp_backward(LpTensor *const *roots, LpTensor *const *grads, int n,
                     LpTensor *const *inputs, int n_inputs, bool retain_graph,
                     bool create_graph, LpErr *e)
{
    Pass p = {.grads.create = create_graph,
              .retain = retain_graph || create_graph,
              .err = e};
    LP_TRY(check_not_traced(e));
    if (n_inputs == 0)
        return drive(&p, roots, grads, n);
    p.only_targets = true;
    LpStatus s = set_targets(&p, inputs, n_inputs, e);
    if (s == LP_OK)
        s = drive(&p, roots, grads, n);
    p.only_targets = false;
    p.n_target = 0;
    for (int i = 0; i < n_inputs && p.target; i++) {
        LpTensor *g = p.target[i].grad;
        if (s == LP_OK && g)
            s = accumulate(&p, inputs[i], g);
        lp_tensor_release(g);
        s = lp_grads_settle(&p.grads, s, e);
        if (s == LP_OK && g)
            s = accumulated(&p, inputs[i]);
    }
    lp_grads_fini(&p.grads);
    lp_free(p.target);
    return s;
}
