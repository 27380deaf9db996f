/* Special functions in double that the C library lacks or that are not safe
 * under threads there. */
#ifndef LP_KERNEL_LOOPS_SPECIAL_H
#define LP_KERNEL_LOOPS_SPECIAL_H

#include <stdbool.h>

/* Inverse of erf; infinite at -1 and 1, NaN outside. */
double lp_erfinv(double x);
/* log |gamma(x)|, without the C library's global sign. */
double lp_lgamma(double x);
/* The n-th derivative of digamma; n >= 0. */
double lp_polygamma(int n, double x);
/* Hurwitz's zeta: the sum of 1 / (q + k)^x over k >= 0. */
double lp_zeta(double x, double q);
/* The regularised incomplete gamma functions P(a, x) and Q = 1 - P. */
double lp_gammainc(double a, double x);
double lp_gammaincc(double a, double x);
/* How x, drawn from the gamma distribution of the shape a, moves with a while
 * P(a, x) stays: -(dP/da) / (dP/dx). */
double lp_standard_gamma_slope(double a, double x);

/* sin(pi x) / (pi x) and sin(x) / x; 1 at 0. */
double lp_sinc(double x);
double lp_spherical_j0(double x);
/* exp(x^2) erfc(x) */
double lp_erfcx(double x);
/* Logarithm and inverse of the normal distribution function. */
double lp_log_ndtr(double x);
double lp_ndtri(double p);

/* Modified Bessel functions of the first kind; …e: times exp(-|x|). */
double lp_i0(double x);
double lp_i0e(double x);
double lp_i1(double x);
double lp_i1e(double x);
/* … of the second kind; …e: times exp(x). Infinite at 0, NaN below. */
double lp_k0(double x);
double lp_k0e(double x);
double lp_k1(double x);
double lp_k1e(double x);
/* Bessel functions; the second kind is -infinite at 0, NaN below. */
double lp_j0(double x);
double lp_j1(double x);
double lp_y0(double x);
double lp_y1(double x);
double lp_airy_ai(double x);

/* Orthogonal polynomials of degree n, cut to an integer; 0 for n < 0. */
typedef enum {
    LP_POLY_CHEBYSHEV_T,
    LP_POLY_CHEBYSHEV_U,
    LP_POLY_CHEBYSHEV_V,
    LP_POLY_CHEBYSHEV_W,
    LP_POLY_HERMITE_H,
    LP_POLY_HERMITE_HE,
    LP_POLY_LAGUERRE,
    LP_POLY_LEGENDRE,
} LpPolynomial;
double lp_polynomial(LpPolynomial kind, double x, double n);

/* x = mantissa 2^exponent, 0.5 <= |mantissa| < 1; the exponent of 0, infinity
 * and NaN is 0. */
double lp_frexp_mantissa(double x);
double lp_frexp_exponent(double x);
double lp_ldexp_whole(double x, double n); /* x 2^n, n cut to an integer */

/* The value beside x towards y among float16 or bfloat16 values. */
float lp_nextafter_half(float x, float y, bool bf16);

#endif
