/* XXH3, 64 bits, without a seed (Collet; the specification is
 * doc/xxhash_spec.md of xxHash 0.8): what executable files and their cache are
 * checked and named by. The same on every machine. */
#ifndef LP_BASE_XXH3_H
#define LP_BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

uint64_t lp_xxh3(const void *p, size_t n);

#endif
