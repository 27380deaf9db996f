/* The loops of nnloops.h for one instruction set: compiled once for each, with
 * LP_SIMD its name. exp of float64 is 2^n e^r with |r| <= ln 2 / 2 and the
 * Taylor series of e^r, whose remainder is below a tenth of the last place; 2^n
 * is applied in two halves so that subnormal results and overflow come out
 * right. */
#include <math.h>

#include "src/base/half.h"
#include "src/base/random.h"
#include "src/kernel/loops/simd_math.h"
#include "src/kernel/nn/nnloops.h"
#ifdef __AVX2__
#include "src/kernel/random/philox_lanes.h"
#endif

#ifdef __AVX512F__
#define VBYTES 64
#else
#define VBYTES 32
#endif

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
    double r = FMAD(k, -6.93147180369123816490e-01, x);
    r = FMAD(k, -1.90821492927058770002e-10, r);
    double p = 1.0 / 6227020800.0;
    p = FMAD(p, r, 1.0 / 479001600.0);
    p = FMAD(p, r, 1.0 / 39916800.0);
    p = FMAD(p, r, 1.0 / 3628800.0);
    p = FMAD(p, r, 1.0 / 362880.0);
    p = FMAD(p, r, 1.0 / 40320.0);
    p = FMAD(p, r, 1.0 / 5040.0);
    p = FMAD(p, r, 1.0 / 720.0);
    p = FMAD(p, r, 1.0 / 120.0);
    p = FMAD(p, r, 1.0 / 24.0);
    p = FMAD(p, r, 1.0 / 6.0);
    p = FMAD(p, r, 0.5);
    p = FMAD(p, r, 1.0);
    p = FMAD(p, r, 1.0);
    uint64_t half = n + 2048; /* >= 0: halves without a signed shift */
    half = (half >> 1) - 1024;
    return p * bits_double((half + 1023) << 52) *
           bits_double((n - half + 1023) << 52);
}

#define T float
#define F(name) name##_f32
#define EXP(x) exp_f32(x)
#define EXP_BELOW(x) exp_below_f32(x)
#define LOG(x) logf(x)
typedef LpNnLoopsF32 Loops_f32;
#include "src/kernel/nn/nnloops_t.h"
#undef T
#undef F
#undef EXP
#undef EXP_BELOW
#undef LOG

#define T double
#define F(name) name##_f64
#define EXP(x) exp_f64(x)
#define EXP_BELOW(x) exp_f64(x)
#define LOG(x) log(x)
typedef LpNnLoopsF64 Loops_f64;
#include "src/kernel/nn/nnloops_t.h"

#ifdef __AVX2__
#ifdef __AVX512F__
#define FIRST ((Lanes){0, 8, 1, 9, 2, 10, 3, 11})
#define LAST ((Lanes){4, 12, 5, 13, 6, 14, 7, 15})
#else
#define FIRST ((Lanes){0, 4, 1, 5})
#define LAST ((Lanes){2, 6, 3, 7})
#endif

static inline void philox_words(const Lanes x[4], int64_t n, uint32_t *out)
{
    Lanes pair[2] = {(x[0] & 0xffffffffu) | x[1] << 32,
                     (x[2] & 0xffffffffu) | x[3] << 32};
    if (n ==
        PHILOX_LANES) { /* whole stores, which a reader soon after can have */
        Lanes first = __builtin_shuffle(pair[0], pair[1], FIRST);
        Lanes last = __builtin_shuffle(pair[0], pair[1], LAST);
        memcpy(out, &first, sizeof first);
        memcpy(out + 2 * PHILOX_LANES, &last, sizeof last);
        return;
    }
    for (int64_t l = 0; l < n; l++) {
        uint64_t words[2] = {pair[0][l], pair[1][l]};
        for (int w = 0; w < 4; w++)
            out[l * 4 + w] = (uint32_t)(words[w / 2] >> (w % 2 * 32));
    }
}

static void philox(uint64_t key, const uint32_t ctr[4], int64_t blocks,
                   uint32_t *out)
{
    PhiloxSame same = philox_same(key, ctr);
    for (int64_t b = 0; b < blocks; b += 2 * PHILOX_LANES) {
        Lanes x[2][4];
        philox_run(LP_RANDOM_ROUNDS, 2, key, same, ctr[0] + (uint64_t)b, x);
        for (int h = 0; h < 2; h++) {
            int64_t n = blocks - b - h * PHILOX_LANES;
            philox_words(x[h], n < PHILOX_LANES ? n : PHILOX_LANES,
                         out + (b + h * PHILOX_LANES) * 4);
        }
    }
}
#else
static void philox(uint64_t key, const uint32_t ctr[4], int64_t blocks,
                   uint32_t *out)
{
    LpRandom r = {key, ctr[1], ctr[2], ctr[3]};
    for (int64_t b = 0; b < blocks; b++)
        lp_random_block(&r, ctr[0] + (uint32_t)b, out + 4 * b);
}
#endif

LpNnLoopsOf LP_SIMD_NAME(lp_nn) = {
    {.f32 = &loops_f32, .f64 = &loops_f64, .philox = philox}};
