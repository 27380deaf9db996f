/* What the kernels of random operators share: the streams of an operator and
 * the words of its elements. */
#ifndef LP_KERNEL_RANDOM_RANDOM_WORDS_H
#define LP_KERNEL_RANDOM_RANDOM_WORDS_H

#include <string.h>

#include "src/base/random.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/random/random.h"

#define LP_DRAW_BLOCK 1024 /* elements at once; a multiple of 4 */
/* A double takes its low bits from the stream of the site ^ this. */
#define LP_DRAW_SECOND 0x5bd1e9955bd1e995u

static inline LpRandom lp_draw_stream(const LpRunCtx *rc, uint64_t site)
{
    return lp_random(rc->seed, site, rc->iteration, rc->replica,
                     rc->micro_batch);
}

/* Words of elements at … at + n; `at` is a multiple of 4, `to` has room for
 * the next multiple of n. */
static inline void lp_draw_words(const LpRandom *r, int64_t at, int64_t n,
                                 uint32_t *to)
{
    const uint32_t ctr[4] = {(uint32_t)(at / 4), r->iteration, r->replica,
                             r->micro_batch};
    lp_nn()->philox(r->key, ctr, (n + 3) / 4, to);
}

/* (0, 1] */
static inline double lp_draw_open(uint32_t hi, uint32_t lo)
{
    return 1.0 - lp_random_unit2(hi, lo);
}

#endif
