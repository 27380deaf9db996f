/* The optimizers' updates: parameter, gradient and state in, parameter and
 * state out. torch.optim's step and the update half of a compiled program are
 * made of these. Hyper-parameters are operands, so they are read at run time.
 *
 * `step` counts this update, from 1. `grad_scale` multiplies the gradient
 * first (loss scaling, mean over micro-batches, clipping). A state that an
 * update does not have is a hole, and its result is empty. The formulas are
 * PyTorch's, of the documentation of torch.optim; those named popart and lamb
 * are of PopART's optimizer documentation.
 *
 * Parameters, gradients and states may be of different float types: the
 * arithmetic is in float (in double for a double parameter), each result is
 * rounded once. */
#include "src/ops/kernel/optim.h"
#include "src/ops/layout_cost.h"
#include "src/ops/ops.h"

#define NO_GRAD "an optimizer's update is not differentiated"

/* Operands [0, n) are tensors of the parameter's shape, some may be holes;
 * the rest are numbers. Results: parameter, then the states. */
static LpStatus infer_update(LpInfer *x, int n, int first_state)
{
    char p[LP_SHAPE_STR], s[LP_SHAPE_STR];
    const LpType *param = &x->in[0];
    for (int i = 0; i < n; i++) {
        const LpType *t = &x->in[i];
        if (t->dtype == LP_DT_NONE)
            continue;
        LP_FAIL_IF(!lp_is_float(t->dtype), x->err, LP_E_RUNTIME,
                   "%s: operand %d must be of a floating type, got %s",
                   x->op->name, i, lp_dtype_name(t->dtype));
        LP_FAIL_IF(!lp_shape_eq(t, param), x->err, LP_E_RUNTIME,
                   "%s: operand %d has shape %s, the parameter has shape %s",
                   x->op->name, i, lp_shape_str(t, s), lp_shape_str(param, p));
    }
    for (int i = n; i < x->n_in; i++)
        LP_FAIL_IF(lp_numel(&x->in[i]) != 1, x->err, LP_E_RUNTIME,
                   "%s: operand %d must be a number or have one element, got "
                   "shape %s",
                   x->op->name, i, lp_shape_str(&x->in[i], s));
    x->out[0] = *param;
    for (int i = first_state; i < n; i++) {
        LpType *out = &x->out[1 + i - first_state];
        *out = x->in[i];
        if (out->dtype == LP_DT_NONE)
            *out = (LpType){.dtype = param->dtype, .ndim = 1};
    }
    return LP_OK;
}

static LpStatus infer_3(LpInfer *x)
{
    return infer_update(x, 3, 2);
}

static LpStatus infer_4(LpInfer *x)
{
    return infer_update(x, 4, 2);
}

static LpStatus infer_5(LpInfer *x)
{
    return infer_update(x, 5, 2);
}

static LpStatus infer_combined(LpInfer *x)
{
    return infer_update(x, 2, 1);
}

/* g = grad_scale grad + weight_decay param;  buffer = step = 1 ? g : momentum
 * buffer + (1 - dampening) g;  param -= lr (nesterov ? g + momentum buffer :
 * buffer), without a buffer lr g. */
LpOp op_sgd_step = {
    .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH | LP_OPF_ELEMENTWISE,
    .forms = "sgd_step(Tensor param, Tensor grad, Tensor? momentum_buffer, "
             "Value lr, Value momentum=0, Value dampening=0, Value "
             "weight_decay=0, Value step=1, Value grad_scale=1, *, bool "
             "nesterov=False, bool maximize=False) -> (Tensor param, Tensor "
             "momentum_buffer) @po",
    .infer = infer_3,
    .no_grad = NO_GRAD,
    .prepare = lp_sgd_prepare,
    .update = {.grad_scale = 8},
    .cost = lp_rule_update,
};

/* PopART's SGD with a velocity of its own: v = momentum v + (1 - dampening)
 * vs (grad_scale grad + weight_decay param);  param -= lr / vs v. The first
 * step is damped too. Nesterov: param -= lr (grad + weight_decay param +
 * momentum v / vs). Without a velocity: param -= lr (1 - dampening) (grad +
 * weight_decay param). */
LpOp op_popart_sgd_step = {
    .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH | LP_OPF_ELEMENTWISE,
    .forms = "popart_sgd_step(Tensor param, Tensor grad, Tensor? velocity, "
             "Value lr, Value momentum=0, Value dampening=0, Value "
             "weight_decay=0, Value velocity_scaling=1, Value grad_scale=1, *, "
             "bool nesterov=False) -> (Tensor param, Tensor velocity) @po",
    .infer = infer_3,
    .no_grad = NO_GRAD,
    .prepare = lp_popart_sgd_prepare,
    .update = {.grad_scale = 8},
    .cost = lp_rule_update,
};

/* PopART's SGD whose velocity is the gradient's accumulator: param -= lr / (vs
 * rf) v, then v = momentum / rf v + (1 - dampening) weight_decay vs param,
 * with the new param. */
LpOp op_popart_sgd_combined_step = {
    .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH | LP_OPF_ELEMENTWISE,
    .forms = "popart_sgd_combined_step(Tensor param, Tensor velocity, Value "
             "lr, Value momentum=0, Value dampening=0, Value weight_decay=0, "
             "Value velocity_scaling=1, Value replicas=1) -> (Tensor param, "
             "Tensor velocity) @po",
    .infer = infer_combined,
    .no_grad = NO_GRAD,
    .prepare = lp_popart_combined_prepare,
    .update = {.velocity = 1, .dampening = 4, .velocity_scaling = 6},
    .cost = lp_rule_update,
};

/* Adam, AdamW (decoupled), AMSGrad (with max_exp_avg_sq). */
LpOp op_adam_step = {
    .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH | LP_OPF_ELEMENTWISE,
    .forms = "adam_step(Tensor param, Tensor grad, Tensor exp_avg, Tensor "
             "exp_avg_sq, Tensor? max_exp_avg_sq, Value lr, Value beta1, Value "
             "beta2, Value eps, Value weight_decay, Value step, Value "
             "grad_scale=1, *, bool decoupled=False, bool "
             "bias_correction=True, bool maximize=False) -> (Tensor param, "
             "Tensor exp_avg, Tensor exp_avg_sq, Tensor max_exp_avg_sq) @po",
    .infer = infer_5,
    .no_grad = NO_GRAD,
    .prepare = lp_adam_prepare,
    .update = {.grad_scale = 11},
    .cost = lp_rule_update,
};

/* Centered with grad_avg, with momentum if there is a buffer; tf_variant puts
 * eps under the root and lr into the buffer. */
LpOp op_rmsprop_step = {
    .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH | LP_OPF_ELEMENTWISE,
    .forms = "rmsprop_step(Tensor param, Tensor grad, Tensor square_avg, "
             "Tensor? grad_avg, Tensor? momentum_buffer, Value lr, Value "
             "alpha, Value eps, Value weight_decay=0, Value momentum=0, Value "
             "grad_scale=1, *, bool tf_variant=False, bool maximize=False) -> "
             "(Tensor param, Tensor square_avg, Tensor grad_avg, Tensor "
             "momentum_buffer) @po",
    .infer = infer_5,
    .no_grad = NO_GRAD,
    .prepare = lp_rmsprop_prepare,
    .update = {.grad_scale = 10},
    .cost = lp_rule_update,
};

/* x = m / (sqrt(v) + eps) + weight_decay param, m and v corrected;  param -=
 * lr min(|param|, max_weight_norm) / |x| x, the ratio 1 if a norm or
 * max_weight_norm is 0. */
LpOp op_lamb_step = {
    .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH,
    .forms = "lamb_step(Tensor param, Tensor grad, Tensor exp_avg, Tensor "
             "exp_avg_sq, Value lr, Value beta1, Value beta2, Value eps, Value "
             "weight_decay, Value step, Value max_weight_norm, Value "
             "grad_scale=1, *, bool bias_correction=True) -> (Tensor param, "
             "Tensor exp_avg, Tensor exp_avg_sq) @po",
    .infer = infer_4,
    .no_grad = NO_GRAD,
    .prepare = lp_lamb_prepare,
    .update = {.grad_scale = 11},
    .cost = lp_rule_update,
};
