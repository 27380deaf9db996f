/* float32 functions that gcc vectorises, as those of simd_math.h, whose
 * rounding errors would add up in float32: they pass through double inside. */
#ifndef LP_KERNEL_LOOPS_SIMD_WIDE_H
#define LP_KERNEL_LOOPS_SIMD_WIDE_H

#include <math.h>

#include "src/kernel/loops/simd_bits.h"

/* log2 of a positive finite number; relative error near 1e-13. */
static inline double log2_wide(double x)
{
    uint64_t u = lp_double_bits(x) - 0x3fe6a09e667f3bcdu;
    /* the exponent as a double without a conversion from int64 */
    uint64_t eb = (uint64_t)((int64_t)u >> 52) + 0x4338000000000000u;
    double e = lp_bits_double(eb) - MAGIC_D;
    double m = lp_bits_double((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
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
    uint64_t n = lp_double_bits(t);
    double f = x - (t - MAGIC_D);
    double p = FMAD(f, 1.3251088989600328e-06, 1.5304109880617525e-05);
    p = FMAD(f, p, 0.00015403474297170594);
    p = FMAD(f, p, 0.0013333477189976975);
    p = FMAD(f, p, 0.009618129135905791);
    p = FMAD(f, p, 0.05550410907292432);
    p = FMAD(f, p, 0.240226506958878);
    p = FMAD(f, p, 0.6931471805567313);
    p = FMAD(f, p, 1.0);
    return p * lp_bits_double((n + 1023u) << 52);
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
 * stand-in for its logarithm, so large that the least exponent leaves float32's
 * range by it. */
static inline float pow_f32(float x, float y)
{
    float a = fabsf(x);
    double l = log2_wide((double)a);
    l = a == 0.0f ? -0x1p900 : l;
    l = a > 3.40282347e38f ? 0x1p900 : l;
    double t = (double)y * l;
    t = t > 300.0 ? 300.0 : t;
    t = t < -300.0 ? -300.0 : t;
    float r = (float)exp2_wide(t);
    float yi = truncf(y), half = y * 0.5f;
    float whole = yi == y ? 1.0f : 0.0f;
    float odd = whole != 0.0f && truncf(half) != half ? 1.0f : 0.0f;
    float neg = lp_float_bits(x) >> 31 ? 1.0f : 0.0f;
    r = neg * odd != 0.0f ? -r : r;
    float bad = x < 0.0f && a <= 3.40282347e38f ? 1.0f - whole : 0.0f;
    r = bad != 0.0f ? NAN : r;
    r = x != x || y != y ? NAN : r;
    r = a == 1.0f && fabsf(y) > 3.40282347e38f ? 1.0f : r;
    return y == 0.0f || x == 1.0f ? 1.0f : r;
}

/* The angle of (x, y) in [-pi, pi], relative error near 3e-12. The smaller by
 * the larger magnitude is t in [0, 1]; beyond tan(pi / 8) it is turned by
 * pi / 4, numerator and denominator alike; then a polynomial in t^2. Infinity
 * is a number so large that every finite one is nothing beside it. */
static inline double atan2_wide(double y, double x)
{
    double ay = fabs(y), ax = fabs(x);
    ay = ay > 1e300 ? 0x1p900 : ay;
    ax = ax > 1e300 ? 0x1p900 : ax;
    double less = ay < ax ? ay : ax, more = ay < ax ? ax : ay;
    double turn = less > more * 0.41421356237309503 ? 1.0 : 0.0;
    double num = less - turn * more, den = more + turn * less;
    double t = num / (den == 0.0 ? 1.0 : den), z = t * t;
    double p = FMAD(z, -0.04043033696147107, 0.07135234647464041);
    p = FMAD(z, p, -0.09028967562110418);
    p = FMAD(z, p, 0.11107493853432703);
    p = FMAD(z, p, -0.14285612465275252);
    p = FMAD(z, p, 0.19999998916690562);
    p = FMAD(z, p, -0.33333333331439496);
    p = FMAD(p * z, t, t);
    p = FMAD(turn, 0.78539816339744828, p);
    p = ay > ax ? 1.5707963267948966 - p : p;
    p = lp_double_bits(x) >> 63 ? 3.1415926535897931 - p : p;
    return x != x || y != y ? x + y : copysign(p, y);
}

static inline float atan2_f32(float y, float x)
{
    return (float)atan2_wide((double)y, (double)x);
}

static inline float atan_f32(float x)
{
    return (float)atan2_wide((double)x, 1.0);
}

/* sqrt(1 - x^2): NaN beyond 1 */
static inline double other_side(double x)
{
    return sqrt((1.0 - x) * (1.0 + x));
}

static inline float asin_f32(float x)
{
    return (float)atan2_wide((double)x, other_side((double)x));
}

static inline float acos_f32(float x)
{
    return (float)atan2_wide(other_side((double)x), (double)x);
}

/* sin(x + quarter * pi / 2); |x| <= SINE_MAX, infinity and NaN give NaN. The
 * quarter-turns n are subtracted in pieces of pi / 2: where products are not
 * rounded in float32, in three, of which the first leaves an exact difference;
 * else in double, in two. Errors of the former: at most 1.5 units in the last
 * place. */
#define SINE_MAX 1.0e5f
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
static inline float sine_f32(float x, uint32_t quarter)
{
    float t = x * 0.636619747f + MAGIC_F;
    uint32_t n = lp_float_bits(t) + quarter;
    t -= MAGIC_F;
    float r = FMAF(t, -1.57079637f, x);
    r = FMAF(t, 4.37113883e-8f, r);
    r = FMAF(t, 1.71512451e-15f, r);
    float z = r * r;
    float s = FMAF(z, 2.86567956e-6f, -1.98559923e-4f);
    s = FMAF(z, s, 8.33338592e-3f);
    s = FMAF(z, s, -1.66666672e-1f);
    s = FMAF(z * r, s, r);
    float c = FMAF(z, 2.44677067e-5f, -1.38877297e-3f);
    c = FMAF(z, c, 4.16666567e-2f);
    c = FMAF(z, c, -0.5f);
    c = FMAF(z, c, 1.0f);
    float v = n & 1 ? c : s;
    v = n & 2 ? -v : v;
    return quarter == 0 && x == 0.0f ? x : v;
}
#else
static inline float sine_f32(float x, uint32_t quarter)
{
    double d = (double)x;
    double t = d * 0.63661977236758134 + MAGIC_D;
    uint64_t n = lp_double_bits(t) + quarter;
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
    v = n & 2 ? -v : v;
    return quarter == 0 && x == 0.0f ? x : (float)v;
}
#endif

/* As sine_f32, by sine and cosine in double. */
static inline float tan_f32(float x)
{
    double d = (double)x;
    double t = d * 0.63661977236758134 + MAGIC_D;
    uint64_t n = lp_double_bits(t);
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
    double num = n & 1 ? -c : s, den = n & 1 ? s : c;
    return x == 0.0f ? x : (float)(num / den);
}

/* Near 0 the series, as the logarithm's argument is rounded there. */
static inline float atanh_f32(float x)
{
    double a = (double)fabsf(x), z = a * a, in = a < 1.0 ? a : 0.0;
    double far = 0.34657359027997264 * log2_wide((1.0 + in) / (1.0 - in));
    double p = FMAD(z, 0.14285714285714285, 0.2);
    p = FMAD(z, p, 0.33333333333333331);
    double y = a < 0.015625 ? FMAD(z * a, p, a) : far;
    y = a == 1.0 ? INFINITY : y;
    y = a > 1.0 ? NAN : y;
    return x != x ? x : copysignf((float)y, x);
}

/* exp(-a^2) t p(t) of t = 1 / (1 + a / 2) for a = |x|, p a polynomial whose
 * relative error is 5e-9; 0 from 10.2 on. */
static inline float erfc_f32(float x)
{
    double a = (double)fabsf(x);
    a = a > 10.2 ? 10.2 : a;
    double t = 1.0 / FMAD(a, 0.5, 1.0);
    double p = FMAD(t, 0.032847518855266045, -0.17433047058480677);
    p = FMAD(t, p, 0.33969972314220787);
    p = FMAD(t, p, -0.22983982952809912);
    p = FMAD(t, p, -0.07614742281206319);
    p = FMAD(t, p, 0.06782220288622663);
    p = FMAD(t, p, 0.04196061028934307);
    p = FMAD(t, p, 0.1889712125571468);
    p = FMAD(t, p, 0.24462647445314784);
    p = FMAD(t, p, 0.2823034821548972);
    p = FMAD(t, p, 0.28208649765177746);
    double y = exp2_wide(-1.4426950408889634 * a * a) * t * p;
    y = x < 0.0f ? 2.0 - y : y;
    return x != x ? x : (float)y;
}

/* x times a polynomial in w = -log(1 - x^2) up to 6.25, in sqrt(w) beyond;
 * relative errors of 8e-9 and 2e-8. */
static inline float erfinv_f32(float x)
{
    double d = (double)x, q = (1.0 - d) * (1.0 + d);
    double w = -0.69314718055994531 * log2_wide(q > 0.0 ? q : 0.5);
    double s = sqrt(w > 0.0 ? w : 0.0);
    double p = FMAD(w, 2.35752751078622e-12, 5.866376010733094e-10);
    p = FMAD(w, p, -2.4261502614204034e-08);
    p = FMAD(w, p, 3.877813789089084e-07);
    p = FMAD(w, p, -2.9615241069577227e-06);
    p = FMAD(w, p, 7.483479758492319e-06);
    p = FMAD(w, p, 3.6889374976216505e-05);
    p = FMAD(w, p, -0.00011725405450931377);
    p = FMAD(w, p, -0.0023421151880535043);
    p = FMAD(w, p, 0.011551690842088808);
    p = FMAD(w, p, 0.23201335866449266);
    p = FMAD(w, p, 0.8862269321334391);
    double f = FMAD(s, -1.776741012942974e-05, 0.0002064025436180379);
    f = FMAD(s, f, 0.0015203706271715357);
    f = FMAD(s, f, -0.043007010158590576);
    f = FMAD(s, f, 0.35124079534350405);
    f = FMAD(s, f, -1.5162851686073442);
    f = FMAD(s, f, 3.7630477076705073);
    f = FMAD(s, f, -4.112191746648247);
    f = FMAD(s, f, 2.79884069154571);
    float y = (float)(d * (w > 6.25 ? f : p));
    y = fabsf(x) == 1.0f ? copysignf(INFINITY, x) : y;
    y = fabsf(x) > 1.0f ? NAN : y;
    return x != x ? x : y;
}

/* An infinity wins over a NaN. */
static inline float hypot_f32(float x, float y)
{
    double a = (double)x, b = (double)y;
    float r = (float)sqrt(a * a + b * b);
    r = fabsf(x) > 3.40282347e38f ? INFINITY : r;
    return fabsf(y) > 3.40282347e38f ? INFINITY : r;
}

#endif
