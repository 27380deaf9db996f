/* Reductions by folding: sum, mean, prod, amax, amin, any, all,
 * count_nonzero, logsumexp, vector_norm. Attributes: dims first, then keepdim
 * and what the operator adds. Gradients spread dy, with ones put back at the
 * reduced dimensions, over x's shape.
 *
 * The IPU is charged one reduction; a map before it or an ending after it is
 * charged as an elementwise operation. */
#include "src/ops/reduce/reduce.h"

#include <stdlib.h>

#include "runtime/cost/cost.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* ---- shape --------------------------------------------------------------- */
static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

LpStatus lp_reduce_dims(LpInfer *x)
{
    LpAttr *a = &x->attr[LP_REDUCE_DIM];
    int64_t dims[LP_MAX_DIMS], one;
    const int64_t *given = a->v;
    int ndim = x->in[0].ndim;
    int n = a->kind == LP_ATTR_NONE ? 0 : a->n;
    if (a->kind == LP_ATTR_INT) {
        one = a->i;
        given = &one;
        n = 1;
    }
    LP_FAIL_IF(n > LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "%s: dim lists %d dimensions; a tensor has at most %d",
               x->op->name, n, LP_MAX_DIMS);
    for (int i = 0; i < n; i++) {
        dims[i] = given[i];
        LP_TRY(lp_wrap_dim(&dims[i], ndim, x->err));
    }
    for (int d = 0; n == 0 && d < ndim; d++)
        dims[d] = d;
    n = n == 0 ? ndim : n;
    qsort(dims, (size_t)n, sizeof *dims, by_value);
    for (int i = 1; i < n; i++)
        LP_FAIL_IF(dims[i] == dims[i - 1], x->err, LP_E_RUNTIME,
                   "%s: dim %d appears more than once in the list of "
                   "dimensions",
                   x->op->name, (int)dims[i]);
    return lp_set_ints(x, LP_REDUCE_DIM, dims, ndim == 0 ? 0 : n);
}

void lp_reduce_shape(const LpType *in, const LpAttr *dims, bool keep,
                     LpType *out)
{
    *out = (LpType){.dtype = in->dtype};
    for (int d = 0; d < in->ndim; d++)
        if (!lp_reduce_lists(dims, d))
            out->shape[out->ndim++] = in->shape[d];
        else if (keep)
            out->shape[out->ndim++] = 1;
}

LpStatus lp_reduce_nonempty(const LpInfer *x, LpStatus code)
{
    const LpAttr *dims = &x->attr[LP_REDUCE_DIM];
    for (int i = 0; i < dims->n; i++)
        LP_FAIL_IF(x->in[0].shape[dims->v[i]] == 0, x->err, code,
                   "%s: dimension %d has size 0, and an extreme needs an "
                   "element: name a dimension that is not empty",
                   x->op->name, (int)dims->v[i]);
    return LP_OK;
}

LpVal lp_reduce_restore(LpBuilder *b, LpVal v, const LpType *like,
                        const LpAttr *dims)
{
    LpType t = *like;
    if (lp_failed(b) || lp_type(b, v)->ndim == like->ndim)
        return v;
    for (int i = 0; i < dims->n; i++)
        t.shape[dims->v[i]] = 1;
    return lp_reshape(b, v, t.shape, t.ndim);
}

/* ---- what the operators are ---------------------------------------------- */
typedef enum {
    KIND_NUMBER, /* integers become int64, bool too */
    KIND_FLOAT,  /* integers are an error */
    KIND_REAL,   /* integers become the default float type */
    KIND_SAME,   /* extremes: an empty reduction is an error */
    KIND_TRUTH,  /* bool; uint8 stays; elements count as 0 or 1 */
    KIND_COUNT,  /* int64; the same */
} Kind;

typedef struct Facts {
    LpReduceSpec spec;
    Kind kind;
    int8_t dtype; /* attribute of the dtype, or -1 */
} Facts;

static LpStatus result_dtype(const LpInfer *x, const Facts *f, LpDtype *t)
{
    LpDtype in = x->in[0].dtype;
    const LpAttr *asked = f->dtype >= 0 ? &x->attr[f->dtype] : NULL;
    if (asked && asked->kind == LP_ATTR_DTYPE) {
        *t = (LpDtype)asked->i;
    } else {
        *t = in;
        if (f->kind == KIND_NUMBER && !lp_is_float(in))
            *t = LP_I64;
        if (f->kind == KIND_REAL && !lp_is_float(in))
            *t = lp_default_dtype();
    }
    if (f->kind == KIND_TRUTH)
        *t = in == LP_U8 ? LP_U8 : LP_BOOL;
    if (f->kind == KIND_COUNT)
        *t = LP_I64;
    LP_FAIL_IF(f->kind == KIND_FLOAT && !lp_is_float(*t), x->err,
               LP_E_NOT_IMPLEMENTED,
               "%s: the tensor has the type %s; it must be a floating-point "
               "type",
               x->op->name, lp_dtype_name(*t));
    return LP_OK;
}

static LpStatus infer(LpInfer *x)
{
    const Facts *f = x->op->data;
    LpDtype t;
    const LpAttr *dims = &x->attr[LP_REDUCE_DIM];
    bool named = dims->kind == LP_ATTR_INT ||
                 (dims->kind == LP_ATTR_INTS && dims->n > 0);
    /* any and all over no dimensions ask of each element */
    if (f->kind != KIND_TRUTH || dims->kind != LP_ATTR_INTS || dims->n > 0)
        LP_TRY(lp_reduce_dims(x));
    LP_TRY(result_dtype(x, f, &t));
    if (f->kind == KIND_SAME)
        LP_TRY(lp_reduce_nonempty(x, named ? LP_E_INDEX : LP_E_RUNTIME));
    lp_reduce_shape(&x->in[0], &x->attr[LP_REDUCE_DIM],
                    x->op->n_attr > LP_REDUCE_KEEPDIM &&
                        x->attr[LP_REDUCE_KEEPDIM].i,
                    &x->out[0]);
    x->out[0].dtype = t;
    return LP_OK;
}

static LP_KERNEL_PREPARE(prepare)
{
    const Facts *f = r->op->data;
    LpReduceSpec spec = f->spec;
    /* any number is true */
    spec.truth = f->kind >= KIND_TRUTH || r->out[0].dtype == LP_BOOL;
    return lp_reduce_prepare(r, &spec, &r->attr[LP_REDUCE_DIM], k, e);
}

/* ---- gradients ----------------------------------------------------------- */
#define LIKE (lp_type(g->b, X))
#define RESTORE(v) lp_reduce_restore(g->b, v, LIKE, &g->attr[LP_REDUCE_DIM])

static double red_elems(const LpGrad *g)
{
    const LpType *t = LIKE;
    double n = 1;
    for (int i = 0; i < g->attr[LP_REDUCE_DIM].n; i++)
        n *= (double)t->shape[g->attr[LP_REDUCE_DIM].v[i]];
    return n;
}

static void grad_sum(LpGrad *g)
{
    LpVal dy = RESTORE(DY);
    g->din[0] = lp_expand_as(g->b, dy, LIKE);
}

static void grad_mean(LpGrad *g)
{
    LpVal each = DIV(RESTORE(DY), K(red_elems(g)));
    g->din[0] = lp_expand_as(g->b, each, LIKE);
}

static void grad_prod(LpGrad *g)
{
    LpVal x = lp_cast(g->b, X, lp_type(g->b, R)->dtype);
    LpVal others =
        lp_emit(g->b, LP_OP_prod_others, &x, 1, &g->attr[LP_REDUCE_DIM]);
    g->din[0] = MUL(others, RESTORE(DY));
}

/* Equal extremes share dy evenly; beside NaN there is no other one. */
static void grad_extreme(LpGrad *g)
{
    LpVal hit = OR(EQ(X, RESTORE(R)), OP1(isnan, X));
    LpVal hits = lp_cast(g->b, hit, lp_type(g->b, DY)->dtype);
    LpVal n = lp_sum(g->b, hits, g->attr[LP_REDUCE_DIM].v,
                     g->attr[LP_REDUCE_DIM].n, true);
    g->din[0] = WHERE(hit, DIV(RESTORE(DY), n), K(0));
}

static void grad_logsumexp(LpGrad *g)
{
    LpVal share = OP1(exp, SUB(X, RESTORE(R)));
    g->din[0] = MUL(share, RESTORE(DY));
}

/* The record of a fold; `...`: its gradient and more fields. */
#define FOLD(id, forms_, rule, row, fold_, end_, kind_, dtype_, ...)           \
    LP_PRIMITIVE(                                                              \
        id, forms_, infer, prepare, rule, .cost_row = row,                     \
        .data = &(const Facts){.spec = {.fold = fold_,                         \
                                        .map = {LP_LOOP_NONE, LP_LOOP_NONE},   \
                                        .end = end_},                          \
                               .kind = kind_,                                  \
                               .dtype = dtype_},                               \
        __VA_ARGS__)

/* sum(x); dx = dy */
FOLD(sum,
     "sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
     "ScalarType? dtype=None) -> Tensor @fmd",
     lp_rule_reduce, LP_RED_ADD, LP_FOLD_SUM, LP_END_NONE, KIND_NUMBER,
     LP_REDUCE_DTYPE, .flags = LP_OPF_OUT_BY_DIM | LP_OPF_SUMS,
     .grad = grad_sum)

/* ---- sums of what is not NaN --------------------------------------------- */
static LP_KERNEL_PREPARE(prepare_numbers)
{
    LpReduceSpec s = {.fold = LP_FOLD_SUM,
                      .map = {LP_LOOP_number, LP_LOOP_NONE},
                      .end = LP_END_NONE};
    return lp_reduce_prepare(r, &s, &r->attr[LP_REDUCE_DIM], k, e);
}

LP_EXPAND(expand_numbers)
{
    LpVal nan = lp_op1(b, LP_OP_isnan, in[0]);
    LpVal x = lp_where(b, nan, lp_immi(b, 0), in[0]);
    out[0] = lp_emit(b, LP_OP_sum, &x, 1, attr);
}

static void grad_numbers(LpGrad *g)
{
    g->din[0] = WHERE(OP1(isnan, X), K(0), RESTORE(DY));
}

/* Of floats, as floats. */
LP_PRIMITIVE(sum_numbers,
             "sum_numbers(Tensor self, int[1]? dim=None, bool keepdim=False, "
             "*, ScalarType? dtype=None) -> Tensor @p",
             infer, prepare_numbers, NULL, .kind = LP_OP_FUSED,
             .expand = expand_numbers, .grad = grad_numbers, .grad_in = 1,
             .data = &(const Facts){.kind = KIND_FLOAT,
                                    .dtype = LP_REDUCE_DTYPE})

/* sum(x) / n; dx = dy / n */
FOLD(mean,
     "mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
     "ScalarType? dtype=None) -> Tensor @fmc",
     lp_rule_mean, LP_RED_ADD, LP_FOLD_SUM, LP_END_MEAN, KIND_FLOAT,
     LP_REDUCE_DTYPE, .flags = LP_OPF_SUMS, .grad = grad_mean)

/* dx_i = dy times the product of the others, also where x has zeros */
FOLD(prod,
     "prod(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
     "ScalarType? dtype=None) -> Tensor @fmd",
     lp_rule_reduce, LP_RED_MUL, LP_FOLD_PROD, LP_END_NONE, KIND_NUMBER,
     LP_REDUCE_DTYPE, .flags = LP_OPF_OUT_BY_DIM, .cast = LP_CAST_WIDE,
     .grad = grad_prod, .grad_in = 1)

#define EXTREME(short_name, FOLD_, ROW)                                        \
    FOLD(a##short_name,                                                        \
         "a" #short_name                                                       \
         "(Tensor self, int[1]? dim=None, bool keepdim=False) -> "             \
         "Tensor @fmo\n" #short_name "(Tensor self) -> Tensor @fmc",           \
         lp_rule_reduce, ROW, FOLD_, LP_END_NONE, KIND_SAME, -1,               \
         .flags = LP_OPF_EXACT, .grad = grad_extreme, .grad_in = 1,            \
         .grad_out = 1)
EXTREME(max, LP_FOLD_MAX, LP_RED_MAX)
EXTREME(min, LP_FOLD_MIN, LP_RED_MIN)

#define QUESTION(id, FOLD_, ROW)                                               \
    FOLD(id,                                                                   \
         #id "(Tensor self, int[1]? dim=None, bool keepdim=False) -> "         \
             "Tensor @fmo",                                                    \
         lp_rule_reduce, ROW, FOLD_, LP_END_NONE, KIND_TRUTH, -1,              \
         .flags = LP_OPF_TRUTH, .no_grad = "a boolean result has no gradient")
QUESTION(any, LP_FOLD_MAX, LP_RED_OR)
QUESTION(all, LP_FOLD_MIN, LP_RED_AND)

FOLD(count_nonzero,
     "count_nonzero(Tensor self, int[1]? dim=None) -> Tensor @fm",
     lp_rule_count, LP_RED_ADD, LP_FOLD_SUM, LP_END_NONE, KIND_COUNT, -1,
     .no_grad = "a count has no gradient")

/* log(sum(exp(x))) without overflow; dx = dy exp(x - result) */
FOLD(logsumexp,
     "logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor @fmcs",
     lp_rule_reduce, LP_RED_LOGADD, LP_FOLD_SUM, LP_END_LOGSUM, KIND_REAL, -1,
     .grad = grad_logsumexp, .grad_in = 1, .grad_out = 1)

/* ---- norms --------------------------------------------------------------- */
static double order(const LpAttr *attr)
{
    return attr[LP_NORM_ORD].kind == LP_ATTR_SCALAR
               ? lp_scalar_f(attr[LP_NORM_ORD].s)
               : 2;
}

static LP_KERNEL_PREPARE(prepare_norm)
{
    LpReduceSpec s = {.fold = LP_FOLD_SUM,
                      .map = {LP_LOOP_abs, LP_LOOP_NONE},
                      .end = LP_END_NONE,
                      .p = order(r->attr)};
    if (s.p == INFINITY) {
        s.fold = LP_FOLD_MAX;
    } else if (s.p == -INFINITY) {
        s.fold = LP_FOLD_MIN;
    } else if (s.p == 0) {
        s.map[0] = LP_LOOP_nonzero;
    } else if (s.p == 2) {
        s.map[0] = LP_LOOP_square;
        s.end = LP_END_ROOT;
    } else if (s.p != 1) {
        s.map[1] = LP_LOOP_pow;
        s.end = LP_END_ROOT;
    }
    return lp_reduce_prepare(r, &s, &r->attr[LP_REDUCE_DIM], k, e);
}

static LpStatus infer_norm(LpInfer *x)
{
    double p = order(x->attr);
    LP_TRY(lp_infer_norm_dtype(x->op->name, x->in[0].dtype,
                               &x->attr[LP_NORM_DTYPE], x->err));
    LP_TRY(infer(x));
    return p < 0 || p == (double)INFINITY ? lp_reduce_nonempty(x, LP_E_RUNTIME)
                                          : LP_OK;
}

/* What a half type's gradient computes in: dy / norm is large where x / norm
 * is not. */
static LpVal wide(LpGrad *g, LpVal v)
{
    return lp_is_half(lp_type(g->b, v)->dtype) ? lp_cast(g->b, v, LP_F32) : v;
}

/* x |x|^(p-2) dy / norm^(p-1); nothing where the norm is 0 */
static void grad_norm(LpGrad *g)
{
    double p = order(g->attr);
    if (p == 0)
        return;
    LpVal n = RESTORE(R), dy = RESTORE(DY);
    if (p == 1) {
        g->din[0] = MUL(OP1(sgn, X), dy);
        return;
    }
    if (isinf(p)) {
        LpVal hit = lp_cast(g->b, EQ(OP1(abs, X), n), lp_type(g->b, X)->dtype);
        LpVal hits = lp_sum(g->b, hit, g->attr[LP_REDUCE_DIM].v,
                            g->attr[LP_REDUCE_DIM].n, true);
        g->din[0] = MUL(MUL(OP1(sgn, X), hit), DIV(dy, hits));
        return;
    }
    n = wide(g, n);
    LpVal zero = EQ(n, K(0));
    n = WHERE(zero, K(1), n); /* the quotient's own gradient stays finite */
    if (p == 2) {
        g->din[0] = MUL(wide(g, X), WHERE(zero, K(0), DIV(dy, n)));
        return;
    }
    LpVal scale = WHERE(zero, K(0), DIV(dy, OP2(pow, n, K(p - 1))));
    LpVal a = OP1(abs, wide(g, X));
    if (p < 1) /* sgn makes it 0 there; the power must be finite */
        a = WHERE(EQ(X, K(0)), K(1), a);
    g->din[0] = MUL(MUL(OP1(sgn, X), OP2(pow, a, K(p - 1))), scale);
}

/* (sum |x|^p)^(1/p); p = 0 counts, p = inf and -inf take the extremes */
LP_PRIMITIVE(
    vector_norm,
    "vector_norm.own(Tensor self, int[1]? dim=None, bool keepdim=False, "
    "Scalar? ord=2, ScalarType? dtype=None) -> Tensor @p\n"
    "vector_norm(Tensor self, Scalar? ord=2, int[1]? dim=None, bool "
    "keepdim=False, *, ScalarType? dtype=None) -> Tensor @lo",
    infer_norm, prepare_norm, lp_rule_vector_norm, .grad = grad_norm,
    .grad_in = 1, .grad_out = 1,
    .data = &(const Facts){.kind = KIND_FLOAT, .dtype = LP_NORM_DTYPE})

/* ---- short hand of rules ------------------------------------------------- */
static LpVal reduce(LpBuilder *b, int op, LpVal x, const int64_t *dims, int n,
                    bool keepdim)
{
    LpAttr a[3] = {n > 0 ? lp_attr_ints(dims, n) : LP_NONE_ATTR,
                   lp_attr_bool(keepdim), LP_NONE_ATTR};
    return lp_emit(b, op, &x, 1, a);
}

LpVal lp_sum(LpBuilder *b, LpVal x, const int64_t *dims, int n, bool keepdim)
{
    return reduce(b, LP_OP_sum, x, dims, n, keepdim);
}

LpVal lp_mean(LpBuilder *b, LpVal x, const int64_t *dims, int n, bool keepdim)
{
    return reduce(b, LP_OP_mean, x, dims, n, keepdim);
}

LpVal lp_amax(LpBuilder *b, LpVal x, const int64_t *dims, int n, bool keepdim)
{
    return reduce(b, LP_OP_amax, x, dims, n, keepdim);
}

LpVal lp_sum_to(LpBuilder *b, LpVal x, const LpType *like)
{
    int64_t dims[LP_MAX_DIMS];
    int n = 0, lead = 0;
    if (lp_failed(b) || x == LP_NOVAL)
        return LP_NOVAL;
    LpType t = *lp_type(b, x), want = *like;
    for (int d = 0; d < t.ndim; d++) {
        int at = d - (t.ndim - want.ndim);
        if (at < 0 || (want.shape[at] == 1 && t.shape[d] != 1))
            dims[n++] = d;
        lead += at < 0;
    }
    if (n > 0) /* leading dimensions go, others stay as 1 */
        x = lp_sum(b, x, dims, n, lead == 0);
    if (n > lead && lead > 0)
        x = lp_reshape(b, x, want.shape, want.ndim);
    return lp_cast(b, x, want.dtype);
}
