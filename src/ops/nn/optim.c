/* The optimizers' updates: parameter, gradient and state in, parameter and
 * state out. torch.optim's step and the update half of a compiled program are
 * made of these. Hyper-parameters are operands, so they are read at run time.
 *
 * `step` counts this update, from 1. `grad_scale` multiplies the gradient
 * first (loss scaling, mean over micro-batches, clipping); infinite it leaves
 * parameter and states as they are. A state that an
 * update does not have is a hole, and its result is empty. Moments are in units
 * of `state_scale` and of its square, eps is in those of 1. The formulas are
 * PyTorch's, of the documentation of torch.optim; those named popart and lamb
 * are of PopART's optimizer documentation.
 *
 * Parameters, gradients and states may be of different float types: the
 * arithmetic is in float (in double for a double parameter), each result is
 * rounded once. */
#include <stddef.h>

#include "src/kernel/loops/optim.h"
#include "src/ops/layout_cost.h"
#include "src/ops/ops.h"
#include "src/ops/rules.h"

/* Operands [0, n), n the record's data, are tensors of the parameter's shape,
 * some may be holes; the rest are numbers. Results: parameter, then the states.
 */
static LpStatus infer_update(LpInfer *x)
{
    const int n = *(const uint8_t *)x->op->data;
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
                   x->op->name, i, lp_shape_str(t), lp_shape_str(param));
    }
    for (int i = n; i < x->n_in; i++)
        LP_FAIL_IF(lp_numel(&x->in[i]) != 1, x->err, LP_E_RUNTIME,
                   "%s: operand %d must be a number or have one element, got "
                   "shape %s",
                   x->op->name, i, lp_shape_str(&x->in[i]));
    x->out[0] = *param;
    for (int k = 1; k < x->op->n_results; k++) {
        LpType *out = &x->out[k];
        *out = x->in[n - x->op->n_results + k];
        if (out->dtype == LP_DT_NONE)
            *out = (LpType){.dtype = param->dtype, .ndim = 1};
    }
    return LP_OK;
}

/* ---- records from optim.def -------------------------------------------- */
#define NONE(...)
#define FORM_G(name) ", Tensor " #name
#define FORM_S(name, optional) ", Tensor" #optional " " #name
#define FORM_N(name, value) ", Value " #name #value
#define FORM_K() ", *"
#define FORM_F(name, value) ", bool " #name #value
#define RESULT(name, optional) ", Tensor " #name
#define PLACE(name, ...) char name;

/* The number of an operand. */
#define AT(update, name) offsetof(struct update, name)
#define OPTIMIZER(name_, flags_)                                               \
    struct name_ {                                                             \
        char param;                                                            \
        LP_OPTIM_##name_(PLACE, PLACE, PLACE, NONE, NONE)                      \
    };                                                                         \
    LP_PRIMITIVE(                                                              \
        name_##_step,                                                          \
        #name_ "_step(Tensor param" LP_OPTIM_##name_(                          \
            FORM_G, FORM_S, FORM_N, FORM_K,                                    \
            FORM_F) ") -> (Tensor param" LP_OPTIM_##name_(NONE, RESULT, NONE,  \
                                                          NONE, NONE) ") @po", \
        infer_update, lp_##name_##_step_prepare, lp_rule_update,               \
        .flags = LP_OPF_DEVICE | LP_OPF_INPLACE_EACH | (flags_),               \
        .no_grad = "an optimizer's update is not differentiated",              \
        .data = &(const uint8_t){AT(name_, lr)},                               \
        .grad_scale = AT(name_, grad_scale))

/* g = grad_scale grad + weight_decay param;  buffer = step = 1 ? g : momentum
 * buffer + (1 - dampening) g;  param -= lr (nesterov ? g + momentum buffer :
 * buffer), without a buffer lr g. */
OPTIMIZER(sgd, LP_OPF_ELEMENTWISE)

/* PopART's SGD with a velocity of its own: v = momentum v + (1 - dampening)
 * vs (grad_scale grad + weight_decay param);  param -= lr / vs v. The first
 * step is damped too. Nesterov: param -= lr (grad + weight_decay param +
 * momentum v / vs). Without a velocity: param -= lr (1 - dampening) (grad +
 * weight_decay param). */
OPTIMIZER(popart_sgd, LP_OPF_ELEMENTWISE)

/* PopART's SGD whose velocity gathers the gradients: v += (1 - dampening) vs
 * grad_scale grad;  param -= lr / vs v, or with Nesterov as above;  v =
 * momentum v + (1 - dampening) weight_decay vs param, with the new param. What
 * momentum and decay are counts for the next update. */
OPTIMIZER(popart_sgd_combined, LP_OPF_ELEMENTWISE)

/* Adam, AdamW (decoupled), AMSGrad (with max_exp_avg_sq). */
OPTIMIZER(adam, LP_OPF_ELEMENTWISE)

/* Adam with the largest gradient, fading by beta2, for the root of the second
 * moment: m / (1 - beta1^step) / (max(beta2 v, |grad|) + eps). */
OPTIMIZER(adamax, LP_OPF_ELEMENTWISE)

/* Centered with grad_avg, with momentum if there is a buffer; tf_variant puts
 * eps under the root and lr into the buffer. Decoupled: weight_decay param
 * beside the buffer, not in the gradient. */
OPTIMIZER(rmsprop, LP_OPF_ELEMENTWISE)

/* Likewise, over the root of the sum of all squares; lr / (1 + (step - 1)
 * lr_decay). */
OPTIMIZER(adagrad, LP_OPF_ELEMENTWISE)

/* Likewise, times the root of the mean of squares of what was subtracted,
 * before lr and momentum. */
OPTIMIZER(adadelta, LP_OPF_ELEMENTWISE)

/* x = m / (sqrt(v) + eps) + weight_decay param, m and v corrected;  param -=
 * lr min(|param|, max_weight_norm) / |x| x, the ratio 1 if a norm or
 * max_weight_norm is 0. Not decoupled: the decay is in the gradient. */
OPTIMIZER(lamb, 0)

/* Adam with Nesterov's momentum, whose share mu(t) grows with the step; what it
 * is divided by has the product of all so far, which nadam_product takes on. */
OPTIMIZER(nadam, LP_OPF_ELEMENTWISE)

LP_FORMULA(nadam_product,
           "nadam_product(Tensor mu_product, Value step, Value beta1, Value "
           "momentum_decay) -> Tensor @p")
{
    LpVal faded = lp_op2(b, LP_OP_pow, lp_immf(b, 0.96),
                         lp_mul(b, lp_cast(b, in[1], LP_F64), in[3]));
    LpVal mu = lp_mul(
        b, lp_sub(b, lp_immf(b, 1), lp_mul(b, faded, lp_immf(b, 0.5))), in[2]);
    return lp_cast(b, lp_mul(b, mu, in[0]), lp_type(b, in[0])->dtype);
}
