/* softmax y = exp(x) / sum exp(x), log_softmax y = x - log sum exp(x), along
 * one dimension.
 *
 *   softmax:     dx = y (dy - sum(dy y))
 *   log_softmax: dx = dy - exp(y) sum(dy)
 *
 * The device has both and their gradients as one operation each. The public
 * forms take a dtype to compute in. */
#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"

static LpStatus infer(LpInfer *x)
{
    LP_TRY(lp_need_float(x, 0, "input"));
    LP_TRY(lp_wrap_dim(&x->attr[LP_SOFTMAX_DIM].i, x->in[0].ndim, x->err));
    x->out[0] = x->in[0];
    return LP_OK;
}

static LpStatus infer_back(LpInfer *x)
{
    LP_TRY(infer(x));
    LP_FAIL_IF(!lp_shape_eq(&x->in[0], &x->in[1]), x->err, LP_E_RUNTIME,
               "%s: gradient %s and output %s must have the same shape",
               x->op->name, lp_shape_str(&x->in[0]), lp_shape_str(&x->in[1]));
    return LP_OK;
}

/* x - max x, whose exponentials cannot overflow */
static LpVal shifted(LpBuilder *b, LpVal x, int64_t dim)
{
    return lp_sub(b, x, lp_amax(b, x, &dim, 1, true));
}

LP_EXPAND(expand_softmax)
{
    int64_t dim = attr[LP_SOFTMAX_DIM].i;
    LpVal e = lp_op1(b, LP_OP_exp, shifted(b, in[0], dim));
    out[0] = lp_div(b, e, lp_sum(b, e, &dim, 1, true));
}

LP_EXPAND(expand_log_softmax)
{
    int64_t dim = attr[LP_SOFTMAX_DIM].i;
    LpVal s = shifted(b, in[0], dim);
    LpVal sum = lp_sum(b, lp_op1(b, LP_OP_exp, s), &dim, 1, true);
    out[0] = lp_sub(b, s, lp_op1(b, LP_OP_log, sum));
}

LP_EXPAND(expand_softmax_back)
{
    int64_t dim = attr[LP_SOFTMAX_DIM].i;
    LpVal s = lp_sum(b, lp_mul(b, in[0], in[1]), &dim, 1, true);
    out[0] = lp_mul(b, in[1], lp_sub(b, in[0], s));
}

LP_EXPAND(expand_log_softmax_back)
{
    int64_t dim = attr[LP_SOFTMAX_DIM].i;
    LpVal s = lp_sum(b, in[0], &dim, 1, true);
    out[0] = lp_sub(b, in[0], lp_mul(b, lp_op1(b, LP_OP_exp, in[1]), s));
}

static void grad(LpGrad *g)
{
    g->din[0] = lp_emit(g->b,
                        g->op == &op_softmax ? LP_OP_softmax_backward
                                             : LP_OP_log_softmax_backward,
                        (LpVal[]){g->dout[0], g->out[0]}, 2, g->attr);
}

#define SOFT(id, form, shape, rule, gradient, kernel, tiles)                   \
    LP_PRIMITIVE(id, form, shape, kernel, tiles, .kind = LP_OP_FUSED,          \
                 .flags = LP_OPF_DEVICE, .expand = rule, .grad = gradient,     \
                 .grad_out = 1)
SOFT(softmax, "softmax(Tensor input, int dim) -> Tensor @p", infer,
     expand_softmax, grad, lp_softmax_prepare, lp_rule_softmax)
SOFT(log_softmax, "log_softmax(Tensor input, int dim) -> Tensor @p", infer,
     expand_log_softmax, grad, lp_log_softmax_prepare, lp_rule_log_softmax)
SOFT(softmax_backward,
     "softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor @p",
     infer_back, expand_softmax_back, NULL, lp_softmax_back_prepare,
     lp_rule_softmax_back)
SOFT(log_softmax_backward,
     "log_softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor @p",
     infer_back, expand_log_softmax_back, NULL, lp_log_softmax_back_prepare,
     lp_rule_softmax_back)

/* ---- public forms -------------------------------------------------------- */
/* Without a dimension: 0 for tensors of 0, 1 or 3 dimensions, else 1, as
 * PyTorch's functional form has it. */
static LpVal in_dtype(LpBuilder *b, int op, const LpAttr *attr, LpVal x,
                      bool negate)
{
    int ndim = lp_type(b, x)->ndim;
    LpAttr a = attr[LP_SOFTMAX_IN_DIM];
    if (a.kind == LP_ATTR_NONE)
        a = lp_attr_int(ndim == 0 || ndim == 1 || ndim == 3 ? 0 : 1);
    x = negate ? lp_neg(b, x) : x;
    if (attr[LP_SOFTMAX_IN_DTYPE].kind == LP_ATTR_DTYPE)
        x = lp_cast(b, x, (LpDtype)attr[LP_SOFTMAX_IN_DTYPE].i);
    return lp_emit(b, op, &x, 1, &a);
}

/* Without a dimension only in torch.nn.functional. */
#define ANY_DIM(name)                                                          \
    name "(Tensor input, int? dim=None, ScalarType? dtype=None) -> Tensor @n"
#define ALL_FORMS(name)                                                        \
    ANY_DIM(name)                                                              \
    "\n" name "(Tensor input, int dim, ScalarType? dtype=None) -> Tensor "     \
    "@fmo\n" name "(Tensor input, int dim, ScalarType? dtype=None) -> Tensor " \
    "@s"

LP_FORMULA(softmax_in, ALL_FORMS("softmax"))
{
    return in_dtype(b, LP_OP_softmax, attr, in[0], false);
}

LP_FORMULA(log_softmax_in, ALL_FORMS("log_softmax"))
{
    return in_dtype(b, LP_OP_log_softmax, attr, in[0], false);
}

LP_FORMULA(softmin, ANY_DIM("softmin"))
{
    return in_dtype(b, LP_OP_softmax, attr, in[0], true);
}
