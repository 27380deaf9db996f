/* The loops of nnloops.h for one instruction set: compiled once for each, with
 * LP_SIMD its name. exp is 2^n e^r with |r| <= ln 2 / 2 and the Taylor series
 * of e^r, whose remainder is below a tenth of the last place; 2^n is applied
 * in two halves so that subnormal results and overflow come out right. */
#include <math.h>

#include "src/base/half.h"
#include "src/ops/kernel/nnloops.h"

#ifdef __AVX512F__
#define VBYTES 64
#else
#define VBYTES 32
#endif

static inline float exp_f32(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    x = x > 89.0f ? 89.0f : x;
    x = x < -105.0f ? -105.0f : x;
    float t = x * 1.44269504088896341f + magic;
    uint32_t n = lp_float_bits(t) - lp_float_bits(magic);
    float k = t - magic;
    float r = x - k * 0.693359375f; /* ln 2 in two parts */
    r = r - k * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t half = (uint32_t)((int32_t)n >> 1);
    float a = lp_bits_float((half + 127) << 23);
    float b = lp_bits_float((n - half + 127) << 23);
    return p * a * b;
}

static inline double bits_double(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static inline double exp_f64(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    x = x > 710.0 ? 710.0 : x;
    x = x < -746.0 ? -746.0 : x;
    double t = x * 1.4426950408889634074 + magic;
    uint64_t n, m;
    memcpy(&n, &t, sizeof n);
    memcpy(&m, &magic, sizeof m);
    n -= m;
    double k = t - magic;
    double r = x - k * 6.93147180369123816490e-01;
    r = r - k * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t half = n + 2048; /* >= 0: halves without a signed shift */
    half = (half >> 1) - 1024;
    return p * bits_double((half + 1023) << 52) *
           bits_double((n - half + 1023) << 52);
}

#define T float
#define F(name) name##_f32
#define EXP(x) exp_f32(x)
#define LOG(x) logf(x)
typedef LpNnLoopsF32 Loops_f32;
#include "src/ops/kernel/nnloops_t.h"
#undef T
#undef F
#undef EXP
#undef LOG

#define T double
#define F(name) name##_f64
#define EXP(x) exp_f64(x)
#define LOG(x) log(x)
typedef LpNnLoopsF64 Loops_f64;
#include "src/ops/kernel/nnloops_t.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
const LpNnLoops PASTE(lp_nn_, LP_SIMD) = {
    .f32 = &loops_f32,
    .f64 = &loops_f64,
};
