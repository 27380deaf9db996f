/* Splitting along a dimension: lists of slices, or of selections. How many
 * results there are follows from the types, so the shape rules decide it;
 * they also turn every form into canonical attributes. */
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* Sets the results of a split along `dim` into sizes piece(i). */
typedef struct Pieces {
    int dim, n;
    int64_t sizes[LP_MAX_LIST];
} Pieces;

static LpStatus too_many(const LpInfer *x, int64_t n)
{
    return lp_fail(x->err, LP_E_RUNTIME,
                   "%s: %lld results, at most %d are supported", x->op->name,
                   (long long)n, LP_MAX_LIST);
}

static LpStatus wrap_split_dim(LpInfer *x, int i)
{
    bool unbind = x->op->id == LP_OP_unbind;
    LP_FAIL_IF(x->in[0].ndim == 0, x->err, unbind ? LP_E_INDEX : LP_E_RUNTIME,
               "%s: expects at least a 1-dimensional tensor, got one without "
               "dimensions ([])",
               x->op->name);
    return lp_wrap_dim(&x->attr[i].i, x->in[0].ndim, x->err);
}

static void set_results(LpInfer *x, const Pieces *p)
{
    x->n_out = p->n;
    for (int i = 0; i < p->n; i++) {
        x->out[i] = x->in[0];
        x->out[i].shape[p->dim] = p->sizes[i];
    }
}

static void emit_pieces(LpBuilder *b, LpVal x, const Pieces *p, LpVal *out,
                        int n_out)
{
    int64_t at = 0;
    for (int i = 0; i < p->n && i < n_out; i++) {
        out[i] = lp_slice(b, x, p->dim, at, at + p->sizes[i], 1);
        at += p->sizes[i];
    }
}

/* Pieces of `each` elements, the last one shorter; an empty dimension gives
 * one empty piece. */
static void equal_pieces(int64_t size, int64_t each, Pieces *p)
{
    p->n = 0;
    do {
        p->sizes[p->n++] = size < each ? size : each;
        size -= size < each ? size : each;
    } while (size > 0);
}

/* ---- split --------------------------------------------------------------- */
static LpStatus infer_split(LpInfer *x)
{
    Pieces p;
    LP_TRY(wrap_split_dim(x, 1));
    p.dim = (int)x->attr[1].i;
    int64_t each = x->attr[0].i, size = x->in[0].shape[p.dim];
    LP_FAIL_IF(each < 0 || (each == 0 && size != 0), x->err, LP_E_RUNTIME,
               "split expects split_size to be non-negative, and 0 only for an "
               "empty dimension, but got split_size=%lld for size %lld",
               (long long)each, (long long)size);
    if (each > 0 && (size - 1) / each + 1 > LP_MAX_LIST)
        return too_many(x, (size - 1) / each + 1);
    equal_pieces(size, each, &p);
    set_results(x, &p);
    return LP_OK;
}

LP_COMPOSITE(split,
             "split(Tensor self, int split_size, int dim=0) -> Tensor[] @fm",
             .infer = infer_split)
{
    Pieces p = {.dim = (int)attr[1].i};
    equal_pieces(lp_type(b, in[0])->shape[p.dim], attr[0].i, &p);
    emit_pieces(b, in[0], &p, out, n_out);
}

/* ---- split_with_sizes ---------------------------------------------------- */
static LpStatus infer_sizes(LpInfer *x)
{
    const LpAttr *a = &x->attr[0];
    Pieces p;
    char list[LP_SHAPE_STR];
    int64_t sum = 0;
    LP_TRY(wrap_split_dim(x, 1));
    p.dim = (int)x->attr[1].i;
    p.n = a->n;
    if (a->n > LP_MAX_LIST)
        return too_many(x, a->n);
    for (int i = 0; i < a->n; i++) {
        LP_FAIL_IF(a->v[i] < 0, x->err, LP_E_RUNTIME,
                   "split_with_sizes expects split_sizes have only "
                   "non-negative entries, but got split_sizes=%s",
                   lp_ints_str(a->v, a->n, list));
        p.sizes[i] = a->v[i];
        sum += a->v[i] < INT32_MAX ? a->v[i] : INT32_MAX;
    }
    LP_FAIL_IF(sum != x->in[0].shape[p.dim], x->err, LP_E_RUNTIME,
               "split_with_sizes expects split_sizes to sum exactly to %lld "
               "(input tensor's size at dimension %d), but got split_sizes=%s",
               (long long)x->in[0].shape[p.dim], p.dim,
               lp_ints_str(a->v, a->n, list));
    set_results(x, &p);
    return LP_OK;
}

LP_COMPOSITE(split_with_sizes,
             "split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> "
             "Tensor[] @fm\n"
             "split.sizes(Tensor self, int[] split_sizes, int dim=0) -> "
             "Tensor[] @fm",
             .infer = infer_sizes)
{
    Pieces p = {.dim = (int)attr[1].i, .n = attr[0].n};
    for (int i = 0; i < p.n; i++)
        p.sizes[i] = attr[0].v[i];
    emit_pieces(b, in[0], &p, out, n_out);
}

/* ---- chunk --------------------------------------------------------------- */
/* At most `chunks` pieces of ceil(size / chunks); an empty dimension gives
 * that many empty ones. */
static void chunk_pieces(int64_t size, int64_t chunks, Pieces *p)
{
    if (size > 0) {
        equal_pieces(size, (size - 1) / chunks + 1, p);
        return;
    }
    p->n = (int)chunks;
    for (int i = 0; i < p->n; i++)
        p->sizes[i] = 0;
}

static LpStatus infer_chunk(LpInfer *x)
{
    Pieces p;
    LP_TRY(wrap_split_dim(x, 1));
    p.dim = (int)x->attr[1].i;
    int64_t n = x->attr[0].i, size = x->in[0].shape[p.dim];
    LP_FAIL_IF(n < 1, x->err, LP_E_RUNTIME,
               "chunk expects `chunks` to be greater than 0, got: %lld",
               (long long)n);
    if ((size > 0 ? (size - 1) / ((size - 1) / n + 1) + 1 : n) > LP_MAX_LIST)
        return too_many(x, n);
    chunk_pieces(size, n, &p);
    set_results(x, &p);
    return LP_OK;
}

LP_COMPOSITE(chunk, "chunk(Tensor self, int chunks, int dim=0) -> Tensor[] @fm",
             .infer = infer_chunk)
{
    Pieces p = {.dim = (int)attr[1].i};
    chunk_pieces(lp_type(b, in[0])->shape[p.dim], attr[0].i, &p);
    emit_pieces(b, in[0], &p, out, n_out);
}

/* ---- tensor_split, hsplit, vsplit, dsplit -------------------------------- */
/* sections: sizes as equal as can be, the first ones longer. */
static void section_pieces(int64_t size, int64_t n, Pieces *p)
{
    p->n = (int)n;
    for (int i = 0; i < p->n; i++)
        p->sizes[i] = size / n + (i < size % n);
}

/* Pieces between indices, each taken as Python's slices take them. */
static int64_t clamp(int64_t i, int64_t size)
{
    i = i < 0 ? i + size : i;
    return i < 0 ? 0 : i > size ? size : i;
}

static LpStatus set_sections(LpInfer *x, int dim, int64_t n)
{
    Pieces p = {.dim = dim};
    LP_FAIL_IF(n < 1, x->err, LP_E_RUNTIME,
               "%s: number of sections must be larger than 0, got %lld",
               x->op->name, (long long)n);
    if (n > LP_MAX_LIST)
        return too_many(x, n);
    section_pieces(x->in[0].shape[dim], n, &p);
    set_results(x, &p);
    return LP_OK;
}

static LpStatus set_indices(LpInfer *x, int dim, const LpAttr *a)
{
    int64_t size = x->in[0].shape[dim], from = 0;
    if (a->n + 1 > LP_MAX_LIST)
        return too_many(x, a->n + 1);
    x->n_out = a->n + 1;
    for (int i = 0; i <= a->n; i++) {
        int64_t to = i < a->n ? clamp(a->v[i], size) : size;
        x->out[i] = x->in[0];
        x->out[i].shape[dim] = to > from ? to - from : 0;
        from = to;
    }
    return LP_OK;
}

static void emit_sections(LpBuilder *b, LpVal v, int dim, int64_t n, LpVal *out,
                          int n_out)
{
    Pieces p = {.dim = dim};
    section_pieces(lp_type(b, v)->shape[dim], n, &p);
    emit_pieces(b, v, &p, out, n_out);
}

static void emit_indices(LpBuilder *b, LpVal v, int dim, const LpAttr *a,
                         LpVal *out, int n_out)
{
    int64_t size = lp_type(b, v)->shape[dim], from = 0;
    for (int i = 0; i < n_out; i++) {
        int64_t to = i < a->n ? clamp(a->v[i], size) : size;
        out[i] = lp_slice(b, v, dim, from, to > from ? to : from, 1);
        from = to;
    }
}

static LpStatus infer_tensor_split(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x, 1));
    return set_sections(x, (int)x->attr[1].i, x->attr[0].i);
}

LP_COMPOSITE(tensor_split,
             "tensor_split(Tensor self, int sections, int dim=0) -> Tensor[] "
             "@fm",
             .infer = infer_tensor_split)
{
    emit_sections(b, in[0], (int)attr[1].i, attr[0].i, out, n_out);
}

static LpStatus infer_split_at(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x, 1));
    return set_indices(x, (int)x->attr[1].i, &x->attr[0]);
}

LP_COMPOSITE(tensor_split_at,
             "tensor_split.indices(Tensor self, int[] indices, int dim=0) -> "
             "Tensor[] @fm",
             .infer = infer_split_at)
{
    emit_indices(b, in[0], (int)attr[1].i, &attr[0], out, n_out);
}

/* The dimension that the h, v and d variants cut: the record's data. */
typedef struct Axis {
    int rank; /* least number of dimensions */
    int dim;  /* for h and one dimension: 0 */
} Axis;

static int axis_dim(const Axis *a, const LpType *t)
{
    return a->dim < t->ndim ? a->dim : t->ndim - 1;
}

static LpStatus check_axis(LpInfer *x, bool sections)
{
    const Axis *a = x->op->data;
    LP_FAIL_IF(
        x->in[0].ndim<
            a->rank, x->err, LP_E_RUNTIME,
            "torch.%c%s requires a tensor with at least %d dimension%s, but "
            "got a tensor with %d dimensions!",
            x->op->name[0], "split", a->rank, a->rank> 1
            ? "s"
            : "",
        x->in[0].ndim);
    int d = axis_dim(a, &x->in[0]);
    if (!sections)
        return set_indices(x, d, &x->attr[0]);
    int64_t n = x->attr[0].i, size = x->in[0].shape[d];
    LP_FAIL_IF(n < 1 || size % n != 0, x->err, LP_E_RUNTIME,
               "torch.%csplit attempted to split along dimension %d, but the "
               "size of the dimension %lld is not divisible by the split_size "
               "%lld!",
               x->op->name[0], d, (long long)size, (long long)n);
    return set_sections(x, d, n);
}

static LpStatus infer_axis(LpInfer *x)
{
    return check_axis(x, true);
}

static LpStatus infer_axis_at(LpInfer *x)
{
    return check_axis(x, false);
}

#define AXIS_SPLIT(letter, min_rank, at)                                       \
    static const Axis axis_##letter = {min_rank, at};                          \
    LP_COMPOSITE(letter##split,                                                \
                 #letter "split(Tensor self, int sections) -> Tensor[] @fm",   \
                 .infer = infer_axis, .data = &axis_##letter)                  \
    {                                                                          \
        int d = axis_dim(&axis_##letter, lp_type(b, in[0]));                   \
        emit_sections(b, in[0], d, attr[0].i, out, n_out);                     \
    }                                                                          \
    LP_COMPOSITE(letter##split_at,                                             \
                 #letter                                                       \
                 "split.indices(Tensor self, int[] indices) -> Tensor[] @fm",  \
                 .infer = infer_axis_at, .data = &axis_##letter)               \
    {                                                                          \
        int d = axis_dim(&axis_##letter, lp_type(b, in[0]));                   \
        emit_indices(b, in[0], d, &attr[0], out, n_out);                       \
    }

AXIS_SPLIT(h, 1, 1)
AXIS_SPLIT(v, 2, 0)
AXIS_SPLIT(d, 3, 2)

/* ---- unbind -------------------------------------------------------------- */
static LpStatus infer_unbind(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x, 0));
    int d = (int)x->attr[0].i;
    if (x->in[0].shape[d] > LP_MAX_LIST)
        return too_many(x, x->in[0].shape[d]);
    x->n_out = (int)x->in[0].shape[d];
    for (int i = 0; i < x->n_out; i++) {
        x->out[i] = x->in[0];
        x->out[i].ndim--;
        for (int k = d; k < x->out[i].ndim; k++)
            x->out[i].shape[k] = x->in[0].shape[k + 1];
    }
    return LP_OK;
}

LP_COMPOSITE(unbind, "unbind(Tensor self, int dim=0) -> Tensor[] @fm",
             .infer = infer_unbind)
{
    for (int i = 0; i < n_out; i++) {
        LpAttr a[] = {attr[0], lp_attr_int(i)};
        out[i] = lp_emit(b, LP_OP_select, &in[0], 1, a);
    }
}
