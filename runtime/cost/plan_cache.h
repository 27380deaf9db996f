/* Plans by everything they depend on. Private to runtime/cost. */
#ifndef LP_COST_PLAN_CACHE_H
#define LP_COST_PLAN_CACHE_H

#include "runtime/cost/units.h"

/* Compared and hashed as bytes: plan_key clears it whole. */
typedef struct PlanKey {
    const LpChip *chip;
    int64_t dims[sizeof(LpConvShape) / sizeof(int64_t)];
    double proportion;
    int64_t tiles, type, partials, pass, is_conv;
} PlanKey;

PlanKey plan_key(const LpCostCtx *x, LpCostType t, LpConvPass pass);
bool plan_cache_find(LpPlanCache *c, const PlanKey *k, LpPlan *p);
void plan_cache_add(LpPlanCache *c, const PlanKey *k, const LpPlan *p);
/* Where its costs are (memo.h). */
struct LpCostMemo **plan_cache_memo(LpPlanCache *c);

#endif
