/* Tables of types; promotion as PyTorch does it, by kind and by who has
 * dimensions; reading and writing one element of any type. */
#include "src/tensor/dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "src/base/half.h"

static const struct {
    const char *name;
    size_t size;
    LpKind kind;
} info[LP_N_DTYPES] = {
#define DTYPE(id, name, bytes, kind, ctype)                                    \
    [LP_##id] = {name, bytes, LP_KIND_##kind},
#include "src/tensor/dtypes.def"
#undef DTYPE
};

static const struct {
    const char *name;
    LpDtype t;
} aliases[] = {
    {"half", LP_F16},  {"float", LP_F32}, {"double", LP_F64},
    {"short", LP_I16}, {"int", LP_I32},   {"long", LP_I64},
};

static LpDtype default_dtype = LP_F32;

const char *lp_dtype_name(LpDtype t)
{
    return t < LP_N_DTYPES ? info[t].name : "none";
}

LpDtype lp_dtype_find(const char *name)
{
    for (int i = 0; i < LP_N_DTYPES; i++)
        if (strcmp(info[i].name, name) == 0)
            return (LpDtype)i;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].name, name) == 0)
            return aliases[i].t;
    return LP_DT_NONE;
}

size_t lp_dtype_size(LpDtype t)
{
    return info[t].size;
}

LpKind lp_dtype_kind(LpDtype t)
{
    return info[t].kind;
}

LpDtype lp_dtype_promote(LpDtype a, LpDtype b)
{
    if (a == b || b == LP_DT_NONE)
        return a;
    if (a == LP_DT_NONE)
        return b;
    LpKind ka = info[a].kind, kb = info[b].kind;
    if (ka != kb)
        return ka > kb ? a : b;
    if (ka == LP_KIND_FLOAT) {
        if (info[a].size == 2 && info[b].size == 2)
            return LP_F32; /* float16 with bfloat16 */
        return info[a].size > info[b].size ? a : b;
    }
    /* integers: uint8 with a signed type needs one that holds both */
    if (a == LP_U8 || b == LP_U8) {
        LpDtype s = a == LP_U8 ? b : a;
        return s == LP_I8 ? LP_I16 : s;
    }
    return info[a].size > info[b].size ? a : b;
}

int64_t lp_scalar_i(LpScalar s)
{
    if (s.kind != LP_KIND_FLOAT)
        return s.i;
    if (isnan(s.f))
        return 0;
    if (s.f >= 9223372036854775808.0)
        return INT64_MAX;
    if (s.f < -9223372036854775808.0)
        return INT64_MIN;
    return (int64_t)s.f;
}

bool lp_scalar_eq(LpScalar a, LpScalar b)
{
    if (a.kind != b.kind)
        return false;
    /* bits: NaN equals itself, 0.0 differs from -0.0 */
    return a.i == b.i;
}

static bool int_fits(LpScalar s, double low, double high)
{
    if (s.kind == LP_KIND_FLOAT)
        return s.f >= low && s.f <= high; /* false for NaN */
    return (double)s.i >= low && (double)s.i <= high;
}

static bool float_fits(LpScalar s, double high)
{
    double f = lp_scalar_f(s);
    return !isfinite(f) || fabs(f) <= high;
}

bool lp_scalar_fits(LpScalar s, LpDtype t)
{
    switch (t) {
    case LP_F32:
        return float_fits(s, FLT_MAX);
    case LP_F16:
        return float_fits(s, 65504);
    case LP_BF16:
        return float_fits(s, 0x1.fep127);
    case LP_I64: /* the next float64 below 2^63 */
        return s.kind != LP_KIND_FLOAT ||
               int_fits(s, -0x1p63, 0x1.fffffffffffffp62);
    case LP_I32:
        return int_fits(s, INT32_MIN, INT32_MAX);
    case LP_I16:
        return int_fits(s, INT16_MIN, INT16_MAX);
    case LP_I8:
        return int_fits(s, INT8_MIN, INT8_MAX);
    case LP_U8:
        return int_fits(s, -UINT8_MAX, UINT8_MAX);
    case LP_F64:
    case LP_BOOL:
    case LP_DT_NONE:
        break;
    }
    return true;
}

void lp_scalar_store(LpScalar s, LpDtype t, void *p)
{
#define STORE(id, ctype, value)                                                \
    case LP_##id:                                                              \
        *(ctype *)p = (ctype)(value);                                          \
        break;
    switch (t) {
        STORE(F64, double, lp_scalar_f(s))
        STORE(F32, float, lp_scalar_f(s))
        STORE(F16, uint16_t, lp_double_to_half(lp_scalar_f(s)))
        STORE(BF16, uint16_t, lp_float_to_bf16((float)lp_scalar_f(s)))
        STORE(I64, int64_t, lp_scalar_i(s))
        STORE(I32, int32_t, lp_scalar_i(s))
        STORE(I16, int16_t, lp_scalar_i(s))
        STORE(I8, int8_t, lp_scalar_i(s))
        STORE(U8, uint8_t, lp_scalar_i(s))
        STORE(BOOL, uint8_t, s.kind == LP_KIND_FLOAT ? s.f != 0 : s.i != 0)
    case LP_DT_NONE:
        break;
    }
#undef STORE
}

LpScalar lp_scalar_load(LpDtype t, const void *p)
{
    switch (t) {
    case LP_F64:
        return lp_float(*(const double *)p);
    case LP_F32:
        return lp_float((double)*(const float *)p);
    case LP_F16:
        return lp_float((double)lp_half_to_float(*(const uint16_t *)p));
    case LP_BF16:
        return lp_float((double)lp_bf16_to_float(*(const uint16_t *)p));
    case LP_I64:
        return lp_int(*(const int64_t *)p);
    case LP_I32:
        return lp_int(*(const int32_t *)p);
    case LP_I16:
        return lp_int(*(const int16_t *)p);
    case LP_I8:
        return lp_int(*(const int8_t *)p);
    case LP_U8:
        return lp_int(*(const uint8_t *)p);
    case LP_BOOL:
        return lp_boolean(*(const uint8_t *)p != 0);
    case LP_DT_NONE:
        break;
    }
    return lp_int(0);
}

void lp_promo_tensor(LpPromo *p, LpDtype t, int ndim)
{
    LpDtype *slot = ndim > 0 ? &p->dim : &p->zero;
    *slot = lp_dtype_promote(*slot, t);
}

void lp_promo_number(LpPromo *p, LpKind k)
{
    LpDtype t = k == LP_KIND_FLOAT ? default_dtype
                : k == LP_KIND_INT ? LP_I64
                                   : LP_BOOL;
    p->num = lp_dtype_promote(p->num, t);
}

/* A lower standing only counts if its category is higher. */
static LpDtype combine(LpDtype high, LpDtype low)
{
    if (high == LP_DT_NONE)
        return low;
    if (low == LP_DT_NONE || info[low].kind <= info[high].kind)
        return high;
    return lp_dtype_promote(high, low);
}

LpDtype lp_promo_result(const LpPromo *p)
{
    return combine(combine(p->dim, p->zero), p->num);
}

LpDtype lp_default_dtype(void)
{
    return default_dtype;
}

void lp_set_default_dtype(LpDtype t)
{
    default_dtype = t;
}
