/* Shared shape rules. */
#include "src/ops/infer.h"

#include <string.h>

#include "src/ops/kernel/pointwise.h"

LpDtype lp_infer_promote(const LpType *in, int n)
{
    LpPromo p = LP_PROMO_INIT;
    for (int i = 0; i < n; i++) {
        if (in[i].dtype == LP_DT_NONE)
            continue;
        if (in[i].wrapped)
            lp_promo_number(&p, lp_dtype_kind(in[i].dtype));
        else
            lp_promo_tensor(&p, in[i].dtype, in[i].ndim);
    }
    return lp_promo_result(&p);
}

LpStatus lp_infer_wide(const char *op, LpDtype t, LpErr *e)
{
    LP_FAIL_IF(t == LP_F16 || t == LP_BF16, e, LP_E_NOT_IMPLEMENTED,
               "\"%s\" not implemented for '%s': it computes in float32 and "
               "float64 only",
               op, t == LP_F16 ? "Half" : "BFloat16");
    return LP_OK;
}

static LpStatus refuse(const LpInfer *x, LpDtype t, const char *allowed)
{
    return lp_fail(x->err, LP_E_RUNTIME,
                   "%s: the operands have the type %s; it must be %s",
                   x->op->name, lp_dtype_name(t), allowed);
}

/* A mode such as gelu's or div's: None where allowed, else one of two. */
static LpStatus check_mode(const LpInfer *x)
{
    const LpAttr *a = &x->attr[0];
    if (x->op->n_attr == 0 || a->kind != LP_ATTR_STR)
        return LP_OK;
    const bool div = x->op->id == LP_OP_div;
    const char *one = div ? "floor" : "none", *two = div ? "trunc" : "tanh";
    LP_FAIL_IF(strcmp(a->str, one) && strcmp(a->str, two), x->err, LP_E_RUNTIME,
               "%s: %s is '%s'; it must be '%s' or '%s'", x->op->name,
               div ? "rounding_mode" : "approximate", a->str, one, two);
    return LP_OK;
}

/* An integer result takes no fraction: alpha, value of add, sub, addcmul. */
static LpStatus check_factor(const LpInfer *x, LpDtype t)
{
    for (int i = 0; i < x->op->n_attr; i++) {
        const LpAttr *a = &x->attr[i];
        bool sum = x->op->id == LP_OP_add || x->op->id == LP_OP_sub;
        LP_FAIL_IF(sum && a->s.kind == LP_KIND_BOOL && t != LP_BOOL, x->err,
                   LP_E_RUNTIME,
                   "%s: alpha is a boolean, but the result is %s: it must be a "
                   "number",
                   x->op->name, lp_dtype_name(t));
        LP_FAIL_IF(a->kind == LP_ATTR_SCALAR && a->s.kind == LP_KIND_FLOAT &&
                       !lp_is_float(t),
                   x->err, LP_E_RUNTIME,
                   "%s: alpha or value is %g, but the result is %s: it must "
                   "be an integer",
                   x->op->name, a->s.f, lp_dtype_name(t));
    }
    return LP_OK;
}

/* Attributes that contradict each other or the operator. */
static LpStatus check_bounds(const LpInfer *x)
{
    const LpAttr *a = x->attr;
    LP_FAIL_IF(x->op->id == LP_OP_hardtanh && a[0].f > a[1].f, x->err,
               LP_E_VALUE,
               "hardtanh: min_val is %g and max_val %g; min_val cannot be "
               "greater than max_val",
               a[0].f, a[1].f);
    LP_FAIL_IF(x->op->id == LP_OP_polygamma && (a[0].i < 0 || a[0].i > 1000),
               x->err, LP_E_RUNTIME,
               "polygamma: n is %lld; it must be from 0 to 1000",
               (long long)a[0].i);
    LP_FAIL_IF(x->op->id == LP_OP_round && a[0].i != 0 &&
                   !lp_is_float(x->in[0].dtype),
               x->err, LP_E_RUNTIME,
               "round: decimals is %lld and the type %s; decimals need a "
               "floating-point type",
               (long long)a[0].i, lp_dtype_name(x->in[0].dtype));
    LP_FAIL_IF(x->op->id == LP_OP_softshrink && !(a[0].f >= 0), x->err,
               LP_E_RUNTIME, "softshrink: lambd is %g; it must be 0 or more",
               a[0].f);
    return LP_OK;
}

/* What promotion hides: an integer among floats, bool among numbers. */
static LpStatus check_each(const LpInfer *x, LpPwPolicy policy)
{
    for (int i = 0; i < x->n_in; i++) {
        LpDtype t = x->in[i].dtype;
        if (x->op->id == LP_OP_sub && t == LP_BOOL)
            return refuse(x, t,
                          "a number type; use logical_xor or "
                          "logical_not for bool");
        if (t == LP_DT_NONE || x->in[i].wrapped)
            continue;
        LP_FAIL_IF(x->op->id == LP_OP_heaviside && !x->in[0].wrapped &&
                       t != x->in[0].dtype,
                   x->err, LP_E_RUNTIME,
                   "heaviside: self and values have the types %s and %s; they "
                   "must have the same",
                   lp_dtype_name(x->in[0].dtype), lp_dtype_name(t));
        if (policy == LP_PW_FLOAT_ONLY && x->n_in == 3 && !lp_is_float(t))
            return refuse(x, t, "a floating-point type");
    }
    return LP_OK;
}

/* PyTorch computes these alone of bool: a bool tensor to the power of a bool
 * number, and one bound that is a tensor. */
static bool takes_bool(const LpInfer *x)
{
    const LpType *in = x->in;
    if (x->op->id == LP_OP_pow)
        return !in[0].wrapped && in[1].wrapped;
    if (x->op->id != LP_OP_clamp)
        return false;
    const LpType *bound = in[1].dtype == LP_DT_NONE ? &in[2] : &in[1];
    bool both = in[1].dtype != LP_DT_NONE && in[2].dtype != LP_DT_NONE;
    return !both && !bound->wrapped;
}

static LpStatus result_type(LpInfer *x, LpPwPolicy policy, LpDtype *t)
{
    bool real = lp_is_float(*t);
    if (policy == LP_PW_DIVIDE)
        policy =
            x->attr[0].kind == LP_ATTR_NONE ? LP_PW_FLOAT : LP_PW_SAME_NOT_BOOL;
    switch (policy) {
    case LP_PW_SAME_NOT_BOOL:
        return *t == LP_BOOL && !takes_bool(x) ? refuse(x, *t, "a number type")
                                               : LP_OK;
    case LP_PW_FLOAT:
        *t = real ? *t : lp_default_dtype();
        return LP_OK;
    case LP_PW_FLOAT_NOT_BOOL:
        LP_FAIL_IF(*t == LP_BOOL, x->err, LP_E_NOT_IMPLEMENTED,
                   "\"%s\" not implemented for 'Bool': the operand must have a "
                   "number type",
                   x->op->name);
        *t = real ? *t : lp_default_dtype();
        return LP_OK;
    case LP_PW_WIDE_FLOAT:
        *t = real ? *t : lp_default_dtype();
        return lp_infer_wide(x->op->name, *t, x->err);
    case LP_PW_FLOAT_ONLY:
        return real ? LP_OK : refuse(x, *t, "a floating-point type");
    case LP_PW_INT:
        return real ? refuse(x, *t, "an integer type or bool") : LP_OK;
    case LP_PW_INT_NOT_BOOL:
        return real || *t == LP_BOOL ? refuse(x, *t, "an integer type") : LP_OK;
    case LP_PW_BOOL:
        *t = LP_BOOL;
        return LP_OK;
    case LP_PW_CAST:
        if (x->op->n_attr > 0 && x->attr[0].kind == LP_ATTR_DTYPE)
            *t = (LpDtype)x->attr[0].i;
        return LP_OK;
    default:
        if (x->op->id == LP_OP_square && *t == LP_BOOL)
            *t = LP_I64; /* as x ** 2 is */
        return LP_OK;
    }
}

LpStatus lp_infer_pointwise(LpInfer *x)
{
    LpPwPolicy policy = ((const LpPointwise *)x->op->data)->policy;
    LpType *out = &x->out[0];
    int skip = policy == LP_PW_MASK ? 1 : 0;
    *out = (LpType){.ndim = 0};
    for (int i = 0; i < x->n_in; i++)
        if (x->in[i].dtype != LP_DT_NONE)
            LP_TRY(lp_broadcast(out, &x->in[i], x->err));
    LP_FAIL_IF(skip && x->in[0].dtype != LP_BOOL, x->err, LP_E_RUNTIME,
               "%s: the condition has the type %s; it must be bool",
               x->op->name, lp_dtype_name(x->in[0].dtype));
    LpDtype t = lp_infer_promote(x->in + skip, x->n_in - skip);
    LP_TRY(result_type(x, policy, &t));
    LP_TRY(check_each(x, policy));
    LP_TRY(check_mode(x));
    LP_TRY(check_bounds(x));
    LP_TRY(check_factor(x, t));
    LP_FAIL_IF(x->op->id == LP_OP_clamp && x->in[1].dtype == LP_DT_NONE &&
                   x->in[2].dtype == LP_DT_NONE,
               x->err, LP_E_RUNTIME,
               "clamp: min and max are both None; at least one must be given");
    out->dtype = t;
    return LP_OK;
}
