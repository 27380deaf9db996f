/* Random numbers by counter: Philox4x32 with 10 rounds (Salmon, Moraes, Dror
 * and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), from
 * Random123. Any element can be drawn on its own, in any order, on any
 * thread: the numbers depend on the seed, on the site (the place in the
 * program that draws) and on the counter only.
 *
 *   key     = mix(seed, site)
 *   counter = (element / 4, loop iteration, replica, micro-batch)
 *
 * An element takes the 32-bit word (element mod 4) of its block. */
#ifndef LP_BASE_RANDOM_H
#define LP_BASE_RANDOM_H

#include <math.h>
#include <stdint.h>

#include <Random123/philox.h>

/* splitmix64's finaliser (Steele, Lea and Flood, OOPSLA 2014): a bijection
 * in which every input bit reaches every output bit. */
static inline uint64_t lp_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Of two; not symmetric. */
static inline uint64_t lp_mix64_pair(uint64_t a, uint64_t b)
{
    return lp_mix64(lp_mix64(a) ^ b);
}

/* What all draws of one operator in one run share. The element counter has
 * 32 bits: 2^34 elements. */
typedef struct LpRandom {
    uint64_t key;
    uint32_t iteration, replica, micro_batch;
} LpRandom;

static inline LpRandom lp_random(uint64_t seed, uint64_t site,
                                 uint32_t iteration, uint32_t replica,
                                 uint32_t micro_batch)
{
    return (LpRandom){lp_mix64_pair(seed, site), iteration, replica,
                      micro_batch};
}

/* The fewest of Philox4x32 that pass BigCrush are 7 (the same paper, table 2):
 * enough for what rounding draws. */
enum { LP_RANDOM_ROUNDS = philox4x32_rounds, LP_RANDOM_FEW_ROUNDS = 7 };

/* Block b: the words of elements 4b … 4b+3. */
static inline void lp_random_block_of(int rounds, const LpRandom *r, uint32_t b,
                                      uint32_t words[4])
{
    philox4x32_key_t k = {{(uint32_t)r->key, (uint32_t)(r->key >> 32)}};
    philox4x32_ctr_t c = {{b, r->iteration, r->replica, r->micro_batch}};
    c = philox4x32_R((unsigned)rounds, c, k);
    for (int i = 0; i < 4; i++)
        words[i] = c.v[i];
}

static inline void lp_random_block(const LpRandom *r, uint32_t b,
                                   uint32_t words[4])
{
    lp_random_block_of(LP_RANDOM_ROUNDS, r, b, words);
}

static inline uint32_t lp_random_word(const LpRandom *r, uint64_t element)
{
    uint32_t w[4];
    lp_random_block(r, (uint32_t)(element / 4), w);
    return w[element % 4];
}

/* [0, 1), a multiple of 2^-24. */
static inline float lp_random_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* [0, 1), a multiple of 2^-53, of two words. */
static inline double lp_random_unit2(uint32_t high, uint32_t low)
{
    uint64_t w = (uint64_t)high << 32 | low;
    return (double)(w >> 11) * 0x1p-53;
}

/* Box and Muller (1958): two independent standard normals of two words. The
 * radius takes (0, 1], so the logarithm is finite. */
static inline void lp_random_normal2(uint32_t a, uint32_t b, float out[2])
{
    float u = (float)((a >> 8) + 1) * 0x1p-24f;
    float radius = sqrtf(-2.0f * logf(u));
    float angle = 6.28318530717958647692f * lp_random_unit(b);
    out[0] = radius * cosf(angle);
    out[1] = radius * sinf(angle);
}

/* Element e of a normal stream: elements 2p and 2p+1 are one pair. */
static inline float lp_random_normal(const LpRandom *r, uint64_t element)
{
    uint32_t w[4];
    float pair[2];
    lp_random_block(r, (uint32_t)(element / 4), w);
    uint32_t i = (uint32_t)(element % 4) & ~1u;
    lp_random_normal2(w[i], w[i + 1], pair);
    return pair[element % 2];
}

#endif
