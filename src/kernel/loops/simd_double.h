/* float64 functions that gcc vectorises, by the method of simd_math.h. Errors
 * against the exact value: at most 2.5 units in the last place, subnormal
 * results, infinities and NaN included. */
#ifndef LP_KERNEL_LOOPS_SIMD_DOUBLE_H
#define LP_KERNEL_LOOPS_SIMD_DOUBLE_H

#include <math.h>

#include "src/kernel/loops/simd_bits.h"

/* x = n log(2) + r; *n is biased by MAGIC_D's bits. */
static inline double exp_reduce_f64(double x, uint64_t *n)
{
    double t = FMAD(x, 1.4426950408889634, MAGIC_D);
    *n = lp_double_bits(t);
    t -= MAGIC_D;
    double r = FMAD(t, -0.6931471803691238, x); /* 32 bits: exact product */
    return FMAD(t, -1.9082149292705877e-10, r);
}

/* exp(r) - 1, |r| <= log(2) / 2 */
static inline double exp_less_f64(double r)
{
    double q = FMAD(r, 1.608662795678037e-10, 2.0918137737642736e-09);
    q = FMAD(r, q, 2.505207109429355e-08);
    q = FMAD(r, q, 2.75572632790885e-07);
    q = FMAD(r, q, 2.755731924721873e-06);
    q = FMAD(r, q, 2.4801587336442236e-05);
    q = FMAD(r, q, 0.00019841269841263298);
    q = FMAD(r, q, 0.0013888888888879073);
    q = FMAD(r, q, 0.008333333333333333);
    q = FMAD(r, q, 0.04166666666666668);
    q = FMAD(r, q, 0.16666666666666666);
    q = FMAD(r, q, 0.5);
    return FMAD(r * r, q, r);
}

static inline double exp_f64(double x)
{
    uint64_t n;
    x = x > 710.0 ? 710.0 : x;
    x = x < -746.0 ? -746.0 : x;
    double p = exp_less_f64(exp_reduce_f64(x, &n)) + 1.0;
    /* two factors, for results that are subnormal */
    uint64_t k = n - 0x4338000000000000u + 2046u, h = k >> 1;
    return p * lp_bits_double(h << 52) * lp_bits_double((k - h) << 52);
}

static inline double expm1_f64(double x)
{
    uint64_t n;
    double v = x > 710.0 ? 710.0 : x;
    v = v < -45.0 ? -45.0 : v;
    double p = exp_less_f64(exp_reduce_f64(v, &n));
    /* 2^(n-1) */
    double s = lp_bits_double((n - 0x4338000000000000u + 1022u) << 52);
    double y = 2.0 * FMAD(s, p, s - 0.5);
    return x == 0.0 ? x : y;
}

/* log(m) of m in [sqrt(1/2), sqrt(2)) by s = (m - 1) / (m + 1), and the
 * exponent, whose lower part is in the sum of what is small. */
static inline double log_f64(double x)
{
    double tiny = x < 0x1p-1022 ? 1.0 : 0.0;
    double v = tiny != 0.0 ? x * 0x1p54 : x;
    uint64_t u = lp_double_bits(v) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
    double e = lp_bits_double((u >> 52) + 0x4338000000000000u) - MAGIC_D;
    e = e - 1023.0 - tiny * 54.0;
    double f = lp_bits_double((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    f -= 1.0;
    double s = f / (f + 2.0), z = s * s, half = 0.5 * f * f;
    double q = FMAD(z, 0.14616585424888623, 0.15331710618210773);
    q = FMAD(z, q, 0.18182889455674947);
    q = FMAD(z, q, 0.22222211130259878);
    q = FMAD(z, q, 0.2857142862600327);
    q = FMAD(z, q, 0.39999999999899444);
    q = FMAD(z, q, 0.666666666666667);
    /* 2 s = f - f s, and f s = f^2 / 2 - s f^2 / 2 */
    q = FMAD(s, FMAD(z, q, half), e * 1.9082149292705877e-10);
    double y = FMAD(e, 0.6931471803691238, f - (half - q));
    y = x > 1.7976931348623157e308 ? x : y;
    y = x < 0.0 ? NAN : y;
    y = x == 0.0 ? -INFINITY : y;
    return x != x ? x : y;
}

static inline double log1p_f64(double x)
{
    double u = 1.0 + x;
    double c = x - (u - 1.0); /* what the rounding of u lost */
    double y = log_f64(u);
    y = y + (x < 0x1p53 ? c / u : 0.0);
    y = x == -1.0 ? -INFINITY : y;
    return u == 1.0 ? x : y;
}

static inline double tanh_f64(double x)
{
    double a = fabs(x);
    a = a > 22.0 ? 22.0 : a;
    double e = expm1_f64(2.0 * a);
    return copysign(e / (e + 2.0), x);
}

#endif
