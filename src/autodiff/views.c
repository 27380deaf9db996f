/* View chains: made by eager calls and by traces, replayed and written through
 * by both. */
#include <inttypes.h>
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/autodiff/op_call.h"
#include "src/autodiff/trace.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/view_geometry.h"
#include "src/ops/ops.h"

void *lp_attrs_block(size_t head, const LpAttr *attr, int n)
{
    size_t size = head + (size_t)n * sizeof *attr;
    for (int i = 0; i < n; i++) {
        if (attr[i].kind == LP_ATTR_INTS)
            size += (size_t)attr[i].n * sizeof *attr[i].v;
        else if (attr[i].kind == LP_ATTR_STR)
            size += (strlen(attr[i].str) + 8) & ~(size_t)7;
    }
    char *block = lp_alloc(size);
    if (!block)
        return NULL;
    LpAttr *a = (LpAttr *)(void *)(block + head);
    char *tail = (char *)(a + n);
    for (int i = 0; i < n; i++) {
        a[i] = attr[i];
        if (attr[i].kind == LP_ATTR_INTS) {
            size_t len = (size_t)attr[i].n * sizeof *attr[i].v;
            a[i].v = len ? memcpy(tail, attr[i].v, len)
                         : (const int64_t *)(void *)tail;
            tail += len;
        } else if (attr[i].kind == LP_ATTR_STR) {
            size_t len = strlen(attr[i].str);
            a[i].str = memcpy(tail, attr[i].str, len + 1);
            tail += (len + 8) & ~(size_t)7;
        }
    }
    return block;
}

/* Sizes and strides come from outside (as_strided): every element must lie in
 * the storage. */
static LpStatus in_bounds(const LpTensor *src, const LpCall *c, LpErr *e)
{
    int64_t last = c->offset, have = (int64_t)src->st->bytes;
    have /= (int64_t)lp_dtype_size(c->out[0].dtype);
    for (int i = 0; i < c->out[0].ndim; i++) {
        if (c->out[0].shape[i] == 0)
            return LP_OK;
        last += (c->out[0].shape[i] - 1) * c->strides[i];
    }
    LP_FAIL_IF(c->offset < 0 || last < 0 || last >= have, e, LP_E_RUNTIME,
               "%s: sizes, strides and storage offset require %" PRId64
               " elements, which is out of bounds for storage of %" PRId64,
               c->op->name, last + 1, have);
    return LP_OK;
}

/* A view by strides of its own is one of the memory, whatever part of it src
 * shows: its chain begins at the base, if that has its elements in order. */
static bool from_base(const LpTensor *src, const LpOp *op)
{
    return src->base && op->flags & LP_OPF_OWN_STRIDES &&
           src->base->offset == 0 && lp_tensor_contiguous(src->base);
}

LpStatus lp_make_view(LpTensor *src, const LpCall *c, LpTensor **out, LpErr *e)
{
    if (!(src->st->flags & (LP_ST_TRACED | LP_ST_META)))
        LP_TRY(in_bounds(src, c, e));
    LpViewStep *step = lp_alloc(sizeof *step);
    LpViewCall *call = lp_attrs_block(sizeof *call, c->attr, c->op->n_attr);
    LpTensor *t = NULL;
    LpStatus s =
        step && call ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
    if (s == LP_OK)
        s = lp_tensor_over(src->st, &c->out[0], c->strides, c->offset, &t, e);
    if (s != LP_OK) {
        lp_free(step);
        lp_free(call);
        return s;
    }
    call->op = c->op;
    if (from_base(src, c->op)) {
        src = src->base;
        call->attr[LP_STRIDED_GEOMETRY] = LP_NONE_ATTR;
    }
    if (src->view)
        src->view->refs++;
    *step = (LpViewStep){.refs = 1,
                         .parent = src->view,
                         .type = c->out[0],
                         .call = call,
                         .release_call = lp_free};
    t->base = lp_tensor_retain(src->base ? src->base : src);
    t->view = step;
    *out = t;
    return LP_OK;
}

void lp_reach_base(LpTensor *t)
{
    uint32_t flags = 0;
    for (const LpViewStep *step = t->view; step; step = step->parent)
        flags |= ((const LpViewCall *)step->call)->op->flags;
    if (!(flags & LP_OPF_OWN_STRIDES) || lp_tracing || !lp_grad_enabled() ||
        !t->requires_grad || !t->meta || !t->meta->node)
        return;
    const LpTensorMeta *m = t->base->meta;
    t->meta->hist = (m ? m->hist : 0) - 1; /* stale */
}

LpStatus lp_detached_alias(LpTensor *t, LpTensor **out, LpErr *e)
{
    LpType type = lp_tensor_type(t);
    LP_TRY(lp_tensor_over(t->st, &type, t->strides, t->offset, out, e));
    if (!t->base)
        return LP_OK;
    LpTensor *base = NULL;
    LpStatus s = lp_detached_alias(t->base, &base, e);
    if (s != LP_OK) {
        lp_tensor_release(*out);
        return s;
    }
    (*out)->base = base;
    if (((*out)->view = t->view) != NULL)
        t->view->refs++;
    return LP_OK;
}

LpVal lp_replay_chain(LpBuilder *b, const LpViewStep *step, LpVal base)
{
    if (!step)
        return base;
    const LpViewCall *c = step->call;
    LpVal x = lp_replay_chain(b, step->parent, base);
    LpVal out[LP_MAX_OUT];
    if (lp_failed(b))
        return LP_NOVAL;
    return b->emit(b, c->op, &x, 1, c->attr, out) > 0 ? out[0] : LP_NOVAL;
}

/* Does a step of the chain show elements several times? Then the value that it
 * shows does not tell which of them was written. */
static bool repeats(const LpViewStep *step, const LpType *base)
{
    for (; step; step = step->parent)
        if (lp_numel(&step->type) >
            lp_numel(step->parent ? &step->parent->type : base))
            return true;
    return false;
}

/* Where the elements of a view lie in its base, a contiguous value: false where
 * strides do not tell. */
static bool reach(const LpViewStep *step, const LpType *base, LpViewGeometry *g)
{
    LpErr ignored = {0};
    LpViewGeometry of = {.type = *base};
    const LpViewCall *c = step->call;
    if (step->parent && !reach(step->parent, base, &of))
        return false;
    if (lp_view_geometry(c->op, c->attr, c->op->n_attr, &of.type,
                         step->parent ? of.strides : NULL, g,
                         &ignored) != LP_OK)
        return false;
    g->offset += of.offset;
    return !g->needs_copy && g->type.dtype == base->dtype;
}

/* A part in which no element comes twice, of a view in which some do. */
static bool put_part(LpBuilder *b, const LpViewStep *step, LpVal *base, LpVal v)
{
    LpType type = *lp_type(b, *base);
    LpViewGeometry g;
    if (!repeats(step, &type) || !reach(step, &type, &g) ||
        lp_view_overlaps(&g))
        return false;
    LpAttr at[] = {lp_attr_ints(g.type.shape, g.type.ndim),
                   lp_attr_ints(g.strides, g.type.ndim), lp_attr_int(g.offset)};
    *base = lp_emit(b, LP_OP_as_strided_embed, (LpVal[]){*base, v}, 2, at);
    return true;
}

LpVal lp_put_chain(LpBuilder *b, const LpViewStep *step, LpVal base, LpVal v)
{
    if (put_part(b, step, &base, v))
        return base;
    while (step) {
        const LpViewCall *c = step->call;
        if (!c->op->put) {
            lp_fail(b->err, LP_E_RUNTIME,
                    "a view made by %s cannot be written in place",
                    c->op->name);
            return LP_NOVAL;
        }
        LpVal parent = lp_replay_chain(b, step->parent, base);
        v = c->op->put(b, c->attr, parent, v);
        step = step->parent;
    }
    return v;
}
