/* The tape of eager autograd: one node a recorded call. Nodes are numbered in
 * the order in which they got their last edge, so the numbers are a topological
 * order. A node keeps aliases of what its gradient rule reads (never the
 * tensors themselves: that would tie a knot of references) with the storage's
 * version, to notice a value that was overwritten since. */
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/base/mem.h"
#include "src/ops/ops.h"

static bool enabled = true;
static uint64_t next_seq = 1;

bool lp_grad_enabled(void)
{
    return enabled;
}

void lp_set_grad_enabled(bool on)
{
    enabled = on;
}

/* ---- meta --------------------------------------------------------------- */
static void meta_free(LpTensor *t)
{
    LpTensorMeta *m = t->meta;
    t->meta = NULL;
    if (m->node && m->retain_grad)
        m->node->keep[m->out_nr] = NULL;
    lp_tensor_release(m->grad);
    lp_hooks_drop(&m->hook);
    lp_node_release(m->node);
    lp_free(m);
}

LpTensorMeta *lp_meta(LpTensor *t, LpErr *e)
{
    if (t->meta)
        return t->meta;
    lp_tensor_meta_free = meta_free;
    t->meta = lp_calloc(1, sizeof *t->meta);
    if (!t->meta)
        lp_fail(e, LP_E_MEMORY, "out of memory");
    return t->meta;
}

/* ---- nodes -------------------------------------------------------------- */
LpNode *lp_node_retain(LpNode *n)
{
    n->refs++;
    return n;
}

void lp_node_drop_saved(LpNode *n)
{
    n->freed |= n->hook != NULL;
    for (int i = 0; i < n->n_in + n->n_out; i++) { /* results follow */
        n->freed |= n->in[i].t != NULL;
        lp_tensor_release(n->in[i].t);
        n->in[i].t = NULL;
    }
    lp_hooks_drop(&n->hook);
}

/* Chains of nodes are long: they are freed by a work list, not by recursion. */
void lp_node_release(LpNode *n)
{
    static LpNode *list;
    static bool running;
    if (!n || --n->refs > 0)
        return;
    n->next = list;
    list = n;
    if (running)
        return;
    running = true;
    while (list) {
        LpNode *x = list;
        list = x->next;
        lp_node_drop_saved(x);
        for (int i = 0; i < x->n_in; i++) {
            lp_node_release(x->edge[i].node);
            lp_tensor_release(x->edge[i].leaf);
        }
        for (int i = 0; i < x->n_out; i++)
            lp_tensor_release(x->dout[i]);
        lp_free(x->attr);
        lp_free(x);
    }
    running = false;
}

/* A node without edges and saved tensors; both counts of types are copied. */
LpNode *lp_node_new(const LpOp *op, const LpAttr *attr, int n_in, int n_out,
                    LpErr *e)
{
    size_t in = (size_t)n_in, out = (size_t)n_out;
    LpNode *n = NULL;
    size_t size = sizeof *n + in * (sizeof *n->edge + sizeof *n->in) +
                  out * (sizeof *n->out + 2 * sizeof(LpTensor *));
    n = lp_calloc(1, size);
    LpAttr *a = lp_attrs_block(0, attr, op->n_attr);
    if (!n || !a) {
        lp_free(n);
        lp_free(a);
        lp_fail(e, LP_E_MEMORY, "out of memory");
        return NULL;
    }
    n->refs = 1;
    n->op = op;
    n->attr = a;
    n->n_in = n_in;
    n->n_out = n_out;
    n->in = (LpSaved *)(n + 1);
    n->out = n->in + in;
    n->edge = (LpEdge *)(void *)(n->out + out);
    n->dout = (LpTensor **)(void *)(n->edge + in);
    n->keep = n->dout + out;
    return n;
}

void lp_edge_store(LpNode *n, int i, LpEdge src)
{
    n->edge[i] = src;
    n->seq = next_seq++;
    if (src.node)
        lp_node_retain(src.node);
    if (src.leaf)
        lp_tensor_retain(src.leaf);
}

bool lp_wants_grad(const LpArg *in, int n_in)
{
    if (!enabled)
        return false;
    for (int i = 0; i < n_in; i++)
        if (in[i].t && lp_requires_grad(in[i].t))
            return true;
    return false;
}

LpStatus lp_save_tensor(LpSaved *s, LpTensor *t, const LpStorage *bumped,
                        LpErr *e)
{
    LpType type = lp_tensor_type(t);
    LP_TRY(lp_tensor_over(t->st, &type, t->strides, t->offset, &s->t, e));
    s->version = t->st->version - (t->st == bumped);
    return LP_OK;
}

unsigned lp_wanting(const LpOp *op, const LpArg *in, int n_in)
{
    unsigned want = 0;
    for (int i = 0; op->readers && i < n_in && i < 4; i++)
        if (in[i].t && lp_requires_grad(in[i].t))
            want |= 1u << i;
    return want;
}

bool lp_reads(const LpOp *op, unsigned want, int i)
{
    bool list = op->has_list && i >= op->n_operands - 1;
    unsigned by = i < 3 ? (unsigned)op->readers >> 4 * i & 15u : 0;
    return op->grad_in >> (list ? 31 : i) & 1 && (!by || by & want);
}

static LpStatus fill_node(LpNode *n, const LpCall *c, const LpArg *in,
                          LpTensor *const *out, const LpStorage *bumped,
                          LpErr *e)
{
    const LpOp *op = c->op;
    unsigned want = lp_wanting(op, in, c->n_in);
    for (int i = 0; i < c->n_in; i++) {
        n->in[i].type = c->in[i];
        n->in[i].is_num = in[i].is_num;
        n->in[i].num = in[i].num;
        if (!in[i].t)
            continue;
        LpEdge edge;
        LP_TRY(lp_edge_of(in[i].t, &edge, e));
        lp_edge_store(n, i, edge);
        if (!op->grad_in)
            continue;
        if (lp_reads(op, want, i))
            LP_TRY(lp_save_tensor(&n->in[i], in[i].t, bumped, e));
        else
            n->in[i].turned = lp_is_turned(in[i].t);
    }
    for (int i = 0; i < c->n_out; i++) {
        n->out[i].type = c->out[i];
        unsigned by = i == 0 ? op->readers >> 12 : 0;
        if (op->grad_out >> i & 1 && (!by || by & want))
            LP_TRY(lp_save_tensor(&n->out[i], out[i], NULL, e));
    }
    return LP_OK;
}

LpStatus lp_set_history(LpTensor *t, LpNode *node, uint32_t out_nr, LpErr *e)
{
    LpTensorMeta *m = lp_meta(t, e);
    if (!m)
        return LP_E_MEMORY;
    LpNode *old = m->node;
    if (old && m->retain_grad)
        old->keep[m->out_nr] = NULL;
    if (node && m->retain_grad)
        node->keep[out_nr] = t;
    m->node = node ? lp_node_retain(node) : NULL;
    m->out_nr = out_nr;
    if (t->base)
        m->hist = t->base->meta ? t->base->meta->hist : 0;
    t->requires_grad = node != NULL;
    lp_node_release(old);
    return LP_OK;
}

LpStatus lp_record(const LpCall *c, const LpArg *in, LpTensor *const *out,
                   uint64_t site, const LpStorage *bumped, LpErr *e)
{
    LpNode *n = lp_node_new(c->op, c->attr, c->n_in, c->n_out, e);
    if (!n)
        return LP_E_MEMORY;
    n->site = site;
    LpStatus s = fill_node(n, c, in, out, bumped, e);
    for (int i = 0; i < c->n_out && s == LP_OK; i++)
        if (lp_is_float(out[i]->dtype))
            s = lp_set_history(out[i], n, (uint32_t)i, e);
    lp_node_release(n);
    return s;
}

/* Records from types alone (replayed views); returns an owned node. */
static LpStatus record_view(const LpOp *op, const LpAttr *attr,
                            const LpType *in, const LpType *out, LpEdge from,
                            LpNode **node, LpErr *e)
{
    LpNode *n = lp_node_new(op, attr, 1, 1, e);
    if (!n)
        return LP_E_MEMORY;
    n->in[0].type = *in;
    n->out[0].type = *out;
    lp_edge_store(n, 0, from);
    *node = n;
    return LP_OK;
}

/* ---- histories ---------------------------------------------------------- */
static bool stale(const LpTensor *t)
{
    if (!t->base)
        return false;
    uint32_t now = t->base->meta ? t->base->meta->hist : 0;
    return now != (t->meta ? t->meta->hist : 0);
}

bool lp_requires_grad(const LpTensor *t)
{
    return t->requires_grad || (stale(t) && t->base->requires_grad);
}

/* Records the chain of view operators again from the base's present history. */
static LpStatus replay(const LpTensor *base, const LpViewStep *step,
                       LpEdge from, LpNode **node, LpErr *e)
{
    const LpViewCall *c = step->call;
    LpType base_type = lp_tensor_type(base);
    if (!step->parent)
        return record_view(c->op, c->attr, &base_type, &step->type, from, node,
                           e);
    LpNode *parent = NULL;
    LP_TRY(replay(base, step->parent, from, &parent, e));
    LpStatus s = record_view(c->op, c->attr, &step->parent->type, &step->type,
                             (LpEdge){.node = parent}, node, e);
    lp_node_release(parent);
    return s;
}

LpStatus lp_edge_of(LpTensor *t, LpEdge *edge, LpErr *e)
{
    *edge = (LpEdge){0};
    if (t->st->flags & LP_ST_TRACED)
        return LP_OK;
    if (stale(t)) {
        LpNode *n = NULL;
        if (t->base->requires_grad) {
            LpEdge from;
            LP_TRY(lp_edge_of(t->base, &from, e));
            LP_TRY(replay(t->base, t->view, from, &n, e));
        }
        LpStatus s = lp_set_history(t, n, 0, e);
        lp_node_release(n);
        LP_TRY(s);
    }
    if (!t->requires_grad)
        return LP_OK;
    if (t->meta && t->meta->node) {
        edge->node = t->meta->node;
        edge->out_nr = t->meta->out_nr;
    } else {
        edge->leaf = t;
    }
    return LP_OK;
}

/* A value without bytes that has a history: rules run on it record only. */
static LpStatus ghost(const LpTensor *like, LpTensor *history, LpTensor **out,
                      LpErr *e)
{
    LpType type = lp_tensor_type(like);
    LpEdge edge;
    LP_TRY(lp_edge_of(history, &edge, e));
    LP_TRY(lp_tensor_empty(&type, LP_ST_META, out, e));
    LpStatus s = LP_OK;
    if (edge.node)
        s = lp_set_history(*out, edge.node, edge.out_nr, e);
    if (s != LP_OK) {
        lp_tensor_release(*out);
        *out = NULL;
    }
    return s;
}

/* The history of the base after a write through its view t. */
static LpStatus plan_base(LpTensor *t, LpTensor *base, LpTensor *from,
                          LpRebase *r, LpErr *e)
{
    LpTensor *old = NULL, *now = NULL;
    LpEager g;
    lp_eager_init(&g, e);
    LpStatus s = ghost(base, base, &old, e);
    LpVal b = s == LP_OK ? lp_eager_tensor(&g, old) : LP_NOVAL;
    if (s == LP_OK)
        s = ghost(t, from, &now, e);
    LpVal v = s == LP_OK ? lp_eager_tensor(&g, now) : LP_NOVAL;
    if (s == LP_OK) {
        LpVal w = t->base ? lp_put_chain(&g.b, t->view, b, v) : v;
        LpTensor *res = lp_eager_get(&g, w);
        s = e->code;
        if (s == LP_OK && base->requires_grad && !res->requires_grad) {
            /* overwritten by a constant it still is a result, not a leaf */
            res = lp_eager_get(&g, lp_op1(&g.b, LP_OP_zero, b));
            s = e->code;
        }
        if (s == LP_OK && res->meta && res->meta->node) {
            r->base = lp_node_retain(res->meta->node);
            r->base_nr = res->meta->out_nr;
        }
    }
    lp_eager_fini(&g);
    return s;
}

/* Does the history of a node begin in a leaf that is a view of base? Marks the
 * nodes it has seen by `next`, of which the last one is its own. */
static bool begins_in_view(const LpTensor *base, LpNode *node)
{
    LpNode *last = node->next = node;
    bool found = false;
    for (LpNode *n = NULL; n != last;) {
        n = n ? n->next : node;
        for (int i = 0; i < n->n_in; i++) {
            LpEdge *from = &n->edge[i];
            found |= from->leaf && from->leaf->base == base;
            if (!from->node || from->node->next)
                continue;
            last = last->next = from->node;
            last->next = last;
        }
    }
    for (LpNode *n = node, *next; n; n = next == n ? NULL : next) {
        next = n->next;
        n->next = NULL;
    }
    return found;
}

LpStatus lp_rebase_plan(LpTensor *t, LpTensor *from, LpRebase *r, LpErr *e)
{
    LpEdge edge;
    LpTensor *base = t->base ? t->base : t;
    *r = (LpRebase){0};
    LP_TRY(lp_edge_of(from, &edge, e));
    if (!edge.node && !edge.leaf && !base->requires_grad)
        return LP_OK;
    if (!lp_meta(base, e) || !lp_meta(t, e))
        return LP_E_MEMORY;
    LP_TRY(plan_base(t, base, from, r, e));
    /* the base would own the leaf, which owns the base */
    LP_FAIL_IF(
        base->meta->leaf_view && r->base && begins_in_view(base, r->base), e,
        LP_E_RUNTIME,
        "the value that is written depends on a leaf that is a view of the "
        "tensor it is written to: a leaf cannot move into the graph's "
        "interior; make the leaf of detach(), or of a clone()");
    r->any = true;
    r->own = edge.node ? lp_node_retain(edge.node) : NULL;
    r->own_nr = edge.out_nr;
    return LP_OK;
}

void lp_rebase_commit(LpTensor *t, const LpRebase *r)
{
    LpErr e = {0}; /* the plan made what lp_set_history needs */
    LpTensor *base = t->base ? t->base : t;
    if (!r->any)
        return;
    lp_set_history(base, r->base, r->base_nr, &e);
    base->meta->hist++;
    if (t->base && r->own) /* else it is stale, and gets the base's */
        lp_set_history(t, r->own, r->own_nr, &e);
}

void lp_rebase_drop(LpRebase *r)
{
    lp_node_release(r->base);
    lp_node_release(r->own);
    *r = (LpRebase){0};
}

/* ---- small questions ---------------------------------------------------- */
LpStatus lp_set_requires_grad(LpTensor *t, bool on, LpErr *e)
{
    LP_FAIL_IF(on && !lp_is_float(t->dtype), e, LP_E_RUNTIME,
               "only tensors of floating point dtype can require gradients, "
               "this one is %s",
               lp_dtype_name(t->dtype));
    LP_FAIL_IF(!on && !lp_is_leaf(t), e, LP_E_RUNTIME,
               "requires_grad can only be cleared on leaf tensors; use "
               "detach() for a tensor that is the result of a computation");
    if (on && t->base && lp_is_leaf(t)) {
        LP_FAIL_IF(!lp_meta(t->base, e), e, LP_E_MEMORY, "out of memory");
        t->base->meta->leaf_view = true;
    }
    t->requires_grad = on;
    return LP_OK;
}

bool lp_is_leaf(const LpTensor *t)
{
    return !lp_requires_grad(t) || !((t->meta && t->meta->node) || stale(t) ||
                                     t->st->flags & LP_ST_TRACED);
}

const char *lp_grad_fn_name(const LpTensor *t)
{
    static char name[64];
    LpErr e = {0};
    LpEdge edge;
    if (lp_edge_of((LpTensor *)t, &edge, &e) != LP_OK || !edge.node)
        return NULL;
    size_t n = 0;
    bool up = true;
    for (const char *p = edge.node->op->name; *p && n < sizeof name - 10; p++) {
        if (*p == '_') {
            up = true;
            continue;
        }
        name[n++] = up && *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
        up = false;
    }
    memcpy(name + n, "Backward", 9);
    return name;
}

LpTensor *lp_grad_get(const LpTensor *t)
{
    return t->meta ? t->meta->grad : NULL;
}

LpStatus lp_grad_set(LpTensor *t, LpTensor *grad, LpErr *e)
{
    if (!grad && !t->meta)
        return LP_OK;
    LpTensorMeta *m = lp_meta(t, e);
    if (!m)
        return LP_E_MEMORY;
    LpTensor *old = m->grad;
    m->grad = grad ? lp_tensor_retain(grad) : NULL;
    lp_tensor_release(old);
    return LP_OK;
}

bool lp_retains_grad(const LpTensor *t)
{
    return t->meta && t->meta->node && t->meta->retain_grad;
}

void lp_retain_grad(LpTensor *t)
{
    LpTensorMeta *m = t->meta;
    if (!m || !m->node) /* a leaf keeps its gradient anyway */
        return;
    m->retain_grad = true;
    m->node->keep[m->out_nr] = t;
}
