/* Random operators whose operands are parameters: counts have no gradient,
 * gamma's draws have one by their shape, along which the distribution function
 * stays what it is. The numbers are not PyTorch's, the distributions are. */
#include "src/kernel/random/random_by.h"

#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"

static LpStatus need_float(LpInfer *x, LpDtype t)
{
    LP_FAIL_IF(!lp_is_float(t), x->err, LP_E_NOT_IMPLEMENTED,
               "%s: a floating dtype is needed, got %s", x->op->name,
               lp_dtype_name(t));
    return LP_OK;
}

static LpStatus infer_same(LpInfer *x)
{
    LP_TRY(need_float(x, x->in[0].dtype));
    x->out[0] = x->in[0];
    return LP_OK;
}

/* A count does not change with a small change of a parameter. */
static void grad_count(LpGrad *g)
{
    (void)g;
}

LpOp op_poisson = {
    .flags = LP_OPF_RANDOM | LP_OPF_EXACT,
    .forms = "poisson(Tensor self) -> Tensor @fg",
    .infer = infer_same,
    .grad = grad_count,
    .prepare = lp_poisson_prepare,
    .cost = lp_rule_random,
};

static LpStatus infer_binomial(LpInfer *x)
{
    const LpType *n = &x->in[0], *p = &x->in[1];
    static const char *const names[] = {"count", "prob"};
    for (int i = 0; i < 2; i++)
        LP_FAIL_IF(!lp_is_float(x->in[i].dtype), x->err, LP_E_VALUE,
                   "binomial only supports floating-point dtypes for %s, got: "
                   "%s",
                   names[i], lp_dtype_name(x->in[i].dtype));
    LP_FAIL_IF(n->dtype != p->dtype, x->err, LP_E_RUNTIME,
               "binomial: prob must have the dtype of count, %s, got %s",
               lp_dtype_name(n->dtype), lp_dtype_name(p->dtype));
    x->out[0] = *n;
    return lp_broadcast(&x->out[0], p, x->err);
}

LpOp op_binomial = {
    .flags = LP_OPF_RANDOM | LP_OPF_EXACT,
    .forms = "binomial(Tensor count, Tensor prob) -> Tensor @fg",
    .infer = infer_binomial,
    .grad = grad_count,
    .prepare = lp_binomial_prepare,
    .cost = lp_rule_random,
};

static void grad_standard_gamma(LpGrad *g)
{
    g->din[0] = MUL(g->dout[0], OP2(standard_gamma_slope, g->in[0], g->out[0]));
}

LpOp op_standard_gamma = {
    .flags = LP_OPF_RANDOM | LP_OPF_EXACT,
    .forms = "_standard_gamma(Tensor self) -> Tensor @fg",
    .infer = infer_same,
    .grad = grad_standard_gamma,
    .grad_in = 1,
    .grad_out = 1,
    .prepare = lp_standard_gamma_prepare,
    .cost = lp_rule_random,
};
