/* dropout: y = x mask / (1 - p) in training, else y = x. The gradient is the
 * same operation on dy at the same site, which draws the same mask. */
#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"

static LpStatus infer(LpInfer *x)
{
    LP_FAIL_IF(!lp_is_float(x->in[0].dtype), x->err, LP_E_RUNTIME,
               "dropout: `input` must be a floating point tensor, got %s",
               lp_dtype_name(x->in[0].dtype));
    LP_FAIL_IF(!(x->attr[LP_DROPOUT_P].f >= 0 && x->attr[LP_DROPOUT_P].f <= 1),
               x->err, LP_E_VALUE,
               "dropout probability has to be between 0 and 1, but got %g",
               x->attr[LP_DROPOUT_P].f);
    x->out[0] = x->in[0];
    return LP_OK;
}

/* On the forward's site: draws again what that drew. */
static void grad(LpGrad *g)
{
    g->b->set_site(g->b, true, g->site);
    g->din[0] = lp_emit(g->b, LP_OP_dropout, &g->dout[0], 1, g->attr);
    g->b->set_site(g->b, false, 0);
}

LP_PRIMITIVE(dropout,
             "dropout(Tensor input, float p=0.5, bool training=True) -> Tensor "
             "@nfiw",
             infer, lp_dropout_prepare, lp_rule_dropout, .flags = LP_OPF_RANDOM,
             .grad = grad)

/* Whole channels: one mask for all places of a channel. `kept`: the leading
 * dimensions that have masks of their own. */
static LpVal drop_channels(LpBuilder *b, const LpVal *in, const LpAttr *attr,
                           int kept)
{
    LpType t = *lp_type(b, in[0]);
    if (!attr[LP_DROPOUT_TRAINING].i)
        return in[0];
    for (int i = kept; i < t.ndim; i++)
        t.shape[i] = 1;
    LpVal ones = lp_full(b, &t, lp_float(1));
    LpVal mask = lp_emit(b, LP_OP_dropout, &ones, 1, attr);
    return lp_mul(b, in[0], mask);
}

LP_FORMULA(feature_dropout,
           "feature_dropout(Tensor input, float p=0.5, bool training=True) "
           "-> Tensor @f\n"
           "dropout2d(Tensor input, float p=0.5, bool training=True) -> "
           "Tensor @nw")
{
    int ndim = lp_type(b, in[0])->ndim;
    if (ndim < 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "feature dropout requires at least 2 dimensions in the input, "
            "got %d",
            ndim);
    return drop_channels(b, in, attr, 2);
}

/* [channels, places], or a batch of such. */
LP_FORMULA(dropout1d,
           "dropout1d(Tensor input, float p=0.5, bool training=True) -> "
           "Tensor @nw")
{
    int ndim = lp_type(b, in[0])->ndim;
    if (ndim != 2 && ndim != 3)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "dropout1d: Expected 2D or 3D input, but received a %dD input",
            ndim);
    return drop_channels(b, in, attr, ndim - 1);
}

/* [channels, depth, height, width], or a batch of such. */
LP_FORMULA(dropout3d,
           "dropout3d(Tensor input, float p=0.5, bool training=True) -> "
           "Tensor @nw")
{
    return drop_channels(b, in, attr, lp_type(b, in[0])->ndim == 5 ? 2 : 1);
}
