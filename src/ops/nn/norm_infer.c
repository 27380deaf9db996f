/* Shape rules of the normalisations. */
#include "src/ops/nn/nnop.h"
#include "src/ops/nn/norm.h"
#include "src/ops/view/view.h"

/* A parameter must have exactly `want`'s shape; holes pass. */
static LpStatus check_param(const LpInfer *x, int i, const char *name,
                            const LpType *want)
{
    if (x->in[i].dtype != LP_DT_NONE)
        LP_TRY(lp_need_float(x, i, name));
    return lp_need_shape(x, i, name, want);
}

LpStatus lp_norm_normalized(const LpInfer *x, const LpType *in, LpType *param)
{
    const LpAttr *s = &x->attr[LP_LAYER_NORM_NORMALIZED_SHAPE];
    LP_FAIL_IF(s->n < 1 || s->n > LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "%s: `normalized_shape` must hold at least 1 size", x->op->name);
    *param = (LpType){.dtype = lp_norm_stat_dtype(in->dtype)};
    lp_set_dims(param, s->v, s->n);
    bool ok = in->ndim >= s->n;
    for (int i = 0; ok && i < s->n; i++)
        ok = in->shape[in->ndim - s->n + i] == s->v[i];
    LP_FAIL_IF(!ok, x->err, LP_E_RUNTIME,
               "%s: given normalized_shape=%s, expected an input whose last "
               "sizes are these, but got input of size %s",
               x->op->name, lp_shape_str(param), lp_shape_str(in));
    return LP_OK;
}

/* Statistics of `in`, which is normalised over the last axes like `param`. */
static LpType layer_stat(const LpType *in, const LpType *param)
{
    LpType t = *in;
    t.dtype = param->dtype;
    for (int i = 0; i < param->ndim; i++)
        t.shape[t.ndim - 1 - i] = 1;
    return t;
}

LpStatus lp_norm_infer_layer(LpInfer *x)
{
    LpType param;
    LP_TRY(lp_need_float(x, 0, "input"));
    LP_TRY(lp_norm_normalized(x, &x->in[0], &param));
    LP_TRY(check_param(x, 1, "weight", &param));
    LP_TRY(check_param(x, 2, "bias", &param));
    x->out[0] = x->in[0];
    x->out[1] = x->out[2] = layer_stat(&x->in[0], &param);
    return LP_OK;
}

/* (dy, x, stat, stat, w) -> dx, dw, db */
static LpStatus infer_back(LpInfer *x, const LpType *param, const LpType *stat)
{
    LP_TRY(lp_need_float(x, 0, "grad"));
    LP_TRY(lp_need_float(x, 1, "input"));
    LP_FAIL_IF(!lp_shape_eq(&x->in[0], &x->in[1]), x->err, LP_E_RUNTIME,
               "%s: gradient %s and input %s must have the same shape",
               x->op->name, lp_shape_str(&x->in[0]), lp_shape_str(&x->in[1]));
    LP_TRY(check_param(x, 2, "mean", stat));
    LP_TRY(check_param(x, 3, "rstd or var", stat));
    LP_TRY(check_param(x, 4, "weight", param));
    if (x->n_in > 5)
        LP_TRY(check_param(x, 5, "result", &x->in[1]));
    x->out[0] = x->in[1];
    x->out[1] = x->out[2] = *param;
    return LP_OK;
}

LpStatus lp_norm_infer_layer_back(LpInfer *x)
{
    LpType param;
    LP_TRY(lp_norm_normalized(x, &x->in[1], &param));
    LpType stat = layer_stat(&x->in[1], &param);
    return infer_back(x, &param, &stat);
}

static LpStatus channels(const LpInfer *x, const LpType *in, LpType *param)
{
    LP_FAIL_IF(in->ndim < 2, x->err, LP_E_RUNTIME,
               "%s: expected an input of at least 2 dimensions (batch, "
               "channels, …), got shape %s",
               x->op->name, lp_shape_str(in));
    *param = (LpType){.dtype = lp_norm_stat_dtype(in->dtype),
                      .ndim = 1,
                      .shape = {in->shape[1]}};
    return LP_OK;
}

static LpStatus check_groups(const LpInfer *x, const LpType *in)
{
    int64_t g = x->attr[LP_GROUP_NORM_NUM_GROUPS].i;
    LP_FAIL_IF(in->shape[1] < 1, x->err, LP_E_RUNTIME,
               "%s: expected the number of channels in the input to be greater "
               "than 0, got 0",
               x->op->name);
    LP_FAIL_IF(g < 1 || in->shape[1] % g != 0, x->err, LP_E_RUNTIME,
               "%s: expected the number of channels in the input (%lld) to be "
               "divisible by num_groups, but got num_groups=%lld",
               x->op->name, (long long)in->shape[1], (long long)g);
    return LP_OK;
}

static LpType group_stat(const LpInfer *x, const LpType *in,
                         const LpType *param)
{
    return (LpType){
        .dtype = param->dtype,
        .ndim = 2,
        .shape = {in->shape[0], x->attr[LP_GROUP_NORM_NUM_GROUPS].i}};
}

LpStatus lp_norm_infer_group(LpInfer *x)
{
    LpType param;
    LP_TRY(lp_need_float(x, 0, "input"));
    LP_TRY(channels(x, &x->in[0], &param));
    LP_TRY(check_groups(x, &x->in[0]));
    for (int d = 2; d < x->in[0].ndim; d++)
        LP_FAIL_IF(x->in[0].shape[d] == 0, x->err, LP_E_RUNTIME,
                   "group_norm: dimension %d of the input is empty; every "
                   "dimension after the channels needs an element",
                   d);
    LP_TRY(check_param(x, 1, "weight", &param));
    LP_TRY(check_param(x, 2, "bias", &param));
    x->out[0] = x->in[0];
    x->out[1] = x->out[2] = group_stat(x, &x->in[0], &param);
    return LP_OK;
}

LpStatus lp_norm_infer_group_back(LpInfer *x)
{
    LpType param;
    LP_TRY(channels(x, &x->in[1], &param));
    LP_TRY(check_groups(x, &x->in[1]));
    LpType stat = group_stat(x, &x->in[1], &param);
    return infer_back(x, &param, &stat);
}

LpStatus lp_norm_infer_batch(LpInfer *x)
{
    LpType param;
    LP_TRY(lp_need_float(x, 0, "input"));
    LP_TRY(channels(x, &x->in[0], &param));
    LP_FAIL_IF(lp_numel(&x->in[0]) == x->in[0].shape[1], x->err, LP_E_VALUE,
               "expected more than 1 value per channel when training, got "
               "input size %s",
               lp_shape_str(&x->in[0]));
    LP_TRY(check_param(x, 1, "weight", &param));
    LP_TRY(check_param(x, 2, "bias", &param));
    if (x->n_in > 3)
        LP_TRY(check_param(x, 3, "other", &x->in[0]));
    x->out[0] = x->in[0];
    x->out[1] = x->out[2] = param;
    return LP_OK;
}

LpStatus lp_norm_infer_batch_back(LpInfer *x)
{
    LpType param;
    LP_TRY(channels(x, &x->in[1], &param));
    return infer_back(x, &param, &param);
}
