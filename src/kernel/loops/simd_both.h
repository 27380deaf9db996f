/* Functions of both types under one name: M(exp) of the tables is exp_f32 or
 * exp_f64. Included by src/kernel/loops/simd_*.c only. */
#ifndef LP_KERNEL_LOOPS_SIMD_BOTH_H
#define LP_KERNEL_LOOPS_SIMD_BOTH_H

#include "src/kernel/loops/simd_double.h"
#include "src/kernel/loops/simd_math.h"
#include "src/kernel/loops/simd_wide.h"
#include "src/kernel/loops/special.h"

#define BOTH1(fn)                                                              \
    static inline float fn##_f32(float x)                                      \
    {                                                                          \
        return fn##f(x);                                                       \
    }                                                                          \
    DOUBLE1(fn)
#define DOUBLE1(fn)                                                            \
    static inline double fn##_f64(double x)                                    \
    {                                                                          \
        return fn(x);                                                          \
    }
#define BOTH2(fn)                                                              \
    static inline float fn##_f32(float x, float y)                             \
    {                                                                          \
        return fn##f(x, y);                                                    \
    }                                                                          \
    DOUBLE2(fn)
#define DOUBLE2(fn)                                                            \
    static inline double fn##_f64(double x, double y)                          \
    {                                                                          \
        return fn(x, y);                                                       \
    }
BOTH1(fabs)
BOTH1(sqrt)
BOTH1(floor)
BOTH1(ceil)
BOTH1(trunc)
BOTH1(rint)
BOTH1(sinh)
BOTH1(cosh)
BOTH1(asinh)
BOTH1(acosh)
DOUBLE1(tan)
DOUBLE1(atanh)
DOUBLE1(erfc)
DOUBLE1(asin)
DOUBLE1(acos)
DOUBLE1(atan)
DOUBLE1(exp2)
DOUBLE1(log2)
DOUBLE1(log10)
DOUBLE1(sin)
DOUBLE1(cos)
DOUBLE1(erf)
DOUBLE2(pow)
DOUBLE2(atan2)
DOUBLE2(hypot)
BOTH2(copysign)
BOTH2(nextafter)

static inline double sigmoid_f64(double x)
{
    double e = exp_f64(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static inline double softplus_f64(double x)
{
    double y = (x > 0 ? x : 0) + log1p_f64(exp_f64(-fabs(x)));
    return x != x ? x : y;
}

static inline double normal_cdf_f64(double x)
{
    return 0.5 * erfc(x * -0.70710678118654752);
}

static inline double gelu_cdf_f64(double x)
{
    return normal_cdf_f64(x);
}

static inline double gelu_slope_f64(double x)
{
    double density = exp_f64(-0.5 * x * x) * 0.39894228040143268;
    return normal_cdf_f64(x) + x * density;
}

static inline float logit_f32(float x)
{
    return log_f32(x / (1 - x));
}

static inline double logit_f64(double x)
{
    return log_f64(x / (1 - x));
}

#define nextafter_f16_f32(x, y) lp_nextafter_half(x, y, false)
#define nextafter_bf16_f32(x, y) lp_nextafter_half(x, y, true)
#define nextafter_f16_f64(x, y) (x) /* only float32 loops run half types */
#define nextafter_bf16_f64(x, y) (x)

#define erfinv_f64(x) lp_erfinv(x)
/* In double for both types; not vectorised. */
#define lgamma_f64(x) lp_lgamma(x)
#define lgamma_f32(x) (float)lp_lgamma((double)(x))
#define SPECIAL1(name)                                                         \
    static inline double name##_f64(double x)                                  \
    {                                                                          \
        return lp_##name(x);                                                   \
    }                                                                          \
    static inline float name##_f32(float x)                                    \
    {                                                                          \
        return (float)lp_##name((double)x);                                    \
    }
#define SPECIAL2(name)                                                         \
    static inline double name##_f64(double x, double y)                        \
    {                                                                          \
        return lp_##name(x, y);                                                \
    }                                                                          \
    static inline float name##_f32(float x, float y)                           \
    {                                                                          \
        return (float)lp_##name((double)x, (double)y);                         \
    }
SPECIAL1(frexp_mantissa)
SPECIAL1(frexp_exponent)
SPECIAL1(sinc)
SPECIAL1(spherical_j0)
SPECIAL1(erfcx)
SPECIAL1(log_ndtr)
SPECIAL1(ndtri)
SPECIAL1(i0)
SPECIAL1(i0e)
SPECIAL1(i1)
SPECIAL1(i1e)
SPECIAL1(k0)
SPECIAL1(k0e)
SPECIAL1(k1)
SPECIAL1(k1e)
SPECIAL1(j0)
SPECIAL1(j1)
SPECIAL1(y0)
SPECIAL1(y1)
SPECIAL1(airy_ai)
SPECIAL2(ldexp_whole)
SPECIAL2(zeta)
SPECIAL2(gammainc)
SPECIAL2(gammaincc)
SPECIAL2(standard_gamma_slope)
#define polynomial_f64(kind, x, n) lp_polynomial(kind, x, n)
#define polynomial_f32(kind, x, n)                                             \
    (float)lp_polynomial(kind, (double)(x), (double)(n))
#define polygamma_f64(n, x) lp_polygamma((int)(n), x)
#define polygamma_f32(n, x) (float)lp_polygamma((int)(n), (double)(x))

#endif
