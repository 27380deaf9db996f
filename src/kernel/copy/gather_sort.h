/* Stable sorting of positions by value, and the kernels built on it.
 *
 * Values are compared as PyTorch's sort does: -0 equals 0, NaN is greater
 * than everything and equal to itself. They are turned into integer keys, so
 * one sort serves every type: by digits. */
#ifndef LP_KERNEL_COPY_GATHER_SORT_H
#define LP_KERNEL_COPY_GATHER_SORT_H

#include "src/ir/op.h"

typedef struct LpSortItem {
    int64_t key, at;
} LpSortItem;

/* Keys that order like the values; n values, `step` elements apart. */
void lp_sort_keys(LpDtype t, const void *p, int64_t step, int64_t n,
                  LpSortItem *to);
/* Ascending (descending) keys, equal ones by `at`; tmp has n items. */
void lp_sort_items(LpSortItem *x, LpSortItem *tmp, int64_t n, bool descending);
/* The least (greatest) k of n items to the front, in that order. */
void lp_sort_best(LpSortItem *x, LpSortItem *tmp, int64_t n, int64_t k,
                  bool largest);

LpPrepare lp_sort_prepare, lp_topk_prepare, lp_searchsorted_prepare,
    lp_histc_prepare;

#endif
