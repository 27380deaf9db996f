/* float32 functions that gcc vectorises inside a loop: no branches, no calls,
 * no tables. Included by src/ops/kernel/simd_*.c only.
 *
 * Method: reduce the argument, evaluate a polynomial, put the exponent back
 * as bits. The coefficients interpolate the functions at Chebyshev nodes of
 * the reduced interval, computed with 120 bits. Errors against the exact
 * value, by a sweep over all signs and exponents: at most 2.5 units in the
 * last place, subnormal results, infinities and NaN included. Functions
 * whose rounding errors would add up (pow, exp2, log2, sine) pass through
 * double inside.
 *
 * A comparison with NaN is false: the order of the operands of every
 * selection below is what lets a NaN through. */
#ifndef LP_OPS_KERNEL_SIMD_MATH_H
#define LP_OPS_KERNEL_SIMD_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "src/ops/kernel/special.h"

/* Where the instruction does not exist, fma() is a slow call. */
#ifdef __FMA__
#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FMAD(a, b, c) __builtin_fma(a, b, c)
#else
#define FMAF(a, b, c) ((a) * (b) + (c))
#define FMAD(a, b, c) ((a) * (b) + (c))
#endif

static inline uint32_t bits_of_f(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint64_t bits_of_d(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

static inline double d_of_bits(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

/* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
#define MAGIC_F 12582912.0f
#define MAGIC_D 6755399441055744.0

/* exp(r) - 1 - r over r^2, |r| <= log(2) / 2 */
static inline float exp_tail(float r)
{
    float q = FMAF(r, 0.0013927685f, 0.00836438f);
    q = FMAF(r, q, 0.041666545f);
    q = FMAF(r, q, 0.1666657f);
    return FMAF(r, q, 0.5f);
}

/* x = n log(2) + r; *n is biased by MAGIC_F's bits. */
static inline float exp_reduce(float x, uint32_t *n)
{
    float t = x * 1.44269504f + MAGIC_F;
    *n = bits_of_f(t);
    t -= MAGIC_F;
    float r = FMAF(t, -0.693145752f, x); /* 16 bits: exact product */
    return FMAF(t, -1.42860677e-6f, r);
}

static inline float exp_f32(float x)
{
    uint32_t n;
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float r = exp_reduce(x, &n);
    float p = FMAF(r * r, exp_tail(r), r) + 1.0f;
    int32_t k = (int32_t)(n - 0x4b400000u), h = k >> 1;
    return p * f_of_bits((uint32_t)(h + 127) << 23) *
           f_of_bits((uint32_t)(k - h + 127) << 23);
}

static inline float expm1_f32(float x)
{
    uint32_t n;
    float v = x > 89.0f ? 89.0f : x;
    v = v < -25.0f ? -25.0f : v;
    float r = exp_reduce(v, &n);
    float p = FMAF(r * r, exp_tail(r), r);
    float s = f_of_bits((n - 0x4b400000u + 126) << 23); /* 2^(n-1) */
    float y = 2.0f * FMAF(s, p, s - 0.5f);
    return x == 0.0f ? x : y;
}

/* log(m) of m in [sqrt(1/2), sqrt(2)), and the exponent. */
static inline float log_parts(float x, float *e)
{
    float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f;
    x = tiny != 0.0f ? x * 8388608.0f : x;
    uint32_t u = bits_of_f(x) - 0x3f3504f3u;
    *e = (float)((int32_t)u >> 23) - tiny * 23.0f;
    float f = f_of_bits((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float q = FMAF(f, 0.06980702f, -0.114945464f);
    q = FMAF(f, q, 0.11689071f);
    q = FMAF(f, q, -0.124240376f);
    q = FMAF(f, q, 0.14248551f);
    q = FMAF(f, q, -0.1666785f);
    q = FMAF(f, q, 0.2000073f);
    q = FMAF(f, q, -0.24999997f);
    q = FMAF(f, q, 0.3333333f);
    float z = f * f;
    q = q * f * z;
    q = FMAF(*e, -2.12194440e-4f, q);
    return FMAF(z, -0.5f, q) + f;
}

static inline float log_f32(float x)
{
    float e;
    float y = log_parts(x, &e);
    y = FMAF(e, 0.693359375f, y);
    y = x > 3.40282347e38f ? x : y;
    y = x < 0.0f ? NAN : y;
    y = x == 0.0f ? -INFINITY : y;
    return x != x ? x : y;
}

static inline float log1p_f32(float x)
{
    float u = 1.0f + x;
    float c = x - (u - 1.0f); /* what the rounding of u lost */
    float y = log_f32(u);
    y = y + (x < 8388608.0f ? c / u : 0.0f);
    y = x == -1.0f ? -INFINITY : y;
    return u == 1.0f ? x : y;
}

/* Of |x|, then the sign: exact at 0, 1 from 9.1 on. */
static inline float tanh_f32(float x)
{
    float a = fabsf(x);
    a = a > 10.0f ? 10.0f : a;
    float e = expm1_f32(2.0f * a);
    return copysignf(e / (e + 2.0f), x);
}

static inline float sigmoid_f32(float x)
{
    float e = exp_f32(-fabsf(x));
    float d = 1.0f + e;
    return (x < 0.0f ? e : 1.0f) / d;
}

/* erfc(v) of v in [0.92, 4] by its logarithm; 0 from 4 on, where it is below
 * half a unit of 1. */
static inline float erfc_tail(float v)
{
    float t = v > 4.0f ? 4.0f : v;
    float g = FMAF(t, 1.6435697e-06f, -4.6177913e-05f);
    g = FMAF(t, g, 0.0005977435f);
    g = FMAF(t, g, -0.0047635753f);
    g = FMAF(t, g, 0.026431018f);
    g = FMAF(t, g, -0.11009448f);
    g = FMAF(t, g, -0.63181454f);
    g = FMAF(t, g, -1.1302376f);
    g = FMAF(t, g, 0.00032044153f);
    return v > 4.0f ? 0.0f : exp_f32(g);
}

static inline float erf_near(float x) /* |x| < 0.9375 */
{
    float z = x * x;
    float p = FMAF(z, 8.285826e-05f, -0.0008122961f);
    p = FMAF(z, p, 0.0051993183f);
    p = FMAF(z, p, -0.026858723f);
    p = FMAF(z, p, 0.11283684f);
    p = FMAF(z, p, -0.37612632f);
    p = FMAF(z, p, 0.12837917f);
    return FMAF(x, p, x);
}

static inline float erf_f32(float x)
{
    float t = fabsf(x), near = erf_near(x);
    float far = copysignf(1.0f - erfc_tail(t), x);
    return t < 0.93f || x != x ? near : far;
}

/* The normal distribution's cumulative function, without cancellation on the
 * left. */
static inline float normal_cdf_f32(float x)
{
    float v = x * 0.70710678f, t = fabsf(v), near = erf_near(v);
    float tail = 0.5f * erfc_tail(t);
    float far = v < 0.0f ? tail : 1.0f - tail;
    return t < 0.93f || x != x ? FMAF(0.5f, near, 0.5f) : far;
}

/* e^x of x in [-87, 0]: the exponent is added in one piece. */
static inline float exp_falling_f32(float x)
{
    uint32_t n;
    float r = exp_reduce(x, &n);
    float p = FMAF(r * r, exp_tail(r), r) + 1.0f;
    return f_of_bits(bits_of_f(p) + (n << 23));
}

/* normal_cdf(-|x|) is exp(-x^2 / 2), 0 from |x| = 13 on, times *q: a smooth
 * function of a = |x|, a polynomial in s = a / 3 - 1 of a in [0, 6]; beyond,
 * the product is below 1e-9. Minima are taken of bits, so that a loop has no
 * branches; a NaN counts as large. */
static inline float normal_left_f32(float x, float *q)
{
    const uint32_t six = 0x40c00000u, most = 0x41500000u; /* 13 */
    uint32_t u = bits_of_f(x) & 0x7fffffffu;
    float c = f_of_bits(u < most ? u : most);
    float s = FMAF(f_of_bits(u < six ? u : six), 0.333333343f, -1.0f);
    float p = FMAF(s, -0.000378165715f, 0.000840146492f);
    p = FMAF(s, p, -0.000157054289f);
    p = FMAF(s, p, -0.000116522018f);
    p = FMAF(s, p, -0.00193000995f);
    p = FMAF(s, p, 0.00391959164f);
    p = FMAF(s, p, -0.00499555451f);
    p = FMAF(s, p, 0.00788259859f);
    p = FMAF(s, p, -0.0133644302f);
    p = FMAF(s, p, 0.0209030395f);
    p = FMAF(s, p, -0.0312014918f);
    p = FMAF(s, p, 0.045039328f);
    p = FMAF(s, p, -0.0623822914f);
    p = FMAF(s, p, 0.0824075195f);
    p = FMAF(s, p, -0.103201336f);
    *q = FMAF(s, p, 0.121513944f);
    float e = exp_falling_f32(-0.5f * c * c);
    return u < most ? e : 0.0f;
}

/* What x is multiplied with in gelu: normal_cdf from one exponential. */
static inline float gelu_cdf_f32(float x)
{
    float q, e = normal_left_f32(x, &q);
    return x < 0.0f ? e * q : FMAF(-e, q, 1.0f);
}

/* The derivative of x * normal_cdf(x), cdf + x * density. */
static inline float gelu_slope_f32(float x)
{
    float q, e = normal_left_f32(x, &q);
    float left = e * FMAF(fabsf(x), -0.398942280f, q);
    return x < 0.0f ? left : 1.0f - left;
}

static inline float softplus_f32(float x) /* log(1 + exp(x)) */
{
    float m = x > 0.0f ? x : 0.0f;
    float y = m + log1p_f32(exp_f32(-fabsf(x)));
    return x != x ? x : y;
}

/* ---- through double ------------------------------------------------------ */
/* log2 of a positive finite number; relative error near 1e-13. */
static inline double log2_wide(double x)
{
    uint64_t u = bits_of_d(x) - 0x3fe6a09e667f3bcdu;
    /* the exponent as a double without a conversion from int64 */
    uint64_t eb = (uint64_t)((int64_t)u >> 52) + 0x4338000000000000u;
    double e = d_of_bits(eb) - MAGIC_D;
    double m = d_of_bits((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = FMAD(z, 0.19387422342788124, 0.2219011324646228);
    p = FMAD(z, p, 0.2857177502034745);
    p = FMAD(z, p, 0.3999999869599605);
    p = FMAD(z, p, 0.6666666666745024);
    p = FMAD(z * s, p, s + s);
    return FMAD(p, 1.4426950408889634, e);
}

/* 2^x of x in [-1000, 1000] */
static inline double exp2_wide(double x)
{
    double t = x + MAGIC_D;
    uint64_t n = bits_of_d(t);
    double f = x - (t - MAGIC_D);
    double p = FMAD(f, 1.3251088989600328e-06, 1.5304109880617525e-05);
    p = FMAD(f, p, 0.00015403474297170594);
    p = FMAD(f, p, 0.0013333477189976975);
    p = FMAD(f, p, 0.009618129135905791);
    p = FMAD(f, p, 0.05550410907292432);
    p = FMAD(f, p, 0.240226506958878);
    p = FMAD(f, p, 0.6931471805567313);
    p = FMAD(f, p, 1.0);
    return p * d_of_bits((n + 1023u) << 52);
}

static inline float exp2_f32(float x)
{
    float v = x > 200.0f ? 200.0f : x;
    v = v < -200.0f ? -200.0f : v;
    float y = (float)exp2_wide((double)v);
    return x != x ? x : y;
}

/* log2(x) * unit, with unit = 1 or log10(2) */
static inline float log2_scaled(float x, double unit)
{
    float y = (float)(log2_wide((double)x) * unit);
    y = x > 3.40282347e38f ? x : y;
    y = x < 0.0f ? NAN : y;
    y = x == 0.0f ? -INFINITY : y;
    return x != x ? x : y;
}

static inline float log2_f32(float x)
{
    return log2_scaled(x, 1.0);
}

static inline float log10_f32(float x)
{
    return log2_scaled(x, 0.30102999566398120);
}

/* C99's pow, Annex F. A base that is zero or infinite follows from a finite
 * stand-in far outside float32's range. */
static inline float pow_f32(float x, float y)
{
    float a = fabsf(x);
    double b = (double)a;
    b = a == 0.0f ? 0x1p-900 : b;
    b = a > 3.40282347e38f ? 0x1p900 : b;
    double t = (double)y * log2_wide(b);
    t = t > 300.0 ? 300.0 : t;
    t = t < -300.0 ? -300.0 : t;
    float r = (float)exp2_wide(t);
    float yi = truncf(y), half = y * 0.5f;
    float whole = yi == y ? 1.0f : 0.0f;
    float odd = whole != 0.0f && truncf(half) != half ? 1.0f : 0.0f;
    float neg = bits_of_f(x) >> 31 ? 1.0f : 0.0f;
    r = neg * odd != 0.0f ? -r : r;
    float bad = x < 0.0f && a <= 3.40282347e38f ? 1.0f - whole : 0.0f;
    r = bad != 0.0f ? NAN : r;
    r = x != x || y != y ? NAN : r;
    r = a == 1.0f && fabsf(y) > 3.40282347e38f ? 1.0f : r;
    return y == 0.0f || x == 1.0f ? 1.0f : r;
}

/* sin(x + quarter * pi / 2); |x| <= LP_SINE_MAX, infinity and NaN give NaN.
 * The quarter-turns n are subtracted in double, in two pieces of pi / 2. */
#define SINE_MAX 1.0e5f
static inline float sine_f32(float x, uint64_t quarter)
{
    double d = (double)x;
    double t = d * 0.63661977236758134 + MAGIC_D;
    uint64_t n = bits_of_d(t) + quarter;
    t -= MAGIC_D;
    double r = FMAD(t, -1.57079632673412561417, d); /* 33 bits */
    r = FMAD(t, -6.07710050650619224932e-11, r);
    double z = r * r;
    double s = FMAD(z, 2.724378140946123e-06, -0.00019840038872556747);
    s = FMAD(z, s, 0.008333331785217696);
    s = FMAD(z, s, -0.1666666666362283);
    s = FMAD(z * r, s, r);
    double c = FMAD(z, -2.7230740927455e-07, 2.479979240562801e-05);
    c = FMAD(z, c, -0.0013888884858429178);
    c = FMAD(z, c, 0.04166666663497616);
    c = FMAD(z, c, -0.4999999999996012);
    c = FMAD(z, c, 1.0);
    double v = n & 1 ? c : s;
    return (float)(n & 2 ? -v : v);
}

/* ---- both types under one name: M(exp) is exp_f32 or exp_f64 --------------
 */
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
BOTH1(tan)
BOTH1(asin)
BOTH1(acos)
BOTH1(atan)
BOTH1(sinh)
BOTH1(cosh)
BOTH1(asinh)
BOTH1(acosh)
BOTH1(atanh)
BOTH1(erfc)
DOUBLE1(exp)
DOUBLE1(exp2)
DOUBLE1(expm1)
DOUBLE1(log)
DOUBLE1(log1p)
DOUBLE1(log2)
DOUBLE1(log10)
DOUBLE1(sin)
DOUBLE1(cos)
DOUBLE1(tanh)
DOUBLE1(erf)
DOUBLE2(pow)
BOTH2(fmod)
BOTH2(atan2)
BOTH2(hypot)
BOTH2(copysign)
BOTH2(nextafter)

static inline double sigmoid_f64(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static inline double softplus_f64(double x)
{
    double y = (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
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
    double density = exp(-0.5 * x * x) * 0.39894228040143268;
    return normal_cdf_f64(x) + x * density;
}

static inline float logit_f32(float x)
{
    return log_f32(x / (1 - x));
}

static inline double logit_f64(double x)
{
    return log(x / (1 - x));
}

#define nextafter_f16_f32(x, y) lp_nextafter_half(x, y, false)
#define nextafter_bf16_f32(x, y) lp_nextafter_half(x, y, true)
#define nextafter_f16_f64(x, y) (x) /* only float32 loops run half types */
#define nextafter_bf16_f64(x, y) (x)

/* In double for both types; not vectorised. */
#define erfinv_f64(x) lp_erfinv(x)
#define erfinv_f32(x) (float)lp_erfinv((double)(x))
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
