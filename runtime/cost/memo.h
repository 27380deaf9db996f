/* Costs that have been asked for once, by whatever they follow from. Numbers of
 * entries count from 0. Not for use by two threads at once. */
#ifndef LP_COST_MEMO_H
#define LP_COST_MEMO_H

#include "runtime/cost/cost.h"

#include <stddef.h>

typedef struct LpCostMemo LpCostMemo;

/* The cache's, retained: its entries are there as long as somebody has it. A
 * cache begins a new one when there are too many. NULL when memory is short. */
LpCostMemo *lp_cost_memo_of(LpPlanCache *c);
void lp_cost_memo_release(LpCostMemo *m); /* takes NULL */

/* How often it has been retained: of what is to be asked again each time. */
uint64_t lp_cost_memo_turn(const LpCostMemo *m);
uint32_t lp_cost_memo_n(const LpCostMemo *m);
const LpCost *lp_cost_memo_at(const LpCostMemo *m, uint32_t nr);
bool lp_cost_memo_find(const LpCostMemo *m, const uint64_t *key, size_t n,
                       uint32_t *nr);
/* A key that it has not. false when memory is short. */
bool lp_cost_memo_add(LpCostMemo *m, const uint64_t *key, size_t n,
                      const LpCost *cost, uint32_t *nr);

#endif
