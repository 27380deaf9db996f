/* Hash map from 64-bit keys to numbers; a key may stand for several. For the
 * address of an object or an id the key is all there is; for anything larger
 * it is a hash of it, and the caller compares what the numbers refer to. */
#ifndef LP_BASE_MAP_H
#define LP_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Owns its slots. Zero-initialised is empty. */
typedef struct LpMap {
    struct LpMapSlot *slot;
    size_t n, cap; /* cap is a power of two */
} LpMap;

void lp_map_fini(LpMap *m);

/* One more number under `key`; false when memory is short (the map stays as
 * it was). */
bool lp_map_add(LpMap *m, uint64_t key, uint32_t value);

/* The numbers under `key`, in no order that counts; NULL after the last.
 * Borrowed until the next lp_map_add. */
const uint32_t *lp_map_first(const LpMap *m, uint64_t key);
const uint32_t *lp_map_next(const LpMap *m, const uint32_t *at);
/* The number under a key that stands for one, to be changed; 0 at first. NULL
 * when memory is short. Borrowed likewise. */
uint32_t *lp_map_at(LpMap *m, uint64_t key);

#endif
