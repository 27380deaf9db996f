/* Sums and distribution functions in double: Hurwitz's zeta, the incomplete
 * gamma functions, the normal distribution, orthogonal polynomials. */
#include <math.h>
#include <stdint.h>

#include "src/base/interrupt.h"
#include "src/kernel/loops/special.h"

static const double pi = 3.14159265358979323846;

/* ---- zeta ---------------------------------------------------------------- */
/* Ten terms, the rest by the Euler-Maclaurin formula. */
double lp_zeta(double x, double q)
{
    static const double bernoulli[] = {
        /* B[2k] / (2k)! */
        1.0 / 12,
        -1.0 / 720,
        1.0 / 30240,
        -1.0 / 1209600,
        1.0 / 47900160,
        -691.0 / 1307674368000.0,
        1.0 / 74724249600.0,
        -3617.0 / 10670622842880000.0,
    };
    if (x == 1)
        return INFINITY;
    if (!(x > 1) || q != q)
        return NAN;
    if (q <= 0 && q == floor(q))
        return INFINITY;
    if (q < -1e6 || (q <= 0 && x != floor(x)))
        return NAN; /* as many terms as -q has units: not beyond 10^6 */
    if (isinf(q))
        return 0;
    if (isinf(x))
        return q > 1 ? 0 : q == 1 ? 1 : INFINITY;
    double s = 0, a = q;
    for (int k = 0; k < 10 || a < 10; k++, a++) {
        double t = pow(a, -x);
        s += t;
        if (a > 1 && fabs(t) < 1e-18 * fabs(s))
            return s;
    }
    double t = pow(a, -x), f = x * t / a;
    s += a * t / (x - 1) + t / 2;
    for (int k = 0; k < 8; k++) {
        s += f * bernoulli[k];
        f *= (x + 2 * k + 1) * (x + 2 * k + 2) / (a * a);
    }
    return s;
}

/* ---- incomplete gamma ---------------------------------------------------- */
/* log(x / a) - u for u = (x - a) / a, by the series of log(1 + u) near 1. */
static double log_less(double a, double x)
{
    double u = (x - a) / a;
    if (fabs(u) > 0.3)
        return log(x / a) - u;
    double s = 0, p = u * u;
    for (int k = 2; k < 60 && fabs(p) > 1e-18 * u * u; k++, p *= -u)
        s -= p / k;
    return s;
}

/* x^a exp(-x) / gamma(a + 1); for a large a around Stirling's formula, where
 * the factors would cancel. */
static double gamma_front(double a, double x)
{
    if (a < 20)
        return exp(a * log(x) - x - lp_lgamma(a + 1));
    double r = 1 / (a * a);
    double rest =
        (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r / 1680))) / a;
    return exp(a * log_less(a, x) - rest) / sqrt(2 * pi * a);
}

/* P: the series of x^k / ((a + 1) … (a + k)). */
static double gamma_series(double a, double x)
{
    double t = 1, s = 1;
    for (int64_t k = 1; t > s * 1e-17; k++) {
        t *= x / (a + (double)k);
        s += t;
    }
    return s * gamma_front(a, x);
}

/* Q: Legendre's continued fraction, by Lentz's method. */
static double gamma_fraction(double a, double x)
{
    double b = x + 1 - a, c = 1e300, d = 1 / b, f = d;
    for (int64_t i = 1;; i++) {
        double n = -(double)i * ((double)i - a);
        b += 2;
        d = 1 / (n * d + b);
        c = b + n / c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-16 || i > 1000000)
            return f * gamma_front(a, x) * a;
    }
}

/* Q for a of 10^7 and more: Temme's uniform expansion, two terms (DLMF 8.12);
 * the next is smaller by 1 / a. */
static double gamma_uniform(double a, double x, bool upper)
{
    double u = (x - a) / a, l = log_less(a, x);
    double eta = copysign(sqrt(-2 * l), u);
    double c = fabs(eta) < 1e-3 ? -1.0 / 3 + eta / 12 : 1 / u - 1 / eta;
    double r = exp(a * l) / sqrt(2 * pi * a) * c;
    double z = eta * sqrt(a / 2);
    return upper ? 0.5 * erfc(z) + r : 0.5 * erfc(-z) - r;
}

static double gamma_part(double a, double x, bool upper)
{
    if (!(a >= 0) || !(x >= 0) || (a == 0 && x == 0))
        return NAN;
    if (isinf(a))
        return isinf(x) ? NAN : upper;
    if (a == 0 || isinf(x))
        return !upper;
    if (x == 0)
        return upper;
    if (a >= 1e7)
        return gamma_uniform(a, x, upper);
    if (x < a + 1) {
        double p = gamma_series(a, x);
        return upper ? 1 - p : p;
    }
    double q = gamma_fraction(a, x);
    return upper ? q : 1 - q;
}

double lp_gammainc(double a, double x)
{
    return gamma_part(a, x, false);
}

double lp_gammaincc(double a, double x)
{
    return gamma_part(a, x, true);
}

/* With P = x^a exp(-x) / gamma(a + 1) S and S the sum of t[k] = x^k / ((a + 1)
 * … (a + k)), whose logarithms have the slopes -(1 / (a + 1) + …). */
static double slope_by_series(double a, double x)
{
    double t = 1, s = 1, h = 0, moved = 0;
    for (int64_t k = 1; t > s * 1e-17; k++) {
        t *= x / (a + (double)k);
        h += 1 / (a + (double)k);
        s += t;
        moved += t * h;
    }
    return x / a * (moved + (lp_polygamma(0, a + 1) - log(x)) * s);
}

/* Far to the right, where the series would cancel: with Q = r x^(a-1) exp(-x) /
 * gamma(a) and r the continued fraction of gamma_fraction, both with slopes. */
static double slope_by_fraction(double a, double x)
{
    double b = x + 1 - a, c = 1e300, d = 1 / b, f = d * x;
    double c1 = 0, d1 = d * d, change = d1 / d; /* by a; of f: of its log */
    for (int64_t i = 1; i < 1000000; i++) {
        double n = -(double)i * ((double)i - a), n1 = (double)i;
        b += 2;
        c1 = -1 + n1 / c - n * c1 / (c * c);
        c = b + n / c;
        d1 = n1 * d + n * d1 - 1;
        d = 1 / (n * d + b);
        d1 *= -d * d;
        double step = d1 / d + c1 / c;
        f *= d * c;
        change += step;
        if (fabs(d * c - 1) < 1e-16 && fabs(step) <= 1e-15 * fabs(change))
            break;
    }
    return f * (log(x) - lp_polygamma(0, a) + change);
}

/* A large shape: x = a + z sqrt(a) + (z^2 - 1) / 3 + (z^3 - 7 z) / (36 sqrt(a))
 * (Cornish and Fisher, 1938), where z stays. */
static double slope_by_normal(double a, double x)
{
    double r = sqrt(a), z = (x - a) / r;
    for (int i = 0; i < 4; i++)
        z = (x - a) / r - (z * z - 1) / (3 * r) -
            (z * z * z - 7 * z) / (36 * a);
    return 1 + z / (2 * r) - (z * z * z - 7 * z) / (72 * a * r);
}

double lp_standard_gamma_slope(double a, double x)
{
    if (!(a > 0 && x >= 0) || isinf(a) || isinf(x))
        return NAN;
    if (x == 0)
        return 0;
    if (a > 1e6)
        return slope_by_normal(a, x);
    return x < a + 4 * sqrt(a) + 2 ? slope_by_series(a, x)
                                   : slope_by_fraction(a, x);
}

/* ---- normal distribution ------------------------------------------------- */
/* From 2 on, Laplace's continued fraction; its first 80 terms give all digits
 * there. */
double lp_erfcx(double x)
{
    if (x < 2)
        return x < -27 ? INFINITY : exp(x * x) * erfc(x);
    double f = x;
    for (int k = 80; k > 0; k--)
        f = x + 0.5 * k / f;
    return 1 / (f * sqrt(pi));
}

double lp_log_ndtr(double x)
{
    const double root_half = 0.70710678118654752440;
    if (x < -1)
        return log(lp_erfcx(-x * root_half) / 2) - x * x / 2;
    return log1p(-erfc(x * root_half) / 2);
}

/* The middle by erfinv, the tails by Newton's method on the logarithm, whose
 * slope does not underflow. */
double lp_ndtri(double p)
{
    if (!(p > 0 && p < 1))
        return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
    if (p > 0.05 && p < 0.95)
        return 1.41421356237309504880 * lp_erfinv(2 * p - 1);
    double l = log(p < 0.5 ? p : 1 - p), x = -sqrt(-2 * l - log(-4 * pi * l));
    if (!(x < -1.6))
        x = -1.6;
    for (int i = 0; i < 8; i++) {
        double slope =
            0.79788456080286535588 / lp_erfcx(-x * 0.70710678118654752440);
        double step = (lp_log_ndtr(x) - l) / slope;
        x -= step;
        if (fabs(step) < 1e-15 * -x)
            break;
    }
    return p < 0.5 ? x : -x;
}

/* ---- orthogonal polynomials ---------------------------------------------- */
/* At the ends of [-1, 1], and inside by sines, which stay exact for a large
 * degree. */
static double chebyshev_inside(LpPolynomial kind, double x, double n)
{
    double sign = x < 0 && fmod(n, 2) != 0 ? -1 : 1;
    bool low = x < 0;
    if (fabs(x) == 1)
        return sign * (kind == LP_POLY_CHEBYSHEV_T            ? 1
                       : kind == LP_POLY_CHEBYSHEV_U          ? n + 1
                       : (kind == LP_POLY_CHEBYSHEV_V) == low ? 2 * n + 1
                                                              : 1);
    double t = acos(x);
    switch (kind) {
    case LP_POLY_CHEBYSHEV_T:
        return cos(n * t);
    case LP_POLY_CHEBYSHEV_U:
        return sin((n + 1) * t) / sin(t);
    case LP_POLY_CHEBYSHEV_V:
        return cos((n + 0.5) * t) / cos(t / 2);
    default:
        return sin((n + 0.5) * t) / sin(t / 2);
    }
}

/* p[1] of the recurrence; p[0] is 1. */
static double first_degree(LpPolynomial kind, double x)
{
    switch (kind) {
    case LP_POLY_CHEBYSHEV_T:
    case LP_POLY_HERMITE_HE:
    case LP_POLY_LEGENDRE:
        return x;
    case LP_POLY_CHEBYSHEV_V:
        return 2 * x - 1;
    case LP_POLY_CHEBYSHEV_W:
        return 2 * x + 1;
    case LP_POLY_LAGUERRE:
        return 1 - x;
    default:
        return 2 * x;
    }
}

/* p[k+1] of p[k] = b and p[k-1] = a (DLMF 18.9). */
static double next_degree(LpPolynomial kind, double x, double k, double a,
                          double b)
{
    switch (kind) {
    case LP_POLY_HERMITE_H:
        return 2 * (x * b - k * a);
    case LP_POLY_HERMITE_HE:
        return x * b - k * a;
    case LP_POLY_LAGUERRE:
        return ((2 * k + 1 - x) * b - k * a) / (k + 1);
    case LP_POLY_LEGENDRE:
        return ((2 * k + 1) * x * b - k * a) / (k + 1);
    default:
        return 2 * x * b - a;
    }
}

#define LOOK 65536 /* degrees between two looks for Ctrl-C */

/* As in PyTorch, Hermite's beyond degree 128 are NaN, and what is no int64
 * makes no degree: 0, as for negative ones. */
double lp_polynomial(LpPolynomial kind, double x, double n)
{
    bool hermite = kind == LP_POLY_HERMITE_H || kind == LP_POLY_HERMITE_HE;
    n = trunc(n);
    if (!(n >= 1 && n < 0x1p63))
        return n == 0;
    if (x != x)
        return NAN;
    if (kind <= LP_POLY_CHEBYSHEV_W && fabs(x) <= 1 && (n > 6 || fabs(x) == 1))
        return chebyshev_inside(kind, x, n);
    if (hermite && n > 128)
        return NAN;
    double a = 1, b = first_degree(kind, x);
    for (double k = 1; k < n && isfinite(b); k++) {
        if (fmod(k, LOOK) == 0 && lp_kernel_stops())
            return NAN;
        double c = next_degree(kind, x, k, a, b);
        a = b;
        b = c;
    }
    return b;
}
