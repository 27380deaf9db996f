/* Philox4x32 (base/random.h) on counters that differ in the first word alone:
 * a 64-bit lane a block, its word in the lower half. What products and
 * exclusive ors leave in the upper half is never read. For files compiled with
 * AVX2 or AVX-512. */
#ifndef LP_KERNEL_RANDOM_PHILOX_LANES_H
#define LP_KERNEL_RANDOM_PHILOX_LANES_H

#include <immintrin.h>

#include "src/base/random.h"

#ifdef __AVX512F__
enum { PHILOX_BYTES = 64 };
#else
enum { PHILOX_BYTES = 32 };
#endif

typedef uint64_t Lanes __attribute__((vector_size(PHILOX_BYTES)));
#define PHILOX_M0 PHILOX_M4x32_0
#define PHILOX_M1 PHILOX_M4x32_1
#define PHILOX_W0 PHILOX_W32_0
#define PHILOX_W1 PHILOX_W32_1
#define PHILOX_LANES (PHILOX_BYTES / 8)

#ifdef __AVX512F__
#define PHILOX_STEPS ((Lanes){0, 1, 2, 3, 4, 5, 6, 7})
#define PHILOX_PRODUCT(a, b)                                                   \
    ((Lanes)_mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(b)))
#else
#define PHILOX_STEPS ((Lanes){0, 1, 2, 3})
#define PHILOX_PRODUCT(a, b)                                                   \
    ((Lanes)_mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(b)))
#endif

static inline void philox_round(Lanes x[4], Lanes k0, Lanes k1)
{
    Lanes p = PHILOX_PRODUCT(x[0], PHILOX_M0),
          q = PHILOX_PRODUCT(x[2], PHILOX_M1);
    x[0] = (q >> 32) ^ (x[1] ^ k0); /* what waits for a product comes last */
    x[2] = (p >> 32) ^ (x[3] ^ k1);
    x[1] = q;
    x[3] = p;
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
    Lanes p = PHILOX_PRODUCT(x[0], PHILOX_M0);
    Lanes q = PHILOX_PRODUCT(p >> 32 ^ ((Lanes){0} + s.first), PHILOX_M1);
    x[0] = q >> 32 ^ ((Lanes){0} + s.x0);
    x[1] = q;
    x[2] = p ^ ((Lanes){0} + s.x2);
    x[3] = (Lanes){0} + s.x3;
}

/* All rounds of `runs` times PHILOX_LANES blocks from `block` on: several, so
 * that one computes while one waits. */
static inline __attribute__((always_inline)) void
philox_run(int rounds, int runs, uint64_t key, PhiloxSame same, uint64_t block,
           Lanes x[][4])
{
#pragma GCC unroll 4
    for (int h = 0; h < runs; h++) {
        x[h][0] = PHILOX_STEPS + (uint64_t)(block + (unsigned)h * PHILOX_LANES);
        philox_begin(x[h], same);
    }
    Lanes k0 = (Lanes){0} + ((uint32_t)key + 2 * PHILOX_W0);
    Lanes k1 = (Lanes){0} + ((uint32_t)(key >> 32) + 2 * PHILOX_W1);
#pragma GCC unroll 8
    for (int r = 2; r < rounds; r++) {
#pragma GCC unroll 4
        for (int h = 0; h < runs; h++)
            philox_round(x[h], k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
        /* added up there, not each made of a number */
        __asm__("" : "+x"(k0), "+x"(k1));
    }
}

#endif
