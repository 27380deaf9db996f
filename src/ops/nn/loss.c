/* Losses.
 *
 * Every loss ends in identity_loss, the node by which PopTorch's rule of one
 * final loss knows it, and which does the reduction. nll_loss is a primitive
 * (one operation on the device): linear in its input, so it and its gradient
 * are each other's gradients. The others are made of smaller operators.
 *
 * `size_average` and `reduce` are PyTorch's old spelling of `reduction`; they
 * win when given. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"

/* ---- reductions ---------------------------------------------------------- */
static LpStatus check_reduction(const char *s, bool batchmean, LpErr *e)
{
    bool ok = strcmp(s, "none") == 0 || strcmp(s, "mean") == 0 ||
              strcmp(s, "sum") == 0 ||
              (batchmean && strcmp(s, "batchmean") == 0);
    LP_FAIL_IF(!ok, e, LP_E_VALUE,
               "'%s' is not a valid value for reduction: 'none', 'mean'%s or "
               "'sum'",
               s, batchmean ? ", 'batchmean'" : "");
    return LP_OK;
}

const char *lp_old_reduction(const LpAttr *average, const LpAttr *reduce,
                             const char *s)
{
    if (average->kind == LP_ATTR_NONE && reduce->kind == LP_ATTR_NONE)
        return s;
    if (reduce->kind != LP_ATTR_NONE && !reduce->i)
        return "none";
    return average->kind == LP_ATTR_NONE || average->i ? "mean" : "sum";
}

static LpStatus infer_identity(LpInfer *x)
{
    LP_TRY(lp_need_float(x, 0, "x"));
    LP_TRY(check_reduction(x->attr[LP_IDENTITY_LOSS_REDUCTION].str, false,
                           x->err));
    x->out[0] = x->in[0];
    if (strcmp(x->attr[LP_IDENTITY_LOSS_REDUCTION].str, "none") != 0)
        x->out[0].ndim = 0;
    return LP_OK;
}

LP_EXPAND(expand_identity)
{
    int n = lp_type(b, in[0])->ndim;
    int64_t all[LP_MAX_DIMS];
    for (int i = 0; i < n; i++)
        all[i] = i;
    if (strcmp(attr[LP_IDENTITY_LOSS_REDUCTION].str, "none") == 0)
        out[0] = lp_op1(b, LP_OP_alias, in[0]);
    else if (strcmp(attr[LP_IDENTITY_LOSS_REDUCTION].str, "sum") == 0)
        out[0] = lp_sum(b, in[0], all, n, false);
    else
        out[0] = lp_mean(b, in[0], all, n, false);
}

static void grad_identity(LpGrad *g)
{
    LpType t = *lp_type(g->b, g->in[0]);
    LpVal d = g->dout[0];
    if (strcmp(g->attr[LP_IDENTITY_LOSS_REDUCTION].str, "mean") == 0)
        d = lp_div(g->b, d, lp_immf(g->b, (double)lp_numel(&t)));
    g->din[0] = lp_expand_as(g->b, d, &t);
}

LP_PRIMITIVE(identity_loss,
             "identity_loss(Tensor x, str reduction) -> Tensor @p\n"
             "_identity_loss(Tensor x, str reduction) -> Tensor @n",
             infer_identity, lp_identity_loss_prepare, lp_rule_identity_loss,
             .kind = LP_OP_FUSED, .flags = LP_OPF_DEVICE | LP_OPF_LOSS,
             .expand = expand_identity, .grad = grad_identity)

static LpVal final(LpBuilder *b, LpVal x, const char *reduction)
{
    LpAttr a = lp_attr_str(reduction);
    return lp_emit(b, LP_OP_identity_loss, &x, 1, &a);
}

/* ---- negative log-likelihood --------------------------------------------- */
static LpStatus check_weight(const LpInfer *x, int i, int64_t classes)
{
    const LpType *w = &x->in[i];
    LP_FAIL_IF(
        w->dtype != LP_DT_NONE &&
            (w->ndim != 1 || w->shape[0] != classes || !lp_is_float(w->dtype)),
        x->err, LP_E_RUNTIME,
        "%s: `weight` should be a float tensor with one number for each "
        "of %lld classes, or absent; got %s of shape %s",
        x->op->name, (long long)classes, lp_dtype_name(w->dtype),
        lp_shape_str(w));
    return LP_OK;
}

static LpStatus infer_nll(LpInfer *x)
{
    const LpType *in = &x->in[0], *t = &x->in[1];
    LP_TRY(lp_need_float(x, 0, "input"));
    LP_TRY(check_reduction(x->attr[LP_NLL_REDUCTION].str, false, x->err));
    LP_FAIL_IF(lp_dtype_kind(t->dtype) != LP_KIND_INT, x->err, LP_E_RUNTIME,
               "nll_loss: `target` must hold class ids of an integer type, got "
               "%s",
               lp_dtype_name(t->dtype));
    int axis = in->ndim == 1 ? 0 : 1;
    bool ok = in->ndim >= 1 && t->ndim == in->ndim - 1;
    for (int i = 0; ok && i < t->ndim; i++)
        ok = t->shape[i] == in->shape[i < axis ? i : i + 1];
    bool rows = in->ndim > 1 && t->ndim > 0 && t->shape[0] != in->shape[0];
    LP_FAIL_IF(!ok, x->err, rows ? LP_E_VALUE : LP_E_RUNTIME,
               "nll_loss: expected an input of shape (C), (N, C) or (N, C, d1, "
               "…) and a target of the same without C, got %s and %s",
               lp_shape_str(in), lp_shape_str(t));
    LP_TRY(check_weight(x, 2, in->shape[axis]));
    LP_FAIL_IF(x->in[2].dtype != LP_DT_NONE && x->in[2].dtype != in->dtype,
               x->err, LP_E_RUNTIME,
               "nll_loss: `weight` is %s; it must have the input's type, %s",
               lp_dtype_name(x->in[2].dtype), lp_dtype_name(in->dtype));
    x->out[0] = *t;
    x->out[0].dtype = in->dtype;
    if (strcmp(x->attr[LP_NLL_REDUCTION].str, "none") != 0)
        x->out[0].ndim = 0;
    x->out[1] = (LpType){.dtype = in->dtype == LP_F64 ? LP_F64 : LP_F32};
    return LP_OK;
}

/* (dy, target, weight, total; reduction, ignore_index, classes) */
static LpStatus infer_nll_back(LpInfer *x)
{
    const LpType *t = &x->in[1];
    int axis = t->ndim == 0 ? 0 : 1;
    LP_TRY(lp_need_float(x, 0, "grad"));
    LP_TRY(check_reduction(x->attr[LP_NLL_REDUCTION].str, false, x->err));
    bool none = strcmp(x->attr[LP_NLL_REDUCTION].str, "none") == 0;
    LP_FAIL_IF(lp_dtype_kind(t->dtype) != LP_KIND_INT ||
                   t->ndim == LP_MAX_DIMS || lp_numel(&x->in[3]) != 1,
               x->err, LP_E_RUNTIME,
               "nll_loss_backward: target must hold class ids of an integer "
               "type in less than %d dimensions and total_weight be a single "
               "number, got %s of shape %s and the shape %s",
               LP_MAX_DIMS, lp_dtype_name(t->dtype), lp_shape_str(t),
               lp_shape_str(&x->in[3]));
    LP_FAIL_IF(none ? !lp_shape_eq(&x->in[0], t) : x->in[0].ndim != 0, x->err,
               LP_E_RUNTIME,
               "nll_loss_backward: grad must have the loss's shape, got %s "
               "with a target of shape %s and reduction '%s'",
               lp_shape_str(&x->in[0]), lp_shape_str(t),
               x->attr[LP_NLL_REDUCTION].str);
    LP_TRY(check_weight(x, 2, x->attr[LP_NLL_CLASSES].i));
    LpType *o = &x->out[0];
    *o = (LpType){.dtype = x->in[0].dtype, .ndim = (int8_t)(t->ndim + 1)};
    for (int i = 0; i < o->ndim; i++)
        o->shape[i] = i == axis  ? x->attr[LP_NLL_CLASSES].i
                      : i < axis ? t->shape[i]
                                 : t->shape[i - 1];
    return LP_OK;
}

static void grad_nll(LpGrad *g)
{
    LpType t = *lp_type(g->b, g->in[0]);
    LpAttr a[3] = {g->attr[LP_NLL_REDUCTION], g->attr[LP_NLL_IGNORE_INDEX],
                   lp_attr_int(t.shape[t.ndim == 1 ? 0 : 1])};
    if (g->dout[0] == LP_NOVAL || !g->need[0])
        return;
    LpVal in[4] = {g->dout[0], g->in[1], g->in[2], g->out[1]};
    g->din[0] = lp_emit(g->b, LP_OP_nll_loss_backward, in, 4, a);
}

static void grad_nll_back(LpGrad *g)
{
    LpVal r[2], in[3] = {g->dout[0], g->in[1], g->in[2]};
    if (g->need[0] &&
        lp_emit_n(g->b, LP_OP_nll_loss_forward, in, 3, g->attr, r) == 2)
        g->din[0] = r[0];
}

LP_PRIMITIVE(nll_loss_forward,
             "nll_loss_forward(Tensor input, Tensor target, Tensor? weight, "
             "str reduction, int ignore_index) -> (Tensor output, Tensor "
             "total_weight) @p",
             infer_nll, lp_nll_prepare, lp_rule_nll, .grad = grad_nll,
             .grad_in = 6, .grad_out = 2)

LP_PRIMITIVE(nll_loss_backward,
             "nll_loss_backward(Tensor grad, Tensor target, Tensor? weight, "
             "Tensor total_weight, str reduction, int ignore_index, int "
             "classes) -> Tensor @p",
             infer_nll_back, lp_nll_back_prepare, lp_rule_nll_back,
             .grad = grad_nll_back, .grad_in = 6)

/* r[0] the loss, r[1] the total weight */
static bool nll(LpBuilder *b, LpVal x, LpVal target, LpVal weight,
                const char *reduction, int64_t ignore, LpVal r[2])
{
    LpAttr a[2] = {lp_attr_str(reduction), lp_attr_int(ignore)};
    return lp_emit_n(b, LP_OP_nll_loss_forward, (LpVal[]){x, target, weight}, 3,
                     a, r) == 2;
}

static const char *how_of(const LpAttr *attr)
{
    return lp_old_reduction(&attr[LP_LOSS_SIZE_AVERAGE], &attr[LP_LOSS_REDUCE],
                            attr[LP_LOSS_REDUCTION].str);
}

LP_LOSS(nll_loss,
        "Tensor input, Tensor target, Tensor? weight=None, bool? "
        "size_average=None, int ignore_index=-100, bool? reduce=None, str "
        "reduction='mean'")
{
    LpVal r[2];
    const char *how = how_of(attr);
    bool ok = nll(b, in[0], in[1], in[2], how, attr[LP_LOSS_IGNORE_INDEX].i, r);
    return ok ? final(b, r[0], "none") : LP_NOVAL;
}

/* ---- cross entropy ------------------------------------------------------- */
static LpVal sum_classes(LpBuilder *b, LpVal x, int axis)
{
    return lp_sum(b, x, (int64_t[]){axis}, 1, false);
}

/* weight [C] so that it broadcasts against x along `axis` */
static LpVal along(LpBuilder *b, LpVal weight, LpVal x, int axis)
{
    int n = lp_type(b, x)->ndim - axis;
    int64_t shape[LP_MAX_DIMS];
    for (int i = 0; i < n; i++)
        shape[i] = i == 0 ? lp_type(b, x)->shape[axis] : 1;
    return lp_reshape(b, weight, shape, n);
}

/* The part of label smoothing: the mean over the classes' log-probabilities,
 * reduced as the likelihood is (`total` is its weight). */
static LpVal smooth(LpBuilder *b, LpVal logp, const LpVal *in, int axis,
                    const char *how, int64_t ignore, LpVal total)
{
    LpVal x = logp;
    if (in[2] != LP_NOVAL)
        x = lp_mul(b, x, along(b, in[2], logp, axis));
    x = lp_neg(b, sum_classes(b, x, axis));
    LpVal skip = lp_op2(b, LP_OP_eq, in[1], lp_immi(b, ignore));
    x = lp_where(b, skip, lp_immf(b, 0), x);
    if (strcmp(how, "none") == 0 || lp_failed(b))
        return x;
    int n = lp_type(b, x)->ndim;
    int64_t all[LP_MAX_DIMS];
    for (int i = 0; i < n; i++)
        all[i] = i;
    x = lp_sum(b, x, all, n, false);
    return strcmp(how, "sum") == 0 ? x : lp_div(b, x, total);
}

static LpVal by_ids(LpBuilder *b, LpVal logp, const LpVal *in, int axis,
                    const char *how, int64_t ignore, double smoothing)
{
    LpVal r[2];
    if (!nll(b, logp, in[1], in[2], how, ignore, r) || smoothing == 0)
        return lp_failed(b) ? LP_NOVAL : r[0];
    double classes = (double)lp_type(b, logp)->shape[axis];
    LpVal s = smooth(b, logp, in, axis, how, ignore, r[1]);
    LpDtype t = lp_type(b, logp)->dtype;
    r[0] = lp_mul(b, r[0], lp_immf(b, 1 - smoothing));
    s = lp_mul(b, s, lp_immf(b, smoothing / classes));
    return lp_cast(b, lp_add(b, r[0], s), t);
}

static LpVal by_probabilities(LpBuilder *b, LpVal logp, const LpVal *in,
                              int axis, const char *how, double smoothing)
{
    LpType t = *lp_type(b, logp);
    double classes = (double)t.shape[axis];
    LpVal p = in[1];
    if (smoothing != 0)
        p = lp_add(b, lp_mul(b, p, lp_immf(b, 1 - smoothing)),
                   lp_immf(b, smoothing / classes));
    LpVal x = lp_mul(b, logp, p);
    if (in[2] != LP_NOVAL)
        x = lp_mul(b, x, along(b, in[2], logp, axis));
    x = lp_neg(b, sum_classes(b, x, axis));
    int64_t all[LP_MAX_DIMS];
    for (int i = 0; i < t.ndim - 1; i++)
        all[i] = i;
    if (strcmp(how, "none") == 0)
        return x;
    if (lp_numel(&t) == 0 && strcmp(how, "mean") == 0) /* without classes too */
        return lp_div(b, lp_sum(b, x, all, t.ndim - 1, false), lp_immf(b, 0));
    return (strcmp(how, "sum") == 0 ? lp_sum : lp_mean)(b, x, all, t.ndim - 1,
                                                        false);
}

LP_LOSS(cross_entropy,
        "Tensor input, Tensor target, Tensor? weight=None, bool? "
        "size_average=None, int ignore_index=-100, bool? reduce=None, str "
        "reduction='mean', float label_smoothing=0.0")
{
    const char *how = how_of(attr);
    LpType x = *lp_type(b, in[0]), t = *lp_type(b, in[1]);
    int axis = x.ndim == 1 ? 0 : 1;
    double smoothing = attr[LP_LOSS_LABEL_SMOOTHING].f;
    bool ids = !lp_is_float(t.dtype);
    if (check_reduction(how, false, b->err) != LP_OK)
        return LP_NOVAL;
    if (!(smoothing >= 0 && smoothing <= 1))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "label_smoothing must be between 0.0 and 1.0. Got: %g",
                         smoothing);
    if (x.ndim == 0 || (!ids && !lp_shape_eq(&x, &t)))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "cross_entropy: an input of shape %s (C), (N, C) or (N, C, d1, "
            "…) needs a target of class ids (integers, the shape without "
            "C) or of probabilities (the same shape), got %s of shape %s",
            lp_shape_str(&x), lp_dtype_name(t.dtype), lp_shape_str(&t));
    if (!ids && attr[LP_LOSS_IGNORE_INDEX].i >= 0)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "cross_entropy: ignore_index (%lld) is for targets of class "
            "ids; these are probabilities",
            (long long)attr[LP_LOSS_IGNORE_INDEX].i);
    LpAttr a = lp_attr_int(axis);
    LpVal logp = lp_emit(b, LP_OP_log_softmax, in, 1, &a);
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal r = ids ? by_ids(b, logp, in, axis, how, attr[LP_LOSS_IGNORE_INDEX].i,
                           smoothing)
                  : by_probabilities(b, logp, in, axis, how, smoothing);
    return final(b, r, "none");
}
