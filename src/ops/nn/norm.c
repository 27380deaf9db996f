/* Normalisations.
 *
 * layer_norm over the last axes, group_norm over groups of channels, and batch
 * normalisation over batch and places are one operation each on the device:
 * primitives native_… with the statistics as further results, and gradients
 * whose expansion computes the statistics afresh, so that gradients of
 * gradients see them depend on the input. With xhat = (x - mean) rstd over m
 * elements and g = dy w:
 *
 *   dx = rstd (g - sum(g)/m - xhat sum(g xhat)/m), dw = sum dy xhat, db = sum
 * dy
 *
 * Statistics of half types are float32. Running statistics are updated by the
 * caller (torch.nn.functional), from the mean and variance that
 * batch_norm_train gives. rms_norm is made of smaller operators; further
 * public forms stand in norm_forms.c. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/nn/norm.h"
#include "src/ops/view/view.h"

/* ---- the formulas -------------------------------------------------------- */
/* A problem in the shape in which its statistics are sums over `dims`. */
typedef struct Shape {
    LpType full;               /* the input, reshaped */
    int64_t dims[LP_MAX_DIMS]; /* shared statistics */
    int n_dims;
    LpType param;              /* how weight and bias broadcast */
    int64_t rest[LP_MAX_DIMS]; /* what parameters are summed over */
    int n_rest;
} Shape;

static Shape layer_shape(const LpType *x, int n)
{
    Shape s = {.full = *x, .param = *x, .n_dims = n, .n_rest = x->ndim - n};
    for (int i = 0; i < n; i++)
        s.dims[i] = x->ndim - n + i;
    for (int i = 0; i < s.n_rest; i++) {
        s.rest[i] = i;
        s.param.shape[i] = 1;
    }
    return s;
}

/* x [N, C, …] seen as [N, G, C/G, places] */
static Shape group_shape(const LpType *x, int64_t groups)
{
    int64_t places = lp_elements(x->shape + 2, x->ndim - 2);
    int64_t c = x->shape[1] / groups;
    Shape s = {
        .full = {.dtype = x->dtype, .ndim = 4}, .n_dims = 2, .n_rest = 2};
    memcpy(s.full.shape, (int64_t[]){x->shape[0], groups, c, places},
           4 * sizeof(int64_t));
    s.param = s.full;
    s.param.shape[0] = s.param.shape[3] = 1;
    s.dims[0] = 2;
    s.dims[1] = 3;
    s.rest[0] = 0;
    s.rest[1] = 3;
    return s;
}

/* x [N, C, …] seen as [N, C, places] */
static Shape batch_shape(const LpType *x)
{
    Shape s = group_shape(x, x->shape[1]);
    s.full.ndim = s.param.ndim = 3;
    s.full.shape[2] = s.full.shape[3];
    s.param.shape[2] = 1;
    s.dims[0] = s.rest[0] = 0;
    s.dims[1] = s.rest[1] = 2;
    return s;
}

typedef struct Stats {
    LpVal x, mean, var, rstd, xhat; /* in the statistics' type */
} Stats;

static Stats statistics(LpBuilder *b, const Shape *s, LpVal x, double eps)
{
    Stats r;
    LpType t = s->full;
    r.x = lp_cast(b, lp_reshape(b, x, t.shape, t.ndim),
                  lp_norm_stat_dtype(t.dtype));
    r.mean = lp_mean(b, r.x, s->dims, s->n_dims, true);
    LpVal d = lp_sub(b, r.x, r.mean);
    r.var = lp_mean(b, lp_mul(b, d, d), s->dims, s->n_dims, true);
    r.rstd = lp_op1(b, LP_OP_rsqrt, lp_add(b, r.var, lp_immf(b, eps)));
    r.xhat = lp_mul(b, d, r.rstd);
    return r;
}

static LpVal param(LpBuilder *b, const Shape *s, LpVal w)
{
    return lp_reshape(b, w, s->param.shape, s->param.ndim);
}

/* out[0] = xhat w + b in the input's shape and type */
static LpVal scaled(LpBuilder *b, const Shape *s, const Stats *st, LpVal x,
                    LpVal w, LpVal bias)
{
    LpType t = *lp_type(b, x);
    LpVal y = st->xhat;
    if (w != LP_NOVAL)
        y = lp_mul(b, y, param(b, s, w));
    if (bias != LP_NOVAL)
        y = lp_add(b, y, param(b, s, bias));
    return lp_cast(b, lp_reshape(b, y, t.shape, t.ndim), t.dtype);
}

/* in: dy, x, …, …, w; out: dx, dw, db */
static void backward(LpBuilder *b, const Shape *s, const LpVal *in, double eps,
                     const int64_t *param_shape, int param_ndim, LpVal *out)
{
    LpType t = *lp_type(b, in[1]);
    LpDtype dt = lp_norm_stat_dtype(t.dtype);
    Stats st = statistics(b, s, in[1], eps);
    LpVal dy = lp_reshape(b, in[0], s->full.shape, s->full.ndim);
    dy = lp_cast(b, dy, dt);
    LpVal g = in[4] == LP_NOVAL ? dy : lp_mul(b, dy, param(b, s, in[4]));
    LpVal m1 = lp_mean(b, g, s->dims, s->n_dims, true);
    LpVal m2 = lp_mean(b, lp_mul(b, g, st.xhat), s->dims, s->n_dims, true);
    LpVal dx = lp_sub(b, lp_sub(b, g, m1), lp_mul(b, st.xhat, m2));
    dx = lp_mul(b, st.rstd, dx);
    out[0] = lp_cast(b, lp_reshape(b, dx, t.shape, t.ndim), t.dtype);
    LpVal dw = lp_mul(b, dy, st.xhat);
    LpVal db = dy;
    if (s->n_rest > 0) {
        dw = lp_sum(b, dw, s->rest, s->n_rest, false);
        db = lp_sum(b, db, s->rest, s->n_rest, false);
    }
    out[1] = lp_reshape(b, dw, param_shape, param_ndim);
    out[2] = lp_reshape(b, db, param_shape, param_ndim);
}

/* ---- expansions ---------------------------------------------------------- */
/* in: x, w, b; attr: normalized_shape, eps */
LP_EXPAND(expand_layer)
{
    LpType t = *lp_type(b, in[0]);
    Shape s = layer_shape(&t, attr[LP_LAYER_NORM_NORMALIZED_SHAPE].n);
    Stats st = statistics(b, &s, in[0], attr[LP_LAYER_NORM_EPS].f);
    out[0] = scaled(b, &s, &st, in[0], in[1], in[2]);
    out[1] = st.mean;
    out[2] = st.rstd;
}

LP_EXPAND(expand_layer_back)
{
    LpType t = *lp_type(b, in[1]);
    Shape s = layer_shape(&t, attr[LP_LAYER_NORM_NORMALIZED_SHAPE].n);
    backward(b, &s, in, attr[LP_LAYER_NORM_EPS].f,
             attr[LP_LAYER_NORM_NORMALIZED_SHAPE].v,
             attr[LP_LAYER_NORM_NORMALIZED_SHAPE].n, out);
}

/* in: x, w, b; attr: num_groups, eps */
LP_EXPAND(expand_group)
{
    LpType t = *lp_type(b, in[0]);
    Shape s = group_shape(&t, attr[LP_GROUP_NORM_NUM_GROUPS].i);
    Stats st = statistics(b, &s, in[0], attr[LP_GROUP_NORM_EPS].f);
    out[0] = scaled(b, &s, &st, in[0], in[1], in[2]);
    out[1] = lp_reshape(b, st.mean, s.full.shape, 2);
    out[2] = lp_reshape(b, st.rstd, s.full.shape, 2);
}

LP_EXPAND(expand_group_back)
{
    LpType t = *lp_type(b, in[1]);
    Shape s = group_shape(&t, attr[LP_GROUP_NORM_NUM_GROUPS].i);
    backward(b, &s, in, attr[LP_GROUP_NORM_EPS].f, &t.shape[1], 1, out);
}

/* in: x, w, b (, other: then the ReLU of both's sum); attr: eps */
LP_EXPAND(expand_batch)
{
    LpType t = *lp_type(b, in[0]);
    Shape s = batch_shape(&t);
    Stats st = statistics(b, &s, in[0], attr[LP_BATCH_NORM_EPS].f);
    out[0] = scaled(b, &s, &st, in[0], in[1], in[2]);
    out[1] = lp_reshape(b, st.mean, &t.shape[1], 1);
    out[2] = lp_reshape(b, st.var, &t.shape[1], 1);
    if (n_in < 4)
        return;
    if (in[3] != LP_NOVAL)
        out[0] = lp_add(b, out[0], in[3]);
    out[0] = lp_op1(b, LP_OP_relu, out[0]);
}

LP_EXPAND(expand_batch_back)
{
    LpType t = *lp_type(b, in[1]);
    Shape s = batch_shape(&t);
    LpVal arg[] = {in[0], in[1], in[2], in[3], in[4]};
    if (n_in > 5)
        arg[0] = lp_op2(b, LP_OP_relu_backward, in[0], in[5]);
    backward(b, &s, arg, attr[LP_BATCH_NORM_EPS].f, &t.shape[1], 1, out);
}

/* ---- gradients ----------------------------------------------------------- */
/* The statistics leave the operation for the running averages alone, which
 * take no part in a gradient. */
static void grad(LpGrad *g)
{
    LpVal d[3];
    int back_op = g->op == &op_native_layer_norm   ? LP_OP_layer_norm_backward
                  : g->op == &op_native_group_norm ? LP_OP_group_norm_backward
                                                   : LP_OP_batch_norm_backward;
    if (g->dout[1] != LP_NOVAL || g->dout[2] != LP_NOVAL) {
        lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
                "%s: the gradient with respect to the statistics (results 1 "
                "and 2) is not defined",
                g->op->name);
        return;
    }
    LpVal in[5] = {g->dout[0], g->in[0], g->out[1], g->out[2], g->in[1]};
    if (g->dout[0] == LP_NOVAL ||
        lp_emit_n(g->b, back_op, in, 5, g->attr, d) != 3)
        return;
    for (int i = 0; i < 3; i++)
        if (g->need[i])
            g->din[i] = d[i];
}

/* ---- records ------------------------------------------------------------- */
#define NORM(id, more, form, shape, rule, gradient, kernel, tiles)             \
    LP_PRIMITIVE(id, form, shape, kernel, tiles, .kind = LP_OP_FUSED,          \
                 .flags = LP_OPF_DEVICE | (more), .expand = rule,              \
                 .grad = gradient, .grad_in = 3, .grad_out = 6)
#define BACK                                                                   \
    "(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, "
#define GRADS "-> (Tensor input_grad, Tensor weight_grad, Tensor bias_grad) @p"

NORM(native_layer_norm, LP_OPF_CHEAP,
     "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, "
     "Tensor? bias, float eps) -> (Tensor out, Tensor mean, Tensor rstd) @p",
     lp_norm_infer_layer, expand_layer, grad, lp_layer_norm_prepare,
     lp_rule_norm)
NORM(layer_norm_backward, 0,
     "layer_norm_backward" BACK "int[] normalized_shape, float eps) " GRADS,
     lp_norm_infer_layer_back, expand_layer_back, NULL,
     lp_layer_norm_back_prepare, lp_rule_norm_back)
NORM(native_group_norm, 0,
     "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int "
     "num_groups, float eps) -> (Tensor out, Tensor mean, Tensor rstd) @p",
     lp_norm_infer_group, expand_group, grad, lp_group_norm_prepare,
     lp_rule_norm)
NORM(group_norm_backward, 0,
     "group_norm_backward" BACK "int num_groups, float eps) " GRADS,
     lp_norm_infer_group_back, expand_group_back, NULL,
     lp_group_norm_back_prepare, lp_rule_norm_back)
NORM(batch_norm_train, LP_OPF_BLOCKED,
     "batch_norm_train(Tensor input, Tensor? weight, Tensor? bias, float eps) "
     "-> (Tensor out, Tensor mean, Tensor var) @p\n"
     "_batch_norm_train(Tensor input, Tensor? weight, Tensor? bias, float eps) "
     "-> (Tensor out, Tensor mean, Tensor var) @n",
     lp_norm_infer_batch, expand_batch, grad, lp_batch_norm_prepare,
     lp_rule_norm)
NORM(batch_norm_backward, LP_OPF_BLOCKED,
     "batch_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor var, "
     "Tensor? weight, float eps) " GRADS,
     lp_norm_infer_batch_back, expand_batch_back, NULL,
     lp_batch_norm_back_prepare, lp_rule_norm_back)

/* Host-only: with the ReLU of the result, of its sum with `other` if that is
 * given; with the ReLU's gradient, whose result is the last operand. */
#define NORM_RELU(id, form, shape, rule, kernel)                               \
    LP_PRIMITIVE(id, form, shape, kernel, NULL, .kind = LP_OP_FUSED,           \
                 .flags = LP_OPF_BLOCKED, .expand = rule)
NORM_RELU(batch_norm_relu,
          "batch_norm_relu(Tensor input, Tensor? weight, Tensor? bias, Tensor? "
          "other, float eps) -> (Tensor out, Tensor mean, Tensor var) @p",
          lp_norm_infer_batch, expand_batch, lp_batch_norm_prepare)
NORM_RELU(batch_norm_relu_backward,
          "batch_norm_relu_backward(Tensor grad, Tensor input, Tensor mean, "
          "Tensor var, Tensor? weight, Tensor result, float eps) " GRADS,
          lp_norm_infer_batch_back, expand_batch_back,
          lp_batch_norm_back_prepare)

/* The operator as torch has it: the statistics have the type of the weight,
 * which is the input's unless one is given. */
LP_COMPOSITE(layer_norm_stats,
             "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? "
             "weight, Tensor? bias, float eps) -> (Tensor out, Tensor mean, "
             "Tensor rstd) @f")
{
    LpDtype t = lp_type(b, in[0])->dtype;
    for (int i = 1; i < 3; i++)
        t = in[i] == LP_NOVAL ? t : lp_type(b, in[i])->dtype;
    if (!lp_emit_n(b, LP_OP_native_layer_norm, in, 3, attr, out))
        return;
    out[1] = lp_cast(b, out[1], t);
    out[2] = lp_cast(b, out[2], t);
}

/* ---- rms_norm ------------------------------------------------------------ */
/* Of the type it is computed in. */
static double epsilon_of(LpDtype t)
{
    return t == LP_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
}

/* y = x / sqrt(mean(x^2) + eps) w */
LP_FORMULA(rms_norm, "rms_norm(Tensor input, int[] normalized_shape, Tensor? "
                     "weight=None, float? eps=None) -> Tensor @fn")
{
    LpType t = *lp_type(b, in[0]), want;
    LpAttr shape = attr[0];
    LpInfer x = {.op = &op_rms_norm, .err = b->err, .in = &t, .attr = &shape};
    if (lp_need_float(&x, 0, "input") != LP_OK ||
        lp_norm_normalized(&x, &t, &want) != LP_OK)
        return LP_NOVAL;
    if (in[1] != LP_NOVAL && !lp_shape_eq(lp_type(b, in[1]), &want)) {
        lp_fail(b->err, LP_E_RUNTIME,
                "rms_norm: weight has the shape %s; it must be "
                "normalized_shape, %s",
                lp_shape_str(lp_type(b, in[1])), lp_shape_str(&want));
        return LP_NOVAL;
    }
    Shape s = layer_shape(&t, shape.n);
    LpVal v = lp_cast(b, in[0], lp_norm_stat_dtype(t.dtype));
    LpVal m = lp_mean(b, lp_mul(b, v, v), s.dims, s.n_dims, true);
    double eps = attr[1].kind == LP_ATTR_NONE ? epsilon_of(t.dtype) : attr[1].f;
    LpVal r = lp_op1(b, LP_OP_rsqrt, lp_add(b, m, lp_immf(b, eps)));
    LpVal y = lp_mul(b, v, r);
    if (in[1] != LP_NOVAL)
        y = lp_mul(b, y, in[1]);
    return lp_cast(b, y, t.dtype);
}
