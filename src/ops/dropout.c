/* dropout: y = x mask / (1 - p) in training, else y = x. The gradient is the
 * same operation on dy at the same site, which draws the same mask. */
#include "src/ops/kernel/nn.h"
#include "src/ops/nnop.h"

static LpStatus infer(LpInfer *x)
{
    LP_TRY(lp_need_float(x, 0, "input"));
    LP_FAIL_IF(!(x->attr[0].f >= 0 && x->attr[0].f <= 1), x->err, LP_E_VALUE,
               "dropout probability has to be between 0 and 1, but got %g",
               x->attr[0].f);
    x->out[0] = x->in[0];
    return LP_OK;
}

static void grad(LpGrad *g)
{
    g->din[0] =
        lp_emit_at(g->b, g->site, LP_OP_dropout, &g->dout[0], 1, g->attr);
}

LpOp op_dropout = {
    .kind = LP_OP_PRIMITIVE,
    .flags = LP_OPF_RANDOM,
    .forms = "dropout(Tensor input, float p=0.5, bool training=True) -> Tensor "
             "@nfi",
    .infer = infer,
    .grad = grad,
    .prepare = lp_dropout_prepare,
    .cost = lp_rule_dropout,
};

/* Whole channels: one mask for all places of a channel. */
EXPAND(expand_feature)
{
    UNUSED;
    LpType t = *lp_type(b, in[0]);
    if (t.ndim < 2) {
        lp_fail(b->err, LP_E_RUNTIME,
                "feature dropout requires at least 2 dimensions in the input, "
                "got %d",
                t.ndim);
        return;
    }
    if (!attr[1].i) {
        out[0] = in[0];
        return;
    }
    for (int i = 2; i < t.ndim; i++)
        t.shape[i] = 1;
    LpVal ones = lp_full(b, &t, lp_float(1));
    LpVal mask = lp_emit(b, LP_OP_dropout, &ones, 1, attr);
    out[0] = lp_mul(b, in[0], mask);
}
LpOp op_feature_dropout = {
    .kind = LP_OP_COMPOSITE,
    .forms = "feature_dropout(Tensor input, float p=0.5, bool training=True) "
             "-> Tensor @f\n"
             "dropout1d(Tensor input, float p=0.5, bool training=True) -> "
             "Tensor @n\n"
             "dropout2d(Tensor input, float p=0.5, bool training=True) -> "
             "Tensor @n\n"
             "dropout3d(Tensor input, float p=0.5, bool training=True) -> "
             "Tensor @n",
    .expand = expand_feature,
};
