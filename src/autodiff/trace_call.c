/* What a running trace makes of calls: the values of tensors now, and the nodes
 * that reads, calls and writes become. */
#include "src/autodiff/meta.h"
#include "src/autodiff/trace_impl.h"
#include "src/ops/ops.h"

/* ---- values ------------------------------------------------------------- */
/* The running trace, this or one around it, that the traced tensor is of. */
static const LpTrace *trace_of(const LpTrace *tr, const LpTensor *t)
{
    const LpTensor *b = t->base ? t->base : t;
    while (tr && (!b->meta || b->meta->trace_serial != tr->serial))
        tr = tr->outer;
    return tr;
}

static bool constant(const LpTensor *t)
{
    return t->base && t->meta && t->meta->constant &&
           t->meta->hist == t->base->meta->hist;
}

/* A parameter in replica groups, met beside its module: one replica's part. */
static LpStatus part(const LpTraceVar *v, LpTensor *t, LpTensor **out, LpErr *e)
{
    LP_FAIL_IF(t != v->user, e, LP_E_POPTORCH,
               "a view of parameter '%s', which has replica groups: forward "
               "sees what one replica has, as a field of its module",
               v->name);
    *out = lp_tensor_retain(v->standin);
    return LP_OK;
}

/* A tensor of none of the traces around, declared here; of a body, one of the
 * trace around it. What the gradient of a parameter does not reach is made a
 * view of it, or is one, that is constant. */
static LpStatus declare(LpTrace *tr, LpTensor *t, LpTensor **out, LpErr *e)
{
    LpTensor *base = NULL;
    LpTraceRole role = tr->outer ? LP_TRACE_CAPTURE : LP_TRACE_CONSTANT;
    LP_TRY(lp_trace_declare(tr, role, "", t, NULL, &base, e));
    const LpTraceVar *v = lp_trace_find(tr, base->st, NULL);
    if (v->group.kind != LP_GROUP_ALL)
        return part(v, t, out, e);
    LpType type = lp_tensor_type(t), all = lp_tensor_type(base);
    LP_FAIL_IF(!t->base && !lp_type_eq(&type, &all), e, LP_E_RUNTIME,
               "two tensors of different shapes share memory without one "
               "being a view of the other; this cannot be traced");
    bool stops =
        constant(t) || (v->role == LP_TRACE_PARAM &&
                        lp_requires_grad(v->user) && !lp_requires_grad(t));
    if (!t->base && !stops) {
        *out = lp_tensor_retain(base);
        return LP_OK;
    }
    LP_TRY(lp_tensor_over(base->st, &type, t->strides, t->offset, out, e));
    (*out)->base = lp_tensor_retain(base);
    if (((*out)->view = t->view) != NULL)
        t->view->refs++;
    if (!stops)
        return LP_OK;
    LpTensorMeta *m = lp_meta(*out, e);
    if (!m) {
        lp_tensor_release(*out);
        return LP_E_MEMORY;
    }
    m->hist = base->meta->hist;
    m->constant = true;
    return LP_OK;
}

/* The traced tensor that stands for `t` (traced itself, or a user's), owned. */
static LpStatus standin_of(LpTrace *tr, LpTensor *t, LpTensor **out, LpErr *e)
{
    if (t->st->flags & LP_ST_TRACED) {
        const LpTrace *of = trace_of(tr, t);
        LP_FAIL_IF(!of, e, LP_E_RUNTIME,
                   "a traced tensor is used after its trace has ended: it "
                   "stood for a value of a compiled program, or of the body of "
                   "a loop or branch in it, and has none of its own; return it "
                   "from forward, or from the body, instead");
        if (of == tr) {
            *out = lp_tensor_retain(t);
            return LP_OK;
        }
    }
    if (!tr->outer)
        return declare(tr, t, out, e);
    LpTensor *around = NULL;
    LP_TRY(standin_of(tr->outer, t, &around, e));
    LpStatus s = declare(tr, around, out, e);
    lp_tensor_release(around);
    return s;
}

/* Nodes recorded from here on have the trace's origin, which may be the one
 * that it began with: nothing has been called yet. */
static void start(LpTrace *tr, LpGraphBuilder *gb, LpErr *e)
{
    lp_graph_builder_init(gb, tr->g, e);
    gb->b.excuse = lp_trace_excuse;
    if (tr->origin_id == 0)
        lp_trace_set_origin(tr, &tr->origin, e);
    gb->origin = tr->origin_id;
}

/* The value of a traced tensor whose memory has changed, or that was never
 * read: a view's is its chain from the base, a base's (one of them is detached)
 * what the memory holds, with the history that this base had. */
static LpStatus refresh(LpTrace *tr, LpTensor *t, LpErr *e)
{
    if (t->meta && t->meta->val && t->meta->val_version == t->st->version)
        return LP_OK;
    if (t->base)
        LP_TRY(refresh(tr, t->base, e));
    LpGraphBuilder gb;
    start(tr, &gb, e);
    LpVal v = t->st->held;
    if (t->base)
        v = lp_replay_chain(&gb.b, t->view, t->base->meta->val);
    if (!t->base && t->meta && t->meta->val)
        v = op_detach.put(&gb.b, NULL, t->meta->val, v);
    else if (!t->base || constant(t))
        v = lp_op1(&gb.b, LP_OP_detach, v);
    lp_graph_builder_fini(&gb);
    return e->code != LP_OK ? e->code : lp_trace_set_value(tr, t, v, e);
}

LpStatus lp_trace_value(LpTrace *tr, LpTensor *t, LpVal *v, LpErr *e)
{
    LpTensor *s = NULL;
    LP_TRY(standin_of(tr, t, &s, e));
    LpStatus st = refresh(tr, s, e);
    if (st == LP_OK)
        *v = s->meta->val;
    lp_tensor_release(s);
    return st;
}

static LpStatus results(LpTrace *tr, const LpVal *v, int n, LpTensor **out,
                        LpErr *e)
{
    for (int i = 0; i < n; i++) {
        const LpType *type = lp_graph_type(tr->g, v[i]);
        LpStatus s = lp_tensor_empty(type, LP_ST_TRACED, &out[i], e);
        if (s == LP_OK &&
            (s = lp_trace_set_value(tr, out[i], v[i], e)) != LP_OK)
            lp_tensor_release(out[i]);
        if (s != LP_OK) {
            while (i-- > 0)
                lp_tensor_release(out[i]);
            return s;
        }
        out[i]->st->held = v[i];
    }
    return LP_OK;
}

LpStatus lp_trace_tensor(LpTrace *tr, LpVal v, LpTensor **out, LpErr *e)
{
    return results(tr, &v, 1, out, e);
}

/* ---- calls -------------------------------------------------------------- */
/* A program's values lie in order; memory that does not, and a view of it by
 * strides of its own, would be another one there. */
static LpStatus check_order(const LpTrace *tr, const LpTensor *t, LpErr *e)
{
    for (const LpTraceVar *v; tr; tr = tr->outer, t = v->user) {
        v = lp_trace_find(tr, t->st, NULL);
        if (!v || !v->user)
            break;
        LP_FAIL_IF(!lp_tensor_contiguous(v->user), e, LP_E_RUNTIME,
                   "as_strided: the elements of a tensor from outside lie in "
                   "memory in another order than that of its indices, which a "
                   "compiled program does not keep: use contiguous() first");
    }
    return LP_OK;
}

/* Strides are those that the tensor would have in memory: what eager calls copy
 * (*out stays NULL) is a value of its own here, too. */
static LpStatus make_view(const LpTrace *tr, LpTensor *s, const LpOp *op,
                          const LpAttr *attr, LpTensor **out, LpErr *e)
{
    LpCall c;
    LpArg in = {.t = s};
    LpArena *arena = lp_scratch_enter();
    LpStatus st = lp_call_infer(&c, op, &in, 1, attr, arena, e);
    if (st == LP_OK && op->flags & LP_OPF_OWN_STRIDES)
        st = check_order(tr, s->base ? s->base : s, e);
    if (st == LP_OK && !c.needs_copy)
        st = lp_make_view(s, &c, out, e);
    lp_scratch_leave();
    return st;
}

/* Made without gradients, a view is a constant to them. */
static LpStatus trace_view(LpTrace *tr, const LpOp *op, LpTensor *src,
                           const LpAttr *attr, LpTensor **out, LpErr *e)
{
    LpTensor *s = NULL, *v = NULL;
    LP_TRY(standin_of(tr, src, &s, e));
    LpStatus st = op == &op_detach ? lp_detached_alias(s, &v, e)
                                   : make_view(tr, s, op, attr, &v, e);
    LpTensorMeta *m = v ? lp_meta(v, e) : NULL;
    if (m && op != &op_detach) {
        m->hist = v->base->meta->hist;
        m->constant = !lp_grad_enabled() || constant(s);
        v->requires_grad = lp_wants_grad(&(LpArg){.t = src}, 1) && op->grad;
    }
    lp_tensor_release(s);
    if (v && (st = m ? refresh(tr, v, e) : LP_E_MEMORY) != LP_OK)
        lp_tensor_release(v);
    *out = v;
    return st;
}

static LpStatus record(LpTrace *tr, const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, const uint64_t *site, LpVal *vin,
                       LpTensor **out, int *n_out, LpErr *e)
{
    LpVal vout[LP_MAX_LIST];
    LpGraphBuilder gb;
    uint64_t at = 0;
    for (int i = 0; i < n_in; i++) {
        vin[i] = LP_NOVAL;
        if (in[i].t)
            LP_TRY(lp_trace_value(tr, in[i].t, &vin[i], e));
        else if (in[i].is_num)
            vin[i] = lp_graph_imm(tr->g, in[i].num, e);
    }
    /* no expansion draws but a composite's, which op_call has expanded */
    if (op->flags & LP_OPF_RANDOM && !site)
        LP_TRY(lp_trace_next_draw(tr, &at, e));
    start(tr, &gb, e);
    gb.b.set_site(&gb.b, true, site ? *site : at);
    *n_out = e->code == LP_OK ? gb.b.emit(&gb.b, op, vin, n_in, attr, vout) : 0;
    for (int i = 0; i < *n_out && !lp_grad_enabled() && e->code == LP_OK; i++)
        if (lp_is_float(lp_graph_type(tr->g, vout[i])->dtype))
            vout[i] = lp_op1(&gb.b, LP_OP_detach, vout[i]);
    lp_graph_builder_fini(&gb);
    if (e->code != LP_OK)
        return e->code;
    LP_TRY(results(tr, vout, *n_out, out, e));
    bool grad = lp_wants_grad(in, n_in) && op->grad;
    for (int i = 0; i < *n_out; i++)
        out[i]->requires_grad = grad && lp_is_float(out[i]->dtype);
    return LP_OK;
}

LpStatus lp_trace_call(const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, const uint64_t *site, LpTensor **out,
                       int *n_out, LpErr *e)
{
    LpTrace *tr = lp_trace_current();
    if (tr->on_call)
        tr->on_call(tr->on_call_ctx, tr);
    if (op->flags & LP_OPF_VIEW) {
        *n_out = 1;
        LP_TRY(trace_view(tr, op, in[0].t, attr, out, e));
        if (*out)
            return LP_OK;
    }
    LpArena *arena = lp_scratch_enter();
    LpVal *vin = lp_arena_alloc(arena, (size_t)(n_in + 1) * sizeof *vin);
    LpStatus s = vin ? record(tr, op, in, n_in, attr, site, vin, out, n_out, e)
                     : lp_fail(e, LP_E_MEMORY, "out of memory");
    lp_scratch_leave();
    if (s == LP_OK && op->flags & LP_OPF_LOSS)
        s = lp_trace_mark_loss(out, *n_out, e);
    return s;
}

/* What is made while a body is traced, its inputs among it, is written freely;
 * of captured tensors a guarded trace has copies, which are constants. */
static LpStatus may_write(LpTrace *tr, const LpTensor *dst, const char *what,
                          LpErr *e)
{
    const LpTraceVar *v = lp_trace_find(tr, dst->st, NULL);
    const LpStorage *made = v && v->user ? v->user->st : dst->st;
    for (const LpTrace *t = tr->outer; t && v && v->user; t = t->outer) {
        v = lp_trace_find(t, made, NULL);
        made = v && v->user ? v->user->st : made;
    }
    bool allowed =
        !tr->outer && (!tr->guarded || (v && v->role != LP_TRACE_CONSTANT));
    if (allowed || made->era == (uint32_t)tr->serial)
        return LP_OK;
    return lp_fail(
        e, LP_E_RUNTIME, "%s at %s:%d writes in place to a tensor %s", what,
        tr->origin.file, (int)tr->origin.line,
        tr->outer ? "from outside the body of a loop or branch: a body works "
                    "on copies, and the write would be lost; pass the tensor "
                    "as an input and return its new value"
                  : "that the traced function captured: it is a constant of "
                    "the program, and the write would be lost; pass the "
                    "tensor as an input, compile the module whose buffer it "
                    "is, or make a new one");
}

/* The view d of base now shows v; without a history of the write the base has
 * the one it had. */
static LpStatus write(LpTrace *tr, LpTensor *d, LpTensor *base, LpVal v,
                      bool grad, LpErr *e)
{
    LpGraphBuilder gb;
    bool history = lp_grad_enabled() && (grad || !constant(d));
    start(tr, &gb, e);
    LpVal now = lp_put_chain(&gb.b, d->view, base->meta->val, v);
    if (!history && e->code == LP_OK)
        now = op_detach.put(&gb.b, NULL, base->meta->val, now);
    lp_graph_builder_fini(&gb);
    if (e->code != LP_OK)
        return e->code;
    base->requires_grad |= grad;
    base->st->version++;
    base->st->held = now;
    LP_TRY(lp_trace_set_value(tr, base, now, e));
    if (!history)
        return LP_OK;
    base->meta->hist++;
    if (d->base)
        LP_TRY(lp_trace_set_value(tr, d, v, e));
    d->meta->hist = base->meta->hist;
    d->meta->constant = false;
    d->requires_grad = base->requires_grad;
    return LP_OK;
}

LpStatus lp_trace_write(LpTensor *dst, LpTensor *src, const char *what,
                        LpErr *e)
{
    LpTrace *tr = lp_trace_current();
    LpVal v;
    LpTensor *d = NULL;
    if (tr->on_call)
        tr->on_call(tr->on_call_ctx, tr);
    LP_TRY(may_write(tr, dst, what, e));
    LP_TRY(lp_trace_value(tr, src, &v, e));
    LP_TRY(standin_of(tr, dst, &d, e));
    LpTensor *base = d->base ? d->base : d;
    LpStatus s = refresh(tr, base, e);
    if (s == LP_OK)
        s = write(tr, d, base, v, lp_wants_grad(&(LpArg){.t = src}, 1), e);
    lp_tensor_release(d);
    return s;
}
