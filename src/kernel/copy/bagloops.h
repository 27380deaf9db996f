/* Bags of rows by index (gather_bags.c), compiled once per instruction set
 * (simd_bags.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_COPY_BAGLOOPS_H
#define LP_KERNEL_COPY_BAGLOOPS_H

#include "src/kernel/loops/loops.h"

/* Bag b has the indices begin[b] to begin[b + 1] - 1 of n; those that are
 * `padding` (-1: none) take no part. Everything is contiguous. */
typedef struct LpBags {
    int64_t n, bags, rows, width; /* the table's sides */
    int64_t padding;
    bool mean;
    const int64_t *index, *begin;
    const void *from, *factor; /* table or a row for each bag; NULL: ones */
    void *to;                  /* a row for each bag, or the table */
    int64_t *place;            /* the rows that maxima are from, -1: none */
} LpBags;

/* sum, max: of the bags [b0, b1); the first of the largest is taken, and a
 * NaN is larger than all. add: the sum's adjoint, columns [c0, c1) of all. */
#define LP_BAG_LOOPS                                                           \
    void (*sum)(const LpBags *s, int64_t b0, int64_t b1);                      \
    void (*max)(const LpBags *s, int64_t b0, int64_t b1);                      \
    void (*add)(const LpBags *s, int64_t c0, int64_t c1);

typedef struct LpBagLoops {
    struct {
        LP_BAG_LOOPS
    } f32, f64;
} LpBagLoops;
typedef const LpBagLoops LpBagLoopsOf[1];
LP_SIMD_EXTERN(LpBagLoopsOf, lp_bags);

#endif
