/* Primitive views: operators whose result is the operand's memory seen
 * through other sizes and strides. The shape rules set both; without memory
 * (in a graph) they set the type alone and the kernel copies.
 *
 * The gradient of a view is the adjoint of the selection (view_put.c); its
 * `put`, the parent after the view was overwritten, is a scatter of the same
 * name. Attributes become canonical: dims from 0, sizes without -1, starts
 * and ends inside the dimension. */
#include <string.h>

#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/copy_view.h"
#include "src/ops/function.h"
#include "src/ops/layout_cost.h"
#include "src/ops/view/view.h"

/* ---- shared -------------------------------------------------------------- */
LpStatus lp_set_ints(LpInfer *x, int i, const int64_t *v, int n)
{
    int64_t *copy = NULL;
    if (n > 0) {
        copy = lp_arena_memdup(x->arena, v, (size_t)n * sizeof *v);
        LP_FAIL_IF(!copy, x->err, LP_E_MEMORY, "no memory for attributes");
    }
    x->attr[i] = lp_attr_ints(copy, n);
    return LP_OK;
}

void lp_set_dims(LpType *t, const int64_t *v, int n)
{
    t->ndim = (int8_t)n;
    t->wrapped = false;
    for (int i = 0; i < LP_MAX_DIMS; i++)
        t->shape[i] = i < n ? v[i] : 0;
}

LpStatus lp_view_same(LpInfer *x)
{
    x->out[0] = x->in[0];
    x->out[0].wrapped = false;
    if (x->strides) {
        memcpy(x->strides, x->in_strides, LP_MAX_DIMS * sizeof *x->strides);
        *x->offset = x->in_offset;
    }
    return LP_OK;
}

const char *lp_ints_str_in(const int64_t *v, int n, char buf[LP_SHAPE_STR])
{
    LpType t = {.ndim = (int8_t)(n > LP_MAX_DIMS ? LP_MAX_DIMS : n)};
    memcpy(t.shape, v, (size_t)t.ndim * sizeof *v);
    return lp_shape_str_in(&t, buf);
}

LpStatus lp_too_many_dims(LpInfer *x, int n)
{
    return lp_fail(x->err, LP_E_RUNTIME,
                   "%s: %d dimensions, at most %d are supported", x->op->name,
                   n, LP_MAX_DIMS);
}

/* ---- gradients and puts -------------------------------------------------- */
/* The caller sums it down to the operand's shape, casts it to its type. */
void lp_grad_same(LpGrad *g)
{
    g->din[0] = g->dout[0];
}

void lp_reshape_grad(LpGrad *g)
{
    LpType t = *lp_type(g->b, g->in[0]);
    g->din[0] = lp_reshape_as(g->b, g->dout[0], &t);
}

LpVal lp_reshape_put(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v)
{
    (void)attr;
    LpType t = *lp_type(b, parent);
    return lp_reshape_as(b, v, &t);
}

static LpVal put_all(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v)
{
    (void)b, (void)attr, (void)parent;
    return v;
}

/* ---- expand -------------------------------------------------------------- */
static LpStatus infer_expand(LpInfer *x)
{
    const LpAttr *a = &x->attr[0];
    const LpType *in = &x->in[0];
    int lead = a->n - in->ndim;
    if (a->n > LP_MAX_DIMS)
        return lp_too_many_dims(x, a->n);
    LP_FAIL_IF(lead < 0, x->err, LP_E_RUNTIME,
               "expand: the number of sizes provided (%d) must be greater or "
               "equal to the number of dimensions in the tensor (%d)",
               a->n, in->ndim);
    LpType out = *in;
    lp_set_dims(&out, a->v, a->n);
    int64_t strides[LP_MAX_DIMS] = {0};
    for (int i = 0; i < a->n; i++) {
        int64_t size = i < lead ? 1 : in->shape[i - lead];
        LP_FAIL_IF(a->v[i] < (i < lead ? 0 : -1), x->err, LP_E_RUNTIME,
                   "expand: the size %lld of dimension %d is not allowed%s",
                   (long long)a->v[i], i,
                   i < lead ? " in a leading, non-existing dimension" : "");
        if (a->v[i] == -1)
            out.shape[i] = size;
        LP_FAIL_IF(size != 1 && out.shape[i] != size, x->err, LP_E_RUNTIME,
                   "The expanded size of the tensor (%lld) must match the "
                   "existing size (%lld) at non-singleton dimension %d.  "
                   "Target sizes: %s.  Tensor sizes: %s",
                   (long long)a->v[i], (long long)size, i,
                   lp_ints_str(a->v, a->n), lp_shape_str(in));
        if (x->strides && i >= lead && out.shape[i] == size)
            strides[i] = x->in_strides[i - lead];
    }
    for (int i = lead - 1; i >= 0 && in->ndim > 0; i--)
        if (out.shape[i] == 1) /* as unsqueeze has it */
            strides[i] = out.shape[i + 1] * strides[i + 1];
    LP_TRY(lp_set_ints(x, 0, out.shape, out.ndim));
    x->out[0] = out;
    if (x->strides) {
        memcpy(x->strides, strides, sizeof strides);
        *x->offset = x->in_offset;
    }
    return LP_OK;
}

static LpVal put_expand(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v)
{
    LpType t = *lp_type(b, parent);
    (void)attr;
    if (lp_numel(&t) != lp_numel(lp_type(b, v))) {
        lp_fail(b->err, LP_E_RUNTIME,
                "unsupported operation: more than one element of the "
                "written-to tensor refers to a single memory location. Please "
                "clone() the tensor before performing the operation.");
        return LP_NOVAL;
    }
    return lp_reshape_as(b, v, &t);
}

LP_VIEW(expand,
        "expand(Tensor self, int[] size) -> Tensor @m\n"
        "broadcast_to(Tensor self, int[] size) -> Tensor @fm",
        infer_expand, put_expand, .grad = lp_grad_same)

/* ---- permute ------------------------------------------------------------- */
static LpStatus infer_permute(LpInfer *x)
{
    const LpAttr *a = &x->attr[LP_PERMUTE_DIMS];
    const LpType *in = &x->in[0];
    bool seen[LP_MAX_DIMS] = {false};
    int64_t dims[LP_MAX_DIMS];
    LP_FAIL_IF(a->n != in->ndim, x->err, LP_E_RUNTIME,
               "permute: %d dims are given for a tensor of %d dimensions: "
               "each must be named once",
               a->n, in->ndim);
    LP_TRY(lp_view_same(x));
    for (int i = 0; i < a->n; i++) {
        dims[i] = a->v[i];
        LP_TRY(lp_wrap_dim(&dims[i], in->ndim, x->err));
        LP_FAIL_IF(seen[dims[i]], x->err, LP_E_RUNTIME,
                   "permute(): duplicate dims are not allowed (dimension %lld "
                   "is given twice)",
                   (long long)dims[i]);
        seen[dims[i]] = true;
        x->out[0].shape[i] = in->shape[dims[i]];
        if (x->strides)
            x->strides[i] = x->in_strides[dims[i]];
    }
    return lp_set_ints(x, 0, dims, a->n);
}

static LpVal unpermute(LpBuilder *b, const LpAttr *a, LpVal v)
{
    int64_t back[LP_MAX_DIMS];
    for (int i = 0; i < a->n; i++)
        back[a->v[i]] = i;
    return lp_permute(b, v, back, a->n);
}

static void grad_permute(LpGrad *g)
{
    g->din[0] = unpermute(g->b, &g->attr[LP_PERMUTE_DIMS], g->dout[0]);
}

static LpVal put_permute(LpBuilder *b, const LpAttr *attr, LpVal parent,
                         LpVal v)
{
    (void)parent;
    return unpermute(b, &attr[LP_PERMUTE_DIMS], v);
}

LP_VIEW(permute, "permute(Tensor self, int[] dims) -> Tensor @fm",
        infer_permute, put_permute, .grad = grad_permute)

/* ---- unsqueeze, squeeze -------------------------------------------------- */
static LpStatus infer_unsqueeze(LpInfer *x)
{
    const LpType *in = &x->in[0];
    if (in->ndim == LP_MAX_DIMS)
        return lp_too_many_dims(x, in->ndim + 1);
    LP_TRY(lp_wrap_dim(&x->attr[LP_SQUEEZE_DIM].i, in->ndim + 1, x->err));
    int at = (int)x->attr[LP_SQUEEZE_DIM].i;
    LP_TRY(lp_view_same(x));
    x->out[0].ndim++;
    for (int i = x->out[0].ndim - 1; i > at; i--) {
        x->out[0].shape[i] = in->shape[i - 1];
        if (x->strides)
            x->strides[i] = x->in_strides[i - 1];
    }
    x->out[0].shape[at] = 1;
    if (x->strides)
        x->strides[at] = at < in->ndim ? in->shape[at] * x->in_strides[at] : 1;
    return LP_OK;
}

LP_VIEW(unsqueeze, "unsqueeze(Tensor self, int dim) -> Tensor @fm",
        infer_unsqueeze, lp_reshape_put, .grad = lp_reshape_grad)

/* Canonical dims: those that go, ascending; all are of size 1. */
static LpStatus infer_squeeze(LpInfer *x)
{
    const LpAttr *a = &x->attr[LP_SQUEEZE_DIM];
    const LpType *in = &x->in[0];
    bool goes[LP_MAX_DIMS] = {false}, named[LP_MAX_DIMS] = {false};
    int64_t dims[LP_MAX_DIMS];
    for (int i = 0; lp_attr_none(a) && i < in->ndim; i++)
        goes[i] = in->shape[i] == 1;
    for (int i = 0; !lp_attr_none(a) && i < a->n; i++) {
        int64_t d = a->v[i];
        LP_TRY(lp_wrap_dim(&d, in->ndim, x->err));
        if (in->ndim == 0)
            continue;
        LP_FAIL_IF(named[d], x->err, LP_E_RUNTIME,
                   "squeeze: dim %lld appears multiple times in the list of "
                   "dims",
                   (long long)d);
        named[d] = true;
        goes[d] = in->shape[d] == 1;
    }
    LP_TRY(lp_view_same(x));
    int n = 0, gone = 0;
    for (int i = 0; i < in->ndim; i++) {
        if (goes[i]) {
            dims[gone++] = i;
            continue;
        }
        x->out[0].shape[n] = in->shape[i];
        if (x->strides)
            x->strides[n] = x->in_strides[i];
        n++;
    }
    x->out[0].ndim = (int8_t)n;
    return lp_set_ints(x, 0, dims, gone);
}

LP_VIEW(squeeze, "squeeze(Tensor self, int[1]? dim=None) -> Tensor @fm",
        infer_squeeze, lp_reshape_put, .grad = lp_reshape_grad)

/* ---- detach, alias ------------------------------------------------------- */
/* The memory has the new value; its history, which a detached tensor has no
 * part in, stays what it was. */
static LpVal put_detach(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v)
{
    (void)attr;
    LpAttr a[LP_FUNCTION_N_ATTR] = {
        [LP_FUNCTION_RESULTS] = lp_attr_int(1),
        [LP_FUNCTION_RULE] = lp_attr_int(LP_FUNCTION_WRITTEN),
        [LP_FUNCTION_TRACE] = lp_attr_int(0),
        [LP_FUNCTION_MATERIALIZE] = lp_attr_bool(false)};
    return lp_emit(b, LP_OP_custom_function, (LpVal[]){v, parent}, 2, a);
}

LP_VIEW(detach, "detach(Tensor self) -> Tensor @fm", lp_view_same, put_detach,
        .no_grad = "a detached tensor is a constant to the gradient")

LP_VIEW(alias, "alias(Tensor self) -> Tensor @p", lp_view_same, put_all,
        .grad = lp_grad_same)

/* ---- short hand ---------------------------------------------------------- */
LpVal lp_reshape(LpBuilder *b, LpVal x, const int64_t *shape, int n)
{
    LpAttr a = lp_attr_ints(shape, n);
    return lp_emit(b, LP_OP_reshape, &x, 1, &a);
}

LpVal lp_reshape_as(LpBuilder *b, LpVal x, const LpType *like)
{
    if (lp_failed(b) || lp_shape_eq(lp_type(b, x), like))
        return x;
    return lp_reshape(b, x, like->shape, like->ndim);
}

LpVal lp_expand_as(LpBuilder *b, LpVal x, const LpType *like)
{
    if (lp_failed(b) || lp_shape_eq(lp_type(b, x), like))
        return x;
    LpAttr a = lp_attr_ints(like->shape, like->ndim);
    return lp_emit(b, LP_OP_expand, &x, 1, &a);
}

LpVal lp_permute(LpBuilder *b, LpVal x, const int64_t *dims, int n)
{
    LpAttr a = lp_attr_ints(dims, n);
    return lp_emit(b, LP_OP_permute, &x, 1, &a);
}

LpVal lp_transpose(LpBuilder *b, LpVal x, int d0, int d1)
{
    if (lp_failed(b))
        return LP_NOVAL;
    int64_t dims[LP_MAX_DIMS], i = d0, j = d1;
    int n = lp_type(b, x)->ndim;
    if (lp_wrap_dim(&i, n, b->err) || lp_wrap_dim(&j, n, b->err))
        return LP_NOVAL;
    for (int k = 0; k < n; k++)
        dims[k] = k;
    if (n > 0) {
        dims[i] = j;
        dims[j] = i;
    }
    return lp_permute(b, x, dims, n);
}

LpVal lp_unsqueeze(LpBuilder *b, LpVal x, int dim)
{
    LpAttr a = lp_attr_int(dim);
    return lp_emit(b, LP_OP_unsqueeze, &x, 1, &a);
}
