/* Views of a part: slice, select, diagonal, as_strided, unfold. Their
 * gradients are the adjoint selections of view_put.c, their `put` the
 * scatters there. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/copy/copy_view.h"
#include "src/kernel/copy/view_geometry.h"
#include "src/ops/layout_cost.h"
#include "src/ops/view/view.h"

/* The adjoint operator `back`: attributes are the operand's sizes, then the
 * view's own. */
static void grad_by(LpGrad *g, int back)
{
    LpType t = *lp_type(g->b, g->in[0]);
    LpAttr a[LP_MAX_ATTR];
    a[0] = lp_attr_ints(t.shape, t.ndim);
    memcpy(a + LP_VIEW_BACK_OWN, g->attr, g->op->n_attr * sizeof *a);
    g->din[0] = lp_emit(g->b, back, &g->dout[0], 1, a);
}

/* The record of a view, whose gradient and put are its adjoint and its scatter
 * in view_put.c. */
#define PART(name, forms_)                                                     \
    static void grad_##name(LpGrad *g)                                         \
    {                                                                          \
        grad_by(g, LP_OP_##name##_backward);                                   \
    }                                                                          \
    static LpVal put_##name(LpBuilder *b, const LpAttr *attr, LpVal parent,    \
                            LpVal v)                                           \
    {                                                                          \
        return lp_emit(b, LP_OP_##name##_scatter, (LpVal[]){parent, v}, 2,     \
                       attr);                                                  \
    }                                                                          \
    LP_VIEW(name, forms_, infer_##name, put_##name, .grad = grad_##name)

/* Drops dimension d of result 0 (and of its strides). */
static void drop_dim(LpInfer *x, int d)
{
    x->out[0].ndim--;
    for (int i = d; i < x->out[0].ndim; i++) {
        x->out[0].shape[i] = x->out[0].shape[i + 1];
        if (x->strides)
            x->strides[i] = x->strides[i + 1];
    }
}

/* ---- slice --------------------------------------------------------------- */
/* Python's rules: negative from the end, then clamped. */
static int64_t clamp_index(const LpAttr *a, int64_t absent, int64_t size)
{
    int64_t i = lp_attr_none(a) ? absent : a->i;
    if (i < 0)
        i += size;
    return i < 0 ? 0 : i > size ? size : i;
}

static LpStatus infer_slice(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_FAIL_IF(x->in[0].ndim == 0, x->err, LP_E_INDEX,
               "slice() cannot be applied to a 0-dim tensor.");
    LP_TRY(lp_wrap_dim(&a[LP_SLICE_DIM].i, x->in[0].ndim, x->err));
    LP_FAIL_IF(a[LP_SLICE_STEP].i < 1, x->err, LP_E_VALUE,
               "slice step must be greater than zero, got %lld",
               (long long)a[LP_SLICE_STEP].i);
    LP_TRY(lp_view_same(x));
    int d = (int)a[LP_SLICE_DIM].i;
    int64_t size = x->in[0].shape[d], step = a[LP_SLICE_STEP].i;
    int64_t start = clamp_index(&a[LP_SLICE_START], 0, size);
    int64_t end = clamp_index(&a[LP_SLICE_END], size, size);
    if (end < start)
        end = start;
    a[LP_SLICE_START] = lp_attr_int(start);
    a[LP_SLICE_END] = lp_attr_int(end);
    x->out[0].shape[d] = end > start ? (end - start - 1) / step + 1 : 0;
    if (x->strides) {
        *x->offset = x->in_offset + start * x->in_strides[d];
        if (x->out[0].shape[d] > 1)
            x->strides[d] *= step;
    }
    return LP_OK;
}

PART(slice, "slice(Tensor self, int dim=0, int? start=None, int? end=None, "
            "int step=1) -> Tensor @p")

LpVal lp_slice(LpBuilder *b, LpVal x, int dim, int64_t start, int64_t stop,
               int64_t step)
{
    LpAttr a[] = {lp_attr_int(dim), lp_attr_int(start), lp_attr_int(stop),
                  lp_attr_int(step)};
    return lp_emit(b, LP_OP_slice, &x, 1, a);
}

/* ---- select -------------------------------------------------------------- */
static LpStatus infer_select(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_FAIL_IF(x->in[0].ndim == 0, x->err, LP_E_INDEX,
               "select() cannot be applied to a 0-dim tensor.");
    LP_TRY(lp_wrap_dim(&a[LP_SELECT_DIM].i, x->in[0].ndim, x->err));
    int d = (int)a[LP_SELECT_DIM].i;
    int64_t size = x->in[0].shape[d], i = a[LP_SELECT_INDEX].i;
    LP_FAIL_IF(i < -size || i >= size, x->err, LP_E_INDEX,
               "select(): index %lld out of range for tensor of size %s at "
               "dimension %d: indices count from 0, the range is [%lld, %lld]",
               (long long)i, lp_shape_str(&x->in[0]), d, (long long)-size,
               (long long)size - 1);
    a[LP_SELECT_INDEX].i = i < 0 ? i + size : i;
    LP_TRY(lp_view_same(x));
    if (x->strides)
        *x->offset = x->in_offset + a[LP_SELECT_INDEX].i * x->in_strides[d];
    drop_dim(x, d);
    return LP_OK;
}

PART(select, "select(Tensor self, int dim, int index) -> Tensor @fm")

/* ---- diagonal ------------------------------------------------------------ */
static LpStatus infer_diagonal(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_TRY(lp_wrap_dim(&a[1].i, x->in[0].ndim, x->err));
    LP_TRY(lp_wrap_dim(&a[2].i, x->in[0].ndim, x->err));
    int d1 = (int)a[1].i, d2 = (int)a[2].i;
    LP_FAIL_IF(d1 == d2, x->err, LP_E_RUNTIME,
               "diagonal dimensions cannot be identical %d, %d", d1, d2);
    int64_t off = a[0].i;
    int64_t rows = x->in[0].shape[d1], cols = x->in[0].shape[d2];
    off = off > cols ? cols : off < -rows ? -rows : off;
    int64_t r0 = off < 0 ? -off : 0, c0 = off > 0 ? off : 0;
    int64_t n = rows - r0 < cols - c0 ? rows - r0 : cols - c0;
    LP_TRY(lp_view_same(x));
    drop_dim(x, d1 > d2 ? d1 : d2);
    drop_dim(x, d1 > d2 ? d2 : d1);
    int last = x->out[0].ndim++;
    x->out[0].shape[last] = n;
    if (x->strides) {
        x->strides[last] = x->in_strides[d1] + x->in_strides[d2];
        if (n > 0)
            *x->offset += r0 * x->in_strides[d1] + c0 * x->in_strides[d2];
    }
    return LP_OK;
}

PART(diagonal, "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> "
               "Tensor @fm\n"
               "diagonal.linalg(Tensor self, *, int offset=0, int dim1=-2, int "
               "dim2=-1) -> Tensor @l")

/* ---- as_strided ---------------------------------------------------------- */
/* Sizes and strides over the operand's storage; the offset counts from the
 * storage's start (None: from the operand's element 0). A value without
 * memory is taken as contiguous from offset 0. An operand of any other
 * geometry is noted in the last attribute, offset first, then strides: the
 * gradient needs it. */
static LpStatus check_strided(LpInfer *x)
{
    const LpAttr *a = x->attr;
    LP_FAIL_IF(a[LP_STRIDED_SIZE].n != a[LP_STRIDED_STRIDE].n, x->err,
               LP_E_RUNTIME,
               "as_strided: mismatch in length of strides and shape: %d sizes "
               "and %d strides",
               a[LP_STRIDED_SIZE].n, a[LP_STRIDED_STRIDE].n);
    if (a[LP_STRIDED_SIZE].n > LP_MAX_DIMS)
        return lp_too_many_dims(x, a[LP_STRIDED_SIZE].n);
    for (int i = 0; i < a[LP_STRIDED_SIZE].n; i++)
        LP_FAIL_IF(a[LP_STRIDED_SIZE].v[i] < 0 || a[LP_STRIDED_STRIDE].v[i] < 0,
                   x->err, LP_E_RUNTIME,
                   "as_strided: negative sizes and strides are not supported, "
                   "got size %lld and stride %lld in dimension %d",
                   (long long)a[LP_STRIDED_SIZE].v[i],
                   (long long)a[LP_STRIDED_STRIDE].v[i], i);
    return LP_OK;
}

/* No memory has so many elements; what is computed from strides below it
 * (sums over dimensions, bytes) cannot overflow. */
#define MAX_STRIDE (INT64_C(1) << 56)

/* The last element that sizes and strides reach, -1 if none. The strides of
 * dimensions of 0 or 1 elements reach nothing, but views of the result compute
 * with them. */
static LpStatus reach(LpInfer *x, const LpType *t, const int64_t *strides,
                      int64_t offset, int64_t *last)
{
    int64_t at = offset, span;
    bool fits = offset <= MAX_STRIDE, empty = false;
    for (int i = 0; i < t->ndim && fits; i++) {
        int64_t n = t->shape[i] > 0 ? t->shape[i] : 1;
        empty |= t->shape[i] == 0;
        fits = lp_mul_i64(strides[i], n, &span) && span <= MAX_STRIDE;
        at += fits && n > 1 ? span - strides[i] : 0;
    }
    LP_FAIL_IF(!fits, x->err, LP_E_RUNTIME,
               "as_strided: sizes, strides and storage offset overflow: they "
               "reach beyond 2^56 elements");
    *last = empty ? -1 : at;
    return LP_OK;
}

/* What has no memory, in a graph or rewritten for a gradient, is in order. */
static LpStatus check_order(const LpAttr *geometry, LpErr *e)
{
    LP_FAIL_IF(!lp_attr_none(geometry), e, LP_E_RUNTIME,
               "as_strided: the tensor's elements lie in memory in another "
               "order than that of its indices, where neither a compiled "
               "program nor a write with gradients can follow: use "
               "contiguous() first");
    return LP_OK;
}

static LpStatus infer_as_strided(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_TRY(check_strided(x));
    LpType out = x->in[0];
    lp_set_dims(&out, a[LP_STRIDED_SIZE].v, a[LP_STRIDED_SIZE].n);
    LP_TRY(lp_shape_check(&out, x->err));
    int64_t plain[LP_MAX_DIMS], last = -1, have = lp_numel(&x->in[0]) - 1;
    if (lp_attr_none(&a[LP_STRIDED_STORAGE_OFFSET]))
        a[LP_STRIDED_STORAGE_OFFSET] =
            lp_attr_int(x->strides ? x->in_offset : 0);
    LP_FAIL_IF(a[LP_STRIDED_STORAGE_OFFSET].i < 0, x->err, LP_E_RUNTIME,
               "as_strided: storage_offset must be non-negative, got %lld",
               (long long)a[LP_STRIDED_STORAGE_OFFSET].i);
    LP_TRY(reach(x, &out, a[LP_STRIDED_STRIDE].v,
                 a[LP_STRIDED_STORAGE_OFFSET].i, &last));
    lp_contiguous_strides(&x->in[0], plain);
    if (x->strides && (x->in_offset != 0 ||
                       memcmp(plain, x->in_strides,
                              (size_t)x->in[0].ndim * sizeof *plain) != 0)) {
        int64_t g[LP_MAX_DIMS + 1];
        g[0] = x->in_offset;
        memcpy(g + 1, x->in_strides, (size_t)x->in[0].ndim * sizeof *g);
        LP_TRY(lp_set_ints(x, LP_STRIDED_GEOMETRY, g, x->in[0].ndim + 1));
    } else if (!x->strides) {
        LP_TRY(check_order(&a[LP_STRIDED_GEOMETRY], x->err));
        LP_FAIL_IF(last > have, x->err, LP_E_RUNTIME,
                   "as_strided: element %lld is out of bounds for a tensor of "
                   "%lld elements",
                   (long long)last, (long long)have + 1);
    }
    x->out[0] = out;
    if (x->strides) {
        memcpy(x->strides, a[LP_STRIDED_STRIDE].v,
               (size_t)out.ndim * sizeof *plain);
        *x->offset = a[LP_STRIDED_STORAGE_OFFSET].i;
    }
    return LP_OK;
}

/* One more than the last element that the view reaches. */
static int64_t extent(const int64_t *shape, const int64_t *strides, int ndim,
                      int64_t offset)
{
    for (int i = 0; i < ndim; i++)
        offset += shape[i] > 1 ? (shape[i] - 1) * strides[i] : 0;
    return offset + 1;
}

/* The operand's elements lie at storage positions: the gradient of the whole
 * storage, seen as the operand sees it. What several of the operand's elements
 * share is divided among them. */
static void grad_as_strided(LpGrad *g)
{
    const LpAttr *a = g->attr, *noted = &a[LP_STRIDED_GEOMETRY];
    LpType t = *lp_type(g->b, g->in[0]);
    LpViewGeometry at = {.type = t};
    lp_contiguous_strides(&t, at.strides);
    if (!lp_attr_none(noted)) {
        at.offset = noted->v[0];
        memcpy(at.strides, noted->v + 1, (size_t)t.ndim * sizeof *at.strides);
    }
    int64_t n = extent(a[LP_STRIDED_SIZE].v, a[LP_STRIDED_STRIDE].v,
                       a[LP_STRIDED_SIZE].n, a[LP_STRIDED_STORAGE_OFFSET].i);
    int64_t m = extent(t.shape, at.strides, t.ndim, at.offset);
    if (lp_attr_none(noted) && n <= m) {
        grad_by(g, LP_OP_as_strided_backward);
        return;
    }
    n = n > m ? n : m;
    LpAttr back[] = {lp_attr_ints(&n, 1), a[LP_STRIDED_SIZE],
                     a[LP_STRIDED_STRIDE], a[LP_STRIDED_STORAGE_OFFSET],
                     LP_NONE_ATTR};
    LpAttr see[] = {back[0], lp_attr_ints(t.shape, t.ndim),
                    lp_attr_ints(at.strides, t.ndim), lp_attr_int(at.offset),
                    LP_NONE_ATTR};
    LpVal st = lp_emit(g->b, LP_OP_as_strided_backward, &g->dout[0], 1, back);
    g->din[0] = lp_emit(g->b, LP_OP_as_strided, &st, 1, see + 1);
    if (!lp_view_overlaps(&at))
        return;
    LpVal sharers = lp_full(g->b, &t, lp_int(1));
    sharers = lp_emit(g->b, LP_OP_as_strided_backward, &sharers, 1, see);
    sharers = lp_emit(g->b, LP_OP_as_strided, &sharers, 1, see + 1);
    g->din[0] = lp_div(g->b, g->din[0], sharers);
}

static LpVal put_as_strided(LpBuilder *b, const LpAttr *attr, LpVal parent,
                            LpVal v)
{
    if (check_order(&attr[LP_STRIDED_GEOMETRY], b->err) != LP_OK)
        return LP_NOVAL;
    return lp_emit(b, LP_OP_as_strided_embed, (LpVal[]){parent, v}, 2, attr);
}

LP_PRIMITIVE(as_strided,
             "as_strided.geometry(Tensor self, int[] size, int[] stride, int? "
             "storage_offset=None, int[]? geometry=None) -> Tensor @p\n"
             "as_strided(Tensor self, int[] size, int[] stride, int? "
             "storage_offset=None) -> Tensor @fm",
             infer_as_strided, lp_view_prepare, lp_rule_view,
             .flags = LP_OPF_VIEW | LP_OPF_OWN_STRIDES, .grad = grad_as_strided,
             .put = put_as_strided)

/* ---- unfold -------------------------------------------------------------- */
static LpStatus infer_unfold(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_TRY(lp_wrap_dim(&a[0].i, x->in[0].ndim, x->err));
    int d = (int)a[0].i, n = x->in[0].ndim;
    int64_t max = n == 0 ? 1 : x->in[0].shape[d];
    LP_FAIL_IF(a[1].i < 0 || a[1].i > max, x->err, LP_E_RUNTIME,
               "unfold: maximum size for tensor at dimension %d is %lld but "
               "size is %lld",
               d, (long long)max, (long long)a[1].i);
    LP_FAIL_IF(a[2].i < 1, x->err, LP_E_RUNTIME,
               "unfold: step is %lld but must be > 0", (long long)a[2].i);
    LP_FAIL_IF(n == LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "unfold: the result would have %d dimensions, at most %d are "
               "supported",
               n + 1, LP_MAX_DIMS);
    LP_TRY(lp_view_same(x));
    x->out[0].ndim++;
    x->out[0].shape[n] = a[1].i;
    if (x->strides)
        x->strides[n] = n == 0 ? 1 : x->in_strides[d];
    if (n > 0) {
        x->out[0].shape[d] = (max - a[1].i) / a[2].i + 1;
        if (x->strides && x->out[0].shape[d] > 1)
            x->strides[d] = x->in_strides[d] * a[2].i;
    }
    return LP_OK;
}

PART(unfold, "unfold(Tensor self, int dimension, int size, int step) -> Tensor "
             "@m")
