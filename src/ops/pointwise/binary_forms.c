/* Composites of the pointwise operators of two and three operands. */
#include "src/ops/rules.h"

/* rsub(x, y) = y - alpha x */
LP_FORMULA(rsub,
           "rsub(Tensor self, Value other, *, Scalar alpha=1) -> Tensor @f")
{
    return lp_emit(b, LP_OP_sub, (LpVal[]){in[1], in[0]}, 2, attr);
}

/* x 2^y. Of a float and an integer, which has float's type, without the power
 * as a number that may overflow; else the power of an integer is of the default
 * float type. */
LP_FORMULA(ldexp, "ldexp(Tensor self, Tensor other) -> Tensor @fmic")
{
    LpVal y = in[1];
    LpDtype t = lp_type(b, in[0])->dtype, u = lp_type(b, y)->dtype;
    if (lp_is_float(t) && !lp_is_float(u) && u != LP_BOOL)
        return lp_op2(b, LP_OP_ldexp_whole, in[0], y);
    if (lp_is_float(t) && u == LP_BOOL && !lp_is_imm(y))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "ldexp: the exponent has the type bool; it must be a number type");
    if (!lp_is_imm(y) && !lp_is_float(u))
        y = lp_cast(b, y, lp_default_dtype());
    return lp_mul(b, in[0], lp_op2(b, LP_OP_pow, lp_immf(b, 2), y));
}

/* The power in float64. */
LP_FORMULA(float_power,
           "float_power(Value self, Value exponent) -> Tensor @p\n"
           "float_power(Tensor self, Value exponent) -> Tensor @fmo\n"
           "float_power(Value self, Tensor exponent) -> Tensor @fo")
{
    LpVal x = lp_is_imm(in[0]) ? in[0] : lp_cast(b, in[0], LP_F64);
    LpVal y = lp_is_imm(in[1]) ? in[1] : lp_cast(b, in[1], LP_F64);
    return lp_op2(b, LP_OP_pow, x, y);
}

/* The result keeps self's type, whatever the value's is. */
LP_FORMULA(masked_fill,
           "masked_fill(Tensor self, Tensor mask, Value value) -> Tensor "
           "@fmi")
{
    if (!lp_is_imm(in[2]) && lp_type(b, in[2])->ndim > 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "masked_fill: `value` may be a number or a tensor of "
                         "no dimensions, got one of %d dimensions",
                         lp_type(b, in[2])->ndim);
    LpVal y = lp_where(b, in[1], in[2], in[0]);
    return lp_cast(b, y, lp_type(b, in[0])->dtype);
}

/* x where positive, else w x; w is one number or one for each channel. */
LP_FORMULA(prelu, "prelu(Tensor self, Tensor weight) -> Tensor @fmn",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    LpType x = *lp_type(b, in[0]), w = *lp_type(b, in[1]);
    int64_t n = lp_numel(&w), shape[LP_MAX_DIMS];
    if (x.dtype != w.dtype)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "prelu: weight has the type %s; it must have the input's, %s",
            lp_dtype_name(w.dtype), lp_dtype_name(x.dtype));
    if (w.ndim > 1)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "prelu: weight has %d dimensions; it must have 0 or 1",
                         w.ndim);
    if (n != 1 && (x.ndim < 2 || x.shape[1] != n))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "prelu: weight has %lld elements; it must have 1 or "
                         "as many as the input has channels (%lld)",
                         (long long)n,
                         (long long)(x.ndim < 2 ? 1 : x.shape[1]));
    for (int d = 0; d < x.ndim; d++)
        shape[d] = d == 1 ? n : 1;
    LpVal each = lp_reshape(b, in[1], shape, n == 1 && x.ndim < 2 ? 0 : x.ndim);
    LpVal positive = lp_op2(b, LP_OP_gt, in[0], lp_immi(b, 0));
    return lp_where(b, positive, in[0], lp_mul(b, in[0], each));
}
