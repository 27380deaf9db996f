/* FNV-1a over bytes (Fowler, Noll and Vo), 64 bits. The low bits are the weak
 * ones: a table folds the high half in. */
#ifndef LP_BASE_HASH_H
#define LP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LP_HASH_START 0xcbf29ce484222325u

static inline uint64_t lp_hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

static inline uint64_t lp_hash_str(uint64_t h, const char *s)
{
    return lp_hash_bytes(h, s, strlen(s));
}

#endif
