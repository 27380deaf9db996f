/* Special functions in double. */
#include "src/kernel/loops/special.h"

#include <math.h>
#include <stdint.h>

#include "src/base/half.h"
#include "src/tensor/dtype.h"

static const double pi = 3.14159265358979323846;

/* Winitzki's closed form is good to 2e-3; each step of Halley's method triples
 * the digits. Near 1 the residual comes from erfc, which does not cancel. */
double lp_erfinv(double x)
{
    double a = fabs(x);
    if (!(a < 1))
        return a == 1 ? copysign(INFINITY, x) : NAN;
    if (a == 0)
        return x;
    double l = log1p(-a * a), t = 2 / (pi * 0.147) + l / 2;
    double y = sqrt(sqrt(t * t - l / 0.147) - t);
    for (int i = 0; i < 3; i++) {
        double r = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
        double step = r / (1.1283791670955126 * exp(-y * y));
        y -= step / (1 + y * step);
    }
    return copysign(y, x);
}

double lp_lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* Bernoulli numbers B2, B4, … B16. */
static const double bernoulli[] = {
    1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
    5.0 / 66, -691.0 / 2730, 7.0 / 6,  -3617.0 / 510,
};
enum { N_BERNOULLI = sizeof bernoulli / sizeof *bernoulli };

static double digamma(double x)
{
    if (x == 0)
        return copysign(INFINITY, -x);
    double y = 0;
    if (x < 0) {
        double whole, f = modf(x, &whole);
        if (f == 0)
            return NAN;
        y = -pi / tan(pi * f);
        x = 1 - x;
    }
    for (; x < 12; x++)
        y -= 1 / x;
    double z = 1 / (x * x), p = z;
    y += log(x) - 0.5 / x;
    for (int k = 0; k < N_BERNOULLI; k++, p *= z)
        y -= bernoulli[k] / (2 * (k + 1)) * p;
    return y;
}

/* As lp_polygamma, without powers. */
static double trigamma(double x)
{
    double s = 0;
    for (; x < 13; x++)
        s += 1 / (x * x);
    double z = 1 / (x * x), p = z / x;
    s += 1 / x + 0.5 * z;
    for (int k = 0; k < N_BERNOULLI; k++, p *= z)
        s += bernoulli[k] * p;
    return s;
}

/* (-1)^(n+1) n! sum 1/(x+k)^(n+1): terms up to x + k >= 12 + n, the rest by
 * the Euler-Maclaurin formula. Left of -10^6 every double step is long and
 * the poles are dense: NaN. */
double lp_polygamma(int n, double x)
{
    if (n == 0)
        return digamma(x);
    if (x != x || x < -1e6)
        return NAN;
    if (n == 1)
        return trigamma(x);
    double s = 0, fact = tgamma(n + 1.0);
    x += 0; /* of -0 an odd power would be negative */
    for (; x < 12 + n; x++)
        s += fact * pow(x, -(n + 1.0));
    s += fact / n * pow(x, -n) + fact / 2 * pow(x, -(n + 1.0));
    double c = fact * (n + 1) / 2; /* (n+1)! / 2!, then (n+3)! / 4! … */
    for (int k = 0; k < N_BERNOULLI; k++) {
        int m = 2 * (k + 1);
        s += bernoulli[k] * c * pow(x, -(double)(n + m));
        c *= (double)(n + m) * (n + m + 1) / ((m + 1.0) * (m + 2.0));
    }
    return n % 2 ? s : -s;
}

double lp_frexp_mantissa(double x)
{
    int e;
    return isfinite(x) ? frexp(x, &e) : x;
}

double lp_frexp_exponent(double x)
{
    int e = 0;
    if (isfinite(x))
        (void)frexp(x, &e);
    return e;
}

double lp_ldexp_whole(double x, double n)
{
    return ldexp(x, (int)fmax(-5000, fmin(5000, n)));
}

float lp_nextafter_half(float x, float y, bool bf16)
{
    if (x != x || y != y || x == y)
        return x != x ? x : y;
    uint16_t u;
    lp_scalar_store(lp_float((double)x), bf16 ? LP_BF16 : LP_F16, &u);
    if (x == 0)
        u = (uint16_t)(y < 0 ? 0x8001 : 1);
    else
        u = (uint16_t)((x > 0) == (y > x) ? u + 1 : u - 1);
    return bf16 ? lp_bf16_to_float(u) : lp_half_to_float(u);
}
