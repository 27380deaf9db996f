/* Reading and writing by index: whole rows (index_select, index_add,
 * embedding, advanced indexing). An index out of range is an error when the
 * kernel runs. Additions to one place are made in the order of the index,
 * whatever the number of threads. */
#include "src/ops/index/index.h"
#include "src/ops/layout_cost.h"

#include <string.h>

#include "src/kernel/copy/hooks.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define LL(x) ((long long)(x))

LpStatus lp_check_index(LpInfer *x, int i, const char *what)
{
    LpDtype t = x->in[i].dtype;
    bool empty = t < LP_N_DTYPES && lp_numel(&x->in[i]) == 0;
    LP_FAIL_IF(t != LP_I32 && t != LP_I64 && !empty, x->err, LP_E_RUNTIME,
               "%s: expected dtype int32 or int64 for %s, got %s", x->op->name,
               what, t < LP_N_DTYPES ? lp_dtype_name(t) : "nothing");
    return LP_OK;
}

/* ---- index_select, index_add --------------------------------------------- */
static LpStatus infer_index_select(LpInfer *x)
{
    LP_TRY(lp_check_index(x, 1, "index"));
    LP_TRY(lp_wrap_dim(&x->attr[LP_INDEX_DIM].i, x->in[0].ndim, x->err));
    LP_FAIL_IF(x->in[1].ndim > 1, x->err, LP_E_INDEX,
               "index_select(): Index is supposed to be a vector, got %d "
               "dimensions",
               x->in[1].ndim);
    x->out[0] = x->in[0];
    if (x->in[0].ndim > 0)
        x->out[0].shape[x->attr[LP_INDEX_DIM].i] = lp_numel(&x->in[1]);
    else
        LP_FAIL_IF(lp_numel(&x->in[1]) != 1, x->err, LP_E_INDEX,
                   "index_select(): Index to scalar can have only 1 value, got "
                   "%lld value(s)",
                   LL(lp_numel(&x->in[1])));
    return LP_OK;
}

static void grad_index_select(LpGrad *g)
{
    LpVal z = lp_zeros_as(g->b, g->in[0], lp_dtype_of(g->b, g->dout[0]));
    g->din[0] = lp_emit(g->b, LP_OP_index_add_rows,
                        (LpVal[]){z, g->in[1], g->dout[0]}, 3, g->attr);
}

LP_PRIMITIVE(index_select,
             "index_select(Tensor self, int dim, Tensor index) -> Tensor @fmo",
             infer_index_select, lp_index_select_prepare, lp_rule_lookup,
             .flags = LP_OPF_PLANNED | LP_OPF_EXACT | LP_OPF_CACHED,
             .grad = grad_index_select, .grad_in = 1 << 1)

static LpStatus infer_index_add(LpInfer *x)
{
    const LpType *self = &x->in[0], *src = &x->in[2];
    LP_TRY(lp_check_index(x, 1, "index"));
    LP_TRY(lp_wrap_dim(&x->attr[LP_INDEX_DIM].i, self->ndim, x->err));
    int64_t dim = x->attr[LP_INDEX_DIM].i, n = lp_numel(&x->in[1]);
    LP_FAIL_IF(x->in[1].ndim > 1, x->err, LP_E_INDEX,
               "index_add(): Index is supposed to be a vector, got %d "
               "dimensions",
               x->in[1].ndim);
    LP_FAIL_IF(self->dtype != src->dtype, x->err, LP_E_RUNTIME,
               "index_add(): self (%s) and source (%s) must have the same "
               "scalar type",
               lp_dtype_name(self->dtype), lp_dtype_name(src->dtype));
    bool fits =
        (self->ndim == 0 ? 1 : self->ndim) == (src->ndim == 0 ? 1 : src->ndim);
    fits = fits && (src->ndim == 0 ? 1 : src->shape[dim]) == n;
    for (int i = 0; fits && i < self->ndim && src->ndim > 0; i++)
        fits = i == dim || self->shape[i] == src->shape[i];
    LP_FAIL_IF(!fits, x->err, LP_E_RUNTIME,
               "index_add(): Source/destination tensor must have same slice "
               "shapes, and the source %lld rows along dimension %lld. "
               "Destination shape: %s, source shape: %s",
               LL(n), LL(dim), lp_shape_str(self), lp_shape_str(src));
    x->out[0] = *self;
    return LP_OK;
}

static void grad_index_add(LpGrad *g)
{
    if (g->need[0])
        g->din[0] = g->dout[0];
    if (g->need[2])
        g->din[2] = lp_emit(g->b, LP_OP_index_select,
                            (LpVal[]){g->dout[0], g->in[1]}, 2, g->attr);
}

LP_PRIMITIVE(index_add_rows,
             "index_add_rows(Tensor self, Tensor index, Tensor source, int "
             "dim) -> Tensor @p",
             infer_index_add, lp_index_add_prepare, lp_rule_lookup_add,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_index_add,
             .grad_in = 1 << 1)

/* ---- embedding ----------------------------------------------------------- */
static LpStatus infer_embedding(LpInfer *x)
{
    const LpType *w = &x->in[0], *i = &x->in[1];
    LP_TRY(lp_check_index(x, 1, "indices"));
    LP_FAIL_IF(w->ndim != 2, x->err, LP_E_RUNTIME,
               "'weight' must be 2-D, got %d dimensions", w->ndim);
    LP_FAIL_IF(i->ndim == LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "embedding: indices of %d dimensions, at most %d are supported",
               i->ndim, LP_MAX_DIMS - 1);
    LpAttr *pad = &x->attr[LP_EMBEDDING_PADDING_IDX];
    if (!lp_attr_none(pad)) {
        LP_FAIL_IF(pad->i < -w->shape[0] || pad->i >= w->shape[0], x->err,
                   LP_E_ASSERT,
                   "Padding_idx must be within num_embeddings (%lld), got %lld",
                   LL(w->shape[0]), LL(pad->i));
        pad->i += pad->i < 0 ? w->shape[0] : 0;
    }
    x->out[0] = *i;
    x->out[0].dtype = w->dtype;
    x->out[0].shape[x->out[0].ndim++] = w->shape[1];
    return LP_OK;
}

static void grad_embedding(LpGrad *g)
{
    LpAttr a[] = {lp_attr_int(lp_type(g->b, g->in[0])->shape[0]),
                  g->attr[LP_EMBEDDING_PADDING_IDX]};
    g->din[0] = lp_emit(g->b, LP_OP_embedding_backward,
                        (LpVal[]){g->dout[0], g->in[1]}, 2, a);
}

/* padding_idx: the row that gets no gradient. */
LP_PRIMITIVE(embedding,
             "embedding.rows(Tensor weight, Tensor input, int? "
             "padding_idx=None) -> Tensor @p\n"
             "embedding(Tensor input, Tensor weight, int? padding_idx=None) -> "
             "Tensor @n",
             infer_embedding, lp_embedding_prepare, lp_rule_lookup,
             .flags = LP_OPF_PLANNED | LP_OPF_EXACT | LP_OPF_CACHED,
             .grad = grad_embedding, .grad_in = 1 << 1)

static LpStatus infer_embedding_backward(LpInfer *x)
{
    const LpType *d = &x->in[0], *at = &x->in[1];
    LP_TRY(lp_check_index(x, 1, "indices"));
    bool rows = d->ndim == at->ndim + 1 && lp_sizes_eq(d, at, at->ndim);
    LP_FAIL_IF(!rows, x->err, LP_E_RUNTIME,
               "%s: grad has the shape %s; it must have a row for each of "
               "indices, which has %s",
               x->op->name, lp_shape_str(d), lp_shape_str(at));
    x->out[0] = (LpType){.dtype = d->dtype,
                         .ndim = 2,
                         .shape = {x->attr[LP_EMBEDDING_BACK_NUM_WEIGHTS].i,
                                   d->shape[d->ndim - 1]}};
    const LpAttr *padding = &x->attr[LP_EMBEDDING_BACK_PADDING_IDX];
    LP_FAIL_IF(padding->kind == LP_ATTR_INT &&
                   (padding->i < -x->attr[LP_EMBEDDING_BACK_NUM_WEIGHTS].i ||
                    padding->i >= x->attr[LP_EMBEDDING_BACK_NUM_WEIGHTS].i),
               x->err, LP_E_INDEX,
               "%s: padding_idx is %lld; there are %lld rows", x->op->name,
               (long long)padding->i,
               (long long)x->attr[LP_EMBEDDING_BACK_NUM_WEIGHTS].i);
    return LP_OK;
}

static void grad_embedding_backward(LpGrad *g)
{
    const LpAttr *pad = &g->attr[LP_EMBEDDING_BACK_PADDING_IDX];
    LpVal v =
        lp_emit(g->b, LP_OP_embedding, (LpVal[]){g->dout[0], g->in[1]}, 2, pad);
    if (!lp_attr_none(pad)) { /* those rows took no part */
        LpVal at = lp_op2(g->b, LP_OP_eq, g->in[1], lp_immi(g->b, pad->i));
        at = lp_unsqueeze(g->b, at, -1);
        v = lp_where(g->b, at, lp_immf(g->b, 0), v);
    }
    g->din[0] = v;
}

LP_PRIMITIVE(embedding_backward,
             "embedding_backward(Tensor grad, Tensor indices, int "
             "num_weights, int? padding_idx) -> Tensor @p",
             infer_embedding_backward, lp_embedding_backward_prepare,
             lp_rule_lookup_add, .grad = grad_embedding_backward,
             .grad_in = 1 << 1)

/* ---- advanced indexing --------------------------------------------------- */
/* Integer indices only, a hole for a whole dimension; `index` and `index_put`
 * turn masks into these. */
static LpStatus index_shape(LpInfer *x, int from, LpType *out)
{
    const LpType *self = &x->in[0];
    LpType place;
    int n = x->n_in - from, at, m = 0;
    LP_FAIL_IF(n > self->ndim, x->err, LP_E_INDEX,
               "too many indices for tensor of dimension %d (got %d)",
               self->ndim, n);
    for (int i = 0; i < n; i++)
        if (x->in[from + i].dtype != LP_DT_NONE)
            LP_TRY(lp_check_index(x, from + i, "an index"));
    if (lp_index_place(&x->in[from], n, &place, &at, x->err) != LP_OK) {
        lp_err_context(x->err, "shape mismatch: indexing tensors could not be "
                               "broadcast together");
        return x->err ? x->err->code : LP_E_INDEX;
    }
    *out = (LpType){.dtype = self->dtype};
    for (int i = 0; i <= self->ndim; i++) {
        if (m == at && i >= at) {
            LP_FAIL_IF(m + place.ndim > LP_MAX_DIMS, x->err, LP_E_RUNTIME,
                       "index: the result has more than %d dimensions",
                       LP_MAX_DIMS);
            memcpy(out->shape + m, place.shape,
                   (size_t)place.ndim * sizeof *out->shape);
            m += place.ndim;
            at = -1;
        }
        if (i < self->ndim && (i >= n || x->in[from + i].dtype == LP_DT_NONE)) {
            LP_FAIL_IF(m == LP_MAX_DIMS, x->err, LP_E_RUNTIME,
                       "index: the result has more than %d dimensions",
                       LP_MAX_DIMS);
            out->shape[m++] = self->shape[i];
        }
    }
    out->ndim = (int8_t)m;
    return LP_OK;
}

static LpStatus infer_index_get(LpInfer *x)
{
    return index_shape(x, 1, &x->out[0]);
}

static void grad_index_get(LpGrad *g)
{
    LpVal v[LP_MAX_DIMS + 2];
    LpAttr a = lp_attr_bool(true);
    v[0] = lp_zeros_as(g->b, g->in[0], lp_dtype_of(g->b, g->dout[0]));
    v[1] = g->dout[0];
    for (int i = 1; i < g->n_in; i++)
        v[i + 1] = g->in[i];
    g->din[0] = lp_emit(g->b, LP_OP_index_set, v, g->n_in + 1, &a);
}

LP_PRIMITIVE(index_get,
             "index_get(Tensor self, Tensor?[] indices) -> Tensor @p",
             infer_index_get, lp_index_get_prepare, lp_rule_lookup,
             .grad = grad_index_get, .grad_in = 1u << 31)

static LpStatus infer_index_set(LpInfer *x)
{
    LpType part, both;
    LP_TRY(index_shape(x, 2, &part));
    LP_FAIL_IF(x->in[0].dtype != x->in[1].dtype, x->err, LP_E_RUNTIME,
               "Index put requires the source and destination dtypes match, "
               "got %s for the destination and %s for the source.",
               lp_dtype_name(x->in[0].dtype), lp_dtype_name(x->in[1].dtype));
    both = part;
    LpStatus st = lp_broadcast(&both, &x->in[1], NULL);
    LP_FAIL_IF(st != LP_OK || !lp_shape_eq(&both, &part), x->err, LP_E_RUNTIME,
               "shape mismatch: value tensor of shape %s cannot be broadcast "
               "to indexing result of shape %s",
               lp_shape_str(&x->in[1]), lp_shape_str(&part));
    x->out[0] = x->in[0];
    return LP_OK;
}

static void grad_index_set(LpGrad *g)
{
    LpVal v[LP_MAX_DIMS + 2];
    v[0] = g->dout[0];
    for (int i = 2; i < g->n_in; i++)
        v[i] = g->in[i];
    if (g->need[1]) {
        LpVal w[LP_MAX_DIMS + 1] = {g->dout[0]};
        memcpy(w + 1, v + 2, (size_t)(g->n_in - 2) * sizeof *w);
        g->din[1] = lp_emit(g->b, LP_OP_index_get, w, g->n_in - 1, NULL);
    }
    if (!g->need[0])
        return;
    if (g->attr[LP_INDEX_SET_ACCUMULATE].i) {
        g->din[0] = g->dout[0];
        return;
    }
    LpType none = {.dtype = lp_dtype_of(g->b, g->dout[0])};
    v[1] = lp_full(g->b, &none, lp_int(0));
    g->din[0] = lp_emit(g->b, LP_OP_index_set, v, g->n_in, g->attr);
}

LP_PRIMITIVE(index_set,
             "index_set(Tensor self, Tensor values, Tensor?[] indices, bool "
             "accumulate=False) -> Tensor @p",
             infer_index_set, lp_index_set_prepare, lp_rule_lookup_add,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_index_set,
             .grad_in = 1u << 31)
