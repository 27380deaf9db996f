/* The planner's view of a product: one convolution in normal form. Private to
 * runtime/cost. */
#ifndef LP_COST_PLAN_H
#define LP_COST_PLAN_H

#include "runtime/cost/units.h"

/* Output field rows x cols of `batch` images; kernel krows x kcols. */
typedef struct Conv {
    LpCostType type, out_type, partials;
    LpConvMethod method;
    LpConvPass pass;
    bool swapped;
    int expand; /* factor by which folding columns grew the input; 1 = none */
    int64_t groups, batch, rows, cols, in, out, krows, kcols;
    int64_t srow, scol;         /* strides */
    int64_t drow, dcol;         /* dilations of the kernel */
    int64_t zrow, zcol;         /* places apart that inputs lie among zeros */
    int64_t row_uses, col_uses; /* pairs of result and tap that meet an input */
    int64_t in_rows, in_cols;   /* what exists without padding */
    int in_group;               /* input channels that lie together */
    int out_group;              /* output channels of one AMP vertex walk */
    bool combined;              /* groups were joined with zeros between */
    bool product;               /* a matrix product, not a convolution */
    bool joint;                 /* planned with the other passes of its layer */
    int64_t col_grain;          /* columns are dealt out in grains */
    int64_t flops;
} Conv;

/* Fills the plan for one split; false (and a partial plan) as soon as it is
 * known to be worse than `best`, which may be NULL. */
bool plan_eval(const LpCostCtx *x, const Conv *c, const LpSplit *s,
               const LpPlan *best, LpPlan *p);

/* What it counts against a plan, syncs left out. */
int64_t plan_weighed(const LpPlan *p);

/* True when a is to be preferred: fits before not, fewer cycles (fewer bytes
 * while neither fits), fewer bytes. */
bool plan_better(const LpPlan *a, const LpPlan *b);

/* Tries every split of c and keeps the best in *best; *found says whether
 * *best holds a plan. */
void plan_search(const LpCostCtx *x, const Conv *c, LpPlan *best, bool *found);

/* Three plans of a fully connected layer that share a split, and what they
 * weigh together; false when none fits. */
bool plan_joint(const LpCostCtx *x, Conv c, LpPlan best[3], int64_t *cost);

/* Kernel rows that AMP takes at once where its groups of inputs are small. */
int plan_pack(const LpCostCtx *x, const Conv *c);

/* Output channels of the smallest and of the largest group. */
int plan_least_group(const LpCostCtx *x, const Conv *c);
int plan_most_group(const LpCostCtx *x, const Conv *c);

/* Grain in which channels are dealt out. */
int64_t plan_in_grain(const LpCostCtx *x, const Conv *c);
int64_t plan_out_grain(const Conv *c);
int64_t plan_group_grain(const Conv *c);

#endif
