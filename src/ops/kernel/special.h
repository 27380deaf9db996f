/* Special functions in double that the C library lacks or that are not safe
 * under threads there. */
#ifndef LP_OPS_KERNEL_SPECIAL_H
#define LP_OPS_KERNEL_SPECIAL_H

#include <stdbool.h>

/* Inverse of erf; infinite at -1 and 1, NaN outside. */
double lp_erfinv(double x);
/* log |gamma(x)|, without the C library's global sign. */
double lp_lgamma(double x);
/* The n-th derivative of digamma; n >= 0. */
double lp_polygamma(int n, double x);

/* The value beside x towards y among float16 or bfloat16 values. */
float lp_nextafter_half(float x, float y, bool bf16);

#endif
