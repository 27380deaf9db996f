/* Records of the pointwise operators of two and three operands, made of
 * binary.def, and of composites of them. Gradients are summed over broadcast
 * dimensions by the caller. */
#include <string.h>

#include "runtime/cost/cost.h"
#include "src/kernel/loops/pointwise.h"
#include "src/ops/infer.h"
#include "src/ops/pointwise/pointwise_record.h"

/* ---- short hand of rules (ops.h) ----------------------------------------- */
static bool numbers(LpVal x, LpVal y)
{
    return x != LP_NOVAL && y != LP_NOVAL && lp_is_imm(x) && lp_is_imm(y);
}

static double value(LpBuilder *b, LpVal x)
{
    return lp_scalar_f(b->imm(b, x));
}

LpVal lp_add(LpBuilder *b, LpVal x, LpVal y)
{
    LpAttr one = lp_attr_scalar(lp_int(1));
    if (numbers(x, y))
        return lp_immf(b, value(b, x) + value(b, y));
    return lp_emit(b, LP_OP_add, (LpVal[]){x, y}, 2, &one);
}

LpVal lp_sub(LpBuilder *b, LpVal x, LpVal y)
{
    LpAttr one = lp_attr_scalar(lp_int(1));
    if (numbers(x, y))
        return lp_immf(b, value(b, x) - value(b, y));
    return lp_emit(b, LP_OP_sub, (LpVal[]){x, y}, 2, &one);
}

LpVal lp_mul(LpBuilder *b, LpVal x, LpVal y)
{
    if (numbers(x, y))
        return lp_immf(b, value(b, x) * value(b, y));
    return lp_op2(b, LP_OP_mul, x, y);
}

LpVal lp_div(LpBuilder *b, LpVal x, LpVal y)
{
    LpAttr none = LP_NONE_ATTR;
    if (numbers(x, y))
        return lp_immf(b, value(b, x) / value(b, y));
    return lp_emit(b, LP_OP_div, (LpVal[]){x, y}, 2, &none);
}

LpVal lp_neg(LpBuilder *b, LpVal x)
{
    if (numbers(x, x))
        return lp_immf(b, -value(b, x));
    return lp_op1(b, LP_OP_neg, x);
}

LpVal lp_where(LpBuilder *b, LpVal cond, LpVal x, LpVal y)
{
    return lp_op3(b, LP_OP_where, cond, x, y);
}

LpVal lp_cast(LpBuilder *b, LpVal x, LpDtype t)
{
    LpAttr a = lp_attr_dtype(t);
    if (lp_failed(b) || x == LP_NOVAL)
        return LP_NOVAL;
    if (!lp_is_imm(x) && lp_type(b, x)->dtype == t)
        return x;
    return lp_emit(b, LP_OP_cast, &x, 1, &a);
}

/* ---- parts of gradients -------------------------------------------------- */
#define VALUE lp_imm(g->b, g->attr[LP_ADD_ALPHA].s)
#define SCALED(v)                                                              \
    (lp_scalar_f(g->attr[LP_ADD_ALPHA].s) == 1 ? (v) : MUL(v, VALUE))
#define ALPHA(v) SCALED(v)
#define ROUNDED (g->attr[LP_DIV_ROUNDING_MODE].kind != LP_ATTR_NONE)
/* Of the greater operand a; halves where both are equal. */
#define TIES(a, b) WHERE(EQ(a, b), MUL(DY, K(0.5)), WHERE(LT(a, b), K(0), DY))

/* Of a where it beats b or b is no number; both NaN: of operand 0. */
#define NUMBER_TIES(a, b, beats)                                               \
    WHERE(EQ(a, b), MUL(DY, K(0.5)),                                           \
          WHERE(number_wins(g, a, b, beats(a, b)), DY, K(0)))
static LpVal number_wins(LpGrad *g, LpVal a, LpVal b, LpVal beats)
{
    LpVal none = OP1(isnan, b);
    if (a == Y)
        none = AND(none, OP1(logical_not, OP1(isnan, a)));
    return OR(beats, none);
}

/* v / (x^2 + y^2); 0 at the origin */
static LpVal over_square(LpGrad *g, LpVal v)
{
    LpVal s = ADD(MUL(X, X), MUL(Y, Y));
    return DIV(v, WHERE(EQ(s, K(0)), K(1), s));
}

static LpVal div_rounded(LpGrad *g, const char *mode)
{
    LpAttr a = lp_attr_str(mode);
    return lp_emit(g->b, LP_OP_div, g->in, 2, &a);
}
#define DIVR(x, y, mode) div_rounded(g, mode)

/* y x^(y-1); nothing where y = 0, also at x = 0. */
static LpVal pow_base_grad(LpGrad *g)
{
    LpVal less = SUB(Y, K(1));
    if (lp_is_imm(Y)) {
        double y = value(g->b, Y);
        if (y == 0)
            return NOTHING;
        return MUL(DY, MUL(y == 2 ? X : OP2(pow, X, less), Y));
    }
    LpVal d = MUL(DY, MUL(Y, OP2(pow, X, less)));
    return WHERE(EQ(Y, K(0)), K(0), d);
}

/* x^y log(x); nothing at x = 0 with y >= 0, where the power is constant. */
static LpVal pow_exponent_grad(LpGrad *g)
{
    if (lp_is_imm(X) && value(g->b, X) != 0)
        return MUL(DY, MUL(R, OP1(log, lp_cast(g->b, X, lp_default_dtype()))));
    LpVal base = lp_is_imm(X) ? lp_cast(g->b, X, lp_default_dtype()) : X;
    return WHERE(AND(EQ(base, K(0)), GE(Y, K(0))), K(0),
                 MUL(DY, MUL(R, OP1(log, base))));
}

/* Operand i of clamp(x, lo, hi): hi wins over a lo above it. On a bound that is
 * a number there is no gradient; with a tensor x and the bound share it, and x
 * has it alone where both bounds meet it. Where no comparison holds, at NaN, x
 * has it, and so has a single bound; by a number it ends there. */
static LpVal clamp_grad(LpGrad *g, int i)
{
    bool lo = Y != LP_NOVAL, hi = Z != LP_NOVAL, both = lo && hi;
    if (lp_is_imm(lo ? Y : Z)) { /* i is 0 */
        LpVal all = lo ? GT(X, Y) : LT(X, Z);
        return WHERE(both ? AND(all, LT(X, Z)) : all, DY, K(0));
    }
    LpVal half = EQ(X, i == 2 || !lo ? Z : Y), none;
    if (i == 0) {
        none = lo ? LT(X, Y) : GT(X, Z);
        none = both ? OR(none, GT(X, Z)) : none;
        half = both ? OR(half, EQ(X, Z)) : half;
    } else {
        none = i == 1 ? GT(X, Y) : LT(X, Z);
    }
    if (both)
        half = AND(half, LT(Y, Z));
    if (both && i > 0) {
        LpVal all = AND(i == 1 ? LT(X, Y) : GT(X, Z), LE(Y, Z));
        all = i == 1 ? all : OR(all, GT(Y, Z));
        return WHERE(all, DY, WHERE(half, MUL(DY, K(0.5)), K(0)));
    }
    return WHERE(none, K(0), WHERE(half, MUL(DY, K(0.5)), DY));
}

/* By the first operand, where no closed form is known. */
static LpVal none_by_self(LpGrad *g)
{
    lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
            "%s: the derivative by its first operand is not implemented",
            g->op->name);
    return LP_NOVAL;
}

/* dP(a, x)/dx = x^(a-1) exp(-x) / gamma(a) */
static LpVal igamma_slope(LpGrad *g)
{
    LpVal power = OP2(xlogy, SUB(X, K(1)), Y);
    return OP1(exp, SUB(SUB(power, Y), OP1(lgamma, X)));
}

/* s(1-s)(2 + x(1-2s)), s = sigmoid(x) */
static LpVal silu_second(LpGrad *g)
{
    LpVal s = OP1(sigmoid, Y);
    LpVal curve = ADD(MUL(Y, SUB(K(1), MUL(s, K(2)))), K(2));
    return MUL(MUL(s, SUB(K(1), s)), curve);
}

/* erf: (2 - x^2) phi(x). tanh, with u = k(x + c x^3), t = tanh(u):
 * (1 - t^2) (u' + x u''/2 - x t u'^2). */
static LpVal gelu_second(LpGrad *g)
{
    LpVal y = Y; /* its fourth power is none of float16 */
    if (!lp_is_imm(y) && lp_is_half(lp_type(g->b, y)->dtype))
        y = lp_cast(g->b, y, LP_F32);
    LpVal x2 = MUL(y, y);
    if (!lp_by_tanh(g->attr)) {
        LpVal phi = MUL(OP1(exp, MUL(x2, K(-0.5))), K(0.39894228040143268));
        return MUL(SUB(K(2), x2), phi);
    }
    const double k = LP_GELU_SCALE, c = LP_GELU_CUBE;
    LpVal t = OP1(tanh, MUL(MUL(y, ADD(MUL(x2, K(c)), K(1))), K(k)));
    LpVal du = MUL(ADD(MUL(x2, K(3 * c)), K(1)), K(k));
    LpVal half_ddu_x = MUL(x2, K(3 * c * k));
    LpVal bend = MUL(MUL(y, t), MUL(du, du));
    return MUL(SUB(K(1), MUL(t, t)), SUB(ADD(du, half_ddu_x), bend));
}

/* 0 from the bend on, where the exponential may overflow. */
static LpVal elu_second(LpGrad *g)
{
    LpAttr slope = g->attr[LP_ELU_BACK_SLOPE];
    LpAttr inside = g->attr[LP_ELU_BACK_INSIDE];
    const LpAttr a[3] = {lp_attr_float(slope.f * inside.f), inside,
                         lp_attr_float(0)};
    LpVal d = lp_emit(g->b, LP_OP_elu_backward, (LpVal[]){MUL(DY, X), Y}, 2, a);
    return WHERE(LT(Y, K(0)), d, K(0));
}

/* ---- choice of loops ----------------------------------------------------- */
LP_PW_SELECT(select_add)
{
    bool sub = r->op->id == LP_OP_sub;
    LpDtype t = r->out[0].dtype;
    uint16_t alpha;
    if (lp_is_half(t)) { /* what it multiplies is of that type, so is it */
        lp_scalar_store(lp_float(n->p[0].f), t, &alpha);
        n->p[0].f = lp_scalar_f(lp_scalar_load(t, &alpha));
    }
    if (n->p[0].f == 1)
        return sub ? LP_LOOP_sub : LP_LOOP_add;
    if (sub) {
        n->p[0].f = -n->p[0].f;
        n->p[0].i = (int64_t)(0 - (uint64_t)n->p[0].i);
    }
    return LP_LOOP_add_alpha;
}

LP_PW_SELECT(select_div)
{
    if (r->attr[LP_DIV_ROUNDING_MODE].kind == LP_ATTR_NONE)
        return LP_LOOP_div;
    return r->attr[LP_DIV_ROUNDING_MODE].str[0] == 'f' ? LP_LOOP_div_floor
                                                       : LP_LOOP_div_trunc;
}

/* Exponents that need no logarithm. */
LP_PW_SELECT(select_pow)
{
    static const struct {
        double exponent;
        int loop;
    } plain[] = {
        {2, LP_LOOP_square},   {3, LP_LOOP_cube},        {0.5, LP_LOOP_sqrt},
        {-0.5, LP_LOOP_rsqrt}, {-1, LP_LOOP_reciprocal},
    };
    if (!lp_is_half(n->number))
        n->number = type; /* an exponent stays itself */
    if (type == LP_I64 || !r->in[1].is_imm)
        return LP_LOOP_pow;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (lp_scalar_f(r->in[1].imm) == plain[i].exponent) {
            n->n_in = 1;
            return plain[i].loop;
        }
    return LP_LOOP_pow;
}

LP_PW_SELECT(select_clamp)
{
    bool lo = r->in[1].dtype != LP_DT_NONE || r->in[1].is_imm;
    bool hi = r->in[2].dtype != LP_DT_NONE || r->in[2].is_imm;
    n->number = type; /* bounds stay themselves */
    if (lo && hi)
        return LP_LOOP_clamp;
    n->n_in = 2;
    n->operand[1] = lo ? 1 : 2;
    return lo ? LP_LOOP_maximum : LP_LOOP_minimum;
}

LP_PW_SELECT(select_nextafter)
{
    LpDtype t = r->out[0].dtype;
    return t == LP_F16    ? LP_LOOP_nextafter_f16
           : t == LP_BF16 ? LP_LOOP_nextafter_bf16
                          : LP_LOOP_nextafter;
}

LP_PW_SELECT(select_gelu_backward)
{
    return lp_by_tanh(r->attr) ? LP_LOOP_gelu_tanh_backward
                               : LP_LOOP_gelu_backward;
}

/* ---- own rules ----------------------------------------------------------- */
LP_PW_RULE(rule_add)
{
    LP_FAIL_IF(x->attr[LP_ADD_ALPHA].s.kind == LP_KIND_BOOL && *t != LP_BOOL,
               x->err, LP_E_RUNTIME,
               "%s: alpha is a boolean, but the result is %s: it must be a "
               "number",
               x->op->name, lp_dtype_name(*t));
    LP_FAIL_IF(x->attr[LP_ADD_ALPHA].s.kind == LP_KIND_FLOAT &&
                   !lp_is_float(*t),
               x->err, LP_E_RUNTIME,
               "%s: alpha is %g, but the result is %s: it must be an integer",
               x->op->name, x->attr[LP_ADD_ALPHA].s.f, lp_dtype_name(*t));
    return LP_OK;
}

/* Promotion hides a bool among numbers. */
LP_PW_RULE(rule_sub)
{
    for (int i = 0; i < x->n_in; i++)
        if (x->in[i].dtype == LP_BOOL)
            return lp_infer_refuse(x, LP_BOOL,
                                   "a number type; use logical_xor or "
                                   "logical_not for bool");
    return rule_add(x, t);
}

LP_PW_RULE(rule_div)
{
    return lp_infer_mode(x, LP_DIV_ROUNDING_MODE, "rounding_mode", "floor",
                         "trunc");
}

/* PyTorch computes of bool only a tensor to the power of a number; of integers
 * it refuses a negative exponent that is a number, and has 0 where a tensor
 * holds it. */
LP_PW_RULE(rule_pow)
{
    bool number = !x->in[0].wrapped && x->in[1].wrapped;
    if (*t == LP_BOOL && !number)
        return lp_infer_refuse(x, *t, "a number type");
    LP_FAIL_IF(number && !lp_is_float(*t) && lp_scalar_f(x->num[1]) < 0, x->err,
               LP_E_RUNTIME,
               "pow: exponent is %g, self has the type %s: Integers to "
               "negative integer powers are not allowed.",
               lp_scalar_f(x->num[1]), lp_dtype_name(x->in[0].dtype));
    return LP_OK;
}

/* Bounds are of one kind, tensors or numbers; one at least. Beside a number a
 * tensor without dimensions counts as one. PyTorch computes of bool only with
 * one bound, a tensor. */
LP_PW_RULE(rule_clamp)
{
    LpType in[3] = {x->in[0], x->in[1], x->in[2]};
    bool lo = in[1].dtype != LP_DT_NONE, hi = in[2].dtype != LP_DT_NONE;
    LP_FAIL_IF(!lo && !hi, x->err, LP_E_RUNTIME,
               "clamp: min and max are both None; at least one must be given");
    if (lo && hi && in[1].wrapped != in[2].wrapped) {
        LP_FAIL_IF(in[1].ndim > 0 || in[2].ndim > 0, x->err, LP_E_TYPE,
                   "clamp: min is a %s and max a %s; both must be tensors or "
                   "both numbers",
                   in[1].wrapped ? "number" : "tensor",
                   in[2].wrapped ? "number" : "tensor");
        in[1].wrapped = in[2].wrapped = true;
        *t = lp_infer_promote(in, 3);
    }
    if (*t == LP_BOOL && ((lo && hi) || in[lo ? 1 : 2].wrapped))
        return lp_infer_refuse(x, *t, "a number type");
    return LP_OK;
}

/* Promotes a weight without dimensions alone. */
LP_PW_RULE(rule_lerp)
{
    static const char *const names[] = {"self", "end", "weight"};
    LpDtype self = x->in[0].dtype;
    for (int i = 1; i < x->n_in; i++) {
        const LpType *y = &x->in[i];
        LP_FAIL_IF(!y->wrapped && (i == 1 || y->ndim > 0) && y->dtype != self,
                   x->err, LP_E_RUNTIME,
                   "lerp: `%s` has the type %s; it must have self's, %s",
                   names[i], lp_dtype_name(y->dtype), lp_dtype_name(self));
    }
    return lp_is_float(*t) ? LP_OK
                           : lp_infer_refuse(x, *t, "a floating-point type");
}

LP_PW_RULE(rule_addcdiv)
{
    LP_FAIL_IF(!lp_is_float(x->in[1].dtype) && !lp_is_float(x->in[2].dtype),
               x->err, LP_E_RUNTIME,
               "addcdiv: tensor1 and tensor2 have the types %s and %s; one at "
               "least must have a floating-point type",
               lp_dtype_name(x->in[1].dtype), lp_dtype_name(x->in[2].dtype));
    return LP_OK;
}

LP_PW_RULE(rule_heaviside)
{
    LpDtype self = x->in[0].dtype, values = x->in[1].dtype;
    LP_FAIL_IF(!x->in[0].wrapped && !x->in[1].wrapped && self != values, x->err,
               LP_E_RUNTIME,
               "heaviside: self and values have the types %s and %s; they "
               "must have the same",
               lp_dtype_name(self), lp_dtype_name(values));
    return LP_OK;
}

/* ---- records ------------------------------------------------------------- */
static uint8_t cost_div(const LpAttr *attr)
{
    return attr[LP_DIV_ROUNDING_MODE].kind == LP_ATTR_NONE ? LP_EW_div
                                                           : LP_EW_remainder;
}

#define RECORD(name, tail, policy_, cost_, marks, where_, ...)                 \
    LP_POINTWISE(                                                              \
        name, #name "(" tail, policy_, cost_, where_, LP_ALSO(__VA_ARGS__),    \
        .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK | LP_MARKED(marks),      \
        .grad = grad_##name, .grad_in = (marks)&7,                             \
        .grad_out = (marks) >> 3 & 1, .readers = (marks) >> 6)
#define BINARY(name, tail, policy_, cost_, e, marks, gx, gy, ...)              \
    static void grad_##name(LpGrad *g)                                         \
    {                                                                          \
        if (g->need[0])                                                        \
            g->din[0] = gx;                                                    \
        if (g->need[1])                                                        \
            g->din[1] = gy;                                                    \
    }                                                                          \
    RECORD(name, tail, policy_, cost_, marks, __VA_ARGS__)
#define TERNARY(name, tail, policy_, cost_, e, ie, marks, gx, gy, gz, ...)     \
    static void grad_##name(LpGrad *g)                                         \
    {                                                                          \
        if (g->need[0])                                                        \
            g->din[0] = gx;                                                    \
        if (g->need[1])                                                        \
            g->din[1] = gy;                                                    \
        if (g->need[2])                                                        \
            g->din[2] = gz;                                                    \
    }                                                                          \
    RECORD(name, tail, policy_, cost_, marks, __VA_ARGS__)
#define BINARYN(name, tail, policy_, cost_, e, ie, reason)                     \
    LP_POINTWISE(name, #name "(" tail, policy_, cost_, "", LP_ALSO(),          \
                 .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK,                \
                 .no_grad = reason)
#define COMPARE(name, tail, cost_, e, ie, marks)                               \
    LP_POINTWISE(name, #name "(" tail, BOOL, cost_, "", LP_ALSO(),             \
                 .flags = LP_OPF_POINTWISE | LP_MARKED(marks),                 \
                 .no_grad = LP_BOOLEAN_GRAD)
#include "src/kernel/loops/binary.def"
