/* Shared shape rules. */
#include "src/ops/infer.h"

#include <string.h>

#include "src/kernel/loops/pointwise.h"
#include "src/ops/view/view.h"

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

LpStatus lp_infer_norm_dtype(const char *op, LpDtype in, const LpAttr *dtype,
                             LpErr *e)
{
    LP_FAIL_IF(!lp_is_float(in), e, LP_E_NOT_IMPLEMENTED,
               "%s: the tensor has the type %s; it must be a floating-point "
               "type",
               op, lp_dtype_name(in));
    if (dtype->kind != LP_ATTR_DTYPE)
        return LP_OK;
    LpDtype t = (LpDtype)dtype->i;
    LP_FAIL_IF(!lp_is_float(t), e, LP_E_RUNTIME,
               "%s: dtype is %s; it must be a floating-point type", op,
               lp_dtype_name(t));
    LP_FAIL_IF(lp_dtype_promote(in, t) != t, e, LP_E_RUNTIME,
               "%s: the tensor's type %s cannot become the dtype %s without "
               "loss",
               op, lp_dtype_name(in), lp_dtype_name(t));
    return LP_OK;
}

LpStatus lp_infer_refuse(const LpInfer *x, LpDtype t, const char *allowed)
{
    return lp_fail(x->err, LP_E_NOT_IMPLEMENTED,
                   "%s: the operands have the type %s; it must be %s",
                   x->op->name, lp_dtype_name(t), allowed);
}

LpStatus lp_infer_mode(const LpInfer *x, int i, const char *name,
                       const char *one, const char *two)
{
    const LpAttr *a = &x->attr[i];
    LP_FAIL_IF(a->kind == LP_ATTR_STR && strcmp(a->str, one) &&
                   strcmp(a->str, two),
               x->err, LP_E_RUNTIME, "%s: %s is '%s'; it must be '%s' or '%s'",
               x->op->name, name, a->str, one, two);
    return LP_OK;
}

static LpStatus result_type(LpInfer *x, LpPwPolicy policy, LpDtype *t)
{
    bool real = lp_is_float(*t);
    if (policy == LP_PW_DIVIDE)
        policy = x->attr[LP_DIV_ROUNDING_MODE].kind == LP_ATTR_NONE
                     ? LP_PW_FLOAT
                     : LP_PW_SAME_NOT_BOOL;
    switch (policy) {
    case LP_PW_SAME_NOT_BOOL:
        return *t == LP_BOOL ? lp_infer_refuse(x, *t, "a number type") : LP_OK;
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
        return real ? LP_OK : lp_infer_refuse(x, *t, "a floating-point type");
    case LP_PW_INT:
        return real ? lp_infer_refuse(x, *t, "an integer type or bool") : LP_OK;
    case LP_PW_INT_NOT_BOOL:
        return real || *t == LP_BOOL ? lp_infer_refuse(x, *t, "an integer type")
                                     : LP_OK;
    case LP_PW_BOOL:
        *t = LP_BOOL;
        return LP_OK;
    case LP_PW_CAST:
        if (x->op->n_attr > 0 && x->attr[LP_CAST_DTYPE].kind == LP_ATTR_DTYPE)
            *t = (LpDtype)x->attr[LP_CAST_DTYPE].i;
        return LP_OK;
    default:
        return LP_OK;
    }
}

LpStatus lp_infer_pointwise(LpInfer *x)
{
    const LpPointwise *pw = x->op->data;
    LpPwPolicy policy = pw->policy;
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
    if (pw->rule)
        LP_TRY(pw->rule(x, &t));
    out->dtype = t;
    return LP_OK;
}

LpStatus lp_infer_sized(LpInfer *x, int i, LpDtype t)
{
    const LpAttr *a = &x->attr[i];
    if (a->n > LP_MAX_DIMS)
        return lp_too_many_dims(x, a->n);
    x->out[0] = (LpType){.dtype = t};
    lp_set_dims(&x->out[0], a->v, a->n);
    return LP_OK;
}

LpDtype lp_infer_dtype(LpInfer *x, int i, LpDtype t)
{
    if (lp_attr_none(&x->attr[i]))
        x->attr[i] = lp_attr_dtype(t);
    return (LpDtype)x->attr[i].i;
}
