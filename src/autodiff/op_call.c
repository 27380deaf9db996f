/* op_call: the one entry of every operator. A running trace records it; else a
 * composite is expanded through the eager builder, a view aliases its operand,
 * anything else runs its kernel; then the call is recorded on the tape if a
 * gradient may be asked. */
#include "src/autodiff/op_call.h"

#include "src/autodiff/meta.h"
#include "src/autodiff/rng_rollback.h"
#include "src/autodiff/trace.h"
#include "src/ops/ops.h"

static LpStatus expand(LpCall *c, const LpArg *in, const uint64_t *site,
                       LpTensor **out, LpErr *e)
{
    LpEager g;
    LpVal vin[LP_MAX_IN], vout[LP_MAX_LIST], *vi = vin;
    lp_eager_init(&g, e);
    if (c->n_in > LP_MAX_IN)
        vi = lp_arena_alloc(g.b.scratch, (size_t)c->n_in * sizeof *vi);
    if (site)
        g.b.set_site(&g.b, true, *site);
    LpStatus s = vi ? e->code : lp_fail(e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < c->n_in && s == LP_OK; i++) {
        vi[i] = lp_eager_arg(&g, &in[i]);
        s = e->code;
    }
    for (int i = 0; i < c->n_out; i++)
        vout[i] = LP_NOVAL;
    const LpVal *alike = vi;
    if (s == LP_OK && lp_tracing)
        alike = lp_in_one_type(&g.b, c->op, vi, c->n_in);
    if (s == LP_OK && alike)
        c->op->expand(&g.b, c->attr, alike, c->n_in, vout, c->n_out);
    if (s == LP_OK)
        s = e->code;
    for (int i = 0; i < c->n_out && s == LP_OK; i++) {
        LpTensor *t = lp_eager_get(&g, vout[i]);
        if (!t && e->code == LP_OK)
            lp_fail(e, LP_E_INTERNAL, "%s gave no result %d", c->op->name, i);
        s = e->code;
        if (t)
            out[i] = lp_tensor_retain(t);
        if (s != LP_OK)
            while (i-- > 0)
                lp_tensor_release(out[i]);
    }
    lp_eager_fini(&g);
    return s;
}

/* A composite with a gradient of its own: one node of the tape, and no values
 * kept but its operands. */
static LpStatus whole(LpCall *c, const LpArg *in, LpTensor **out, LpErr *e)
{
    lp_set_grad_enabled(false);
    LpStatus s = expand(c, in, NULL, out, e);
    lp_set_grad_enabled(true);
    LP_TRY(s);
    for (int i = 0; i < c->n_out; i++)
        c->out[i] = lp_tensor_type(out[i]);
    s = lp_record(c, in, out, 0, NULL, e);
    for (int i = 0; i < c->n_out && s != LP_OK; i++)
        lp_tensor_release(out[i]);
    return s;
}

static LpStatus view(LpCall *c, const LpArg *in, bool grad, LpTensor **out,
                     LpErr *e)
{
    LpTensor *src = in[0].t;
    if (c->op == &op_detach)
        return lp_detach(src, out, e);
    if (c->needs_copy) {
        LpTensor *copy = NULL;
        int n = 0;
        LpArg a = {.t = src};
        LP_TRY(lp_op_call(&op_clone, &a, 1, NULL, &copy, &n, e));
        a.t = copy;
        LpStatus s = lp_op_call(c->op, &a, 1, c->attr, out, &n, e);
        lp_tensor_release(copy);
        return s;
    }
    LP_TRY(lp_make_view(src, c, out, e));
    LpStatus s = LP_OK;
    if (grad)
        s = lp_record(c, in, out, 0, NULL, e);
    else if (src->base ? src->base->meta && src->base->meta->hist
                       : src->meta && src->meta->hist)
        s = lp_set_history(*out, NULL, 0, e);
    if (s != LP_OK)
        lp_tensor_release(*out);
    return s;
}

static LpStatus compute(LpCall *c, const LpArg *in, int n_in,
                        const uint64_t *site, bool grad, LpTensor **out,
                        LpErr *e)
{
    bool meta = lp_any_meta(in, n_in);
    int made = 0;
    LpStatus s = meta ? LP_OK : lp_touch_all(in, n_in, e);
    if (s == LP_OK && c->op->measure)
        s = meta ? lp_fail(e, LP_E_NOT_IMPLEMENTED,
                           "%s needs data, a meta tensor has none", c->op->name)
                 : lp_call_measure(c, in, e);
    for (; made < c->n_out && s == LP_OK; made++) {
        s = meta ? lp_tensor_empty(&c->out[made], LP_ST_META, &out[made], e)
                 : lp_tensor_new(&c->out[made], &out[made], e);
        if (s != LP_OK)
            break;
    }
    uint64_t at = 0;
    if (c->op->flags & LP_OPF_RANDOM)
        at = site ? *site : lp_next_site();
    if (s == LP_OK && !meta)
        s = lp_call_run(c, in, out, at, true, e);
    if (s == LP_OK && grad)
        s = lp_record(c, in, out, at, NULL, e);
    while (s != LP_OK && made-- > 0)
        lp_tensor_release(out[made]);
    return s;
}

static LpStatus call(const LpOp *op, const LpArg *in, int n_in,
                     const LpAttr *attr, const uint64_t *site, LpTensor **out,
                     int *n_out, LpErr *e)
{
    if (lp_tracing && op->kind != LP_OP_COMPOSITE)
        return lp_trace_call(op, in, n_in, attr, site, out, n_out, e);
    LpCall c;
    LpArena *arena = lp_scratch_enter();
    LpStatus s = lp_call_infer(&c, op, in, n_in, attr, arena, e);
    if (s == LP_OK) {
        bool grad = lp_wants_grad(in, n_in);
        *n_out = c.n_out;
        if (op->kind == LP_OP_COMPOSITE && grad && op->grad && !lp_tracing)
            s = whole(&c, in, out, e);
        else if (op->kind == LP_OP_COMPOSITE ||
                 (grad && !op->grad && op->expand))
            s = expand(&c, in, site, out, e);
        else if (op->flags & LP_OPF_VIEW)
            s = view(&c, in, grad, out, e);
        else
            s = compute(&c, in, n_in, site, grad && op->grad, out, e);
    }
    if (s == LP_OK && lp_tracing && op->flags & LP_OPF_LOSS)
        s = lp_trace_mark_loss(out, *n_out, e);
    lp_scratch_leave();
    return s;
}

LpStatus lp_op_call(const LpOp *op, const LpArg *in, int n_in,
                    const LpAttr *attr, LpTensor **out, int *n_out, LpErr *e)
{
    LpRngMark d = lp_rng_mark();
    LpStatus s = call(op, in, n_in, attr, NULL, out, n_out, e);
    if (s == LP_E_MEMORY)
        lp_rng_rollback(&d);
    return s;
}

LpStatus lp_op_call_at(const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, uint64_t site, LpTensor **out,
                       int *n_out, LpErr *e)
{
    return call(op, in, n_in, attr, &site, out, n_out, e);
}

LpStatus lp_contiguous(LpTensor *t, LpTensor **out, LpErr *e)
{
    if (lp_tensor_contiguous(t)) {
        *out = lp_tensor_retain(t);
        return LP_OK;
    }
    int n;
    return lp_op_call(&op_clone, &(LpArg){.t = t}, 1, NULL, out, &n, e);
}

LpStatus lp_detach(LpTensor *t, LpTensor **out, LpErr *e)
{
    int n;
    if (lp_tracing)
        return lp_op_call(&op_detach, &(LpArg){.t = t}, 1, NULL, out, &n, e);
    return lp_detached_alias(t, out, e);
}
