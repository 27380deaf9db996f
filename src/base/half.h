/* float16 (IEEE 754 binary16) and bfloat16, stored as uint16_t. Conversions
 * to them round once, to nearest with ties to even, through subnormals to
 * zero and beyond the largest finite value to infinity. A NaN stays one: it
 * becomes quiet, keeps its sign and the leading bits of its payload, as the
 * F16C instructions do. Conversions from them are exact.
 *
 * The arithmetic is on integers, so the rounding mode and the flags of the
 * floating-point unit play no part. */
#ifndef LP_BASE_HALF_H
#define LP_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#define LP_BITS(name, from, to)                                                \
    static inline to name(from x)                                              \
    {                                                                          \
        to r;                                                                  \
        memcpy(&r, &x, sizeof r);                                              \
        return r;                                                              \
    }
LP_BITS(lp_float_bits, float, uint32_t)
LP_BITS(lp_bits_float, uint32_t, float)
LP_BITS(lp_double_bits, double, uint64_t)
LP_BITS(lp_bits_double, uint64_t, double)
#undef LP_BITS

/* Shifts right by n >= 1 and rounds what falls out to nearest even; n above
 * 63 gives 0. */
static inline uint64_t lp_shift_round(uint64_t m, int n)
{
    if (n > 63)
        return 0;
    uint64_t low = m & (((uint64_t)1 << n) - 1);
    uint64_t half = (uint64_t)1 << (n - 1);
    m >>= n;
    return m + (low > half || (low == half && (m & 1)));
}

static inline float lp_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = (h >> 10) & 31, man = h & 0x3ff;
    if (exp == 31) /* infinity, or a NaN made quiet */
        return lp_bits_float(sign | 0x7f800000 | man << 13 |
                             (man ? 0x400000 : 0));
    if (exp == 0) { /* zero or subnormal: man * 2^-24, exact in float */
        float f = (float)man * 0x1p-24f;
        return lp_bits_float(sign | lp_float_bits(f));
    }
    return lp_bits_float(sign | (exp + 112) << 23 | man << 13);
}

static inline uint16_t lp_float_to_half(float f)
{
    uint32_t u = lp_float_bits(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x477ff000) /* 65520 and above rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (u >= 0x38800000) { /* normal: a carry moves into the exponent */
        u -= (uint32_t)112 << 23;
        return (uint16_t)(sign | ((u + 0xfff + (u >> 13 & 1)) >> 13));
    }
    uint32_t exp = u >> 23; /* subnormal or zero: units of 2^-24 */
    if (exp < 101)          /* below 2^-26 */
        return sign;
    uint32_t man = (u & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | lp_shift_round(man, (int)(126 - exp)));
}

/* Rounds once: going through float would round twice. */
static inline uint16_t lp_double_to_half(double d)
{
    uint64_t u = lp_double_bits(d);
    uint16_t sign = (uint16_t)(u >> 48 & 0x8000);
    u &= 0x7fffffffffffffff;
    if (u > 0x7ff0000000000000)
        return (uint16_t)(sign | 0x7e00 | (u >> 42 & 0x3ff));
    if (u >= 0x40effe0000000000) /* 65520 */
        return (uint16_t)(sign | 0x7c00);
    if (u >= 0x3f10000000000000) { /* 2^-14 */
        u -= (uint64_t)1008 << 52;
        return (uint16_t)(sign | lp_shift_round(u, 42));
    }
    int exp = (int)(u >> 52);
    if (exp < 997) /* below 2^-26 */
        return sign;
    uint64_t man = (u & 0xfffffffffffff) | 0x10000000000000;
    return (uint16_t)(sign | lp_shift_round(man, 1051 - exp));
}

static inline float lp_bf16_to_float(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    if ((u & 0x7fffffff) > 0x7f800000)
        u |= 0x400000;
    return lp_bits_float(u);
}

static inline uint16_t lp_float_to_bf16(float f)
{
    uint32_t u = lp_float_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Rounds once: to float with rounding to odd, which a second rounding to 8
 * bits cannot tell from the exact value (Boldo and Melquiond, "Emulation of
 * FMA and correctly rounded sums", 2008). */
static inline uint16_t lp_double_to_bf16(double d)
{
    float f = (float)d;
    double back = (double)f;
    uint32_t u = lp_float_bits(f);
    if (back != d && back == back && !(u & 1)) {
        /* inexact and even: step toward d, which makes it odd */
        int away = (d > back) == (d > 0);
        u = away ? u + 1 : u - 1;
        f = lp_bits_float(u);
    }
    return lp_float_to_bf16(f);
}

#endif
