/* XXH3, 64 bits, without a seed (Collet; the specification is
 * doc/xxhash_spec.md of xxHash 0.8): what executable files and their cache are
 * checked and named by. The same on every machine. */
#ifndef LP_BASE_XXH3_H
#define LP_BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

uint64_t lp_xxh3(const void *p, size_t n);

/* The same of bytes that come in pieces. */
#define LP_XXH3_STRIPE 64
#define LP_XXH3_BLOCK 1024
typedef struct LpXxh3 {
    uint64_t acc[8];
    size_t n, fill; /* bytes in all; of them in `bytes`, behind a stripe of
                       those before */
    uint8_t bytes[LP_XXH3_STRIPE + LP_XXH3_BLOCK];
} LpXxh3;
void lp_xxh3_begin(LpXxh3 *x);
void lp_xxh3_add(LpXxh3 *x, const void *p, size_t n);
uint64_t lp_xxh3_end(const LpXxh3 *x);

#endif
