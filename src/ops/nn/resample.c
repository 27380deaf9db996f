/* Resampling: along dimension `dim` of n elements, element i of the result is
 * a sum over a few taps k,
 *
 *   out[i] = weight_k[i] * x[index_k[i]] + …
 *
 * given as a list [index_1, weight_1, index_2, weight_2, …]: vectors of the
 * result's size along `dim`, the weights with a dimension of size 1 for each
 * one behind it. Every separable interpolation is one of these a dimension
 * (lua/torch/nn/functional/interpolate.lua).
 *
 * It and its adjoint, which adds along the taps, are each other's gradients.
 * The device has no such operation: a trace inlines lookups and products. */
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/view/view.h"

/* The list from operand `from` on; returns its length in *n. */
static LpStatus check_taps(LpInfer *x, int from, const LpType *self, int64_t *n)
{
    int taps = x->n_in - from;
    LP_TRY(lp_need_float(x, 0, "self"));
    LP_TRY(lp_wrap_dim(&x->attr[LP_RESAMPLE_DIM].i, self->ndim, x->err));
    LP_FAIL_IF(self->ndim == 0 || taps < 2 || taps % 2 != 0, x->err,
               LP_E_RUNTIME,
               "%s: an operand of %d dimensions and a list of %d tensors; it "
               "takes at least one dimension, and indices and weights by turns",
               x->op->name, self->ndim, taps);
    *n = lp_numel(&x->in[from]);
    for (int i = 0; i < taps; i++) {
        const LpType *t = &x->in[from + i];
        bool whole = t->dtype == LP_I64 || t->dtype == LP_I32;
        LP_FAIL_IF(lp_numel(t) != *n ||
                       (i % 2 == 0 ? !whole || t->ndim != 1
                                   : t->dtype != self->dtype || t->ndim < 1 ||
                                         t->shape[0] != *n),
                   x->err, LP_E_RUNTIME,
                   "%s: tensor %d of the list has the type %s and the shape %s",
                   x->op->name, i, lp_dtype_name(t->dtype), lp_shape_str(t));
    }
    return LP_OK;
}

static LpStatus infer_resample(LpInfer *x)
{
    int64_t n;
    LP_TRY(check_taps(x, 1, &x->in[0], &n));
    x->out[0] = x->in[0];
    x->out[0].shape[x->attr[LP_RESAMPLE_DIM].i] = n;
    return LP_OK;
}

static LpStatus infer_back(LpInfer *x)
{
    int64_t n;
    LP_TRY(check_taps(x, 2, &x->in[1], &n));
    LpType grad = x->in[1];
    grad.shape[x->attr[LP_RESAMPLE_DIM].i] = n;
    LP_TRY(lp_need_shape(x, 0, "grad", &grad));
    x->out[0] = x->in[1];
    return LP_OK;
}

LP_EXPAND(expand_resample)
{
    for (int i = 1; i + 1 < n_in && !lp_failed(b); i += 2) {
        LpVal part =
            lp_emit(b, LP_OP_index_select, (LpVal[]){in[0], in[i]}, 2, attr);
        part = lp_mul(b, part, in[i + 1]);
        out[0] = i == 1 ? part : lp_add(b, out[0], part);
    }
}

LP_EXPAND(expand_back)
{
    out[0] = lp_zeros_as(b, in[1], lp_dtype_of(b, in[0]));
    for (int i = 2; i + 1 < n_in && !lp_failed(b); i += 2) {
        LpVal part = lp_mul(b, in[0], in[i + 1]);
        out[0] = lp_emit(b, LP_OP_index_add_rows,
                         (LpVal[]){out[0], in[i], part}, 3, attr);
    }
}

/* Taps are constants. */
static bool fixed_taps(LpGrad *g, int from)
{
    for (int i = from; i < g->n_in; i++)
        if (g->need[i])
            return LP_REFUSE(g->b, LP_E_RUNTIME, "%s: weights have no gradient",
                             g->op->name);
    return true;
}

/* The adjoint reads the operand's type alone, which any memory will do for. */
static void grad_resample(LpGrad *g)
{
    if (!fixed_taps(g, 1))
        return;
    LpVal v[LP_MAX_IN] = {g->dout[0]};
    LpType t = lp_type_of(g->b, g->in[0]);
    LpAttr like[] = {lp_attr_ints(t.shape, t.ndim),
                     lp_attr_dtype(lp_dtype_of(g->b, g->dout[0]))};
    v[1] = lp_emit(g->b, LP_OP_empty, NULL, 0, like);
    for (int i = 1; i < g->n_in; i++)
        v[i + 1] = g->in[i];
    g->din[0] = lp_emit(g->b, LP_OP_resample_backward, v, g->n_in + 1, g->attr);
}

static void grad_back(LpGrad *g)
{
    LpVal v[LP_MAX_IN] = {g->dout[0]};
    if (!fixed_taps(g, 2))
        return;
    for (int i = 2; i < g->n_in; i++)
        v[i - 1] = g->in[i];
    g->din[0] = lp_emit(g->b, LP_OP_resample, v, g->n_in - 1, g->attr);
}

LP_PRIMITIVE(resample,
             "resample(Tensor self, Tensor[] taps, int dim) -> Tensor @p",
             infer_resample, lp_resample_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_resample, .grad = grad_resample,
             .grad_in = 1u << 31, .back = &op_resample_backward)

LP_PRIMITIVE(resample_backward,
             "resample_backward(Tensor grad, Tensor self, Tensor[] taps, int "
             "dim) -> Tensor @p",
             infer_back, lp_resample_back_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_back, .grad = grad_back, .grad_in = 1u << 31)
