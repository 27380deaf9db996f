/* Plans by shape, up to a number, when all are forgotten. Running out of memory
 * loses only the memory of the plan. */
#include "runtime/cost/plan_cache.h"

#include "runtime/cost/memo.h"

#include "src/base/hash.h"
#include "src/base/map.h"
#include "src/base/mem.h"

typedef struct Entry {
    PlanKey key;
    LpPlan plan;
} Entry;

struct LpPlanCache {
    LpMap at; /* by hash of the key */
    Entry *entry;
    size_t n, cap;
    int64_t hits;
    LpCostMemo *memo;
};

LpPlanCache *lp_plan_cache_new(void)
{
    return lp_calloc(1, sizeof(LpPlanCache));
}

void lp_plan_cache_free(LpPlanCache *c)
{
    if (!c)
        return;
    lp_map_fini(&c->at);
    lp_free(c->entry);
    lp_cost_memo_release(c->memo);
    lp_free(c);
}

LpCostMemo **plan_cache_memo(LpPlanCache *c)
{
    return &c->memo;
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

static uint64_t hash_of(const PlanKey *k)
{
    return lp_hash_bytes(LP_HASH_START, k, sizeof *k);
}

bool plan_cache_find(LpPlanCache *c, const PlanKey *k, LpPlan *p)
{
    const uint32_t *at = c ? lp_map_first(&c->at, hash_of(k)) : NULL;
    while (at && memcmp(&c->entry[*at].key, k, sizeof *k))
        at = lp_map_next(&c->at, at);
    if (!at)
        return false;
    *p = c->entry[*at].plan;
    c->hits++;
    return true;
}

/* About 2 MB. */
enum { MOST = 4096 };

void plan_cache_add(LpPlanCache *c, const PlanKey *k, const LpPlan *p)
{
    if (c && c->n == MOST) {
        lp_map_fini(&c->at);
        c->at = (LpMap){0};
        c->n = 0;
    }
    if (c && LP_GROW(c->entry, c->cap, c->n) &&
        lp_map_add(&c->at, hash_of(k), (uint32_t)c->n))
        c->entry[c->n++] = (Entry){*k, *p};
}
