/* Calls that write into given tensors: in place, out=, copies. What can be
 * computed straight into that memory is; else the result is made apart and
 * written, as part of the history. */
#include "src/autodiff/op_call.h"

#include <string.h>

#include "src/autodiff/meta.h"
#include "src/autodiff/overlap.h"
#include "src/autodiff/rng_rollback.h"
#include "src/autodiff/trace.h"
#include "src/ops/ops.h"

/* ---- in place ----------------------------------------------------------- */
static LpStatus may_write(LpTensor *t, LpErr *e)
{
    LP_FAIL_IF(!t, e, LP_E_TYPE,
               "an in-place operation writes a tensor, not a number");
    LpTensor *base = t->base ? t->base : t;
    /* a view may require grad where its base does not: then a write would hang
     * the base's history on its own view */
    bool wanted = base->requires_grad || lp_requires_grad(t);
    LP_FAIL_IF(lp_grad_enabled() && wanted && lp_is_leaf(base), e, LP_E_RUNTIME,
               "%s that requires grad is being used in an in-place operation; "
               "do it under torch.no_grad()",
               t->base ? "a view of a leaf tensor" : "a leaf tensor");
    return lp_check_target(t, e);
}

static LpStatus fits(const LpTensor *dst, const LpType *v, const char *what,
                     LpErr *e)
{
    LpType d = lp_tensor_type(dst), both = d;
    bool broadcasts = lp_broadcast(&both, v, NULL) == LP_OK;
    LP_FAIL_IF(!broadcasts || !lp_shape_eq(&both, &d), e, LP_E_RUNTIME,
               "%s: a result of shape %s does not fit in place into shape %s",
               what, lp_shape_str(v), lp_shape_str(&d));
    return LP_OK;
}

static LpStatus castable(LpDtype from, LpDtype to, const char *what, LpErr *e)
{
    LP_FAIL_IF(lp_dtype_kind(from) > lp_dtype_kind(to), e, LP_E_RUNTIME,
               "%s: result type %s can't be cast to the desired output type %s",
               what, lp_dtype_name(from), lp_dtype_name(to));
    return LP_OK;
}

/* An operand lies in the same memory but not element on element. */
static bool overlaps(const LpTensor *t, const LpArg *in, int n_in)
{
    for (int i = 0; i < n_in; i++) {
        const LpTensor *x = in[i].t;
        if (!x || x->st != t->st)
            continue;
        size_t n = (size_t)t->ndim * sizeof *t->strides;
        if (x->dtype != t->dtype || x->ndim != t->ndim ||
            x->offset != t->offset || memcmp(x->strides, t->strides, n) ||
            memcmp(x->shape, t->shape, n))
            return true;
    }
    return false;
}

/* On device meta there is nothing to write, but what a trace keeps of it. */
static bool is_shape(const LpTensor *t)
{
    return (t->st->flags & LP_ST_META) && !lp_tracing;
}

/* dst's memory and history take the value of src (any dtype, broadcast);
 * `what` writes it. */
static LpStatus write_value(LpTensor *dst, LpTensor *src, const char *what,
                            LpErr *e)
{
    LpVal v;
    LpEager g;
    LpType to = lp_tensor_type(dst);
    LpStatus s = LP_OK;
    if (is_shape(dst))
        return LP_OK;
    lp_eager_init(&g, e);
    v = lp_eager_tensor(&g, lp_tensor_retain(src));
    s = e->code;
    bool record =
        lp_tracing ||
        (lp_grad_enabled() && (lp_requires_grad(src) || lp_requires_grad(dst)));
    /* the cast and the broadcast are part of the history */
    if (s == LP_OK && record) {
        v = lp_cast(&g.b, v, to.dtype);
        v = lp_expand_as(&g.b, v, &to);
        if (!lp_tracing && lp_is_leaf(src)) /* a leaf has no node to hang on */
            v = lp_op1(&g.b, LP_OP_alias, v);
        s = e->code;
    }
    if (s == LP_OK && lp_tracing) {
        s = lp_trace_write(dst, lp_eager_get(&g, v), what, e);
    } else if (s == LP_OK) {
        LpTensor *from = lp_eager_get(&g, v);
        s = from ? lp_tensor_touch(from, false, e) : e->code;
        if (s == LP_OK)
            s = lp_tensor_touch(dst, true, e);
        LpRebase r = {0};
        if (s == LP_OK && record)
            s = lp_rebase_plan(dst, from, &r, e);
        if (s == LP_OK)
            s = lp_copy_tensor(dst, from, e);
        if (s == LP_OK) {
            dst->st->version++;
            lp_rebase_commit(dst, &r);
        }
        lp_rebase_drop(&r);
    }
    lp_eager_fini(&g);
    return s;
}

LpStatus lp_copy_into(LpTensor *dst, const LpArg *src, LpErr *e)
{
    LP_TRY(may_write(dst, e));
    LpTensor *t = src->t;
    if (!t) {
        LpType type = {.dtype = dst->dtype};
        LP_TRY(lp_tensor_new(&type, &t, e));
        lp_scalar_store(src->num, type.dtype, lp_tensor_data(t));
    } else {
        lp_tensor_retain(t);
    }
    LpType type = lp_tensor_type(t);
    LpStatus s = fits(dst, &type, "copy_", e);
    if (s == LP_OK)
        s = lp_check_overlap(dst, &(LpArg){.t = t}, 1, e);
    if (s == LP_OK)
        s = write_value(dst, t, "copy_", e);
    lp_tensor_release(t);
    return s;
}

/* The call's result into the memory of in[0]. What can fail for want of memory
 * comes before the kernel: a call that fails has changed nothing, since it is
 * tried again after a collection. */
static LpStatus overwrite(LpCall *c, const LpArg *in, int n_in, LpErr *e)
{
    LpTensor *dst = in[0].t, *now = NULL;
    if (is_shape(dst))
        return LP_OK;
    LpType self = lp_tensor_type(dst);
    LpRebase r = {0};
    bool grad = lp_wants_grad(in, n_in) && c->op->grad;
    uint64_t site = c->op->flags & LP_OPF_RANDOM ? lp_next_site() : 0;
    LP_TRY(lp_touch_all(in + 1, n_in - 1, e));
    LP_TRY(lp_tensor_touch(dst, true, e));
    dst->st->version++;
    LpStatus s = LP_OK;
    if (grad)
        s = lp_tensor_over(dst->st, &self, dst->strides, dst->offset, &now, e);
    if (s == LP_OK && grad)
        s = lp_record(c, in, &now, site, dst->st, e);
    if (s == LP_OK && grad)
        s = lp_rebase_plan(dst, now, &r, e);
    if (s == LP_OK)
        s = lp_call_run(c, in, &dst, site, false, e);
    if (s == LP_OK)
        lp_rebase_commit(dst, &r);
    else
        dst->st->version--;
    lp_rebase_drop(&r);
    lp_tensor_release(now);
    return s;
}

/* Straight into the operand's memory; `*done` tells whether that was possible.
 */
static LpStatus direct(const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, bool *done, LpErr *e)
{
    LpCall c;
    LpTensor *dst = in[0].t;
    LpArena *arena = lp_scratch_enter();
    LpStatus s = lp_call_infer(&c, op, in, n_in, attr, arena, e);
    if (s == LP_OK)
        s = castable(c.out[0].dtype, dst->dtype, op->name, e);
    if (s == LP_OK)
        s = fits(dst, &c.out[0], op->name, e);
    LpType self = lp_tensor_type(dst);
    *done = s == LP_OK && c.n_out == 1 && (op->flags & LP_OPF_INPLACE_OK) &&
            lp_type_eq(&c.out[0], &self) && !overlaps(dst, in, n_in);
    if (*done)
        s = overwrite(&c, in, n_in, e);
    lp_scratch_leave();
    return s;
}

/* The gradient reads the operand that is about to be overwritten: the operator
 * gets a copy of it, which it may keep. */
static bool reads_target(const LpOp *op, const LpArg *in, int n_in)
{
    return !lp_tracing && lp_wants_grad(in, n_in) &&
           (op->kind == LP_OP_COMPOSITE ||
            lp_reads(op, lp_wanting(op, in, n_in), 0));
}

static LpStatus call_on_copy(const LpOp *op, const LpArg *in, int n_in,
                             const LpAttr *attr, LpTensor **out, int *n_out,
                             LpErr *e)
{
    LpTensor *copy = NULL;
    LpArg arg[LP_MAX_IN];
    int n = 0;
    if (n_in > LP_MAX_IN || !reads_target(op, in, n_in))
        return lp_op_call(op, in, n_in, attr, out, n_out, e);
    LP_TRY(lp_op_call(&op_clone, in, 1, NULL, &copy, &n, e));
    memcpy(arg, in, (size_t)n_in * sizeof *arg);
    arg[0] = (LpArg){.t = copy};
    LpStatus s = lp_op_call(op, arg, n_in, attr, out, n_out, e);
    lp_tensor_release(copy);
    return s;
}

static LpStatus call_inplace(const LpOp *op, const LpArg *in, int n_in,
                             const LpAttr *attr, LpErr *e)
{
    LpTensor *out[LP_MAX_LIST];
    int n_out = 0;
    bool done = false;
    LP_TRY(may_write(in[0].t, e));
    lp_reach_base(in[0].t);
    if (op->flags & (LP_OPF_POINTWISE | LP_OPF_OUT_APART))
        LP_TRY(lp_check_overlap(in[0].t, in + 1, n_in - 1, e));
    if (!lp_tracing && op->kind != LP_OP_COMPOSITE &&
        !(op->flags & LP_OPF_VIEW) && !reads_target(op, in, n_in)) {
        LP_TRY(direct(op, in, n_in, attr, &done, e));
        if (done)
            return LP_OK;
    }
    LP_TRY(call_on_copy(op, in, n_in, attr, out, &n_out, e));
    LpType type = lp_tensor_type(out[0]);
    LpStatus s = castable(type.dtype, in[0].t->dtype, op->name, e);
    if (s == LP_OK)
        s = fits(in[0].t, &type, op->name, e);
    if (s == LP_OK)
        s = write_value(in[0].t, out[0], op->name, e);
    for (int i = 0; i < n_out; i++)
        lp_tensor_release(out[i]);
    return s;
}

LpStatus lp_op_call_inplace(const LpOp *op, const LpArg *in, int n_in,
                            const LpAttr *attr, LpErr *e)
{
    LpRngMark d = lp_rng_mark();
    LpStatus s = call_inplace(op, in, n_in, attr, e);
    if (s == LP_E_MEMORY)
        lp_rng_rollback(&d);
    return s;
}

/* ---- out= --------------------------------------------------------------- */
/* Has t the shape of `type`, or can it get it? */
static LpStatus check_size(const LpTensor *t, const LpType *type, LpErr *e)
{
    LpType now = lp_tensor_type(t);
    if (lp_shape_eq(&now, type))
        return LP_OK;
    LP_FAIL_IF(t->base || lp_tensor_numel(t) != 0, e, LP_E_RUNTIME,
               "out= has the wrong shape and is not empty, so that it cannot "
               "be resized");
    LP_FAIL_IF(lp_tracing, e, LP_E_RUNTIME,
               "out= cannot be resized inside a traced function");
    return lp_shape_check(type, e);
}

static LpStatus resize(LpTensor *t, const LpType *type, LpErr *e)
{
    LpType now = lp_tensor_type(t);
    LP_TRY(check_size(t, type, e));
    if (lp_shape_eq(&now, type))
        return LP_OK;
    LpStorage *st = NULL;
    size_t bytes = (size_t)lp_numel(type) * lp_dtype_size(t->dtype);
    LP_TRY(lp_storage_new(bytes, &st, e));
    lp_storage_release(t->st);
    t->st = st;
    t->offset = 0;
    t->ndim = type->ndim;
    memcpy(t->shape, type->shape, (size_t)type->ndim * sizeof *t->shape);
    lp_contiguous_strides(type, t->strides);
    return LP_OK;
}

static bool holds_truth(LpDtype t)
{
    return t == LP_BOOL || t == LP_U8;
}

/* May a result of type `from` be written into `t`? */
static LpStatus check_out(const LpOp *op, const LpArg *in, int n_in,
                          const LpTensor *t, LpDtype from, bool casts, LpErr *e)
{
    LP_TRY(lp_check_target(t, e));
    if (op->flags & (LP_OPF_POINTWISE | LP_OPF_OUT_APART))
        LP_TRY(lp_check_overlap(t, in, n_in, e));
    if (op->flags & LP_OPF_TRUTH && holds_truth(from) && holds_truth(t->dtype))
        return LP_OK;
    if (op->flags & LP_OPF_COINS)
        return LP_OK;
    if (from == LP_I64 && t->dtype == LP_I32 && lp_trace_is_narrow())
        return LP_OK;
    LP_FAIL_IF(!casts && t->dtype != from, e, LP_E_RUNTIME,
               "%s: Expected out tensor to have dtype %s, but got %s instead",
               op->name, lp_dtype_name(from), lp_dtype_name(t->dtype));
    LpStatus s = castable(from, t->dtype, op->name, e);
    if (s != LP_OK && op->flags & LP_OPF_JOINS)
        s = e->code = LP_E_TYPE;
    return s;
}

/* May the kernel of c write result i where out[i] lies, at once? */
static bool takes(const LpCall *c, const LpArg *in, int n_in,
                  LpTensor *const *out, int i)
{
    LpType type = lp_tensor_type(out[i]);
    if (!lp_type_eq(&type, &c->out[i]) || !lp_tensor_contiguous(out[i]))
        return false;
    for (int k = 0; k < i; k++)
        if (out[k]->st == out[i]->st)
            return false;
    if (c->op->flags & (LP_OPF_POINTWISE | LP_OPF_ELEMENTWISE))
        return !overlaps(out[i], in, n_in);
    for (int k = 0; k < n_in; k++)
        if (in[k].t && in[k].t->st == out[i]->st)
            return false;
    return true;
}

/* What can be said against out[] before anything is written. */
static LpStatus check_all(const LpCall *c, const LpArg *in, int n_in,
                          LpTensor *const *out, int n_out, bool casts, LpErr *e)
{
    for (int i = 0; i < n_out && i < c->n_out; i++) {
        LP_TRY(check_out(c->op, in, n_in, out[i], c->out[i].dtype, casts, e));
        LP_TRY(check_size(out[i], &c->out[i], e));
    }
    return LP_OK;
}

/* Does a result share memory with an operand? */
static bool overwrites(const LpCall *c, const LpArg *in, LpTensor *const *out)
{
    for (int i = 0; i < c->n_in; i++)
        for (int k = 0; k < c->n_out && in[i].t; k++)
            if (in[i].t->st == out[k]->st)
                return true;
    return false;
}

/* The results; res[i] is out[i] itself where the kernel can write there. */
static LpStatus call_towards(const LpOp *op, const LpArg *in, int n_in,
                             const LpAttr *attr, LpTensor *const *out,
                             int n_out, bool casts, LpTensor **res, int *n,
                             LpErr *e)
{
    if (lp_tracing || op->kind == LP_OP_COMPOSITE || op->measure ||
        op->flags & (LP_OPF_VIEW | LP_OPF_RANDOM) || lp_any_meta(in, n_in))
        return lp_op_call(op, in, n_in, attr, res, n, e);
    LpCall c;
    int made = 0;
    LpArena *arena = lp_scratch_enter();
    LpStatus s = lp_call_infer(&c, op, in, n_in, attr, arena, e);
    if (s == LP_OK)
        s = check_all(&c, in, n_in, out, n_out, casts, e);
    if (s == LP_OK)
        s = lp_touch_all(in, n_in, e);
    while (s == LP_OK && made < c.n_out) {
        bool there = made < n_out && takes(&c, in, n_in, out, made);
        s = there ? lp_tensor_touch(out[made], true, e)
                  : lp_tensor_new(&c.out[made], &res[made], e);
        if (s != LP_OK)
            break;
        if (there)
            res[made] = lp_tensor_retain(out[made]);
        made++;
    }
    if (s == LP_OK)
        s = lp_call_run(&c, in, res, 0, !overwrites(&c, in, res), e);
    while (s != LP_OK && made > 0)
        lp_tensor_release(res[--made]);
    *n = made;
    lp_scratch_leave();
    return s;
}

static LpStatus no_history(const LpArg *in, int n_in, LpTensor *const *out,
                           int n_out, LpErr *e)
{
    bool grad = lp_wants_grad(in, n_in);
    for (int i = 0; i < n_out && lp_grad_enabled(); i++)
        grad |= lp_requires_grad(out[i]);
    LP_FAIL_IF(grad, e, LP_E_RUNTIME,
               "out= does not support automatic differentiation, but one of "
               "the arguments requires grad");
    return LP_OK;
}

LpStatus lp_op_call_out(const LpOp *op, const LpArg *in, int n_in,
                        const LpAttr *attr, LpTensor *const *out, int n_out,
                        bool casts, LpErr *e)
{
    LpTensor *res[LP_MAX_LIST];
    int n = 0;
    LP_TRY(no_history(in, n_in, out, n_out, e));
    LP_TRY(call_towards(op, in, n_in, attr, out, n_out, casts, res, &n, e));
    LpStatus s = LP_OK;
    if (n < n_out)
        s = lp_fail(e, LP_E_TYPE, "out= needs %d tensors, got %d", n, n_out);
    for (int i = 0; i < n_out && s == LP_OK; i++) {
        LpType type = lp_tensor_type(res[i]);
        if (res[i] == out[i]) {
            out[i]->st->version++;
            continue;
        }
        s = check_out(op, in, n_in, out[i], type.dtype, casts, e);
        bool nothing = res[i]->st->flags & out[i]->st->flags & LP_ST_META;
        if (s == LP_OK && !nothing)
            s = resize(out[i], &type, e);
        else if (s == LP_OK)
            s = check_size(out[i], &type, e);
        if (s == LP_OK && !nothing)
            s = write_value(out[i], res[i], op->name, e);
    }
    for (int i = 0; i < n; i++)
        lp_tensor_release(res[i]);
    return s;
}
