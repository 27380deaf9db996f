/* The CTC loss: one operation of the device, as its gradient is. Targets are
 * rows, of which the lengths say how much counts; alpha, the logarithms of what
 * stands where after each step, is kept for the gradient. */
#include "src/kernel/nn/nn.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/nn/nnop.h"

static LpStatus check(const LpInfer *x, int logp)
{
    const LpType *p = &x->in[logp], *t = &x->in[logp + 1];
    LP_TRY(lp_need_float(x, logp, "log_probs"));
    LP_FAIL_IF(p->ndim != 3 || t->ndim != 2 ||
                   lp_dtype_kind(t->dtype) != LP_KIND_INT ||
                   t->shape[0] != p->shape[1] || p->shape[2] > INT32_MAX,
               x->err, LP_E_RUNTIME,
               "ctc_loss: expected log_probs (T, N, C) and a row of integer "
               "targets for each of N samples, got %s and %s of shape %s",
               lp_shape_str(p), lp_dtype_name(t->dtype), lp_shape_str(t));
    for (int i = logp + 2; i < logp + 4; i++)
        LP_FAIL_IF(lp_dtype_kind(x->in[i].dtype) != LP_KIND_INT ||
                       x->in[i].ndim != 1 || x->in[i].shape[0] != p->shape[1],
                   x->err, LP_E_RUNTIME,
                   "ctc_loss: lengths must be %lld integers, got %s of shape "
                   "%s",
                   (long long)p->shape[1], lp_dtype_name(x->in[i].dtype),
                   lp_shape_str(&x->in[i]));
    int64_t blank = x->attr[LP_CTC_LOSS_BLANK].i;
    LP_FAIL_IF(blank < 0 || blank >= p->shape[2], x->err, LP_E_RUNTIME,
               "ctc_loss: blank must be in label range 0 to %lld, got %lld",
               (long long)p->shape[2] - 1, (long long)blank);
    return LP_OK;
}

static LpType alpha_of(const LpType *logp, const LpType *targets)
{
    return (LpType){
        .dtype = logp->dtype == LP_F64 ? LP_F64 : LP_F32,
        .ndim = 3,
        .shape = {logp->shape[1], logp->shape[0], 2 * targets->shape[1] + 1}};
}

static LpStatus infer(LpInfer *x)
{
    LP_TRY(check(x, 0));
    const LpType *p = &x->in[0];
    x->out[0] = (LpType){.dtype = p->dtype, .ndim = 1, .shape = {p->shape[1]}};
    x->out[1] = alpha_of(p, &x->in[1]);
    return LP_OK;
}

static LpStatus infer_back(LpInfer *x)
{
    LP_TRY(check(x, 1));
    LpType loss = {.ndim = 1, .shape = {x->in[1].shape[1]}};
    LpType alpha = alpha_of(&x->in[1], &x->in[2]);
    LP_TRY(lp_need_float(x, 0, "grad"));
    LP_TRY(lp_need_shape(x, 0, "grad", &loss));
    LP_TRY(lp_need_shape(x, 5, "log_alpha", &alpha));
    if (x->n_in == 7)
        LP_TRY(lp_need_shape(x, 6, "along", &x->in[1]));
    x->out[0] = x->in[1];
    return LP_OK;
}

/* What depends on alpha depends on log_probs, and that is where its gradient
 * goes. */
static void grad(LpGrad *g)
{
    LpVal in[6] = {g->dout[0], g->in[0], g->in[1],
                   g->in[2],   g->in[3], g->out[1]};
    if (g->dout[0] != LP_NOVAL && g->need[0])
        g->din[0] = lp_emit(g->b, LP_OP_ctc_loss_backward, in, 6, g->attr);
}

static void grad_back(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal in[7] = {g->in[0], g->in[1], g->in[2],  g->in[3],
                   g->in[4], g->in[5], g->dout[0]};
    if (g->need[1])
        g->din[1] = lp_emit(b, LP_OP_ctc_loss_along, in, 7, g->attr);
    if (!g->need[0])
        return;
    LpType t = *lp_type(b, g->in[0]);
    in[0] = lp_expand_as(b, lp_cast(b, lp_immf(b, 1), t.dtype), &t);
    LpVal d = lp_emit(b, LP_OP_ctc_loss_backward, in, 6, g->attr);
    g->din[0] =
        lp_sum(b, lp_mul(b, d, g->dout[0]), (int64_t[]){0, 2}, 2, false);
}

/* Of each step the places: three exponentials, a logarithm, additions. */
static LpCost recursion(const LpCostCtx *x, const LpType *alpha)
{
    int64_t n = alpha->shape[0] * alpha->shape[2];
    LpCost c = lp_cost_elementwise(x, LP_EW_log, LP_EW_UNARY, LP_COST_FLOAT, n);
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_exp, LP_EW_UNARY,
                                        LP_COST_FLOAT, 3 * n));
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_add, LP_EW_BINARY,
                                        LP_COST_FLOAT, 5 * n));
    return lp_cost_repeat(c, alpha->shape[1]);
}

static void cost(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    lp_cost_add(out, recursion(&x, &r->out[1]));
}

static void cost_back(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    int64_t n = lp_numel(&r->out[0]);
    lp_cost_add(out, recursion(&x, &r->in[5]));
    lp_cost_add(
        out, lp_cost_elementwise(&x, LP_EW_exp, LP_EW_UNARY, LP_COST_FLOAT, n));
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_BINARY,
                                         LP_COST_FLOAT, n));
}

#define OPERANDS                                                               \
    "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor "          \
    "target_lengths, "
#define FORWARD                                                                \
    "ctc_loss_forward(" OPERANDS "int blank, bool zero_infinity) -> (Tensor "  \
    "loss, Tensor log_alpha) "
LP_PRIMITIVE(ctc_loss_forward, FORWARD "@p\n_" FORWARD "@n", infer,
             lp_ctc_loss_prepare, cost, .grad = grad, .grad_in = 15,
             .grad_out = 2)

#define BACKWARD "Tensor grad, " OPERANDS "Tensor log_alpha, "
LP_PRIMITIVE(ctc_loss_backward,
             "ctc_loss_backward(" BACKWARD
             "int blank, bool zero_infinity) -> Tensor @p",
             infer_back, lp_ctc_loss_back_prepare, cost_back, .grad = grad_back,
             .grad_in = 63)

/* The derivative of ctc_loss_backward's result along a change of log_probs. */
LP_PRIMITIVE(ctc_loss_along,
             "ctc_loss_along(" BACKWARD
             "Tensor along, int blank, bool zero_infinity) -> Tensor @p",
             infer_back, lp_ctc_loss_back_prepare, cost_back,
             .no_grad = "there is no third gradient of ctc_loss")
