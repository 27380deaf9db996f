/* Plans by shape: an open-addressed table that doubles. Running out of memory
 * loses only the memory of the plan. */
#include "runtime/cost/plan_cache.h"

#include "src/base/mem.h"

#include <string.h>

typedef struct Entry {
    PlanKey key;
    LpPlan plan;
    bool used;
} Entry;

struct LpPlanCache {
    Entry *slot;
    size_t cap, n; /* cap is 0 or a power of two */
    int64_t hits;
};

LpPlanCache *lp_plan_cache_new(void)
{
    return lp_calloc(1, sizeof(LpPlanCache));
}

void lp_plan_cache_free(LpPlanCache *c)
{
    if (c)
        lp_free(c->slot);
    lp_free(c);
}

int64_t lp_plan_cache_hits(const LpPlanCache *c)
{
    return c->hits;
}

PlanKey plan_key(const LpCostCtx *x, LpCostType t, LpConvPass pass)
{
    PlanKey k;
    memset(&k, 0, sizeof k);
    k.chip = x->chip;
    k.proportion = x->proportion;
    k.tiles = ctx_tiles(x);
    k.type = t;
    k.partials = x->partials;
    k.pass = pass;
    return k;
}

static size_t find_slot(const Entry *slot, size_t cap, const PlanKey *k)
{
    const unsigned char *b = (const unsigned char *)k;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *k; i++)
        h = (h ^ b[i]) * 1099511628211u;
    size_t i = (size_t)(h ^ h >> 32) & (cap - 1);
    while (slot[i].used && memcmp(&slot[i].key, k, sizeof *k))
        i = (i + 1) & (cap - 1);
    return i;
}

bool plan_cache_find(LpPlanCache *c, const PlanKey *k, LpPlan *p)
{
    if (!c || !c->n)
        return false;
    const Entry *e = &c->slot[find_slot(c->slot, c->cap, k)];
    if (!e->used)
        return false;
    *p = e->plan;
    c->hits++;
    return true;
}

static bool grow(LpPlanCache *c)
{
    size_t cap = c->cap ? 2 * c->cap : 64;
    Entry *slot = lp_calloc(cap, sizeof *slot);
    if (!slot)
        return false;
    for (size_t i = 0; i < c->cap; i++)
        if (c->slot[i].used)
            slot[find_slot(slot, cap, &c->slot[i].key)] = c->slot[i];
    lp_free(c->slot);
    c->slot = slot;
    c->cap = cap;
    return true;
}

void plan_cache_add(LpPlanCache *c, const PlanKey *k, const LpPlan *p)
{
    if (!c || (4 * c->n >= 3 * c->cap && !grow(c)))
        return;
    Entry *e = &c->slot[find_slot(c->slot, c->cap, k)];
    c->n += !e->used;
    *e = (Entry){.key = *k, .plan = *p, .used = true};
}
