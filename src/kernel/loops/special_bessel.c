/* Bessel functions, Airy's function and the sine over its argument, in double.
 *
 * First kind, modified: the power series, whose terms have one sign, up to
 * |x| = 20; beyond, Hankel's expansion. Second kind, modified: the integral
 * of exp(-x cosh t) cosh(nu t) over t > 0 by the trapezoidal rule, whose
 * error falls exponentially with 1 / step (DLMF 10.32.9). Airy: by the
 * Bessel function of order 1/3 for x > 0, by Taylor steps of y'' = x y from 0
 * for -9 <= x < 0, by the expansion DLMF 9.7.9 below. */
#include <math.h>

#include "src/kernel/loops/special.h"

static const double pi = 3.14159265358979323846;

#define FUNCTION(name, value)                                                  \
    double lp_##name(double x)                                                 \
    {                                                                          \
        return value;                                                          \
    }

double lp_sinc(double x)
{
    double t = pi * x;
    return x == 0 ? 1 : sin(t) / t;
}

double lp_spherical_j0(double x)
{
    if (isinf(x))
        return 0;
    return fabs(x) < 1e-8 ? 1 : sin(x) / x;
}

/* ---- first kind, modified ------------------------------------------------ */
/* I_nu(a) exp(-a) for a >= 0, nu 0 or 1; scaled as asked. */
static double bessel_i(int nu, double a, bool scaled)
{
    if (a != a)
        return a;
    if (isinf(a))
        return scaled ? 0 : a;
    if (a <= 20) {
        double z = a * a / 4, t = nu ? a / 2 : 1, s = t;
        for (int k = 1; t > s * 1e-17; k++) {
            t *= z / ((double)k * (k + nu));
            s += t;
        }
        return scaled ? s * exp(-a) : s;
    }
    double mu = 4.0 * nu, t = 1, s = 1;
    for (int k = 1; k < 40; k++) {
        double odd = 2.0 * k - 1, next = -t * (mu - odd * odd) / (8 * a * k);
        if (fabs(next) >= fabs(t) || fabs(next) < 1e-17)
            break;
        t = next;
        s += t;
    }
    s /= sqrt(2 * pi * a);
    /* exp(a) may overflow where the product does not */
    return scaled ? s : s * exp(a / 2) * exp(a / 2);
}

FUNCTION(i0, bessel_i(0, fabs(x), false))
FUNCTION(i0e, bessel_i(0, fabs(x), true))
FUNCTION(i1, copysign(bessel_i(1, fabs(x), false), x))
FUNCTION(i1e, copysign(bessel_i(1, fabs(x), true), x))

/* ---- second kind, modified ----------------------------------------------- */
/* exp(x) K_nu(x). The step also resolves the narrow peak of a large x. */
static double bessel_k(double nu, double x)
{
    if (!(x > 0))
        return x == 0 ? INFINITY : NAN;
    if (isinf(x))
        return 0;
    if (nu > 0 && x < 1e-290) /* the sum's terms overflow before it ends */
        return 1 / x;
    double h = fmin(0.22, 0.6 / sqrt(x)), s = 0.5;
    for (int i = 1;; i++) {
        double t = i * h, half = sinh(t / 2), e = 2 * x * half * half;
        double term = exp(-e) * cosh(nu * t);
        s += term;
        if (e > 1 && term < 1e-18 * s)
            return s * h;
    }
}

FUNCTION(k0, bessel_k(0, x) * exp(-x))
FUNCTION(k0e, bessel_k(0, x))
FUNCTION(k1, bessel_k(1, x) * exp(-x))
FUNCTION(k1e, bessel_k(1, x))

/* ---- first and second kind ----------------------------------------------- */
FUNCTION(j0, isinf(x) ? NAN : j0(x))
FUNCTION(j1, isinf(x) ? NAN : j1(x))
FUNCTION(y0, x > 0 && !isinf(x) ? y0(x) : x == 0 ? -INFINITY : NAN)
FUNCTION(y1, x > 0 && !isinf(x) ? y1(x) : x == 0 ? -INFINITY : NAN)

/* ---- Airy ---------------------------------------------------------------- */
static const double ai_0 = 0.35502805388781723926;
static const double ai_slope_0 = -0.25881940379280679841;

/* From x + h * steps = 0 down: the Taylor coefficients of y'' = x y around x
 * follow from (n + 2)(n + 1) c[n+2] = x c[n] + c[n-1]. */
static double airy_steps(double to)
{
    int steps = 1 + (int)(-to / 0.5);
    double h = to / steps, y = ai_0, slope = ai_slope_0;
    for (int i = 0; i < steps; i++) {
        double x = h * i, c[32] = {y, slope, x * y / 2};
        for (int n = 1; n < 30; n++)
            c[n + 2] = (x * c[n] + c[n - 1]) / ((n + 2.0) * (n + 1.0));
        y = slope = 0;
        for (int n = 31; n >= 0; n--)
            y = y * h + c[n];
        for (int n = 31; n >= 1; n--)
            slope = slope * h + n * c[n];
    }
    return y;
}

/* cos(z - pi/4) P + sin(z - pi/4) Q over sqrt(pi) |x|^(1/4) */
static double airy_far(double x)
{
    double a = -x, z = 2.0 / 3 * a * sqrt(a), u = 1, p = 1, q = 0;
    for (int k = 1; k < 12; k++) {
        double m = 6.0 * k;
        u *= (m - 5) * (m - 3) * (m - 1) / ((2.0 * k - 1) * 216 * k) / z;
        double signed_u = k / 2 % 2 ? -u : u;
        if (k % 2)
            q += signed_u;
        else
            p += signed_u;
    }
    z -= pi / 4;
    return (cos(z) * p + sin(z) * q) / (sqrt(pi) * sqrt(sqrt(a)));
}

double lp_airy_ai(double x)
{
    if (x != x || isinf(x))
        return NAN;
    if (x > 104)
        return 0;
    if (x < 0)
        return x < -9 ? airy_far(x) : airy_steps(x);
    if (x < 1e-3) /* the next terms are of order x^3 */
        return ai_0 * (1 + x * x * x / 6) + ai_slope_0 * x;
    double z = 2.0 / 3 * x * sqrt(x);
    return sqrt(x / 3) / pi * bessel_k(1.0 / 3, z) * exp(-z);
}
