/* The loops of nnloops.h for one instruction set: compiled once for each, with
 * LP_SIMD its name. exp of float64 is 2^n e^r with |r| <= ln 2 / 2 and the
 * Taylor series of e^r, whose remainder is below a tenth of the last place; 2^n
 * is applied in two halves so that subnormal results and overflow come out
 * right. */
#include <math.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "src/base/half.h"
#include "src/base/random.h"
#include "src/kernel/loops/simd_math.h"
#include "src/kernel/nn/nnloops.h"

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
/* Philox4x32 (base/random.h) on counters that differ in the first word alone:
 * a 64-bit lane a block, its word in the lower half. What products and
 * exclusive ors leave in the upper half is never read. */
typedef uint64_t Lanes __attribute__((vector_size(VBYTES)));
#define PHILOX_M0 PHILOX_M4x32_0
#define PHILOX_M1 PHILOX_M4x32_1
#define PHILOX_W0 PHILOX_W32_0
#define PHILOX_W1 PHILOX_W32_1
#define LANES ((int64_t)(VBYTES / 8))

#ifdef __AVX512F__
#define STEPS ((Lanes){0, 1, 2, 3, 4, 5, 6, 7})
#define FIRST ((Lanes){0, 8, 1, 9, 2, 10, 3, 11})
#define LAST ((Lanes){4, 12, 5, 13, 6, 14, 7, 15})
#define PRODUCT(a, b)                                                          \
    ((Lanes)_mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(b)))
#else
#define STEPS ((Lanes){0, 1, 2, 3})
#define FIRST ((Lanes){0, 4, 1, 5})
#define LAST ((Lanes){2, 6, 3, 7})
#define PRODUCT(a, b)                                                          \
    ((Lanes)_mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(b)))
#endif

static inline void philox_round(Lanes x[4], Lanes k0, Lanes k1)
{
    Lanes p = PRODUCT(x[0], PHILOX_M0), q = PRODUCT(x[2], PHILOX_M1);
    x[0] = (q >> 32) ^ (x[1] ^ k0); /* what waits for a product comes last */
    x[2] = (p >> 32) ^ (x[3] ^ k1);
    x[1] = q;
    x[3] = p;
}

static inline void philox_words(const Lanes x[4], int64_t n, uint32_t *out)
{
    Lanes pair[2] = {(x[0] & 0xffffffffu) | x[1] << 32,
                     (x[2] & 0xffffffffu) | x[3] << 32};
    if (n == LANES) { /* whole stores, which a reader soon after can have */
        Lanes first = __builtin_shuffle(pair[0], pair[1], FIRST);
        Lanes last = __builtin_shuffle(pair[0], pair[1], LAST);
        memcpy(out, &first, sizeof first);
        memcpy(out + 2 * LANES, &last, sizeof last);
        return;
    }
    for (int64_t l = 0; l < n; l++) {
        uint64_t words[2] = {pair[0][l], pair[1][l]};
        for (int w = 0; w < 4; w++)
            out[l * 4 + w] = (uint32_t)(words[w / 2] >> (w % 2 * 32));
    }
}

/* What the first two rounds have alike in all blocks: of their four products
 * two. */
typedef struct PhiloxSame {
    uint32_t first, x0, x2, x3;
} PhiloxSame;

static inline PhiloxSame philox_same(uint64_t key, const uint32_t ctr[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint64_t q = (uint64_t)ctr[2] * PHILOX_M1;
    uint32_t x0 = (uint32_t)(q >> 32) ^ ctr[1] ^ k0;
    uint64_t p = (uint64_t)x0 * PHILOX_M0;
    return (PhiloxSame){.first = ctr[3] ^ k1,
                        .x0 = (uint32_t)q ^ (k0 + PHILOX_W0),
                        .x2 = (uint32_t)(p >> 32) ^ (k1 + PHILOX_W1),
                        .x3 = (uint32_t)p};
}

static inline void philox_begin(Lanes x[4], PhiloxSame s)
{
    Lanes p = PRODUCT(x[0], PHILOX_M0);
    Lanes q = PRODUCT(p >> 32 ^ ((Lanes){0} + s.first), PHILOX_M1);
    x[0] = q >> 32 ^ ((Lanes){0} + s.x0);
    x[1] = q;
    x[2] = p ^ ((Lanes){0} + s.x2);
    x[3] = (Lanes){0} + s.x3;
}

static inline __attribute__((always_inline)) void
philox_rounds(int rounds, uint64_t key, const uint32_t ctr[4], int64_t blocks,
              uint32_t *out)
{
    PhiloxSame same = philox_same(key, ctr);
    for (int64_t b = 0; b < blocks; b += 2 * LANES) {
        Lanes x[2][4]; /* two runs, so that one computes while one waits */
        for (int h = 0; h < 2; h++) {
            x[h][0] = STEPS + (uint64_t)(ctr[0] + b + h * LANES);
            philox_begin(x[h], same);
        }
        Lanes k0 = (Lanes){0} + ((uint32_t)key + 2 * PHILOX_W0);
        Lanes k1 = (Lanes){0} + ((uint32_t)(key >> 32) + 2 * PHILOX_W1);
#pragma GCC unroll 8
        for (int r = 2; r < rounds; r++) {
            philox_round(x[0], k0, k1);
            philox_round(x[1], k0, k1);
            k0 += PHILOX_W0;
            k1 += PHILOX_W1;
            /* added up there, not each made of a number */
            __asm__("" : "+x"(k0), "+x"(k1));
        }
        for (int h = 0; h < 2; h++) {
            int64_t n = blocks - b - h * LANES;
            philox_words(x[h], n < LANES ? n : LANES,
                         out + (b + h * LANES) * 4);
        }
    }
}
#else
static inline void philox_rounds(int rounds, uint64_t key,
                                 const uint32_t ctr[4], int64_t blocks,
                                 uint32_t *out)
{
    LpRandom r = {key, ctr[1], ctr[2], ctr[3]};
    for (int64_t b = 0; b < blocks; b++)
        lp_random_block_of(rounds, &r, ctr[0] + (uint32_t)b, out + 4 * b);
}
#endif

static void philox(uint64_t key, const uint32_t ctr[4], int64_t blocks,
                   uint32_t *out)
{
    philox_rounds(LP_RANDOM_ROUNDS, key, ctr, blocks, out);
}

static void philox_few(uint64_t key, const uint32_t ctr[4], int64_t blocks,
                       uint32_t *out)
{
    philox_rounds(LP_RANDOM_FEW_ROUNDS, key, ctr, blocks, out);
}

LpNnLoopsOf LP_SIMD_NAME(lp_nn) = {{.f32 = &loops_f32,
                                    .f64 = &loops_f64,
                                    .philox = philox,
                                    .philox_few = philox_few}};
