/* float32 functions that gcc vectorises inside a loop: no branches, no calls,
 * no tables. Included by src/kernel/loops/simd_*.c only.
 *
 * Method: reduce the argument, evaluate a polynomial, put the exponent back
 * as bits. The coefficients interpolate the functions at Chebyshev nodes of
 * the reduced interval, computed with 120 bits. Errors against the exact
 * value, by a sweep over all signs and exponents: at most 2.5 units in the
 * last place, subnormal results, infinities and NaN included. Functions
 * whose rounding errors would add up (pow, exp2, log2, sine) are in
 * simd_wide.h.
 *
 * A comparison with NaN is false: the order of the operands of every
 * selection below is what lets a NaN through. */
#ifndef LP_KERNEL_LOOPS_SIMD_MATH_H
#define LP_KERNEL_LOOPS_SIMD_MATH_H

#include <math.h>

#include "src/kernel/loops/simd_bits.h"

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
    *n = lp_float_bits(t);
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
    return p * lp_bits_float((uint32_t)(h + 127) << 23) *
           lp_bits_float((uint32_t)(k - h + 127) << 23);
}

/* Of x <= 0: what would be subnormal is 0. */
static inline float exp_below_f32(float x)
{
    uint32_t n;
    float r = exp_reduce(x < -87.0f ? -87.0f : x, &n);
    float p = FMAF(r * r, exp_tail(r), r) + 1.0f;
    p *= lp_bits_float((n - 0x4b400000u + 127) << 23);
    return x < -87.0f ? 0.0f : p;
}

static inline float expm1_f32(float x)
{
    uint32_t n;
    float v = x > 89.0f ? 89.0f : x;
    v = v < -25.0f ? -25.0f : v;
    float r = exp_reduce(v, &n);
    float p = FMAF(r * r, exp_tail(r), r);
    float s = lp_bits_float((n - 0x4b400000u + 126) << 23); /* 2^(n-1) */
    float y = 2.0f * FMAF(s, p, s - 0.5f);
    return x == 0.0f ? x : y;
}

/* log(m) of m in [sqrt(1/2), sqrt(2)), and the exponent. */
static inline float log_parts(float x, float *e)
{
    float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f;
    x = tiny != 0.0f ? x * 8388608.0f : x;
    uint32_t u = lp_float_bits(x) - 0x3f3504f3u;
    *e = (float)((int32_t)u >> 23) - tiny * 23.0f;
    float f = lp_bits_float((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
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
    return lp_bits_float(lp_float_bits(p) + (n << 23));
}

/* normal_cdf(-|x|) is exp(-x^2 / 2), 0 from |x| = 13 on, times *q: a smooth
 * function of a = |x|, a polynomial in s = a / 3 - 1 of a in [0, 6]; beyond,
 * the product is below 1e-9. Minima are taken of bits, so that a loop has no
 * branches; a NaN counts as large. */
static inline float normal_left_f32(float x, float *q)
{
    const uint32_t six = 0x40c00000u, most = 0x41500000u; /* 13 */
    uint32_t u = lp_float_bits(x) & 0x7fffffffu;
    float c = lp_bits_float(u < most ? u : most);
    float s = FMAF(lp_bits_float(u < six ? u : six), 0.333333343f, -1.0f);
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

#endif
