/* Entries lie where they were made, keys are words that are compared whole. */
#include "runtime/cost/memo.h"

#include <string.h>

#include "runtime/cost/plan_cache.h"
#include "src/base/map.h"
#include "src/base/mem.h"

typedef struct Entry {
    const uint64_t *key;
    size_t n;
    const LpCost *cost;
} Entry;

struct LpCostMemo {
    int count;
    uint64_t turn;
    LpMap at; /* by hash of the key */
    Entry *entry;
    size_t n, cap;
    LpArena mem;
};

void lp_cost_memo_release(LpCostMemo *m)
{
    if (!m || --m->count > 0)
        return;
    lp_map_fini(&m->at);
    lp_free(m->entry);
    lp_arena_fini(&m->mem);
    lp_free(m);
}

/* About 3 MB. */
enum { MOST = 2048 };

LpCostMemo *lp_cost_memo_of(LpPlanCache *c)
{
    LpCostMemo **m = plan_cache_memo(c);
    if (*m && (*m)->n >= MOST) {
        lp_cost_memo_release(*m);
        *m = NULL;
    }
    if (!*m)
        *m = lp_calloc(1, sizeof **m);
    if (!*m)
        return NULL;
    (*m)->turn++;
    (*m)->count += (*m)->count ? 1 : 2; /* the cache's */
    return *m;
}

uint64_t lp_cost_memo_turn(const LpCostMemo *m)
{
    return m->turn;
}

uint32_t lp_cost_memo_n(const LpCostMemo *m)
{
    return (uint32_t)m->n;
}

const LpCost *lp_cost_memo_at(const LpCostMemo *m, uint32_t nr)
{
    return m->entry[nr].cost;
}

/* The map mixes it again. */
static uint64_t hash_of(const uint64_t *key, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ key[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

bool lp_cost_memo_find(const LpCostMemo *m, const uint64_t *key, size_t n,
                       uint32_t *nr)
{
    const uint32_t *at = lp_map_first(&m->at, hash_of(key, n));
    while (at && (m->entry[*at].n != n ||
                  memcmp(m->entry[*at].key, key, n * sizeof *key) != 0))
        at = lp_map_next(&m->at, at);
    if (at)
        *nr = *at;
    return at != NULL;
}

bool lp_cost_memo_add(LpCostMemo *m, const uint64_t *key, size_t n,
                      const LpCost *cost, uint32_t *nr)
{
    Entry x = {.key = lp_arena_memdup(&m->mem, key, n * sizeof *key),
               .n = n,
               .cost = lp_arena_memdup(&m->mem, cost, sizeof *cost)};
    if (!x.key || !x.cost || !LP_GROW(m->entry, m->cap, m->n) ||
        !lp_map_add(&m->at, hash_of(key, n), (uint32_t)m->n))
        return false;
    *nr = (uint32_t)m->n;
    m->entry[m->n++] = x;
    return true;
}
