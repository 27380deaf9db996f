/* Operators that arrange elements anew: joining, flipping, padding,
 * triangles. All kernels are strided copies. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/copy/hooks.h"
#include "src/ops/layout_cost.h"
#include "src/ops/view/view.h"

#define LL(x) ((long long)(x))

/* ---- cat ----------------------------------------------------------------- */
/* A tensor of shape [0] joins anything (PyTorch keeps that from its past). */
static bool skipped(const LpType *t)
{
    return t->ndim == 1 && t->shape[0] == 0;
}

static LpStatus check_cat(LpInfer *x, int i, const LpType *first, int dim)
{
    const LpType *t = &x->in[i];
    LP_FAIL_IF(t->ndim != first->ndim, x->err, LP_E_RUNTIME,
               "Tensors must have same number of dimensions: got %d and %d",
               first->ndim, t->ndim);
    for (int d = 0; d < t->ndim; d++)
        LP_FAIL_IF(d != dim && t->shape[d] != first->shape[d], x->err,
                   LP_E_RUNTIME,
                   "Sizes of tensors must match except in dimension %d. "
                   "Expected size %lld but got size %lld for tensor number %d "
                   "in the list.",
                   dim, LL(first->shape[d]), LL(t->shape[d]), i);
    return LP_OK;
}

static LpStatus infer_cat(LpInfer *x)
{
    LpPromo p = LP_PROMO_INIT;
    int first = -1;
    int64_t size = 0;
    LP_FAIL_IF(x->n_in == 0, x->err, LP_E_VALUE,
               "cat: expected a non-empty list of Tensors");
    for (int i = 0; i < x->n_in; i++) {
        LP_FAIL_IF(x->in[i].ndim == 0, x->err, LP_E_RUNTIME,
                   "zero-dimensional tensor (at position %d) cannot be "
                   "concatenated",
                   i);
        lp_promo_tensor(&p, x->in[i].dtype, x->in[i].ndim);
        if (first < 0 && !skipped(&x->in[i]))
            first = i;
    }
    const LpType *like = &x->in[first < 0 ? 0 : first];
    LP_TRY(lp_wrap_dim(&x->attr[LP_CAT_DIM].i, like->ndim, x->err));
    int dim = (int)x->attr[LP_CAT_DIM].i;
    for (int i = 0; i < x->n_in; i++) {
        if (skipped(&x->in[i]))
            continue;
        LP_TRY(check_cat(x, i, like, dim));
        LP_FAIL_IF(!lp_add_i64(size, x->in[i].shape[dim], &size), x->err,
                   LP_E_OVERFLOW, "cat: the result is too large");
    }
    x->out[0] = *like;
    x->out[0].dtype = lp_promo_result(&p);
    x->out[0].shape[dim] = size;
    return LP_OK;
}

static void grad_cat(LpGrad *g)
{
    int dim = (int)g->attr[LP_CAT_DIM].i;
    int64_t at = 0;
    for (int i = 0; i < g->n_in && !lp_failed(g->b); i++) {
        LpType t = *lp_type(g->b, g->in[i]);
        if (skipped(&t))
            continue;
        if (g->need[i])
            g->din[i] =
                lp_slice(g->b, g->dout[0], dim, at, at + t.shape[dim], 1);
        at += t.shape[dim];
    }
}

LP_PRIMITIVE(cat,
             "cat(Tensor[] tensors, int dim=0) -> Tensor @fc\n"
             "concat(Tensor[] tensors, int dim=0) -> Tensor @fc\n"
             "concatenate(Tensor[] tensors, int dim=0) -> Tensor @fc",
             infer_cat, lp_cat_prepare, lp_rule_copy, .cast = LP_CAST_WIDEST,
             .flags = LP_OPF_OUT_APART | LP_OPF_JOINS | LP_OPF_EXACT,
             .grad = grad_cat)

/* ---- flip ---------------------------------------------------------------- */
static LpStatus infer_flip(LpInfer *x)
{
    const LpAttr *a = &x->attr[LP_FLIP_DIMS];
    int64_t dims[LP_MAX_DIMS];
    bool seen[LP_MAX_DIMS] = {false};
    LP_FAIL_IF(a->n > LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "flip: %d dims are given for a tensor of %d dimensions", a->n,
               x->in[0].ndim);
    for (int i = 0; i < a->n; i++) {
        dims[i] = a->v[i];
        LP_TRY(lp_wrap_dim(&dims[i], x->in[0].ndim, x->err));
        LP_FAIL_IF(seen[dims[i]], x->err, LP_E_RUNTIME,
                   "dim %lld appears multiple times in the list of dims",
                   LL(dims[i]));
        seen[dims[i]] = true;
    }
    x->out[0] = x->in[0];
    return lp_set_ints(x, 0, dims, a->n);
}

/* The operator itself: of flips and triangles. */
static void grad_again(LpGrad *g)
{
    g->din[0] = lp_emit(g->b, g->op->id, &g->dout[0], 1, g->attr);
}

LP_PRIMITIVE(flip, "flip(Tensor self, int[] dims) -> Tensor @fm", infer_flip,
             lp_flip_prepare, lp_rule_reverse, .flags = LP_OPF_EXACT,
             .grad = grad_again)

/* ---- tril, triu ---------------------------------------------------------- */
static LpStatus infer_tri(LpInfer *x)
{
    LP_FAIL_IF(x->in[0].ndim < 2, x->err, LP_E_RUNTIME,
               "%s: input tensor must have at least 2 dimensions, got %d",
               x->op->name, x->in[0].ndim);
    x->out[0] = x->in[0];
    return LP_OK;
}

#define TRIANGLE(id)                                                           \
    LP_PRIMITIVE(id, #id "(Tensor self, int diagonal=0) -> Tensor @fmio",      \
                 infer_tri, lp_tri_prepare, lp_rule_select,                    \
                 .flags = LP_OPF_INPLACE_OK | LP_OPF_EXACT,                    \
                 .grad = grad_again)
TRIANGLE(tril)
TRIANGLE(triu)

/* ---- constant_pad_nd ----------------------------------------------------- */
/* pad: (before, after) of the last dimension, of the one before it, …;
 * negative ones crop. */
static LpStatus infer_pad(LpInfer *x)
{
    const LpAttr *p = &x->attr[LP_PAD_PAD];
    int n = x->in[0].ndim;
    LP_FAIL_IF(p->n % 2 != 0 || p->n > 2 * n, x->err, LP_E_RUNTIME,
               "constant_pad_nd: the length of pad must be even and at most "
               "twice the number of dimensions of the input (%d), got %d",
               n, p->n);
    x->out[0] = x->in[0];
    for (int i = 0; i < p->n / 2; i++) {
        int d = n - 1 - i;
        int64_t before = p->v[2 * i], after = p->v[2 * i + 1];
        int64_t size = x->in[0].shape[d], full, other;
        LP_FAIL_IF(!lp_add_i64(size, before, &full) || full < 0 ||
                       !lp_add_i64(size, after, &other) || other < 0 ||
                       !lp_add_i64(full, after, &full) || full < 0,
                   x->err, LP_E_RUNTIME,
                   "The input size %lld, plus negative padding %lld and %lld, "
                   "resulted in a negative output size, which is invalid. "
                   "Check dimension %d of your input.",
                   LL(size), LL(before), LL(after), d);
        x->out[0].shape[d] = full;
    }
    return LP_OK;
}

static void grad_pad(LpGrad *g)
{
    int64_t back[2 * LP_MAX_DIMS];
    for (int i = 0; i < g->attr[LP_PAD_PAD].n; i++)
        back[i] = -g->attr[LP_PAD_PAD].v[i];
    LpAttr a[] = {lp_attr_ints(back, g->attr[LP_PAD_PAD].n),
                  lp_attr_scalar(lp_int(0))};
    g->din[0] = lp_emit(g->b, LP_OP_constant_pad_nd, &g->dout[0], 1, a);
}

LP_PRIMITIVE(constant_pad_nd,
             "constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> "
             "Tensor @f",
             infer_pad, lp_pad_prepare, lp_rule_embed, .flags = LP_OPF_EXACT,
             .grad = grad_pad)
