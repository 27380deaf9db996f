/* Splitting along a dimension: lists of slices, or of selections. How many
 * results there are follows from the types, so the shape rules decide it;
 * they also turn every form into canonical attributes. */
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* Pieces along a dimension, each from edge[2 i] up to edge[2 i + 1]. With the
 * dimension behind them they are the canonical attribute 0 of every split. */
typedef struct Pieces {
    int n;
    int64_t edge[2 * LP_MAX_LIST + 1];
} Pieces;

static void add_piece(Pieces *p, int64_t from, int64_t to)
{
    p->edge[2 * p->n] = from;
    p->edge[2 * p->n++ + 1] = to;
}

static LpStatus too_many(const LpInfer *x, int64_t n)
{
    return lp_fail(x->err, LP_E_RUNTIME,
                   "%s: %lld results, at most %d are supported", x->op->name,
                   (long long)n, LP_MAX_LIST);
}

/* The last attribute of all but the h, v and d variants. */
static int64_t *split_dim(const LpInfer *x)
{
    return &x->attr[x->op->n_attr - 1].i;
}

static LpStatus wrap_split_dim(LpInfer *x)
{
    bool unbind = x->op->id == LP_OP_unbind;
    LP_FAIL_IF(x->in[0].ndim == 0, x->err, unbind ? LP_E_INDEX : LP_E_RUNTIME,
               "%s: expects at least a 1-dimensional tensor, got one without "
               "dimensions ([])",
               x->op->name);
    return lp_wrap_dim(split_dim(x), x->in[0].ndim, x->err);
}

static LpStatus set_results(LpInfer *x, int dim, Pieces *p)
{
    x->n_out = p->n;
    for (int i = 0; i < p->n; i++) {
        x->out[i] = x->in[0];
        x->out[i].shape[dim] = p->edge[2 * i + 1] - p->edge[2 * i];
    }
    p->edge[2 * p->n] = dim;
    return lp_set_ints(x, 0, p->edge, 2 * p->n + 1);
}

LP_EXPAND(expand_pieces)
{
    const int64_t *edge = attr[0].v;
    int dim = (int)edge[attr[0].n - 1];
    for (int i = 0; i < n_out; i++)
        out[i] = lp_slice(b, in[0], dim, edge[2 * i], edge[2 * i + 1], 1);
}

#define SPLIT(id, forms_, rule, ...)                                           \
    LpOp op_##id = {.kind = LP_OP_COMPOSITE,                                   \
                    .forms = forms_,                                           \
                    .infer = rule,                                             \
                    .expand = expand_pieces,                                   \
                    __VA_ARGS__};

/* Pieces of `each` elements, the last one shorter; an empty dimension gives
 * one empty piece. */
static LpStatus set_equal(LpInfer *x, int dim, int64_t size, int64_t each)
{
    Pieces p;
    p.n = 0;
    if (each > 0 && (size - 1) / each + 1 > LP_MAX_LIST)
        return too_many(x, (size - 1) / each + 1);
    int64_t at = 0;
    do {
        int64_t to = size - at < each ? size : at + each;
        add_piece(&p, at, to);
        at = to;
    } while (at < size);
    return set_results(x, dim, &p);
}

/* Sizes as equal as can be, the first ones longer. */
static LpStatus set_sections(LpInfer *x, int dim, int64_t n)
{
    Pieces p;
    int64_t size = x->in[0].shape[dim], at = 0;
    p.n = 0;
    LP_FAIL_IF(n < 1, x->err, LP_E_RUNTIME,
               "%s: number of sections must be larger than 0, got %lld",
               x->op->name, (long long)n);
    if (n > LP_MAX_LIST)
        return too_many(x, n);
    for (int i = 0; i < n; i++) {
        int64_t to = at + size / n + (i < size % n);
        add_piece(&p, at, to);
        at = to;
    }
    return set_results(x, dim, &p);
}

/* ---- split --------------------------------------------------------------- */
static LpStatus infer_split(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x));
    int dim = (int)*split_dim(x);
    int64_t each = x->attr[0].i, size = x->in[0].shape[dim];
    LP_FAIL_IF(each < 0 || (each == 0 && size != 0), x->err, LP_E_RUNTIME,
               "split expects split_size to be non-negative, and 0 only for an "
               "empty dimension, but got split_size=%lld for size %lld",
               (long long)each, (long long)size);
    return set_equal(x, dim, size, each);
}
SPLIT(split, "split(Tensor self, int split_size, int dim=0) -> Tensor[] @fm",
      infer_split)

/* ---- split_with_sizes ---------------------------------------------------- */
static LpStatus infer_sizes(LpInfer *x)
{
    const LpAttr *a = &x->attr[0];
    Pieces p;
    int64_t sum = 0;
    p.n = 0;
    LP_TRY(wrap_split_dim(x));
    int dim = (int)*split_dim(x);
    if (a->n > LP_MAX_LIST)
        return too_many(x, a->n);
    for (int i = 0; i < a->n; i++) {
        LP_FAIL_IF(a->v[i] < 0, x->err, LP_E_RUNTIME,
                   "split_with_sizes expects split_sizes have only "
                   "non-negative entries, but got split_sizes=%s",
                   lp_ints_str(a->v, a->n));
        int64_t size = a->v[i] < INT32_MAX ? a->v[i] : INT32_MAX;
        add_piece(&p, sum, sum + size);
        sum += size;
    }
    LP_FAIL_IF(sum != x->in[0].shape[dim], x->err, LP_E_RUNTIME,
               "split_with_sizes expects split_sizes to sum exactly to %lld "
               "(input tensor's size at dimension %d), but got split_sizes=%s",
               (long long)x->in[0].shape[dim], dim, lp_ints_str(a->v, a->n));
    return set_results(x, dim, &p);
}
SPLIT(split_with_sizes,
      "split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> "
      "Tensor[] @fm\n"
      "split.sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[] @fm",
      infer_sizes)

/* ---- chunk --------------------------------------------------------------- */
/* At most `chunks` pieces of ceil(size / chunks); an empty dimension gives
 * that many empty ones. */
static LpStatus infer_chunk(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x));
    int dim = (int)*split_dim(x);
    int64_t n = x->attr[0].i, size = x->in[0].shape[dim];
    LP_FAIL_IF(n < 1, x->err, LP_E_RUNTIME,
               "chunk expects `chunks` to be greater than 0, got: %lld",
               (long long)n);
    int64_t each = size > 0 ? (size - 1) / n + 1 : 0;
    if ((size > 0 ? (size - 1) / each + 1 : n) > LP_MAX_LIST)
        return too_many(x, n);
    return size > 0 ? set_equal(x, dim, size, each) : set_sections(x, dim, n);
}
SPLIT(chunk, "chunk(Tensor self, int chunks, int dim=0) -> Tensor[] @fm",
      infer_chunk)

/* ---- tensor_split, hsplit, vsplit, dsplit -------------------------------- */
/* Pieces between indices, each taken as Python's slices take them. */
static int64_t clamp(int64_t i, int64_t size)
{
    i = i < 0 ? i + size : i;
    return i < 0 ? 0 : i > size ? size : i;
}

static LpStatus set_indices(LpInfer *x, int dim, const LpAttr *a)
{
    Pieces p;
    int64_t size = x->in[0].shape[dim], from = 0;
    p.n = 0;
    if (a->n + 1 > LP_MAX_LIST)
        return too_many(x, a->n + 1);
    for (int i = 0; i <= a->n; i++) {
        int64_t to = i < a->n ? clamp(a->v[i], size) : size;
        add_piece(&p, from, to > from ? to : from);
        from = to;
    }
    return set_results(x, dim, &p);
}

static LpStatus infer_tensor_split(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x));
    return set_sections(x, (int)*split_dim(x), x->attr[0].i);
}
SPLIT(tensor_split,
      "tensor_split(Tensor self, int sections, int dim=0) -> Tensor[] @fm",
      infer_tensor_split)

static LpStatus infer_split_at(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x));
    return set_indices(x, (int)*split_dim(x), &x->attr[0]);
}
SPLIT(tensor_split_at,
      "tensor_split.indices(Tensor self, int[] indices, int dim=0) -> "
      "Tensor[] @fm",
      infer_split_at)

/* The dimension that the h, v and d variants cut: the record's data. */
typedef struct Axis {
    int rank; /* least number of dimensions */
    int dim;  /* for h and one dimension: 0 */
} Axis;

/* Into sections, or at a list of indices. */
static LpStatus infer_axis(LpInfer *x)
{
    const Axis *a = x->op->data;
    const int rank = x->in[0].ndim, least = a->rank;
    LP_FAIL_IF(
        rank<least, x->err, LP_E_RUNTIME,
             "torch.%csplit requires a tensor with at least %d dimension%s, "
             "but got a tensor with %d dimensions!",
             x->op->name[0], least, least> 1
            ? "s"
            : "",
        rank);
    int d = a->dim < rank ? a->dim : rank - 1;
    if (x->attr[0].kind == LP_ATTR_INTS)
        return set_indices(x, d, &x->attr[0]);
    int64_t n = x->attr[0].i, size = x->in[0].shape[d];
    LP_FAIL_IF(n < 1 || size % n != 0, x->err, LP_E_RUNTIME,
               "torch.%csplit attempted to split along dimension %d, but the "
               "size of the dimension %lld is not divisible by the split_size "
               "%lld!",
               x->op->name[0], d, (long long)size, (long long)n);
    return set_sections(x, d, n);
}

#define AXIS_SPLIT(letter, min_rank, at)                                       \
    static const Axis axis_##letter = {min_rank, at};                          \
    SPLIT(letter##split,                                                       \
          #letter "split(Tensor self, int sections) -> Tensor[] @fm",          \
          infer_axis, .data = &axis_##letter)                                  \
    SPLIT(letter##split_at,                                                    \
          #letter "split.indices(Tensor self, int[] indices) -> Tensor[] @fm", \
          infer_axis, .data = &axis_##letter)
AXIS_SPLIT(h, 1, 1)
AXIS_SPLIT(v, 2, 0)
AXIS_SPLIT(d, 3, 2)

/* ---- unbind -------------------------------------------------------------- */
static LpStatus infer_unbind(LpInfer *x)
{
    LP_TRY(wrap_split_dim(x));
    int d = (int)*split_dim(x);
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
