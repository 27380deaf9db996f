/* Records of the pointwise operators of one operand, made of unary.def, and
 * of clone and cast. y = f(x) element by element; dx = dy f'(x). */
#include <math.h>
#include <string.h>

#include "runtime/cost/cost.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/pointwise.h"
#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/pointwise/pointwise_record.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

static double param(const LpGrad *g, int i)
{
    const LpAttr *a = &g->attr[i];
    return a->kind == LP_ATTR_FLOAT    ? a->f
           : a->kind == LP_ATTR_SCALAR ? lp_scalar_f(a->s)
                                       : (double)a->i;
}
#define P(i) param(g, i)
#define PK(i) K(P(i))

static LpVal polygamma_of(LpGrad *g, int n)
{
    LpAttr a = lp_attr_int(n);
    return lp_emit(g->b, LP_OP_polygamma, &g->in[0], 1, &a);
}
#define POLYGAMMA(n) polygamma_of(g, n)

/* What a gradient of several steps computes in, to round a half type once as
 * PyTorch's kernels do. */
static LpVal wide(LpGrad *g, LpVal v)
{
    return !lp_is_imm(v) && lp_is_half(lp_type(g->b, v)->dtype)
               ? lp_cast(g->b, v, LP_F32)
               : v;
}

static LpVal elu_grad(LpGrad *g, double slope, double inside, double above)
{
    const LpAttr a[3] = {lp_attr_float(slope), lp_attr_float(inside),
                         lp_attr_float(above)};
    return lp_emit(g->b, LP_OP_elu_backward, (LpVal[]){DY, X}, 2, a);
}

/* Divided twice: the square's gradient would divide by a fourth power. */
static LpVal softsign_grad(LpGrad *g)
{
    LpVal u = ADD(OP1(abs, X), K(1));
    return DIV(DIV(DY, u), u);
}

/* y = x t, t = tanh(softplus(x)): t + x sigmoid(x) (1 - t^2) */
static LpVal mish_grad(LpGrad *g)
{
    LpAttr a[2] = {lp_attr_float(1), lp_attr_float(20)};
    LpVal x = wide(g, X);
    LpVal t = OP1(tanh, lp_emit(g->b, LP_OP_softplus, &x, 1, a));
    LpVal s = MUL(x, OP1(sigmoid, x));
    return MUL(wide(g, DY), ADD(t, MUL(s, SUB(K(1), MUL(t, t)))));
}

/* R / X, and the limit 1/2 of the odd Bessel functions at 0. */
static LpVal over_x(LpGrad *g)
{
    LpVal zero = EQ(X, K(0));
    return WHERE(zero, K(0.5), DIV(R, WHERE(zero, K(1), X)));
}

/* (t cos t - sin t) / (t x), t = pi x; where the square is 0 the first term of
 * its series, -pi^2 x / 3. */
static LpVal sinc_grad(LpGrad *g)
{
    LpVal zero = EQ(MUL(X, X), K(0)), x = WHERE(zero, K(1), X);
    LpVal t = MUL(x, K(3.14159265358979323846));
    LpVal slope = DIV(SUB(MUL(t, OP1(cos, t)), OP1(sin, t)), MUL(t, x));
    LpVal near = MUL(X, K(-3.2898681336964529));
    return MUL(DY, WHERE(zero, near, slope));
}

/* dy / (x (1 - x)); beyond eps and 1 - eps nothing, without eps NaN beyond 0
 * and 1. */
static LpVal logit_grad(LpGrad *g)
{
    bool any = g->attr[LP_LOGIT_EPS].kind == LP_ATTR_NONE;
    double lo = any ? 0 : P(0);
    LpVal inside = AND(GE(X, K(lo)), LE(X, K(1 - lo)));
    return WHERE(inside, DIV(DY, MUL(X, SUB(K(1), X))), K(any ? NAN : 0));
}

/* ---- choice of loops ----------------------------------------------------- */
LP_PW_SELECT(select_round)
{
    int64_t d = r->attr[LP_ROUND_DECIMALS].i;
    n->p[0].f = pow(10, fabs((double)d));
    if (d == 0 || type == LP_I64)
        return LP_LOOP_round;
    return d > 0 ? LP_LOOP_round_up : LP_LOOP_round_down;
}

LP_PW_SELECT(select_not)
{
    return r->out[0].dtype == LP_BOOL ? LP_LOOP_logical_not
                                      : LP_LOOP_bitwise_not;
}

LP_PW_SELECT(select_gelu)
{
    return lp_by_tanh(r->attr) ? LP_LOOP_gelu_tanh : LP_LOOP_gelu;
}

LP_PW_SELECT(select_logit)
{
    if (r->attr[LP_LOGIT_EPS].kind == LP_ATTR_NONE)
        n->p[0].f = -1;
    return LP_LOOP_logit;
}

static double largest(LpDtype t)
{
    return t == LP_F16    ? 65504
           : t == LP_BF16 ? 0x1.fep127
           : t == LP_F32  ? 0x1.fffffep127
                          : 0x1.fffffffffffffp1023;
}

LP_PW_SELECT(select_nan_to_num)
{
    double top = largest(r->out[0].dtype);
    if (r->attr[LP_NAN_TO_NUM_POSINF].kind == LP_ATTR_NONE)
        n->p[1].f = top;
    if (r->attr[LP_NAN_TO_NUM_NEGINF].kind == LP_ATTR_NONE)
        n->p[2].f = -top;
    return LP_LOOP_nan_to_num;
}

/* The edge is a number of the tensor's type, as PyTorch's kernels have it. */
static void round_edge(LpPwNode *n, LpDtype t)
{
    uint64_t bits = 0;
    lp_scalar_store(lp_float(n->p[0].f), t, &bits);
    n->p[0].f = lp_scalar_f(lp_scalar_load(t, &bits));
}

LP_PW_SELECT(select_softshrink)
{
    round_edge(n, r->out[0].dtype);
    return LP_LOOP_softshrink;
}

LP_PW_SELECT(select_hardshrink)
{
    round_edge(n, r->out[0].dtype);
    return LP_LOOP_hardshrink;
}

/* ---- own rules ----------------------------------------------------------- */
/* A square of bool is what x ** 2 is. */
LP_PW_RULE(rule_square)
{
    *t = *t == LP_BOOL ? LP_I64 : *t;
    return LP_OK;
}

LP_PW_RULE(rule_celu)
{
    LP_FAIL_IF(x->attr[LP_CELU_ALPHA].f == 0, x->err, LP_E_RUNTIME,
               "celu: alpha is 0; it must be another number");
    return LP_OK;
}

LP_PW_RULE(rule_hardtanh)
{
    const LpAttr *a = x->attr;
    LP_FAIL_IF(a[LP_HARDTANH_MIN_VAL].f > a[LP_HARDTANH_MAX_VAL].f, x->err,
               LP_E_VALUE,
               "hardtanh: min_val is %g and max_val %g; min_val cannot be "
               "greater than max_val",
               a[LP_HARDTANH_MIN_VAL].f, a[LP_HARDTANH_MAX_VAL].f);
    return LP_OK;
}

LP_PW_RULE(rule_polygamma)
{
    int64_t n = x->attr[LP_POLYGAMMA_N].i;
    LP_FAIL_IF(n < 0 || n > 1000, x->err, LP_E_RUNTIME,
               "polygamma: n is %lld; it must be from 0 to 1000", (long long)n);
    return LP_OK;
}

LP_PW_RULE(rule_round)
{
    int64_t decimals = x->attr[LP_ROUND_DECIMALS].i;
    LP_FAIL_IF(decimals != 0 && !lp_is_float(x->in[0].dtype), x->err,
               LP_E_RUNTIME,
               "round: decimals is %lld and the type %s; decimals need a "
               "floating-point type",
               (long long)decimals, lp_dtype_name(x->in[0].dtype));
    return LP_OK;
}

LP_PW_RULE(rule_softshrink)
{
    double lambd = x->attr[LP_SOFTSHRINK_LAMBD].f;
    LP_FAIL_IF(!(lambd >= 0), x->err, LP_E_RUNTIME,
               "softshrink: lambd is %g; it must be 0 or more", lambd);
    return LP_OK;
}

/* ---- records ------------------------------------------------------------- */
static uint8_t cost_gelu(const LpAttr *attr)
{
    return lp_by_tanh(attr) ? LP_EW_gelu : LP_EW_gelu_erf;
}

#define UNARY(name, tail, policy_, cost_, e, marks, gx, where_, ...)           \
    static void grad_##name(LpGrad *g)                                         \
    {                                                                          \
        g->din[0] = gx;                                                        \
    }                                                                          \
    LP_POINTWISE(name, #name "(Tensor self" tail, policy_, cost_, where_,      \
                 LP_ALSO(__VA_ARGS__),                                         \
                 .flags =                                                      \
                     LP_OPF_POINTWISE | LP_OPF_INPLACE_OK | LP_MARKED(marks),  \
                 .grad = grad_##name, .grad_in = (marks)&1,                    \
                 .grad_out = (marks) >> 3 & 1)
#define UNARYN(name, tail, policy_, cost_, e, reason)                          \
    LP_POINTWISE(name, #name "(Tensor self" tail, policy_, cost_, "",          \
                 LP_ALSO(), .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK,     \
                 .no_grad = reason)
#define TEST(name, tail, e, ie)                                                \
    LP_POINTWISE(name, #name "(Tensor self" tail, BOOL, compare, "",           \
                 LP_ALSO(), .flags = LP_OPF_POINTWISE,                         \
                 .no_grad = LP_BOOLEAN_GRAD)
#include "src/kernel/loops/unary.def"

static const LpPointwise data_identity = {.policy = LP_PW_CAST, .domain = ""};

/* A copy with memory of its own. */
/* Strided copies know transposes; fused, a clone is an identity. */
static LpStatus prepare_clone(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    return lp_copy_kernel(&r->in[0], 0, &r->out[0], r->threads, k);
}

LP_PRIMITIVE(clone, "clone(Tensor self) -> Tensor @fm", lp_infer_pointwise,
             prepare_clone, lp_rule_copy,
             .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK,
             .grad = lp_grad_same, .data = &data_identity)

/* To another type: rounds once; a float becomes an integer towards zero. */
LP_PRIMITIVE(cast, "cast(Tensor self, ScalarType dtype) -> Tensor @p",
             lp_infer_pointwise, lp_pointwise_prepare, lp_rule_pointwise,
             .flags = LP_OPF_POINTWISE, .grad = lp_grad_same,
             .data = &data_identity)

/* The operators on complex numbers that leave a real one as it is. */
LP_FORMULA(conj, "conj(Tensor self) -> Tensor @fm\n"
                 "conj_physical(Tensor self) -> Tensor @fmic\n"
                 "real(Tensor self) -> Tensor @f\n"
                 "resolve_conj(Tensor self) -> Tensor @fm\n"
                 "resolve_neg(Tensor self) -> Tensor @fm")
{
    return in[0];
}

LP_FORMULA(positive, "positive(Tensor self) -> Tensor @fm")
{
    if (lp_type(b, in[0])->dtype == LP_BOOL)
        lp_fail(b->err, LP_E_RUNTIME,
                "positive: the operand has the type bool; it must be a number "
                "type");
    return in[0];
}

/* The modified Bessel functions are i0 and i1 without the half types. */
#define MODIFIED(name, op)                                                     \
    LP_FORMULA(name, #name "(Tensor self) -> Tensor @sc")                      \
    {                                                                          \
        lp_infer_wide(#name, lp_type(b, in[0])->dtype, b->err);                \
        return lp_op1(b, op, in[0]);                                           \
    }
MODIFIED(modified_bessel_i0, LP_OP_i0)
MODIFIED(modified_bessel_i1, LP_OP_i1)

LP_COMPOSITE(frexp,
             "frexp(Tensor self) -> (Tensor mantissa, Tensor exponent) @fmo")
{
    out[0] = lp_op1(b, LP_OP_frexp_mantissa, in[0]);
    out[1] = lp_cast(b, lp_op1(b, LP_OP_frexp_exponent, in[0]), LP_I32);
}

/* log gamma in p dimensions: sum over i < p of lgamma(x - i / 2), and
 * p (p - 1) / 4 log(pi). */
LP_FORMULA(mvlgamma, "mvlgamma(Tensor self, int p) -> Tensor @fmic\n"
                     "multigammaln(Tensor self, int p) -> Tensor @sc")
{
    int64_t p = attr[LP_MVLGAMMA_P].i, last = -1;
    LpDtype t = lp_type(b, in[0])->dtype;
    if (p < 1 || p > 1000 || t == LP_BOOL)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "mvlgamma: p is %lld and the type %s; p must be from "
                         "1 to 1000 and the type a number type",
                         (long long)p, lp_dtype_name(t));
    t = lp_is_float(t) ? t : lp_default_dtype();
    LpVal x = lp_cast(b, in[0], t);
    LpAttr a[4] = {lp_attr_scalar(lp_int(0)), lp_attr_scalar(lp_int(p)),
                   lp_attr_scalar(lp_int(1)), lp_attr_dtype(t)};
    LpVal i = lp_emit(b, LP_OP_arange, NULL, 0, a);
    LpVal each =
        lp_sub(b, lp_unsqueeze(b, x, -1), lp_mul(b, i, lp_immf(b, 0.5)));
    LpVal y = lp_sum(b, lp_op1(b, LP_OP_lgamma, each), &last, 1, false);
    double more = (double)(p * (p - 1)) / 4 * log(3.14159265358979323846);
    return lp_add(b, y, lp_immf(b, more));
}
