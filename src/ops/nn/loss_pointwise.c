/* Losses that compare element by element, then reduce. All end in
 * identity_loss (see loss.c). */
#include <math.h>
#include <string.h>

#include "src/ops/nn/nnop.h"

/* By the attributes of REDUCTION, from `attr` on. */
static const char *how_of(const LpAttr *attr)
{
    return lp_old_reduction(&attr[0], &attr[1], attr[2].str);
}

static LpVal final(LpBuilder *b, LpVal x, const char *reduction)
{
    LpAttr a = lp_attr_str(reduction);
    return lp_emit(b, LP_OP_identity_loss, &x, 1, &a);
}

static LpVal square(LpBuilder *b, LpVal x)
{
    return lp_op1(b, LP_OP_square, x);
}

/* x - y in the type that both promote to, one of no dimensions as any other. */
static LpVal difference(LpBuilder *b, LpVal x, LpVal y)
{
    LpDtype t = lp_dtype_promote(lp_type(b, x)->dtype, lp_type(b, y)->dtype);
    return lp_sub(b, lp_cast(b, x, t), lp_cast(b, y, t));
}

static LpVal times(LpBuilder *b, LpVal x, double k)
{
    return k == 1 ? x : lp_mul(b, x, lp_immf(b, k));
}

static LpVal one_minus(LpBuilder *b, LpVal x)
{
    return lp_sub(b, lp_immf(b, 1), x);
}

#define REDUCTION                                                              \
    "bool? size_average=None, bool? reduce=None, str reduction='mean'"
#define PAIR "Tensor input, Tensor target, "

/* Gradients of losses of d = x - y, which eager code computes in one pass over
 * both operands, keeping nothing else; in graphs the parts have theirs. `dy`:
 * the gradient of the loss reduced by `how`, as one of its elements. */
static LpVal share_of(LpBuilder *b, LpVal dy, LpVal d, const char *how)
{
    LpType type = lp_type_of(b, d);
    return strcmp(how, "mean") == 0
               ? lp_div(b, dy, lp_immf(b, (double)lp_numel(&type)))
               : dy;
}

static void by_difference(LpGrad *g, LpVal dx)
{
    g->din[0] = g->need[0] ? dx : LP_NOVAL;
    g->din[1] = g->need[1] ? lp_neg(g->b, dx) : LP_NOVAL;
}

static void grad_mse(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal d = difference(b, g->in[0], g->in[1]);
    LpVal dy = share_of(b, g->dout[0], d, how_of(g->attr));
    by_difference(g, lp_mul(b, dy, lp_mul(b, d, lp_immf(b, 2))));
}

static void grad_l1(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal d = difference(b, g->in[0], g->in[1]);
    LpVal dy = share_of(b, g->dout[0], d, how_of(g->attr));
    by_difference(g, lp_mul(b, dy, lp_op1(b, LP_OP_sign, d)));
}

/* attr: size_average, reduce, reduction */
LP_LOSS(mse_loss, PAIR REDUCTION, .grad = grad_mse, .grad_in = 3)
{
    LpVal d = difference(b, in[0], in[1]);
    return final(b, square(b, d), how_of(attr));
}

LP_LOSS(l1_loss, PAIR REDUCTION, .grad = grad_l1, .grad_in = 3)
{
    bool mask = lp_type(b, in[0])->dtype == LP_BOOL ||
                lp_type(b, in[1])->dtype == LP_BOOL; /* lp_sub refuses it */
    LpVal d = mask ? lp_sub(b, in[0], in[1]) : difference(b, in[0], in[1]);
    d = lp_op1(b, LP_OP_abs, d);
    return final(b, d, how_of(attr));
}

/* 0.5 d^2 where |d| < edge, else edge (|d| - 0.5 edge); times `scale` */
static LpVal two_parts(LpBuilder *b, const LpVal *in, double edge, double scale)
{
    if (b->on_host && !isinf(edge)) { /* the same in one step */
        LpDtype t =
            lp_dtype_promote(lp_dtype_of(b, in[0]), lp_dtype_of(b, in[1]));
        LpVal v[2] = {lp_cast(b, in[0], t), lp_cast(b, in[1], t)};
        LpAttr a[2] = {lp_attr_float(edge), lp_attr_float(scale)};
        return lp_emit(b, LP_OP_two_parts_loss, v, 2, a);
    }
    LpVal d = difference(b, in[0], in[1]), a = lp_op1(b, LP_OP_abs, d);
    if (isinf(edge)) /* nothing lies beyond; 0 times it would be no number */
        return times(b, square(b, d), 0.5 * scale);
    LpVal beyond = lp_op2(b, LP_OP_ge, a, lp_immf(b, edge));
    LpVal far = lp_sub(b, a, lp_immf(b, 0.5 * edge));
    far = times(b, far, edge * scale);
    d = lp_where(b, beyond, lp_immf(b, 0), d); /* likewise its gradient */
    LpVal near = times(b, square(b, d), 0.5 * scale);
    return lp_where(b, beyond, far, near);
}

/* A loss of half tensors is computed in float32 and rounded once, as PyTorch's
 * kernels do: to[i] is in[i] in that type, *t the type to round to if there is
 * one. */
static bool widened(LpBuilder *b, const LpVal *in, int n, LpVal *to, LpDtype *t)
{
    *t = lp_type(b, in[0])->dtype;
    bool half =
        !lp_failed(b) && lp_is_half(*t) && lp_type(b, in[1])->dtype == *t;
    for (int i = 0; i < n; i++)
        to[i] = half && in[i] != LP_NOVAL ? lp_cast(b, in[i], LP_F32) : in[i];
    return half;
}

static void grad_two_parts(LpGrad *g, double edge, double scale,
                           const char *how)
{
    LpBuilder *b = g->b;
    LpVal v[2], dy = g->dout[0];
    LpDtype t;
    if (widened(b, g->in, 2, v, &t))
        dy = lp_cast(b, dy, LP_F32);
    LpVal d = difference(b, v[0], v[1]);
    LpVal beyond = lp_op2(b, LP_OP_ge, lp_op1(b, LP_OP_abs, d),
                          lp_immf(b, edge)); /* none beyond infinity */
    LpVal far =
        times(b, lp_op1(b, LP_OP_sign, d), edge == 0 ? 1 : edge * scale);
    LpVal slope = times(b, d, edge == 0 ? 1 : scale);
    if (!isinf(edge))
        slope = lp_where(b, beyond, far, slope);
    by_difference(g, lp_mul(b, slope, share_of(b, dy, d, how)));
}

static void grad_smooth_l1(LpGrad *g)
{
    double beta = g->attr[3].f;
    grad_two_parts(g, beta, 1 / beta, how_of(g->attr));
}

static void grad_huber(LpGrad *g)
{
    grad_two_parts(g, g->attr[1].f, 1, g->attr[0].str);
}

/* attr: size_average, reduce, reduction, beta */
LP_LOSS(smooth_l1_loss, PAIR REDUCTION ", float beta=1.0",
        .grad = grad_smooth_l1, .grad_in = 3)
{
    double beta = attr[3].f;
    if (!(beta >= 0))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "smooth_l1_loss does not support negative values for beta, got "
            "%g",
            beta);
    if (!lp_is_float(lp_type(b, in[0])->dtype) &&
        !lp_is_float(lp_type(b, in[1])->dtype))
        return LP_REFUSE(
            b, LP_E_NOT_IMPLEMENTED,
            "smooth_l1_loss: input or target must be floating-point, got "
            "%s and %s",
            lp_dtype_name(lp_type(b, in[0])->dtype),
            lp_dtype_name(lp_type(b, in[1])->dtype));
    LpVal v[2];
    LpDtype t;
    bool half = widened(b, in, 2, v, &t);
    LpVal x = beta == 0 ? lp_op1(b, LP_OP_abs, difference(b, v[0], v[1]))
                        : two_parts(b, v, beta, 1 / beta);
    x = half ? lp_cast(b, x, t) : x;
    return final(b, x, how_of(attr));
}

/* attr: reduction, delta */
LP_LOSS(huber_loss, PAIR "str reduction='mean', float delta=1.0",
        .grad = grad_huber, .grad_in = 3)
{
    if (!(attr[1].f > 0))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "huber_loss does not support non-positive values for delta, "
            "got %g",
            attr[1].f);
    LpDtype t = lp_type(b, in[0])->dtype; /* the result's, too */
    if (!lp_is_float(t))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "huber_loss: input must be floating-point, got %s",
                         lp_dtype_name(t));
    LpVal v[2];
    widened(b, in, 2, v, &t);
    LpVal x = lp_cast(b, two_parts(b, v, attr[1].f, 1), t);
    return final(b, x, attr[0].str);
}

/* ---- probabilities ------------------------------------------------------- */
static bool same_shape(LpBuilder *b, const char *op, LpVal x, LpVal y)
{
    LpType tx = *lp_type(b, x), ty = *lp_type(b, y);
    if (lp_shape_eq(&tx, &ty))
        return true;
    lp_fail(b->err, LP_E_VALUE,
            "%s: target size %s must be the same as input size %s", op,
            lp_shape_str(&ty), lp_shape_str(&tx));
    return false;
}

static LpVal at_least(LpBuilder *b, LpVal x, double least)
{
    LpVal in[3] = {x, lp_immf(b, least), LP_NOVAL};
    return lp_emit(b, LP_OP_clamp, in, 3, NULL);
}

/* PyTorch's bounds of a logarithm and of what a gradient is divided by. */
#define LEAST_LOG -100
#define LEAST_PROBABILITY 1e-12

static LpVal bounded_log(LpBuilder *b, LpVal x)
{
    return at_least(b, lp_op1(b, LP_OP_log, x), LEAST_LOG);
}

/* The same with a gradient that is bounded, too. */
static LpVal bounded_slope(LpBuilder *b, LpVal x)
{
    LpVal value = lp_op1(b, LP_OP_detach, bounded_log(b, x));
    LpVal more = lp_sub(b, at_least(b, x, LEAST_PROBABILITY), x);
    LpVal l = lp_add(b, x, lp_op1(b, LP_OP_detach, more));
    l = lp_op1(b, LP_OP_log, l);
    return lp_add(b, value, lp_sub(b, l, lp_op1(b, LP_OP_detach, l)));
}

/* Does `weight` broadcast to x's shape? */
static bool weighs(LpBuilder *b, const char *op, LpVal x, LpVal weight)
{
    if (weight == LP_NOVAL || lp_failed(b))
        return !lp_failed(b);
    LpType tx = *lp_type(b, x), tw = *lp_type(b, weight), both = tx;
    if (lp_broadcast(&both, &tw, b->err) != LP_OK)
        return false;
    if (lp_shape_eq(&both, &tx))
        return true;
    lp_fail(b->err, LP_E_RUNTIME,
            "%s: a weight of shape %s does not broadcast to the input's %s", op,
            lp_shape_str(&tw), lp_shape_str(&tx));
    return false;
}

/* The operations, in their order, that the parts' gradients in graphs are. */
static void grad_binary_cross_entropy(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal v[3], dy = g->dout[0];
    LpDtype t;
    if (widened(b, g->in, 3, v, &t))
        dy = lp_cast(b, dy, LP_F32);
    LpVal x[2] = {v[0], one_minus(b, v[0])};
    LpVal want[2] = {v[1], one_minus(b, v[1])}, l[2], to_x[2], to_want[2];
    dy = share_of(b, dy, x[0], how_of(g->attr));
    LpVal each = v[2] == LP_NOVAL ? dy : lp_mul(b, dy, v[2]);
    each = lp_neg(b, each);
    for (int i = 0; i < 2; i++) {
        l[i] = g->need[1] || g->need[2] ? bounded_log(b, x[i]) : LP_NOVAL;
        to_x[i] = lp_div(b, lp_mul(b, each, want[i]),
                         at_least(b, x[i], LEAST_PROBABILITY));
        to_want[i] = g->need[1] ? lp_mul(b, each, l[i]) : LP_NOVAL;
    }
    g->din[0] = g->need[0] ? lp_sub(b, to_x[0], to_x[1]) : LP_NOVAL;
    g->din[1] = g->need[1] ? lp_sub(b, to_want[0], to_want[1]) : LP_NOVAL;
    g->din[2] = LP_NOVAL;
    if (g->need[2]) {
        LpType like = lp_type_of(b, g->in[2]);
        LpVal loss =
            lp_add(b, lp_mul(b, want[0], l[0]), lp_mul(b, want[1], l[1]));
        loss = lp_mul(b, lp_neg(b, loss), dy);
        g->din[2] = lp_sum_to(b, loss, &like);
    }
}

/* in: input, target, weight; attr: size_average, reduce, reduction */
LP_LOSS(binary_cross_entropy, PAIR "Tensor? weight=None, " REDUCTION,
        .grad = grad_binary_cross_entropy, .grad_in = 7)
{
    if (!same_shape(b, "binary_cross_entropy", in[0], in[1]) ||
        !weighs(b, "binary_cross_entropy", in[0], in[2]))
        return LP_NOVAL;
    LpVal v[3];
    LpDtype t;
    bool half = widened(b, in, 3, v, &t);
    LpVal (*log)(LpBuilder *, LpVal) = b->on_host ? bounded_log : bounded_slope;
    LpVal yes = lp_mul(b, v[1], log(b, v[0]));
    LpVal no = lp_mul(b, one_minus(b, v[1]), log(b, one_minus(b, v[0])));
    LpVal x = lp_neg(b, lp_add(b, yes, no));
    if (v[2] != LP_NOVAL)
        x = lp_mul(b, x, v[2]);
    x = half ? lp_cast(b, x, t) : x;
    return final(b, x, how_of(attr));
}

/* (1 - t) x - (1 + (pos_weight - 1) t) log sigmoid(x); in: input, target,
 * weight, pos_weight */
LP_LOSS(binary_cross_entropy_with_logits,
        PAIR "Tensor? weight=None, " REDUCTION ", Tensor? pos_weight=None")
{
    const char *who = "binary_cross_entropy_with_logits";
    if (!same_shape(b, who, in[0], in[1]) || !weighs(b, who, in[0], in[2]) ||
        !weighs(b, who, in[0], in[3]))
        return LP_NOVAL;
    LpVal v[4];
    LpDtype t;
    bool half = widened(b, in, 4, v, &t);
    LpVal x = lp_mul(b, one_minus(b, v[1]), v[0]);
    LpVal l = lp_op1(b, LP_OP_logsigmoid, v[0]);
    if (v[3] != LP_NOVAL) {
        LpVal w = lp_mul(b, lp_sub(b, v[3], lp_immf(b, 1)), v[1]);
        l = lp_mul(b, l, lp_add(b, w, lp_immf(b, 1)));
    }
    x = lp_sub(b, x, l);
    if (v[2] != LP_NOVAL)
        x = lp_mul(b, x, v[2]);
    x = half ? lp_cast(b, x, t) : x;
    return final(b, x, how_of(attr));
}

/* attr: size_average, reduce, reduction, log_target */
LP_LOSS(kl_div, PAIR REDUCTION ", bool log_target=False")
{
    LpVal x, t = in[1];
    for (int i = 0; i < 2; i++)
        if (!lp_is_float(lp_type(b, in[i])->dtype))
            return LP_REFUSE(
                b, LP_E_RUNTIME,
                "kl_div: %s has the type %s; it must be a floating-point "
                "type",
                i ? "target" : "input",
                lp_dtype_name(lp_type(b, in[i])->dtype));
    if (attr[3].i)
        x = lp_mul(b, lp_op1(b, LP_OP_exp, t), lp_sub(b, t, in[0]));
    else
        x = lp_sub(b, lp_op2(b, LP_OP_xlogy, t, t), lp_mul(b, t, in[0]));
    const char *how = how_of(attr);
    if (strcmp(how, "batchmean") != 0 || lp_failed(b))
        return final(b, x, how);
    /* the division is part of what is minimised */
    const LpType *type = lp_type(b, in[0]);
    double n = type->ndim > 0 ? (double)type->shape[0] : 1;
    int64_t all[LP_MAX_DIMS];
    int ndim = lp_type(b, x)->ndim;
    for (int i = 0; i < ndim; i++)
        all[i] = i;
    x = lp_div(b, lp_sum(b, x, all, ndim, false), lp_immf(b, n));
    return final(b, x, "none");
}

/* attr: log_input, full, size_average, eps, reduce, reduction */
LP_LOSS(poisson_nll_loss,
        PAIR "bool log_input=True, bool full=False, bool? size_average=None, "
             "float eps=1e-08, bool? reduce=None, str reduction='mean'")
{
    LpVal x = in[0], t = in[1], r;
    if (attr[0].i)
        r = lp_sub(b, lp_op1(b, LP_OP_exp, x), lp_mul(b, t, x));
    else
        r = lp_sub(
            b, x,
            lp_mul(b, t,
                   lp_op1(b, LP_OP_log, lp_add(b, x, lp_immf(b, attr[3].f)))));
    if (attr[1].i) { /* Stirling's formula where t > 1 */
        LpVal s = lp_sub(b, lp_mul(b, t, lp_op1(b, LP_OP_log, t)), t);
        LpVal l = lp_op1(b, LP_OP_log, times(b, t, 6.283185307179586));
        s = lp_add(b, s, times(b, l, 0.5));
        LpVal big = lp_op2(b, LP_OP_gt, t, lp_immf(b, 1));
        r = lp_add(b, r, lp_where(b, big, s, lp_immf(b, 0)));
    }
    return final(b, r, lp_old_reduction(&attr[2], &attr[4], attr[5].str));
}

/* ---- margins ------------------------------------------------------------- */
/* max(x, 0), with no gradient at NaN */
static LpVal hinge(LpBuilder *b, LpVal x)
{
    LpVal in[3] = {x, lp_immf(b, 0), LP_NOVAL};
    return lp_emit(b, LP_OP_clamp, in, 3, NULL);
}

/* in: input1, input2, target; attr: margin, size_average, reduce, reduction */
LP_LOSS(
    margin_ranking_loss,
    "Tensor input1, Tensor input2, Tensor target, float margin=0, " REDUCTION)
{
    int n[3];
    for (int i = 0; i < 3; i++)
        n[i] = lp_type(b, in[i])->ndim;
    if (n[0] != n[1] || n[0] != n[2])
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "margin_ranking_loss: input1, input2 and target have %d, %d "
            "and %d dimensions; they must have as many",
            n[0], n[1], n[2]);
    LpVal x = lp_mul(b, lp_neg(b, in[2]), lp_sub(b, in[0], in[1]));
    x = hinge(b, lp_add(b, x, lp_immf(b, attr[0].f)));
    return final(b, x, how_of(attr + 1));
}

/* x where t is 1, max(0, margin - x) where it is -1 */
LP_LOSS(hinge_embedding_loss, PAIR "float margin=1.0, " REDUCTION)
{
    LpVal zero = lp_immf(b, 0);
    LpVal m = hinge(b, lp_sub(b, lp_immf(b, attr[0].f), in[0]));
    LpVal other = lp_op2(b, LP_OP_ne, in[1], lp_immf(b, 1));
    LpVal same = lp_op2(b, LP_OP_ne, in[1], lp_immf(b, -1));
    LpVal x =
        lp_add(b, lp_where(b, other, m, zero), lp_where(b, same, in[0], zero));
    return final(b, x, how_of(attr + 1));
}

/* log(1 + exp(-t x)) */
LP_LOSS(soft_margin_loss, PAIR REDUCTION)
{
    LpVal x = lp_op1(b, LP_OP_logsigmoid, lp_mul(b, in[1], in[0]));
    return final(b, lp_neg(b, x), how_of(attr));
}
